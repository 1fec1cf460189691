"""Layers that are not all alike: widths and heads of each, as a DeciLM config or the arrays of a GGUF say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from trisplit.errors import CheckpointProblem
from trisplit.models.keys import Keys

_FIX: Final = "use a model whose layers all have the same attention, and an FFN of any width"
_FFN_UNIT: Final = 256  # a width given as a multiple of the hidden size is rounded up to these
_LEFT_OUT: Final = ("no_op", "replace_with_linear")
_SPECIAL: Final = ("window_length", "sparsify", "num_sink_tokens", "unshifted_sink")


@dataclass(frozen=True, slots=True)
class Blocks:
    """What may differ between layers; `ffn` has a number for each, heads must be the same in all."""

    heads: int
    kv_heads: int
    ffn: tuple[int, ...]


def blocks_of_gguf(keys: Keys, layers: int) -> Blocks:
    """Heads and widths, said once for all layers or one by one; CheckpointProblem where heads differ."""
    heads = _alike(_sizes(keys, "attention.head_count", layers), "attention heads")
    said = keys.has("attention.head_count_kv")
    kv = _sizes(keys, "attention.head_count_kv", layers) if said else (heads,)
    return Blocks(heads, _alike(kv, "key/value heads"), _sizes(keys, "feed_forward_length", layers))


def same_blocks(keys: Keys, layers: int, _hidden: int, heads: int) -> Blocks:
    """Heads and width of a config.json that says them once for all layers."""
    return Blocks(heads, keys.size("num_key_value_heads", heads), (keys.size("intermediate_size"),) * layers)


def blocks_of_config(keys: Keys, layers: int, hidden: int, heads: int) -> Blocks:
    """Heads and widths of a config.json with `block_configs`, a description of each layer, or without.

    As vLLM reads DeciLM: `ffn.intermediate_size`, or `ffn.ffn_mult`, two thirds of which times the hidden
    size are rounded up to a multiple of 256; `attention.n_heads_in_group` query heads on each key/value
    head. CheckpointProblem for layers that lack a part, or have one that we do not compute.
    """
    listed, before = keys.get("block_configs"), "num_key_value_heads_per_layer"  # of DeciLM of old
    if listed is None:
        kv = _alike(keys.sizes(before, layers), "key/value heads") if keys.has(before) else None
        same = same_blocks(keys, layers, hidden, heads)
        return replace(same, kv_heads=kv or same.kv_heads)
    if not isinstance(listed, list) or len(listed) != layers:
        raise keys.wrong("block_configs", f"does not describe {layers} layers")
    blocks = [_block(keys, layer, block) for layer, block in enumerate(listed)]
    groups = [attention.size("n_heads_in_group", most=heads) for attention, _ in blocks]
    act = keys.get("hidden_act")
    if odd := [ffn for _, ffn in blocks if ffn.get("hidden_act") not in (None, act)]:
        raise odd[0].wrong("hidden_act", f"is not {act!r}, as the model's")
    return Blocks(
        heads, heads // _alike(groups, "heads in a group"), tuple(_width(ffn, hidden) for _, ffn in blocks)
    )


def _block(keys: Keys, layer: int, block: Any) -> tuple[Keys, Keys]:
    """Attention and FFN of one layer, both of which must be there."""
    parts, where = [], f"layer {layer} of block_configs in {keys.where}"
    of_layer = Keys(block if isinstance(block, dict) else {}, where)
    for part in ("attention", "ffn"):
        of_part = Keys(of_layer.table(part), f"{part} of {where}")
        for key in _LEFT_OUT:
            if of_part.flag(key):
                raise CheckpointProblem(f"layer {layer} has no {part} ({key})", fix=_FIX)
        for key in _SPECIAL:
            if of_part.get(key) not in (None, False):
                what = f"{part} of layer {layer} has {key}, which we do not run"
                raise CheckpointProblem(what, fix=_FIX)
        parts.append(of_part)
    return parts[0], parts[1]


def _width(ffn: Keys, hidden: int) -> int:
    if not ffn.has("ffn_mult"):
        return ffn.size("intermediate_size")
    width = int(2 * ffn.positive("ffn_mult", most=1024) * hidden / 3)
    return -(-width // _FFN_UNIT) * _FFN_UNIT


def _sizes(keys: Keys, key: str, layers: int) -> tuple[int, ...]:
    value = keys.get(key)
    if isinstance(value, list) and 0 in value:
        what = f"layer {value.index(0)} has no {'FFN' if 'feed' in key else 'attention'} ({key} is 0)"
        raise CheckpointProblem(what, fix=_FIX)
    return keys.sizes(key, layers)


def _alike(counts: Sequence[int], what: str) -> int:
    if len(set(counts)) > 1:
        raise CheckpointProblem(f"layers have {min(counts)} to {max(counts)} {what}", fix=_FIX)
    return counts[0]
