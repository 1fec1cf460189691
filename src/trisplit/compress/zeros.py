"""Neurons that give nothing whatever comes in: which of a layer's can be cut and change no number."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from trisplit.models.config import Stage
from trisplit.models.layout import layout
from trisplit.models.model import Model
from trisplit.models.plain import plain

Neurons = NDArray[np.int64]

UNIT: Final = 32
"""Layers keep so many neurons or a multiple: 8- and 4-bit blocks are as wide."""


def live(model: Model, layer: int) -> Neurons:
    """The neurons that can give something, in order, with as many others as fill up a whole unit of 32.

    One gives nothing if its column of down is all zeros, or if its row of gate or up is and has no bias:
    act(0) is 0. A layer that is no whole number of units stays so if nothing is to be cut.
    """
    width, (matrix,) = model.config.ffn[layer], layout(model.config, Stage(layer, "gate_up")).matrices
    alive = plain(model, "down", layer).any(axis=0)
    if not matrix.bias:
        for part in matrix.parts:
            for half in np.split(plain(model, part.role, layer), part.n // width):
                alive &= half.any(axis=1)
    wanted = min(max(-(-int(alive.sum()) // UNIT), 1) * UNIT, width)
    others = np.flatnonzero(~alive)[: wanted - int(alive.sum())]
    return np.sort(np.concatenate([np.flatnonzero(alive), others]))
