"""The picture of one token: who works when, and what is under way between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trisplit.bench.plot import BLUE, FAINT, GREEN, INK, INK_ON, ORANGE, PINK, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEG: Final = "leg"
BYPASS: Final = "residual bypass"
EARLY: Final = "early residual"
_ON_THE_WIRE: Final = {LEG: "-", BYPASS: ":", EARLY: "-."}
_COORDINATOR: Final = "coordinator"

# The first that is part of a group gives it its colour.
_COLOURS: Final = {"gate_up": ORANGE, "down": GREEN, "attention": BLUE, "layers": BLUE, "": PINK}
_BAR: Final = 0.56  # of the height of a row
_ROW_IN, _FRAME_IN = 0.42, 1.5
_LETTER_IN, _AXES_IN = 0.068, 7.7  # about what a letter of a label takes, and what all of the time has


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that took time while one token was made.

    `who` works on `what`, a group by its label (`gate_up 4`; `down 4, attention 5`; `layers 0-4`; `embed`;
    `head`); or `what` is LEG, BYPASS or EARLY, and something is under way from `who` to `to`. Times are from
    the token's beginning, all by one clock.
    """

    who: str
    what: str
    start_ms: float
    end_ms: float
    to: str = ""

    @property
    def ms(self) -> float:
        """How long it took."""
        return self.end_ms - self.start_ms

    @property
    def kind(self) -> str:
        """What it is, without the numbers of its layers: `down + attention`, `layers`."""
        bare = re.sub(r" [0-9-]+", "", self.what).replace(", ", " + ")
        return re.sub(r"\blayer\b", "layers", bare)

    @property
    def colour(self) -> str:
        """Of work of this kind."""
        return next(colour for part, colour in _COLOURS.items() if part in self.what)

    @property
    def is_work(self) -> bool:
        """Whether somebody works, rather than something being under way."""
        return self.what not in _ON_THE_WIRE


def draw_waterfall(spans: Sequence[Span], path: Path, *, title: str) -> None:
    """Draws a row for each who, the coordinator's on top, time to the right: work as bars, legs as slopes.

    At least one span. SVG or PNG by the suffix of `path`; `RequestProblem` when that cannot be drawn here.
    """
    rows, end_ms = rows_of(spans), max(span.end_ms for span in spans)
    work = [span for span in spans if span.is_work]
    with picture(path, title, summary(spans), height_in=_FRAME_IN + _ROW_IN * len(rows)) as axes:
        for y in rows.values():
            axes.axhline(y, color=FAINT, linewidth=0.6, zorder=0)
        for colour in dict.fromkeys(span.colour for span in work):
            _draw_work(axes, [span for span in work if span.colour == colour], rows, end_ms)
        for kind, style in _ON_THE_WIRE.items():
            _draw_wire(axes, [span for span in spans if span.what == kind], rows, style)
        axes.set_yticks([*rows.values()], [*rows])
        axes.set_ylim(len(rows) - 0.45, -0.55)
        axes.set_xlim(0, 1.004 * end_ms)
        axes.set_xlabel("ms", loc="right")


def rows_of(spans: Sequence[Span]) -> dict[str, int]:
    """The row of each who: the coordinator on top, then in the order in which they work on the token."""
    by_start = sorted(spans, key=lambda span: (not span.is_work, span.start_ms))
    met = dict.fromkeys(name for span in by_start for name in (span.who, span.to) if name)
    names = sorted(met, key=lambda name: name != _COORDINATOR)
    return {name: row for row, name in enumerate(names)}


def summary(spans: Sequence[Span]) -> str:
    """What the picture shows, in numbers."""
    legs_ms = [span.ms for span in spans if span.what == LEG]
    work_ms = sum(span.ms for span in spans if span.is_work)
    took_ms = max(span.end_ms for span in spans)
    return (
        f"{took_ms:,.1f} ms, of which {len(legs_ms)} legs {sum(legs_ms):,.1f} ms and work {work_ms:,.1f} ms"
    )


def _draw_wire(axes: Axes, spans: Sequence[Span], rows: dict[str, int], style: str) -> None:
    for number, span in enumerate(spans):
        axes.plot(
            (span.start_ms, span.end_ms),
            (rows[span.who], rows[span.to]),
            color=INK,
            linestyle=style,
            linewidth=0.8,
            alpha=0.6,
            zorder=1,
            label="" if number else span.what,
        )


def _draw_work(axes: Axes, spans: Sequence[Span], rows: dict[str, int], end_ms: float) -> None:
    """Work of one colour; a bar says which group it is where there is room for the words."""
    colour = spans[0].colour
    bars = axes.barh(
        [rows[span.who] for span in spans],
        [span.ms for span in spans],
        left=[span.start_ms for span in spans],
        height=_BAR,
        color=colour,
        edgecolor=colour,  # a bar may be narrower than a dot, and is seen by its edge
        linewidth=0.8,
        snap=False,
        zorder=2,
        label=" / ".join(dict.fromkeys(span.kind for span in spans)),
    )
    words = [s.what if _LETTER_IN * len(s.what) < _AXES_IN * s.ms / end_ms else "" for s in spans]
    axes.bar_label(bars, words, label_type="center", color=INK_ON[colour], fontsize=8.5)
