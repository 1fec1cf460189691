"""Stations for benches: one that runs every stage again and again, and one that only waits."""

from __future__ import annotations

from typing import Any

from trisplit.bench.waiting import WaitingSession, WaitingTracks, Waits
from trisplit.mesh import loading
from trisplit.mesh.fetching import Supplier
from trisplit.mesh.group import LoadedGroup
from trisplit.mesh.holding import Held
from trisplit.mesh.loading import Tell
from trisplit.mesh.station import Build
from trisplit.models.config import Stage
from trisplit.models.description import unpack
from trisplit.wire.messages import Load


class Again:
    """An engine that computes everything `times` over; what comes out is the same."""

    def __init__(self, engine: Any, times: int) -> None:
        self._engine, self._times = engine, times

    def io_binding(self) -> Any:
        """As the engine's own."""
        return self._engine.io_binding()

    def run_with_iobinding(self, binding: Any) -> None:
        """As the engine's own, several times: keys and values are overwritten by themselves."""
        for _ in range(self._times):
            self._engine.run_with_iobinding(binding)


def repeating(times: int) -> Build:
    """Builds stations that take `times` as long."""

    async def build(said: Load, supplier: Supplier, tell: Tell) -> Held:
        held = await loading.build(said, supplier, tell)
        for group in held.groups.values():
            group.session.ort = Again(group.session.ort, times)
        return held

    return build


def waiting(waits: Waits, times: int) -> Build:
    """Builds stations that wait, `times` as long as told; they need no weights."""

    async def build(said: Load, supplier: Supplier, tell: Tell) -> Held:
        del supplier, tell
        config, slow = unpack(said.config), waits.times(times)
        groups = {}
        for group in said.groups:
            stages = [Stage(stage.layer, stage.kind) for stage in group.stages]
            session = WaitingSession(config, stages, said.context)
            groups[group.number] = LoadedGroup(group.number, WaitingTracks(session, slow))
        return Held(groups, rows_equal=True, kv_bytes_per_token=0, sessions=said.sessions)

    return build
