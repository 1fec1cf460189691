"""The fixed facts of a decoder, read once from config.json or from GGUF metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from trisplit.errors import CheckpointProblem
from trisplit.models.checkpoint import Checkpoint
from trisplit.models.families import FAMILIES, GGUF_FAMILIES, Family

Activation = Literal["silu", "gelu_tanh"]
Kind = Literal["embed", "attention", "gate_up", "down", "head"]

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
}
# Hidden size over head dimension decides the attention scale of Gemma 3 27B alone; GGUF does not say so.
_GEMMA3_27B_LAYERS = 62
_GEMMA3_PATTERN = 6
_GEMMA3_LOCAL_BASE = 10_000.0
_LARGEST = 2**28
_MOST_LAYERS = 4096
_GET_AGAIN = "get the model again"


@dataclass(frozen=True, slots=True, order=True)
class Stage:
    """One third of a layer, or an end of the model (`layer` is -1 there)."""

    layer: int
    kind: Kind

    def __str__(self) -> str:
        return self.kind if self.layer < 0 else f"{self.kind} {self.layer}"


EMBED: Final = Stage(-1, "embed")
HEAD: Final = Stage(-1, "head")
LAYER_KINDS: Final[tuple[Kind, ...]] = ("attention", "gate_up", "down")


def layer_stages(layers: range) -> tuple[Stage, ...]:
    """All thirds of these layers, in order."""
    return tuple(Stage(layer, kind) for layer in layers for kind in LAYER_KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What the stages of a decoder need to know; the same whichever file it came from.

    `windows` has one number a layer: the sliding window in tokens, 0 for full attention.
    `inv_freq` and `local_inv_freq` are the rotary frequencies (radians per position) of
    full and of sliding layers, rope scaling already applied.
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
    embed_scale: float = 1.0
    attn_scale: float

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


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """Facts of the model in `checkpoint`.

    Raises CheckpointProblem when the architecture, a rope scaling, an activation or a shape is
    one we do not run, naming it.
    """
    config = _from_gguf(checkpoint) if checkpoint.kind == "gguf" else _from_hf(checkpoint)
    _refuse_impossible(config)
    return config


def _refuse_impossible(config: ModelConfig) -> None:
    if config.heads % config.kv_heads:
        raise CheckpointProblem(
            f"{config.heads} attention heads cannot share {config.kv_heads} key/value heads evenly",
            fix=_GET_AGAIN,
        )
    if config.head_dim % 16:
        raise CheckpointProblem(
            f"head dimension {config.head_dim} is not a multiple of 16, as the rotary kernel needs",
            fix="use another model",
        )


class _Keys:
    """Typed look-ups in untrusted metadata; a wrong type is a CheckpointProblem naming the key."""

    def __init__(self, data: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self.data, self.where, self.prefix = data, where, prefix

    def has(self, key: str) -> bool:
        return self.data.get(self.prefix + key) is not None

    def number(self, key: str, default: float | None = None) -> float:
        value = self.data.get(self.prefix + key)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
            wrong = "is missing" if value is None else f"is {value!r}, not a number"
            raise CheckpointProblem(f"{self.prefix}{key} {wrong} in {self.where}", fix=_GET_AGAIN)
        if not math.isfinite(value):
            raise CheckpointProblem(f"{self.prefix}{key} is {value} in {self.where}", fix=_GET_AGAIN)
        return float(value)

    def count(self, key: str, default: int | None = None) -> int:
        return int(self.number(key, default))

    def size(self, key: str, default: int | None = None) -> int:
        """A count of at least one, and not absurd."""
        value = self.count(key, default)
        if not 1 <= value <= _LARGEST:
            raise CheckpointProblem(f"{self.prefix}{key} is {value} in {self.where}", fix=_GET_AGAIN)
        return value

    def layers(self, key: str) -> int:
        """The number of layers: what follows makes lists of it."""
        value = self.size(key)
        if value > _MOST_LAYERS:
            raise CheckpointProblem(f"{self.where} says {value} layers", fix=_GET_AGAIN)
        return value

    def positive(self, key: str, default: float | None = None, *, most: float = 1e12) -> float:
        """A number over zero, and not absurd."""
        value = self.number(key, default)
        if not 0 < value <= most:
            raise CheckpointProblem(f"{self.prefix}{key} is {value:g} in {self.where}", fix=_GET_AGAIN)
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.data.get(self.prefix + key)
        return default if value is None else bool(value)

    def text(self, key: str, default: str) -> str:
        value = self.data.get(self.prefix + key)
        return default if value is None else str(value)

    def table(self, key: str) -> Mapping[str, Any]:
        value = self.data.get(self.prefix + key)
        return value if isinstance(value, Mapping) else {}


# --- rotary frequencies ---------------------------------------------------------------------------


def _plain_frequencies(base: float, dim: int) -> NDArray[np.float32]:
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    plain: NDArray[np.float32] = (1.0 / np.power(np.float32(base), exponents)).astype(np.float32)
    return plain


def _llama3_frequencies(plain: NDArray[np.float32], rope: _Keys) -> NDArray[np.float32]:
    """Llama 3.1's scaling: long waves are slowed by `factor`, short ones kept, a smooth ramp between."""
    factor = rope.positive("factor")
    low, high = rope.positive("low_freq_factor", 1.0), rope.positive("high_freq_factor", 4.0)
    if low >= high:
        raise CheckpointProblem(f"low_freq_factor {low} is not below {high} in {rope.where}", fix=_GET_AGAIN)
    old_context = rope.positive("original_max_position_embeddings", 8192)
    wavelength = 2 * math.pi / plain
    ramp = np.clip((old_context / wavelength - low) / (high - low), 0.0, 1.0)
    scaled: NDArray[np.float32] = ((1 - ramp) * plain / factor + ramp * plain).astype(np.float32)
    return scaled


def _frequencies(base: float, dim: int, scaling: _Keys) -> tuple[float, ...]:
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
    return tuple(float(f) for f in scaled)


# --- config.json ----------------------------------------------------------------------------------


def _family_of_hf(keys: _Keys) -> Family:
    kind = keys.text("model_type", "")
    if kind not in FAMILIES:
        named = keys.data.get("architectures")
        if not kind and not named:
            raise CheckpointProblem(
                f"{keys.where} names neither model_type nor architectures",
                fix="get the model's config.json again",
            )
        raise CheckpointProblem(
            f"model type {kind or named!r} is not supported",
            fix=f"supported families: {', '.join(sorted(FAMILIES))}",
        )
    return FAMILIES[kind]


def _hf_windows(keys: _Keys, family: Family, layers: int) -> tuple[int, ...]:
    window = keys.count("sliding_window", 0) if keys.has("sliding_window") else 0
    kinds = keys.data.get("layer_types")
    if family.window_is_optional and not keys.flag("use_sliding_window"):
        return (0,) * layers
    if isinstance(kinds, list) and len(kinds) == layers:
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    if family.window_is_optional:
        first = keys.count("max_window_layers", layers)
        return tuple(window if layer >= first else 0 for layer in range(layers))
    if family.windows_alternate:
        pattern = keys.count("sliding_window_pattern", _GEMMA3_PATTERN)
        return tuple(0 if (layer + 1) % pattern == 0 else window for layer in range(layers))
    return (window,) * layers


def _hf_ropes(keys: _Keys, family: Family, head_dim: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Frequencies of full and of sliding layers; configs of transformers 4 and 5 say them differently."""
    new = _Keys(keys.table("rope_parameters"), f"the rope settings of {keys.where}")
    full = new.table("full_attention") or new.data or keys.table("rope_scaling")
    local = new.table("sliding_attention")
    rope = _Keys(full, new.where)
    base = rope.positive("rope_theta", keys.positive("rope_theta", family.rope_base))
    fraction = rope.positive("partial_rotary_factor", keys.number("partial_rotary_factor", 1.0), most=1)
    dim = int(head_dim * fraction) // 2 * 2
    main = _frequencies(base, dim, rope)
    if not family.windows_alternate:
        return main, ()
    if local:
        local_rope = _Keys(local, rope.where)
        return main, _frequencies(local_rope.positive("rope_theta", _GEMMA3_LOCAL_BASE), dim, local_rope)
    local_base = keys.positive("rope_local_base_freq", _GEMMA3_LOCAL_BASE)
    return main, _frequencies(local_base, dim, _Keys({}, rope.where))


def _from_hf(checkpoint: Checkpoint) -> ModelConfig:
    keys = _Keys(checkpoint.metadata, str(checkpoint.path / "config.json"))
    family = _family_of_hf(keys)
    layers, hidden, heads = (
        keys.layers("num_hidden_layers"),
        keys.size("hidden_size"),
        keys.size("num_attention_heads"),
    )
    head_dim = keys.size("head_dim", hidden // heads)
    act = keys.text("hidden_activation", keys.text("hidden_act", "silu"))
    if act not in _ACTIVATIONS:
        raise CheckpointProblem(f"activation {act!r} is not supported", fix="silu and gelu_pytorch_tanh are")
    if keys.has("attn_logit_softcapping") or keys.has("final_logit_softcapping"):
        raise CheckpointProblem("logit soft-capping is not supported", fix="use another model")
    inv_freq, local = _hf_ropes(keys, family, head_dim)
    return ModelConfig(
        family=family.name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=keys.size("num_key_value_heads", heads),
        head_dim=head_dim,
        ffn=(keys.size("intermediate_size"),) * layers,
        vocab=keys.size("vocab_size"),
        context=keys.size("max_position_embeddings", 2048),
        norm_eps=keys.number("rms_norm_eps", 1e-6),
        tied_head=keys.flag("tie_word_embeddings", family.ties_by_default),
        inv_freq=inv_freq,
        local_inv_freq=local,
        windows=_hf_windows(keys, family, layers),
        activation=_ACTIVATIONS[act],
        qkv_bias=family.qkv_bias or (family.may_have_biases and keys.flag("attention_bias")),
        out_bias=family.may_have_biases and keys.flag("attention_bias"),
        mlp_bias=family.may_have_biases and keys.flag("mlp_bias"),
        embed_scale=math.sqrt(hidden) if family.scales_embedding else 1.0,
        attn_scale=1 / math.sqrt(keys.positive("query_pre_attn_scalar", head_dim)),
    )


# --- GGUF -----------------------------------------------------------------------------------------


def _gguf_frequencies(checkpoint: Checkpoint, keys: _Keys, base: float, dim: int) -> tuple[float, ...]:
    for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
        if name in checkpoint.tensors:
            raise CheckpointProblem(
                "rope scaling 'longrope' is not supported", fix="use the short-context variant"
            )
    scaling = keys.text("rope.scaling.type", "none")
    facts = {"rope_type": scaling, "factor": keys.positive("rope.scaling.factor", 1.0)}
    frequencies = np.array(_frequencies(base, dim, _Keys(facts, keys.where)), dtype=np.float32)
    if "rope_freqs.weight" in checkpoint.tensors:  # Llama 3.1's scaling, as divisors
        frequencies = frequencies / checkpoint.read("rope_freqs.weight").reshape(-1)
    return tuple(float(f) for f in frequencies)


def _gguf_windows(keys: _Keys, family: Family, layers: int) -> tuple[int, ...]:
    window = keys.count("attention.sliding_window", 0)
    if family.windows_alternate:
        pattern = keys.count("attention.sliding_window_pattern", _GEMMA3_PATTERN)
        return tuple(0 if (layer + 1) % pattern == 0 else window for layer in range(layers))
    return (0 if family.window_is_optional else window,) * layers


def _gguf_ffn(keys: _Keys, layers: int) -> tuple[int, ...]:
    """FFN widths: one number, or one per layer."""
    value = keys.data.get(keys.prefix + "feed_forward_length")
    if isinstance(value, (list, tuple, np.ndarray)):
        if len(value) != layers:
            raise CheckpointProblem(
                f"{len(value)} FFN widths for {layers} layers in {keys.where}", fix=_GET_AGAIN
            )
        return tuple(int(v) for v in value)
    return (keys.size("feed_forward_length"),) * layers


def _from_gguf(checkpoint: Checkpoint) -> ModelConfig:
    where = str(checkpoint.path)
    arch = str(checkpoint.metadata.get("general.architecture", ""))
    if arch not in GGUF_FAMILIES:
        raise CheckpointProblem(
            f"architecture {arch!r} is not supported" if arch else f"{where} names no architecture",
            fix=f"supported: {', '.join(sorted(GGUF_FAMILIES))}",
        )
    family = FAMILIES[GGUF_FAMILIES[arch]]
    keys = _Keys(checkpoint.metadata, where, f"{arch}.")
    layers, hidden, heads = (
        keys.layers("block_count"),
        keys.size("embedding_length"),
        keys.size("attention.head_count"),
    )
    head_dim = keys.size("attention.key_length", hidden // heads)
    dim = keys.size("rope.dimension_count", head_dim)
    scalar = hidden / heads if family.windows_alternate and layers == _GEMMA3_27B_LAYERS else head_dim
    embed = checkpoint.tensors.get("token_embd.weight")
    if embed is None:
        raise CheckpointProblem(f"token_embd.weight is missing in {where}", fix=_GET_AGAIN)
    return ModelConfig(
        family=family.name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=keys.size("attention.head_count_kv", heads),
        head_dim=head_dim,
        ffn=_gguf_ffn(keys, layers),
        vocab=embed.shape[0],
        context=keys.size("context_length"),
        norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
        tied_head="output.weight" not in checkpoint.tensors,
        inv_freq=_gguf_frequencies(checkpoint, keys, keys.positive("rope.freq_base", 10_000.0), dim),
        local_inv_freq=_frequencies(
            keys.positive("rope.freq_base_swa", _GEMMA3_LOCAL_BASE), dim, _Keys({}, where)
        )
        if family.windows_alternate
        else (),
        windows=_gguf_windows(keys, family, layers),
        activation="gelu_tanh" if family.gelu else "silu",
        qkv_bias="blk.0.attn_q.bias" in checkpoint.tensors or "blk.0.attn_qkv.bias" in checkpoint.tensors,
        out_bias="blk.0.attn_output.bias" in checkpoint.tensors,
        mlp_bias="blk.0.ffn_down.bias" in checkpoint.tensors,
        embed_scale=math.sqrt(hidden) if family.scales_embedding else 1.0,
        attn_scale=1 / math.sqrt(scalar),
    )
