"""A copy of a model with narrower FFNs, as a folder of safetensors that stock loaders read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from trisplit.compress.anatomy import Anatomy
from trisplit.compress.describing import restated, stock
from trisplit.compress.methods.ffn import Refit
from trisplit.compress.spectra import Doubles
from trisplit.compress.translate import Translation
from trisplit.compress.writing import FolderWriter
from trisplit.models.config import EMBED, HEAD, layer_stages
from trisplit.models.families import FAMILIES
from trisplit.models.session import Floats


def write_narrow(anatomy: Anatomy, refits: Iterable[Refit], width: int, folder: Path) -> None:
    """Writes the model with each layer's FFN cut to its refit, as float32; a layer in memory at a time.

    All layers get `width` neurons, the most that any keeps: stock loaders know one width. What a layer has
    fewer is filled up with neurons of zeros, which give nothing. RequestProblem for what is no decoder.
    """
    model = anatomy.decoder()
    target = replace(stock(model), ffn=(width,) * model.config.layers)
    config = restated(model, target) | {"torch_dtype": "float32"}  # refused before anything is written
    whole, writer = Translation(model, target, "safetensors"), FolderWriter(folder, files=target.layers + 2)
    writer.add(dict(whole.stage(EMBED)))
    for layer, refit in enumerate(refits):
        writer.add(_layer(replace(whole, kept={layer: refit.kept}), layer, refit.down))
    writer.add(dict(whole.stage(HEAD)))
    writer.close(model, config)


def _layer(cut: Translation, layer: int, down: Doubles) -> dict[str, Floats]:
    """All of a layer, with the down that the kept neurons were given."""
    tensors = dict(pair for stage in layer_stages(range(layer, layer + 1)) for pair in cut.stage(stage))
    name = FAMILIES[cut.target.family].names["down"].format(layer)
    filled = np.zeros(tensors[name].shape, np.float32)
    filled[:, : down.shape[1]] = down
    return {**tensors, name: filled}
