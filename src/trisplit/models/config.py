"""The fixed facts of a decoder, and the stages it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Activation = Literal["silu", "gelu", "gelu_tanh"]
LayerKind = Literal["attention", "gate_up", "down"]
Kind = Literal["embed", "head"] | LayerKind


@dataclass(frozen=True, slots=True, order=True)
class Stage:
    """One third of a layer, or an end of the model (`layer` is -1 there)."""

    layer: int
    kind: Kind

    def __str__(self) -> str:
        return self.kind if self.layer < 0 else f"{self.kind} {self.layer}"


EMBED: Final = Stage(-1, "embed")
HEAD: Final = Stage(-1, "head")
LAYER_KINDS: Final[tuple[LayerKind, ...]] = ("attention", "gate_up", "down")


def layer_stages(layers: range) -> tuple[Stage, ...]:
    """All thirds of these layers, in order."""
    return tuple(Stage(layer, kind) for layer in layers for kind in LAYER_KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What the stages of a decoder need to know; the same whichever file it came from.

    `windows` has one number a layer: the sliding window in tokens, 0 for full attention and only there.
    `inv_freq` and `local_inv_freq` are the rotary frequencies (radians per position) of
    full and of sliding layers, rope scaling already applied; those that are 0, at the end, stand
    for pairs that do not turn. In `parallel` blocks attention and FFN both
    read the layer's input; elsewhere the FFN reads what attention has added to.
    """

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: tuple[int, ...]
    vocab: int
    context: int
    norm_eps: float
    tied_head: bool
    inv_freq: tuple[float, ...]
    local_inv_freq: tuple[float, ...]
    windows: tuple[int, ...]
    activation: Activation
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    parallel: bool = False
    embed_scale: float = 1.0
    attn_scale: float

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every stage in order: embed, the thirds of each layer, head."""
        return EMBED, *layer_stages(range(self.layers)), HEAD

    @property
    def qkv_widths(self) -> tuple[int, int, int]:
        """Columns of the query, key and value projections."""
        return self.heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim

    def kv_bytes(self, context: int) -> int:
        """Bytes of one layer's float32 keys and values for `context` tokens."""
        return 2 * self.kv_heads * self.head_dim * context * 4

    def frequencies(self, layer: int) -> tuple[float, ...]:
        """Rotary frequencies of one layer."""
        return self.local_inv_freq if self.windows[layer] and self.local_inv_freq else self.inv_freq
