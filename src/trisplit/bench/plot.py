"""Pictures of what was measured: how they look, where they go, and what they need (the extra `plot`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trisplit.errors import RequestProblem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Told apart by eyes of every kind: Okabe and Ito, jfly.uni-koeln.de/color.
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
INK, FAINT, PAPER = "#222222", "#D0D0D0", "#FFFFFF"
INK_ON: Final = {BLUE: PAPER, ORANGE: INK, GREEN: PAPER, PINK: INK}

WIDTH_IN: Final = 9.0  # a README shows it at about 100 points an inch

_SUFFIXES: Final = (".svg", ".png")
_STYLE: Final[dict[Any, Any]] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": INK,
    "ytick.color": INK,
    # The same figures give the same file, whose text is text.
    "svg.hashsalt": "trisplit",
    "svg.fonttype": "none",
}


def refuse_picture(path: Path) -> None:
    """`RequestProblem` if `path` cannot become a picture here: ask before measuring, not after."""
    if path.suffix not in _SUFFIXES:
        what = f"{path} names no kind of picture that is drawn here"
        raise RequestProblem(what, fix="end its name in .svg or .png")
    if not path.absolute().parent.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        what = f"nothing can be written into {path.absolute().parent}"
        raise RequestProblem(what, fix="name a file in a folder that exists and is yours")
    if find_spec("matplotlib") is None:
        raise RequestProblem("pictures are drawn by matplotlib", fix="pip install 'trisplit[plot]'")


@contextmanager
def picture(path: Path, title: str, subtitle: str, *, height_in: float) -> Iterator[Axes]:
    """Axes to draw on under two lines of title; saved after the block, SVG or PNG by suffix.

    What has a label comes into a legend. Nothing of the axes is drawn but the lower edge and its ticks.
    Raises as `refuse_picture`.
    """
    refuse_picture(path)
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user's own style is
        matplotlib.rcParams.update(_STYLE)
        figure = Figure((WIDTH_IN, height_in), facecolor=PAPER, layout="constrained")
        figure.suptitle(f"{title}\n", x=0.006, ha="left", fontsize=12, fontweight="bold")
        figure.text(0.006, 1 - 0.34 / height_in, subtitle, va="top")
        axes = figure.add_subplot()
        axes.spines[["left", "top", "right"]].set_visible(False)
        axes.tick_params(left=False)
        yield axes
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside lower left", ncols=6, frameon=False)
        nothing_of_now = {"Date": None, "Creator": None} if path.suffix == ".svg" else {"Software": None}
        figure.savefig(path, dpi=200, metadata=nothing_of_now)
