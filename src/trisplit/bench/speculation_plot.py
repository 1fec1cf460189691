"""The picture of speculation: tokens per second against one-way latency, and what bounds them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trisplit.bench.plot import BLUE, FAINT, GREEN, INK, ORANGE, PINK, picture
from trisplit.bench.speculation import SpeculationRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS: Final = {"plain": PINK, "rounds": ORANGE, "stream": BLUE}
_STYLES: Final = {"novel": "-", "draftable": "--"}
_WORDS: Final = {"novel": "solid", "draftable": "dashed"}


def draw_rates(rows: Sequence[SpeculationRow], path: Path, *, title: str) -> None:
    """A line for each mode and kind of prompts: at each length of links the median of its best draft.

    At the lowest temperature. The serial floor and the rate of the bottleneck, of the best draft in a stream,
    are drawn in. SVG or PNG by the suffix; RequestProblem when that cannot be drawn here.
    """
    coolest = min(row.temperature for row in rows)
    rows = [row for row in rows if row.prompt == "median" and row.temperature == coolest]
    kinds = ", ".join(f"{_WORDS[kind]} {kind}" for kind in dict.fromkeys(row.prompts for row in rows))
    subtitle = f"tokens per second, median over the prompts, best draft, temperature {coolest:g}; {kinds}"
    with picture(path, title, subtitle, height_in=4.6) as axes:
        for mode in dict.fromkeys(row.mode for row in rows):
            for kind in dict.fromkeys(row.prompts for row in rows):
                _draw(axes, best(rows, mode, kind), label="" if kind != rows[0].prompts else mode)
        first = best(rows, "plain", rows[0].prompts)
        floor = [row.serial_floor_tok_per_s for row in first]
        lengths = [row.one_way_ms for row in first]
        axes.plot(lengths, floor, color=INK, linewidth=1, linestyle=":", label="serial floor")
        guessed = next((row.mode for row in rows if row.mode == "stream"), rows[-1].mode)
        full = [1e3 / row.bottleneck_ms for row in best(rows, guessed, rows[0].prompts)]
        axes.plot(lengths, full, color=INK, linewidth=1, linestyle="-.", label="bottleneck")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_xticks(lengths)
        axes.set_xlabel("ms one way", loc="right")


def best(rows: Sequence[SpeculationRow], mode: str, kind: str) -> list[SpeculationRow]:
    """At each length of links the quickest of a mode and a kind, shortest first."""
    some = [row for row in rows if (row.mode, row.prompts) == (mode, kind)]
    quickest: dict[float, SpeculationRow] = {}
    for row in sorted(some, key=lambda row: (row.one_way_ms, row.tok_per_s)):
        quickest[row.one_way_ms] = row
    return [*quickest.values()]


def _draw(axes: Axes, rows: Sequence[SpeculationRow], *, label: str) -> None:
    mode, kind = rows[0].mode, rows[0].prompts
    axes.plot(
        [row.one_way_ms for row in rows],
        [row.tok_per_s for row in rows],
        color=_COLOURS.get(mode, GREEN),
        linestyle=_STYLES[kind],
        marker="o",
        markersize=4,
        label=label,
    )
