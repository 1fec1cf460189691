"""What loading a model takes, on stations and in one process, the first time and every time after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trisplit.bench.meshes import Ground, MeshFacts, Subject
from trisplit.bench.peers import Answer, Order
from trisplit.bench.posts import Post, Settings, context_of, decoding
from trisplit.bench.rounds import started
from trisplit.bench.weights import weight_bytes
from trisplit.bench.wires import names_of, wires_between
from trisplit.models.convert import Dtype
from trisplit.models.model import Model, context_for, open_model, refuse_if_short
from trisplit.paths import scratch

TOKENS: Final = 8

# What a station may take: a quarter of its weights for copies in passing, the interpreter and onnxruntime.
STATION_SHARE: Final = 1.25
STATION_BYTES: Final = 120_000_000
PEAK_SHARE: Final = 1.6


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """One process after some tokens; `load` is first (weights are converted) or second (they are kept).

    `rss_bytes` and `peak_bytes`: resident memory then, and the most there was at once since the process
    began. `allowed_bytes`: for the RSS of a station or coordinator, weights × 1.25 + 120 MB.
    `allowed_peak_bytes`: for one process, 1.6 × the bytes of the weights in f32. `within`: whether it keeps
    to what is allowed.
    """

    dtype: str
    load: str
    process: str
    stages: str
    weight_bytes: int
    rss_bytes: int
    allowed_bytes: int | None
    peak_bytes: int | None
    allowed_peak_bytes: int | None
    within: bool


async def memory(path: Path, *, stations: int, cut: str, dtypes: Sequence[Dtype]) -> list[MemoryRow]:
    """Loads the model into one process and over stations, twice each, and looks after some tokens."""
    model = open_model(path)
    order = decoding(model, TOKENS)
    context = context_for(model.config, context_of(order))
    refuse_if_short(2 * weight_bytes(model, "f32"), "a model and its conversion")
    rows: list[MemoryRow] = []
    for dtype in dtypes:
        how = Settings(model=model.checkpoint.path, dtype=dtype, threads=1, context=context)
        wires = wires_between(names_of(stations), 0.0)
        subject = Subject(path=str(model.checkpoint.path))
        ground = Ground(subject=subject, wires=wires, dtype=dtype, threads=1)
        mesh = MeshFacts(ground=ground, cut=cut, topology="chain", context=context)
        for post in (how.decoder, mesh.post):
            with scratch() as empty:
                for load in ("first", "second"):
                    answer = await loaded(post(TRISPLIT_CACHE=str(empty)), order)
                    rows += [row_of(dtype, load, facts, model) for facts in answer["processes"]]
    return rows


async def loaded(post: Post, order: Order) -> Answer:
    """What a process says of itself and its stations after one stretch."""
    async with started([post]) as (worker,):
        return await worker.ask(order)


def row_of(dtype: Dtype, load: str, facts: Mapping[str, Any], model: Model) -> MemoryRow:
    """What a process held, beside what was promised of such a process."""
    weights, rss, peak = facts["weight_bytes"], facts["rss_bytes"], facts.get("peak_bytes")
    allowed = round(STATION_SHARE * weights) + STATION_BYTES
    allowed_peak = round(PEAK_SHARE * weight_bytes(model, "f32"))
    return MemoryRow(
        dtype=dtype,
        load=load,
        process=facts["name"],
        stages=facts["stages"],
        weight_bytes=weights,
        rss_bytes=rss,
        allowed_bytes=allowed if peak is None else None,
        peak_bytes=peak,
        allowed_peak_bytes=None if peak is None else allowed_peak,
        within=rss <= allowed if peak is None else peak <= allowed_peak,
    )
