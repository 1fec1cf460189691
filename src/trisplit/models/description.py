"""A model's facts as they travel, and whether what arrives can be the facts of a model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from trisplit.errors import PeerProblem
from trisplit.models.config import ModelConfig
from trisplit.models.families import FAMILIES

_MOST_LAYERS: Final = 2**16  # what the wire counts in
_WIDEST: Final = 2**31 - 1  # what the engine counts in
_FIX: Final = "run the same version of trisplit on both ends"


def pack(config: ModelConfig) -> bytes:
    """The facts as bytes."""
    return msgspec.msgpack.encode(config)


def unpack(packed: bytes) -> ModelConfig:
    """The facts in these bytes; PeerProblem when they are not those of a model that we could have opened."""
    try:
        config = msgspec.msgpack.decode(packed, type=ModelConfig)
    except msgspec.DecodeError as error:
        raise PeerProblem(f"a model description that cannot be read: {error}", fix=_FIX) from None
    for why in _odd(config):
        raise PeerProblem(f"a model description with {why}", fix=_FIX)
    return config


def _odd(config: ModelConfig) -> Iterator[str]:
    """What `read_config` would never have read."""
    if config.family not in FAMILIES:
        yield f"the family {config.family!r}, which is not supported"
    sizes = {name: getattr(config, name) for name in ("hidden", "heads", "kv_heads", "vocab", "context")}
    sizes |= {f"ffn {layer}": width for layer, width in enumerate(config.ffn)}
    for name, size in sizes.items():
        if not 1 <= size <= _WIDEST:
            yield f"{name} {size}"
    if not 1 <= config.layers <= _MOST_LAYERS:
        yield f"{config.layers} layers"
    if not (len(config.ffn) == len(config.windows) == config.layers):
        yield f"{len(config.ffn)} widths and {len(config.windows)} windows for {config.layers} layers"
    if not all(0 <= window <= _WIDEST for window in config.windows):
        yield "a window of no length"
    if not 1 <= config.head_dim <= _WIDEST or config.head_dim % 16 or config.heads % config.kv_heads:
        yield f"{config.heads} heads of {config.head_dim} on {config.kv_heads}"
    rotated = (2 * len(config.inv_freq), 2 * len(config.local_inv_freq))
    if not rotated[0] or any(dim > config.head_dim or dim % 16 for dim in rotated):
        yield f"{rotated[0]} and {rotated[1]} rotated dimensions in heads of {config.head_dim}"
    numbers = (
        *filter(None, (*config.inv_freq, *config.local_inv_freq)),
        config.embed_scale,
        config.attn_scale,
    )
    if not all(0 < number < math.inf for number in (*numbers, config.norm_eps)):
        yield "a number that is none, or not above 0"
