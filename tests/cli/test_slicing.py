"""`trisplit bench ffn` and `bench stack`: shapes and models by name, one JSON object, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.running import problem_of, run

Tiny = Callable[[str], Path]


def facts_of(*arguments: str | Path) -> list[dict[str, object]]:
    result = run(*arguments, "--json")
    assert (result.exit_code, result.stdout.count("\n")) == (0, 1), result.exception
    return list(json.loads(result.stdout)["rows"])


def test_ffns_of_a_shape_and_of_a_model(tiny: Tiny) -> None:
    short = ("--batch", "1", "--dtypes", "f32", "--rounds", "1")
    rows = facts_of("bench", "ffn", "64x128x2", tiny("llama"), *short)
    assert [row["shape"] for row in rows[::7]] == ["64x128", "64x96"]
    columns = "variant shape batch dtype us ratio_to_separate best_us ratio_by_bytes layers"
    assert [*rows[0]] == [*columns.split(), "working_set_bytes", "threads"]


def test_steps_of_a_recipe(tiny: Tiny) -> None:
    rows = facts_of("bench", "stack", tiny("llama"), "--steps", "fused", "--tokens", "2", "--rounds", "1")
    assert [row["step"] for row in rows] == ["base", "fused"]


def test_what_makes_no_sense_is_refused(tiny: Tiny) -> None:
    assert "'x' is no number of rows" in problem_of("bench", "ffn", "64x128x2", "--batch", "x").what
    assert "'half' is no step" in problem_of("bench", "stack", tiny("llama"), "--steps", "half").what
    assert "no step was named" in problem_of("bench", "stack", tiny("llama"), "--steps", "").what
