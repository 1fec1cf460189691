"""Filling ahead: what pays is kept, what does not is left out with a reason, and the arithmetic of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scripts.worlds import NODE, PLAIN, needs_node
from trisplit.cache import ledger
from trisplit.cache.folding import reuses_of
from trisplit.cache.store import Store, open_store
from trisplit.errors import RequestProblem
from trisplit.scripts import runner
from trisplit.scripts.charge import (
    Charge,
    Costs,
    Wish,
    break_even,
    charge,
    measured_costs,
    read_jar,
    scripts_in,
)
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.script import read_script

AROUND = Surroundings(environment=PLAIN)
FREE = Costs(door="none", hit_ms=0.0, closed_ms=0.0)
DEAR = Costs(door="none", hit_ms=1e9, closed_ms=0.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "results") as store:
        yield store


def charged(store: Store, path: Path, *arguments: str, expected: int = 9, costs: Costs = FREE) -> Charge:
    assert NODE is not None
    history = {one.key: one for one in reuses_of(ledger.lines_of(store.folder / ledger.FILE))}
    return charge(Wish(str(path), arguments, expected), NODE, store, AROUND, costs, history)


def total(store: Store) -> ledger.Sum:
    return ledger.sums(ledger.read(store.folder / ledger.FILE)[0])[-1]


@given(st.floats(1, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_from_the_break_even_on_it_pays_and_not_before(
    charge_ms: float, run_ms: float, hit_ms: float
) -> None:
    n = break_even(charge_ms, run_ms, hit_ms)
    if n is None:
        assert hit_ms >= run_ms
    else:
        assert charge_ms + n * hit_ms <= n * run_ms * (1 + 1e-9)
        assert math.isclose(charge_ms + (n - 1) * hit_ms, (n - 1) * run_ms, rel_tol=1e-9) or (
            charge_ms + (n - 1) * hit_ms > (n - 1) * run_ms
        )


@needs_node
def test_what_is_filled_ahead_is_a_hit_and_no_request(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "a.js"
    path.write_text("console.log('one'); console.error('two')")
    row = charged(store, path, "x")
    assert (row.charged, row.why, row.break_even, row.costs) == (True, "", 1, "now")
    assert row.charge_ms == row.run_ms
    assert (total(store).requests, total(store).charges, total(store).demand_cpu_us) == (0, 1, 0)
    assert total(store).spent_cpu_us > 0
    answer = runner.run(read_script(str(path)), ("x",), str(NODE), store, AROUND)
    assert answer.said.startswith("hit")
    assert total(store).percent_c == 100
    assert charged(store, path, "x").why == "is kept already"


@needs_node
def test_what_does_not_pay_is_left_out(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "a.js"
    path.write_text("console.log('one')")
    assert charged(store, path, expected=0).why == "no run is expected"
    assert total(store).charges == 0  # nothing was run to find that out
    assert charged(store, path, costs=DEAR).why == "a hit costs as much as a run"
    assert total(store).charges == 1


@needs_node
def test_costs_that_are_known_save_a_run(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "a.js"
    path.write_text("console.log('one')")
    runner.run(read_script(str(path)), (), str(NODE), store, AROUND)
    store.clear()
    row = charged(store, path, costs=DEAR)
    assert (row.costs, row.why) == ("ledger", "a hit costs as much as a run")
    assert total(store).charges == 0
    (reuse,) = reuses_of(ledger.lines_of(store.folder / ledger.FILE))
    assert (reuse.words, reuse.runs) == ((str(path.resolve()),), 1)
    assert row.charge_ms == reuse.run_cpu_us / 1e3
    near = Costs(door="none", hit_ms=0.74 * row.charge_ms, closed_ms=0.0)
    assert charged(store, path, expected=3, costs=near).why == "3 runs are expected, and it pays from 4 on"
    assert total(store).charges == 0
    assert charged(store, path, expected=4, costs=near).charged


@needs_node
def test_impure_scripts_have_no_effect_and_are_remembered(tmp_path: Path, store: Store) -> None:
    path, python = tmp_path / "a.js", tmp_path / "a.py"
    path.write_text(f"require('fs').writeFileSync('{tmp_path / 'made'}', 'x')")
    python.touch()
    assert charged(store, path).why == "impure: loads fs, at line 1"
    assert charged(store, path).why == "impure, as is known: loads fs, at line 1"
    assert not (tmp_path / "made").exists()
    assert charged(store, python).why.startswith("impure: Python")
    assert "cannot be read" in charged(store, tmp_path / "none.js").why
    assert "kind of script" in charged(store, tmp_path / "a.rb").why


@needs_node
def test_costs_are_measured_apart_from_the_user_s_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path))
    costs = measured_costs(str(NODE), AROUND)
    assert costs is not None
    assert costs.hit_ms > 0
    assert list(tmp_path.iterdir()) == []
    assert measured_costs(str(NODE), Surroundings(environment={"NODE_OPTIONS": "--x"})) is None


def test_a_jar(tmp_path: Path) -> None:
    jar = tmp_path / "jar"
    jar.write_text("# all of these\n\na.js\n3 a.js\n20 'b c.js' \"x y\" 5 # often\na.js z\n")
    assert read_jar(jar) == [
        Wish("a.js", (), 4),
        Wish("b c.js", ("x y", "5"), 20),
        Wish("a.js", ("z",), 1),
    ]
    jar.write_text("a.js\nb.js 'x\n")
    with pytest.raises(RequestProblem, match="line 2"):
        read_jar(jar)
    with pytest.raises(RequestProblem, match="cannot be read"):
        read_jar(tmp_path / "none")


def test_folders_are_the_scripts_in_them(tmp_path: Path) -> None:
    for name in ("b.ts", "a.js", "c.txt", "sub/d.mjs", "node_modules/e.js"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [Path(one).relative_to(tmp_path).as_posix() for one in scripts_in([str(tmp_path)])]
    assert found == ["a.js", "b.ts", "sub/d.mjs"]
    assert list(scripts_in(["x.js"])) == ["x.js"]
