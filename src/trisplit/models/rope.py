"""Rotary frequencies: plain, and slowed by the scalings we run (linear, llama3)."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trisplit.errors import CheckpointProblem
from trisplit.models.keys import GET_AGAIN, Keys

_STEP: Final = 8  # pairs of dimensions that onnxruntime turns at a time


def _plain_frequencies(base: float, dim: int) -> NDArray[np.float32]:
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    plain: NDArray[np.float32] = (1.0 / np.power(np.float32(base), exponents)).astype(np.float32)
    return plain


def _llama3_frequencies(plain: NDArray[np.float32], rope: Keys) -> NDArray[np.float32]:
    """Llama 3.1's scaling: long waves are slowed by `factor`, short ones kept, a smooth ramp between."""
    factor = rope.positive("factor")
    low, high = rope.positive("low_freq_factor"), rope.positive("high_freq_factor")
    if low >= high:
        raise CheckpointProblem(f"low_freq_factor {low} is not below {high} in {rope.where}", fix=GET_AGAIN)
    old_context = rope.positive("original_max_position_embeddings")
    wavelength = 2 * math.pi / plain
    ramp = np.clip((old_context / wavelength - low) / (high - low), 0.0, 1.0)
    scaled: NDArray[np.float32] = ((1 - ramp) * plain / factor + ramp * plain).astype(np.float32)
    return scaled


def frequencies(base: float, dim: int, scaling: Keys) -> tuple[float, ...]:
    """Radians per position of each rotated pair, slowed as `scaling` says, then zeros: pairs that stay.

    There are `dim` / 2 of the first and as many in all as the kernel takes. CheckpointProblem for a scaling
    we do not run, naming it, and for dimensions that are no pairs.
    """
    if dim < 2 or dim % 2:
        raise CheckpointProblem(f"{dim} rotated dimensions are no pairs", fix=GET_AGAIN)
    plain = _plain_frequencies(base, dim)
    kind = scaling.text("rope_type", scaling.text("type", "default"))
    if kind in ("default", "none"):
        scaled = plain
    elif kind == "linear":
        scaled = plain / np.float32(scaling.positive("factor"))
    elif kind == "llama3":
        scaled = _llama3_frequencies(plain, scaling)
    else:
        raise CheckpointProblem(
            f"rope scaling {kind!r} is not supported (default, linear and llama3 are)",
            fix="use a model without it, for example the short-context variant",
        )
    return *map(float, scaled), *[0.0] * (-len(scaled) % _STEP)
