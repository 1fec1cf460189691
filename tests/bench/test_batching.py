"""The gate of batched sends: ON at 0.965 of the time or less, with the same tokens; else OFF."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from trisplit.bench.batching import judge_batches, verdict
from trisplit.bench.meshes import Ground, MeshFacts, Subject
from trisplit.bench.wires import names_of, wires_between


def facts(path: Path | str, sessions: int = 1) -> MeshFacts:
    ground = Ground(
        subject=Subject(path=str(path)), wires=wires_between(names_of(2), 0.0), dtype="f32", threads=1
    )
    return MeshFacts(ground=ground, cut="layers", topology="chain", sessions=sessions, context=0)


@pytest.mark.parametrize(
    ("batched_ms", "equal", "on", "reason"),
    [
        (9.6, True, True, "ON: 9.60 ms a token batched, 10.00 ms not: 0.960, at most 0.965"),
        (9.66, True, False, "OFF: 9.66 ms a token batched, 10.00 ms not: 0.966, over 0.965"),
        (12.0, True, False, "OFF: 12.00 ms a token batched, 10.00 ms not: 1.200, over 0.965"),
        (5.0, False, False, "OFF: tokens were not the same"),
    ],
)
def test_the_verdict_goes_by_the_medians(batched_ms: float, equal: bool, on: bool, reason: str) -> None:
    times = {False: [10.0, 9.0, 11.0], True: [batched_ms, 0.0, 99.0]}
    found = verdict(facts(""), 2, times, tokens=4, rounds=1, tokens_equal=equal)
    assert (found.on, found.reason) == (on, reason)
    assert (found.batched_ms, found.unbatched_ms, found.limit) == (batched_ms, 10.0, 0.965)


def test_one_mesh_is_judged_with_and_without(tiny: Callable[[str], Path], stations: dict[str, str]) -> None:
    two = {name: stations[name] for name in ("s1", "s2")}
    found = asyncio.run(judge_batches(facts(tiny("llama"), sessions=2), two, tokens=3, rounds=1))
    assert (found.stations, found.sessions, found.tokens_equal) == (2, 2, True)
    assert found.ratio == pytest.approx(found.batched_ms / found.unbatched_ms)
    assert found.on == (found.ratio <= 0.965)
