"""The picture of a ladder: what each rung measured, and the floor it stands on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trisplit.bench.plot import BLUE, INK, picture

_ROW_IN, _FRAME_IN = 0.36, 1.45
_BAR: Final = 0.62  # of the height of a row


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One measured way of making a token, and the floor of the same run."""

    name: str
    p50_ms: float
    floor_ms: float

    @property
    def words(self) -> str:
        """`1,234 ms, 1.04 × its floor`."""
        digits = 0 if self.p50_ms >= 100 else 1
        return f"{self.p50_ms:,.{digits}f} ms, {self.p50_ms / self.floor_ms:.2f} × its floor"


def draw_rungs(rungs: Sequence[Rung], path: Path, *, title: str, subtitle: str = "") -> None:
    """Draws a bar for each rung, in their order, with a mark where its floor is; shorter is better.

    At least one rung. SVG or PNG by the suffix of `path`; `RequestProblem` when that cannot be drawn here.
    """
    rows = range(len(rungs))
    with picture(path, title, subtitle, height_in=_FRAME_IN + _ROW_IN * len(rungs)) as axes:
        bars = axes.barh(
            rows, [rung.p50_ms for rung in rungs], height=_BAR, color=BLUE, label="measured, p50"
        )
        axes.bar_label(bars, [rung.words for rung in rungs], padding=6, fontsize=8.5)
        axes.vlines(
            [rung.floor_ms for rung in rungs],
            [row - 0.45 for row in rows],
            [row + 0.45 for row in rows],
            color=INK,
            linewidth=1.8,
            label="floor: legs × latency + work in one process",
        )
        axes.set_yticks(rows, [rung.name for rung in rungs])
        axes.set_ylim(len(rungs) - 0.4, -0.6)
        longest_ms = max(max(rung.p50_ms, rung.floor_ms) for rung in rungs)
        axes.set_xlim(0, 1.33 * longest_ms)  # room for the words behind the longest bar
        axes.set_xlabel("ms per token", loc="right")
