"""Reads the facts of a decoder from config.json or from GGUF metadata; foreign words end here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from trisplit.errors import CheckpointProblem
from trisplit.models.checkpoint import Checkpoint
from trisplit.models.config import Activation, ModelConfig
from trisplit.models.families import FAMILIES, GGUF_FAMILIES, Family
from trisplit.models.keys import GET_AGAIN, Keys
from trisplit.models.rope import frequencies

_ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
}
# Hidden size over head dimension decides the attention scale of Gemma 3 27B alone; GGUF does not say so.
_GEMMA3_27B_LAYERS: Final = 62
_GEMMA3_PATTERN: Final = 6
_GEMMA3_LOCAL_BASE: Final = 10_000.0


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
            fix=GET_AGAIN,
        )
    if config.head_dim % 16:
        raise CheckpointProblem(
            f"head dimension {config.head_dim} is not a multiple of 16, as the rotary kernel needs",
            fix="use another model",
        )


# --- config.json ----------------------------------------------------------------------------------


def _family_of_hf(keys: Keys) -> Family:
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


def _hf_windows(keys: Keys, family: Family, layers: int) -> tuple[int, ...]:
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


def _hf_ropes(keys: Keys, family: Family, head_dim: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Frequencies of full and of sliding layers; configs of transformers 4 and 5 say them differently."""
    new = Keys(keys.table("rope_parameters"), f"the rope settings of {keys.where}")
    full = new.table("full_attention") or new.data or keys.table("rope_scaling")
    local = new.table("sliding_attention")
    rope = Keys(full, new.where)
    base = rope.positive("rope_theta", keys.positive("rope_theta", family.rope_base))
    fraction = rope.positive("partial_rotary_factor", keys.number("partial_rotary_factor", 1.0), most=1)
    dim = int(head_dim * fraction) // 2 * 2
    main = frequencies(base, dim, rope)
    if not family.windows_alternate:
        return main, ()
    if local:
        local_rope = Keys(local, rope.where)
        return main, frequencies(local_rope.positive("rope_theta", _GEMMA3_LOCAL_BASE), dim, local_rope)
    local_base = keys.positive("rope_local_base_freq", _GEMMA3_LOCAL_BASE)
    return main, frequencies(local_base, dim, Keys({}, rope.where))


def _from_hf(checkpoint: Checkpoint) -> ModelConfig:
    keys = Keys(checkpoint.metadata, str(checkpoint.path / "config.json"))
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


def _gguf_frequencies(checkpoint: Checkpoint, keys: Keys, base: float, dim: int) -> tuple[float, ...]:
    for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
        if name in checkpoint.tensors:
            raise CheckpointProblem(
                "rope scaling 'longrope' is not supported", fix="use the short-context variant"
            )
    scaling = keys.text("rope.scaling.type", "none")
    facts = {"rope_type": scaling, "factor": keys.positive("rope.scaling.factor", 1.0)}
    slowed = np.array(frequencies(base, dim, Keys(facts, keys.where)), dtype=np.float32)
    if "rope_freqs.weight" in checkpoint.tensors:  # Llama 3.1's scaling, as divisors
        slowed = slowed / checkpoint.read("rope_freqs.weight").reshape(-1)
    return tuple(float(f) for f in slowed)


def _gguf_windows(keys: Keys, family: Family, layers: int) -> tuple[int, ...]:
    window = keys.count("attention.sliding_window", 0)
    if family.windows_alternate:
        pattern = keys.count("attention.sliding_window_pattern", _GEMMA3_PATTERN)
        return tuple(0 if (layer + 1) % pattern == 0 else window for layer in range(layers))
    return (0 if family.window_is_optional else window,) * layers


def _gguf_ffn(keys: Keys, layers: int) -> tuple[int, ...]:
    """FFN widths: one number, or one per layer."""
    value = keys.data.get(keys.prefix + "feed_forward_length")
    if isinstance(value, (list, tuple, np.ndarray)):
        if len(value) != layers:
            raise CheckpointProblem(
                f"{len(value)} FFN widths for {layers} layers in {keys.where}", fix=GET_AGAIN
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
    keys = Keys(checkpoint.metadata, where, f"{arch}.")
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
        raise CheckpointProblem(f"token_embd.weight is missing in {where}", fix=GET_AGAIN)
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
        local_inv_freq=frequencies(
            keys.positive("rope.freq_base_swa", _GEMMA3_LOCAL_BASE), dim, Keys({}, where)
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
