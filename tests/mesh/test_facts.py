"""Facts of processes: of which kind they are, and what is said when they are of several."""

from __future__ import annotations

import pytest

from trisplit.machine import cpu_kind
from trisplit.mesh.facts import StationFacts, mixed, of_this_process, runtime


def station(name: str, cpu: str, runtime: str = runtime(), weight_bytes: int = 1) -> StationFacts:
    return StationFacts(
        name=name, stages="", weight_bytes=weight_bytes, kv_bytes=0, rss_bytes=0, cpu=cpu, runtime=runtime
    )


def test_this_process_knows_its_kind() -> None:
    own = of_this_process("here", "embed", 5, 6)
    assert (own.name, own.stages, own.weight_bytes, own.kv_bytes) == ("here", "embed", 5, 6)
    assert (own.cpu, own.runtime) == (cpu_kind(), runtime())
    assert own.rss_bytes
    assert own.streams is None


@pytest.mark.parametrize(
    "facts",
    [
        [],
        [station("s1", "x")],
        [station("s1", "x"), station("s2", "x")],
        [station("s1", "x"), station("coordinator", "y", weight_bytes=0)],
    ],
)
def test_of_one_kind_there_is_nothing_to_say(facts: list[StationFacts]) -> None:
    assert mixed(facts) == ""


def test_of_several_kinds_everybody_is_named() -> None:
    facts = [station("s1", "x"), station("s2", "y"), station("s3", "x"), station("s4", "x", "another")]
    told = f"processes are of 3 kinds (s1, s3: x, {runtime()}; s2: y, {runtime()}; s4: x, another)"
    assert mixed(facts) == told


def test_this_process_counts_where_it_computes_too() -> None:
    assert mixed([station("s1", cpu_kind())], here=True) == ""
    assert "this process" in mixed([station("s1", "x")], here=True)
