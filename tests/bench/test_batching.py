"""The gate of batched sends: ON at 0.965 of the time or less, with the same tokens; else OFF."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from trisplit.bench.batching import judge_batches
from trisplit.bench.meshes import Ground, MeshFacts, Subject
from trisplit.bench.wires import names_of, wires_between
from trisplit.errors import RequestProblem
from trisplit.mesh.overlap import Ahead, Early


def facts(path: Path | str, sessions: int = 1) -> MeshFacts:
    ground = Ground(
        subject=Subject(path=str(path)), wires=wires_between(names_of(2), 0.0), dtype="f32", threads=1
    )
    return MeshFacts(ground=ground, cut="layers", topology="chain", sessions=sessions, context=0)


def test_one_mesh_is_judged_with_and_without(tiny: Callable[[str], Path], stations: dict[str, str]) -> None:
    two = {name: stations[name] for name in ("s1", "s2")}
    found = asyncio.run(judge_batches(facts(tiny("llama"), sessions=2), two, tokens=3, rounds=1))
    assert (found.stations, found.sessions, found.tokens_equal) == (2, 2, True)
    assert found.ratio == pytest.approx(found.batched_ms / found.unbatched_ms)
    assert found.on == (found.ratio <= 0.965)


def test_layers_may_start_ahead_with_both(tiny: Callable[[str], Path], stations: dict[str, str]) -> None:
    here, three = facts(tiny("llama")), {name: stations[name] for name in ("s1", "s2", "s3")}
    ground = replace(here.ground, wires=wires_between(names_of(3), 0.0))
    here = replace(here, ground=ground, ahead=Ahead((1, 2), Early()))
    with pytest.raises(RequestProblem, match="no attention stands alone"):
        asyncio.run(judge_batches(here, three, tokens=3, rounds=1))
    found = asyncio.run(judge_batches(replace(here, cut="thirds"), three, tokens=3, rounds=1))
    assert found.tokens_equal
