"""A picture of a diagnosis: what each layer costs, and how far residuals come apart from layer to layer."""

from __future__ import annotations

from pathlib import Path

from trisplit.bench.plot import BLUE, FAINT, GREEN, ORANGE, PINK, picture
from trisplit.compress.diagnose import Diagnosis


def draw_diagnosis(found: Diagnosis, path: Path, name: str) -> None:
    """Bars of KL over lines of ways apart, layers from left to right. Raises as `picture`."""
    layers = [each.layer for each in found.layers]
    carriers = ", ".join(map(str, found.carriers)) or "none"
    subtitle = f"KL {found.whole.kl:.3g}; layers that carry {found.carried:.0%} of it: {carriers}"
    with picture(path, f"What each layer of {name} costs", subtitle, height_in=5.2) as axes:
        axes.axis("off")
        bars, lines = (axes.inset_axes((0.06, y, 0.93, 0.38)) for y in (0.56, 0.04))
        alone = [each.alone.kl for each in found.layers]
        won = [found.whole.kl - each.spared.kl for each in found.layers]
        bars.bar([at - 0.2 for at in layers], alone, 0.4, color=BLUE, label="KL when edited alone")
        bars.bar([at + 0.2 for at in layers], won, 0.4, color=ORANGE, label="KL won back when left dense")
        bars.set_ylabel("nats a token")
        depths = [each.depth for each in found.layers]
        for label, colour, style, values in (
            ("apart", GREEN, "-", [depth.apart for depth in depths]),
            ("1 - cos", PINK, "-", [depth.turned for depth in depths]),
            ("apart, first token", GREEN, ":", [depth.apart_first for depth in depths]),
        ):
            lines.plot(layers, values, color=colour, linestyle=style, label=label)
        lines.set_ylabel("of the residual")
        lines.set_xlabel("layer")
        for room in (bars, lines):
            room.spines[["left", "top", "right"]].set_visible(False)
            room.grid(axis="y", color=FAINT, linewidth=0.6)
            room.set_axisbelow(True)
            room.set_xlim(-1, len(layers))
            room.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0)
