"""In which order rows of query, key and value heads lie: in files, and in ours."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from trisplit.models.checkpoint import Format
from trisplit.models.config import ModelConfig
from trisplit.models.families import FAMILIES

Places = NDArray[np.int64]

_OF_HEADS: Final = ("q", "k", "qkv", "q_norm", "k_norm")


def places(config: ModelConfig, format: Format, role: str, rows: int) -> Places | None:
    """For each of a tensor's rows in the file its place among ours; None where they are the same.

    Ours are all of q, all of k, all of v, and q and k heads as `_spread` has them. A bias, and a norm of
    each head, has its numbers in the order of the rows.
    """
    family, tensor, dim = FAMILIES[config.family], role.removesuffix("_bias"), config.head_dim
    if tensor not in _OF_HEADS:
        return None
    plain = np.arange(rows)
    ours = plain
    if format == "gguf" and family.gguf_pairs_rows and tensor in ("q", "k"):
        ours = plain.reshape(-1, 2, dim // 2).swapaxes(1, 2).reshape(-1)  # x0 y0 x1 y1 … in each head
    elif format == "safetensors" and family.qkv_by_head and tensor == "qkv":
        ours = plain.reshape(3, -1, dim).swapaxes(0, 1).reshape(-1)
    spread = _spread(config)
    if spread is not None:
        turning = (config.heads + config.kv_heads) * dim if tensor == "qkv" else rows
        ours = np.where(ours < turning, ours // dim * dim + spread[ours % dim], ours)
    return None if ours is plain else ours


def _spread(config: ModelConfig) -> Places | None:
    """Where the dimensions of a q or k head go so that the kernel, which turns 16 at a time, can turn fewer.

    Rotary pairs are the dimensions i and i + half. Dimensions that stay fill both halves up; their
    frequencies are 0, so that turning leaves them as they are. q and k move alike: no product changes.
    """
    wide, half = len(config.inv_freq), int(np.count_nonzero(config.inv_freq))
    if half == wide:
        return None
    turned = [*range(half), *range(wide, wide + half)]
    return np.array(turned + [at for at in range(config.head_dim) if at not in turned])
