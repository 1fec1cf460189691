"""A picture of a frontier: perplexity and KL against size, and the size that was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trisplit.bench.plot import BLUE, FAINT, GREEN, INK, ORANGE, PINK, picture
from trisplit.compress.frontier import Point
from trisplit.compress.gates import Metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS: Final = (BLUE, ORANGE, GREEN, PINK)


def draw_frontier(
    points: Sequence[Point],
    gates: Mapping[Metric, float],
    path: Path,
    *,
    title: str,
    found: Point | None,
) -> None:
    """Perplexity's ratio over KL, a line for each text; what was measured on the whole exam has a full dot.

    Limits are dotted, and so is the size that was `found`. Raises as `picture`.
    """
    subtitle = "beside the dense model, by the share of FFN neurons that stays; full dots: the whole exam"
    with picture(path, title, subtitle, height_in=5.4) as axes:
        axes.axis("off")
        rooms = [axes.inset_axes((0.06, y, 0.93, 0.42)) for y in (0.56, 0.03)]
        metrics: tuple[Metric, Metric] = ("ppl", "kl")
        for room, metric, name in zip(rooms, metrics, ("perplexity, ratio", "KL, nats a token")):
            _draw(room, points, metric)
            if metric in gates:
                room.axhline(gates[metric], color=INK, linewidth=0.8, linestyle=":")
            if found is not None:
                room.axvline(100 * found.share, color=INK, linewidth=0.8, linestyle=":")
            room.set_ylabel(name)
            room.set_yscale("log")
            room.yaxis.set_major_formatter("{x:g}")
            room.yaxis.set_minor_formatter("{x:g}")
            room.spines[["left", "top", "right"]].set_visible(False)
            room.grid(axis="y", color=FAINT, linewidth=0.6)
        rooms[0].legend(frameon=False)
        rooms[1].set_xlabel("% of neurons kept", loc="right")


def _draw(room: Axes, points: Sequence[Point], metric: Metric) -> None:
    texts = [text.text for text in points[0].texts]
    for place, name in enumerate(texts):
        colour = _COLOURS[place % len(_COLOURS)]
        scores = [point.texts[place] for point in points]
        shares = [100 * point.share for point in points]
        values = [(score.ppl_ratio if metric == "ppl" else score.kl) or float("nan") for score in scores]
        room.plot(shares, values, color=colour, linewidth=1.2, label=name)
        for share, value, point in zip(shares, values, points):
            inside = colour if point.thorough else "none"
            room.plot(share, value, "o", color=colour, markerfacecolor=inside, markersize=5)
