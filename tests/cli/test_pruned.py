"""`trisplit bench compress`: rows for every method and share; judged once; words that make no sense."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_bench import problem_of, said_by
from trisplit.bench import compress as ruler
from trisplit.cli import names
from trisplit.errors import UnknownName

Tiny = Callable[[str], Path]
SHORT = ("--tokens", "400", "--held-out-tokens", "64", "--passage-tokens", "32", "--keep", "0.67")
COLUMNS = (
    "method keep ppl ppl_ratio kl top1 params bytes tok_per_s speedup_end_to_end amdahl_bound seconds peak_mb"
)


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"title": str(n), "text": " ".join(f"Tide {n}.{i}" for i in range(60))} for n in range(10)]
    (tmp_path / "articles.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    monkeypatch.setattr(names, "fetched", lambda _: tmp_path / "articles.jsonl")


def test_rows_of_all_methods(tiny: Tiny) -> None:
    said = said_by("compress", tiny("llama"), *SHORT, "--ablation")
    assert list(said) == ["rows", "calibration", "ablation", "machine", "command"]
    rows = {row["method"]: row for row in said["rows"]}
    assert list(rows) == ["dense", "ours", "ours-uniform", "flap", "wanda", "magnitude"]
    assert {" ".join(row) for row in said["rows"]} == {COLUMNS}
    dense = rows["dense"]
    assert dense["ppl_ratio"] == {"wiki": 1.0, "brown": 1.0}
    assert dense["amdahl_bound"] == 1.0
    for name, row in rows.items():
        assert row["tok_per_s"] > 0
        if name != "dense":
            assert row["params"] < dense["params"]
            assert row["bytes"] == 4 * row["params"]
            assert row["kl"]["wiki"] > 0
            assert row["amdahl_bound"] > 1
    (calibration,) = said["calibration"]
    assert calibration["tokens"] == 400
    ablation = {row["what"]: row for row in said["ablation"]}
    assert ablation["ours"]["kl"] == rows["ours"]["kl"]
    assert len(ablation) == len(said["ablation"]) == 8


def test_what_was_judged_is_not_read_again(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = (*SHORT, "--methods", "dense,wanda", "--untimed", "--seed", "7")
    first = said_by("compress", tiny("llama"), *asked)["rows"]
    assert [row["tok_per_s"] for row in first] == [None, None]

    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(ruler, "see", never)
    again = said_by("compress", tiny("llama"), *asked)["rows"]
    assert [row["ppl"] for row in again] == [row["ppl"] for row in first]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--keep", "half"], "no list of shares"),
        (["--keep", "1.5"], "what is no share"),
        (["--held-out-tokens", "100000"], "passages of"),
    ],
)
def test_refused(options: list[str], said: str, tiny: Tiny) -> None:
    assert said in str(problem_of("compress", tiny("llama"), *SHORT, *options))


def test_a_method_nobody_knows_is_refused(tiny: Tiny) -> None:
    problem = problem_of("compress", tiny("llama"), *SHORT, "--methods", "slimgpt", "--untimed")
    assert isinstance(problem, UnknownName)
