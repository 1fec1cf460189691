"""The picture of a ladder names every rung, with its time and how far it is above its floor."""

from __future__ import annotations

from pathlib import Path

from tests.bench.test_plot import texts
from trisplit.bench.rungs import Rung, draw_rungs

RUNGS = [
    Rung(name="thirds, star", p50_ms=3748.2, floor_ms=3627.0),
    Rung(name="recut, ring", p50_ms=99.04, floor_ms=94.3),
]


def test_every_rung_is_there_in_its_order_with_its_figures(tmp_path: Path) -> None:
    draw_rungs(RUNGS, tmp_path / "ladder.svg", title="The ladder", subtitle="f32")
    said = texts(tmp_path / "ladder.svg")
    names = [text for text in said if text in ("thirds, star", "recut, ring")]
    assert names == ["thirds, star", "recut, ring"]
    assert {"3,748 ms, 1.03 × its floor", "99.0 ms, 1.05 × its floor", "The ladder", "f32"} <= set(said)
    assert {"measured, p50", "floor: legs × latency + work in one process"} <= set(said)


def test_a_png_is_as_wide_as_a_readme_shows_it(tmp_path: Path) -> None:
    draw_rungs(RUNGS, tmp_path / "ladder.png", title="The ladder")
    header = (tmp_path / "ladder.png").read_bytes()[16:20]
    assert int.from_bytes(header, "big") == 1800
