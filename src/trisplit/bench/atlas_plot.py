"""A picture of an atlas: layers from left to right, matrices from top to bottom, the cliff as a shade."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from trisplit.bench.plot import picture
from trisplit.compress.anatomy import ROLES
from trisplit.compress.atlas import Atlas


def draw_atlas(atlas: Atlas, path: Path, name: str) -> None:
    """Two maps under each other: σ1/σ2, and the energy beyond half of the rank (whitened if calibrated)."""
    roles = [role for role in ROLES if any(row.matrix == role for row in atlas.rows)]
    cliff, tail = (np.full((len(roles), len(atlas.layers)), math.nan) for _ in range(2))
    for row in atlas.rows:
        if row.head is None:
            at = roles.index(row.matrix), row.layer
            cliff[at] = row.plain.cliff
            tail[at] = (row.white or row.plain).tail[1]
    k, n = atlas.passing(heads=False)
    seen = "as the calibration text sees them" if any(row.white for row in atlas.rows) else "plain"
    subtitle = f"{k} of {n} matrices reach σ1/σ2 = {atlas.threshold:.3g}; energies {seen}"
    height_in = 1.6 + 0.44 * len(roles)
    with picture(path, f"Spectra of {name}", subtitle, height_in=height_in) as axes:
        axes.axis("off")
        for place, (values, title) in enumerate(((cliff, "σ1/σ2"), (tail, "energy beyond\nhalf the rank"))):
            y = 0.54 - 0.54 * place
            room, scale = axes.inset_axes((0.06, y, 0.84, 0.46)), axes.inset_axes((0.915, y, 0.015, 0.46))
            shown = room.imshow(values, aspect="auto", cmap="cividis")
            room.set_yticks(range(len(roles)), roles)
            room.tick_params(length=0)
            room.spines[:].set_visible(False)
            room.figure.colorbar(shown, cax=scale, label=title)
            if place:
                room.set_xlabel("layer")
