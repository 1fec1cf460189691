"""How fast one process decodes, beside a plain read of as many bytes, numpy's sgemv, and other engines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trisplit.bench import posts
from trisplit.bench.peers import PEERS, Order
from trisplit.bench.posts import Post, Settings, context_of, decoding
from trisplit.bench.rounds import Turn, alternate, spread, started
from trisplit.bench.weights import bytes_per_token, file_bytes_per_token
from trisplit.errors import RequestProblem, UnknownName
from trisplit.models.convert import Dtype
from trisplit.models.model import Model, context_for, open_model, refuse_if_short

LLAMA: Final = "llama.cpp"
SGEMV, READ = "numpy sgemv", "numpy read"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRow:
    """One engine; `ms_per_token` is the median over all rounds.

    `sgemv_fraction`, `read_fraction`: its bytes per second over those of numpy's sgemv on an f32 matrix of
    `bytes_per_token` bytes, and of a plain read of as many, with as many threads, in the same rounds.
    `ratio_to_llamacpp`: how many times as fast as llama.cpp with as many threads.
    """

    engine: str
    dtype: str | None
    threads: int
    ms_per_token: float
    best_ms: float
    p95_ms: float
    tok_per_s: float
    bytes_per_token: int
    sgemv_fraction: float
    read_fraction: float
    ratio_to_llamacpp: float | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What takes a turn in every round: an engine, and the bytes of weights it reads for a token.

    `dtype` is None until the process itself says what it runs.
    """

    engine: str
    dtype: str | None
    n_bytes: int
    post: Post


async def decode(
    path: Path,
    *,
    dtypes: Sequence[Dtype],
    threads: Sequence[int],
    tokens: int,
    rounds: int,
    peers: Sequence[str] = (),
    peers_python: Path,
) -> list[DecodeRow]:
    """Measures every dtype and peer at every number of threads; one number of threads at a time.

    RequestProblem when a peer cannot run, or the engines do not fit into memory together.
    """
    refuse_peers(path, peers, peers_python)
    model = open_model(path)
    order = decoding(model, tokens)
    context = context_for(model.config, context_of(order))
    rows: list[DecodeRow] = []
    for n in threads:
        engines = [
            *(_ours(model, dtype, n, context) for dtype in dtypes),
            *(_peer(model, peer, n, context, peers_python) for peer in peers),
        ]
        rows += await _measured(engines, n, order, rounds)
    return rows


def refuse_peers(path: Path, peers: Sequence[str], python: Path) -> None:
    """UnknownName for a peer we do not know; RequestProblem for one that cannot run here or run this."""
    for peer in peers:
        if peer not in PEERS:
            raise UnknownName("peer", peer, PEERS)
    if peers and not os.access(python, os.X_OK):
        what = f"{python}, the Python that {' and '.join(peers)} should run in, does not exist"
        raise RequestProblem(what, fix="make peers")
    if LLAMA in peers and path.is_dir():
        what = f"llama.cpp runs GGUF files, and {path} is a folder"
        raise RequestProblem(what, fix="name a GGUF file, or leave it out of --peers")


def _ours(model: Model, dtype: Dtype, threads: int, context: int) -> Lane:
    how = Settings(model=model.checkpoint.path, dtype=dtype, threads=threads, context=context)
    return Lane(engine="trisplit", dtype=dtype, n_bytes=bytes_per_token(model, dtype), post=how.decoder())


def _peer(model: Model, peer: str, threads: int, context: int, python: Path) -> Lane:
    n_bytes = file_bytes_per_token(model) if peer == LLAMA else bytes_per_token(model, "f32")
    post = posts.peer(peer, python, model.checkpoint.path, threads=threads, context=context)
    return Lane(engine=peer, dtype=None, n_bytes=n_bytes, post=post)


def _references(sizes: Sequence[int], threads: int) -> list[Lane]:
    """sgemv and read for each number of bytes: one process each, whose buffer serves all sizes."""
    sgemv, read = (posts.reference(kind, max(sizes), threads) for kind in ("sgemv", "read"))
    return [
        *(Lane(engine=SGEMV, dtype="f32", n_bytes=n, post=sgemv) for n in sizes),
        *(Lane(engine=READ, dtype=None, n_bytes=n, post=read) for n in sizes),
    ]


async def _measured(engines: Sequence[Lane], threads: int, order: Order, rounds: int) -> list[DecodeRow]:
    """The rows of engines that take turns, and of the references they are held against."""
    sizes = sorted({lane.n_bytes for lane in engines}, reverse=True)
    refuse_if_short(sum(lane.n_bytes for lane in engines) + 2 * sizes[0], "the weights of all engines")
    lanes = [*engines, *_references(sizes, threads)]
    processes = {lane.post.name: lane.post for lane in lanes}
    async with started([*processes.values()]) as workers:
        by_name = dict(zip(processes, workers))
        turns: list[Turn] = [(by_name[lane.post.name], order | {"n_bytes": lane.n_bytes}) for lane in lanes]
        answers = await alternate(turns, rounds)
    spreads = [spread(taken) for taken in answers]
    p50_ms = {(lane.engine, lane.n_bytes): times.p50_ms for lane, times in zip(lanes, spreads)}
    llama_ms = next((ms for (engine, _), ms in p50_ms.items() if engine == LLAMA), None)
    return [
        DecodeRow(
            engine=lane.engine,
            dtype=worker.ready.get("dtype", lane.dtype),
            threads=threads,
            ms_per_token=times.p50_ms,
            best_ms=times.best_ms,
            p95_ms=times.p95_ms,
            tok_per_s=1e3 / times.p50_ms,
            bytes_per_token=lane.n_bytes,
            sgemv_fraction=p50_ms[SGEMV, lane.n_bytes] / times.p50_ms,
            read_fraction=p50_ms[READ, lane.n_bytes] / times.p50_ms,
            ratio_to_llamacpp=llama_ms / times.p50_ms if llama_ms else None,
            detail=worker.ready["detail"],
        )
        for lane, (worker, _), times in zip(lanes, turns, spreads)
    ]
