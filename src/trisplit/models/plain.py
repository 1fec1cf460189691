"""A model's tensors by role, whatever file they are in: rows in our order, norms as they multiply."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trisplit.models import head_order
from trisplit.models.checkpoint import Format
from trisplit.models.config import ModelConfig
from trisplit.models.families import FAMILIES
from trisplit.models.model import Model

Floats = NDArray[np.float32]

_NORMS = ("attn_norm", "ffn_norm", "final_norm", "q_norm", "k_norm", "post_attn_norm", "post_ffn_norm")


def plain(model: Model, role: str, layer: int) -> Floats:
    """A tensor as stages compute with it. Problems as of reading."""
    checkpoint, config = model.checkpoint, model.config
    values = checkpoint.read(FAMILIES[config.family].names_in(checkpoint.format)[role].format(layer))
    places = head_order.places(config, checkpoint.format, role, len(values))
    if places is not None:
        stored, values = values, np.empty_like(values)
        values[places] = stored
    return values + 1 if _is_less_one(config, checkpoint.format, role) else values


def stored(config: ModelConfig, format: Format, role: str, values: Floats) -> Floats:
    """What a file of this family and format keeps for such a tensor of ours."""
    places = head_order.places(config, format, role, len(values))
    ordered = values if places is None else values[places]
    return ordered - 1 if _is_less_one(config, format, role) else ordered


def _is_less_one(config: ModelConfig, format: Format, role: str) -> bool:
    """Whether the file keeps w of a norm that multiplies by 1 + w."""
    return format == "safetensors" and FAMILIES[config.family].norm_plus_one and role in _NORMS
