"""What each process of a mesh holds and does, and whether all of them are of one kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

from trisplit.errors import Problem
from trisplit.machine import cpu_kind, rss_bytes
from trisplit.mesh.peers import Peer, Peers
from trisplit.mesh.plan import Share
from trisplit.wire.messages import Ask, Facts


@cache
def runtime() -> str:
    """What runs stages here, and its version; told without loading it, which those who only ask never do."""
    return f"onnxruntime {version('onnxruntime')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StationFacts:
    """What one process holds and takes; None where it did not say, or has no such thing.

    `kv_bytes` is the room for keys and values of all sequences, `kv_used_bytes` what those now in it fill.
    `cpu` and `runtime` are the kind of machine: equal bits are promised between machines of one kind.
    """

    name: str
    stages: str
    weight_bytes: int
    kv_bytes: int
    rss_bytes: int | None
    cpu: str
    runtime: str
    kv_used_bytes: int | None = None
    streams: int | None = None
    frames: int | None = None
    busy_ms: float | None = None
    refused: int | None = None
    round_trip_ms: float | None = None
    pid: int | None = None


def of_this_process(name: str, stages: str, weight_bytes: int, kv_bytes: int = 0) -> StationFacts:
    """The facts of the process that asks."""
    return StationFacts(
        name=name,
        stages=stages,
        weight_bytes=weight_bytes,
        kv_bytes=kv_bytes,
        rss_bytes=rss_bytes(),
        cpu=cpu_kind(),
        runtime=runtime(),
    )


async def of_stations(
    peers: Peers, shares: Iterable[Share], deadline_s: float, *, silent: bool = False
) -> list[StationFacts]:
    """What each station holds and does now; if `silent`, one may not answer or be gone, and has gaps.

    Else PeerProblem when one does not answer. A station answers one such question at a time: await this
    before the next.
    """
    return await asyncio.gather(*(_of_station(peers, share, deadline_s, silent) for share in shares))


async def _of_station(peers: Peers, share: Share, deadline_s: float, silent: bool) -> StationFacts:
    peer: Peer | None = None
    now: Facts | None = None
    try:
        peer = peers[share.station]
        now = await peers.ask(peer, Ask(), Facts, deadline_s)
    except Problem:
        if not silent:
            raise
    welcome = peer.link.welcome if peer else None
    return StationFacts(
        name=peer.full_name if peer else share.station,
        stages=share.label,
        weight_bytes=peer.loaded.weight_bytes if peer and peer.loaded else share.weight_bytes,
        kv_bytes=share.kv_bytes,
        rss_bytes=now.rss_bytes if now else None,
        cpu=welcome.cpu if welcome else "",
        runtime=welcome.runtime if welcome else "",
        kv_used_bytes=now.kv_bytes if now else None,
        streams=now.streams if now else None,
        frames=now.frames if now else None,
        busy_ms=now.busy_ms if now else None,
        refused=now.refused if now else None,
        round_trip_ms=peer.round_trip_ms if peer else None,
        pid=welcome.pid if welcome else None,
    )


def mixed(facts: Iterable[StationFacts], *, here: bool = False) -> str:
    """Why processes may differ in their bits: which are of which kind; empty if all are of one.

    Those count that hold weights, and with `here` this process.
    """
    kinds: dict[tuple[str, str], list[str]] = {}
    for one in facts:
        if one.weight_bytes:
            kinds.setdefault((one.cpu, one.runtime), []).append(one.name)
    if here:
        kinds.setdefault((cpu_kind(), runtime()), []).append("this process")
    if len(kinds) < 2:
        return ""
    told = (f"{', '.join(names)}: {cpu}, {runtime}" for (cpu, runtime), names in kinds.items())
    return f"processes are of {len(kinds)} kinds ({'; '.join(told)})"
