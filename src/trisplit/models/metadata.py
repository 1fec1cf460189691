"""Reads the facts of a decoder from config.json or from GGUF metadata; foreign words end here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from trisplit.errors import CheckpointProblem
from trisplit.models.blocks import blocks_of_config, blocks_of_gguf, same_blocks
from trisplit.models.checkpoint import Checkpoint
from trisplit.models.config import Activation, ModelConfig
from trisplit.models.families import FAMILIES, GGUF_FAMILIES, GGUF_NAMES, HF_FAMILIES, Family
from trisplit.models.keys import GET_AGAIN, Keys
from trisplit.models.rope import frequencies

_ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}
_QKV_BIASES: Final = ("q_bias", "k_bias", "v_bias", "qkv_bias")
_MLP_BIASES: Final = ("gate_bias", "up_bias", "gate_up_bias", "down_bias")
_MOST_LAYERS: Final = 4096
_WIDEST_HEAD: Final = 2**14
# Defaults of transformers for keys of one family each.
_QWEN_FULL_LAYERS: Final = 28
_GEMMA3_PATTERN: Final = 6
_GEMMA3_LOCAL_BASE: Final = 10_000.0
# Hidden size over head dimension decides the attention scale of Gemma 3 27B alone; GGUF does not say so.
_GEMMA3_27B_LAYERS: Final = 62


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """Facts of the model in `checkpoint`.

    Raises CheckpointProblem when the architecture, a rope scaling, an activation or a shape is
    one we do not run, naming it. What a config.json leaves out is what transformers takes for it.
    """
    config = _from_gguf(checkpoint) if checkpoint.format == "gguf" else _from_hf(checkpoint)
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
    if 2 * len(config.inv_freq) > config.head_dim:
        rotated = 2 * np.count_nonzero(config.inv_freq)
        what = f"{rotated} rotated dimensions in heads of {config.head_dim}"
        raise CheckpointProblem(what, fix=GET_AGAIN)


def _refuse_softcaps(keys: Keys) -> None:
    if keys.has("attn_logit_softcapping") or keys.has("final_logit_softcapping"):
        raise CheckpointProblem("logit soft-capping is not supported", fix="use another model")


def _holds(checkpoint: Checkpoint, family: Family, layers: int, *roles: str) -> bool:
    """Whether the file has a tensor of one of these roles in any layer."""
    held, names = checkpoint.tensors.keys(), family.names_in(checkpoint.format)
    return any(
        names[role].format(layer) in held for role in roles if role in names for layer in range(layers)
    )


def _in_turns(layers: int, pattern: int) -> tuple[bool, ...]:
    """Every `pattern`th layer is full, the others slide."""
    return tuple((layer + 1) % pattern != 0 for layer in range(layers))


# --- config.json ----------------------------------------------------------------------------------


def _family_of_hf(keys: Keys) -> Family:
    kind = keys.text("model_type", "")
    if kind not in HF_FAMILIES:
        named = keys.data.get("architectures")
        if not kind and not named:
            raise CheckpointProblem(
                f"{keys.where} names neither model_type nor architectures",
                fix="get the model's config.json again",
            )
        raise CheckpointProblem(
            f"model type {kind or named!r} is not supported",
            fix=f"supported families: {', '.join(sorted(HF_FAMILIES))}",
        )
    return FAMILIES[HF_FAMILIES[kind]]


def _hf_windows(keys: Keys, family: Family, layers: int) -> tuple[int, ...]:
    """The window of each layer, 0 for full attention."""
    off = family.sliding == "none" or (family.sliding == "late" and not keys.flag("use_sliding_window"))
    if off or keys.is_null("sliding_window"):
        window = None
    else:
        window = keys.size("sliding_window") if keys.has("sliding_window") else family.window
    slides = _hf_sliding(keys, family, layers, window)
    if window is None and any(slides):
        raise CheckpointProblem(f"{keys.where} has sliding layers and no sliding_window", fix=GET_AGAIN)
    return tuple(window or 0 if slide else 0 for slide in slides)


def _hf_sliding(keys: Keys, family: Family, layers: int, window: int | None) -> tuple[bool, ...]:
    """Which layers slide."""
    kinds = keys.get("layer_types")
    if kinds is not None and family.sliding in ("late", "turns"):
        known = ["sliding_attention", "full_attention"]
        if not isinstance(kinds, list) or len(kinds) != layers or not all(kind in known for kind in kinds):
            raise keys.wrong("layer_types", f"does not call each of {layers} layers sliding or full")
        return tuple(kind == "sliding_attention" for kind in kinds)
    if family.sliding == "turns":
        return _in_turns(layers, keys.size("sliding_window_pattern", _GEMMA3_PATTERN))
    first = keys.count("max_window_layers", _QWEN_FULL_LAYERS) if family.sliding == "late" else 0
    return tuple(window is not None and layer >= first for layer in range(layers))


def _hf_ropes(keys: Keys, family: Family, head_dim: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Frequencies of full and of sliding layers; configs of transformers 4 and 5 say them differently."""
    new, where = keys.table("rope_parameters"), f"the rope settings of {keys.where}"
    turns = family.sliding == "turns"
    if new and turns != bool({"full_attention", "sliding_attention"} & new.keys()):
        raise keys.wrong("rope_parameters", f"is not as {family.name} has it")
    by_kind, old = Keys(new, where), keys.table("rope_scaling")
    rope = Keys({**by_kind.table("full_attention"), **old} if turns else old or new, where)
    said_base, said_part = family.word("rope_theta"), family.word("partial_rotary_factor")
    base = rope.positive("rope_theta", keys.positive(said_base, family.rope_base, least=1), least=1)
    fraction = rope.positive("partial_rotary_factor", keys.number(said_part, family.rotary), most=1)
    if fraction != 1 and not family.partial_rotary:
        what = f"{family.name} with a partial_rotary_factor of {fraction:g} is not supported"
        raise CheckpointProblem(what, fix="use another model")
    dim = int(head_dim * fraction)
    main = frequencies(base, dim, rope)
    if not turns:
        return main, ()
    local = Keys(by_kind.table("sliding_attention"), where)
    local_base = keys.positive("rope_local_base_freq", _GEMMA3_LOCAL_BASE, least=1)
    return main, frequencies(local.positive("rope_theta", local_base, least=1), dim, local)


def _hf_activation(keys: Keys, family: Family) -> Activation:
    act = keys.text(family.word("hidden_act"), "")
    if act and act not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise CheckpointProblem(
            f"activation {act!r} is not supported", fix=f"use a model with one of {known}"
        )
    return _ACTIVATIONS.get(act, family.activation)


def _from_hf(checkpoint: Checkpoint) -> ModelConfig:
    keys = Keys(checkpoint.metadata, str(checkpoint.path / "config.json"))
    family = _family_of_hf(keys)
    _refuse_softcaps(keys)
    if keys.flag("use_bidirectional_attention"):
        raise CheckpointProblem("attention in both directions is not supported", fix="use another model")
    layers = keys.size("num_hidden_layers", most=_MOST_LAYERS)
    hidden, heads = keys.size("hidden_size"), keys.size("num_attention_heads")
    head_dim = keys.size("head_dim", family.head_dim or hidden // heads, most=_WIDEST_HEAD)
    scalar = family.query_pre_attn_scalar and keys.positive(
        "query_pre_attn_scalar", family.query_pre_attn_scalar
    )
    inv_freq, local = _hf_ropes(keys, family, head_dim)
    biased = keys.flag("attention_bias", family.attention_bias)
    of_qkv = keys.flag("qkv_bias", biased) if family.own_blocks else biased
    blocks = (blocks_of_config if family.own_blocks else same_blocks)(keys, layers, hidden, heads)
    has_head = _holds(checkpoint, family, 1, "head")
    return ModelConfig(
        family=family.name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=blocks.kv_heads,
        head_dim=head_dim,
        ffn=blocks.ffn,
        vocab=keys.size("vocab_size"),
        context=keys.size("max_position_embeddings", 2048),
        norm_eps=keys.positive(family.word("rms_norm_eps"), family.norm_eps, most=1),
        tied_head=keys.flag("tie_word_embeddings", family.tied) and not has_head,
        inv_freq=inv_freq,
        local_inv_freq=local,
        windows=_hf_windows(keys, family, layers),
        activation=_hf_activation(keys, family),
        # A family that always has biases has them in q, k and v alone, whatever the config says.
        qkv_bias=family.qkv_bias or of_qkv or _holds(checkpoint, family, layers, *_QKV_BIASES),
        out_bias=(biased and not family.qkv_bias) or _holds(checkpoint, family, layers, "out_bias"),
        mlp_bias=family.mlp_bias or keys.flag("mlp_bias") or _holds(checkpoint, family, layers, *_MLP_BIASES),
        embed_scale=math.sqrt(hidden) if family.scales_embedding else 1.0,
        attn_scale=1 / math.sqrt(scalar or head_dim),
        parallel=family.parallel and keys.flag("use_parallel_residual", True),
    )


# --- GGUF -----------------------------------------------------------------------------------------


def _gguf_frequencies(checkpoint: Checkpoint, keys: Keys, base: float, dim: int) -> tuple[float, ...]:
    for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
        if name in checkpoint.tensors:
            raise CheckpointProblem(
                "rope scaling 'longrope' is not supported", fix="use the short-context variant"
            )
    # llama.cpp scales by a factor wherever there is one, unless the type is none.
    scaling = keys.text("rope.scaling.type", "linear")
    factor = keys.positive("rope.scaling.factor", keys.number("rope.scale_linear", 1.0))
    plain = frequencies(base, dim, Keys({"rope_type": scaling, "factor": factor}, keys.where))
    divisors = checkpoint.tensors.get("rope_freqs.weight")  # Llama 3.1's scaling
    if divisors is None:
        return plain
    slowed: list[float] = []
    turning = np.array([frequency for frequency in plain if frequency], np.float32)
    if divisors.shape == turning.shape:
        with np.errstate(all="ignore"):  # a divisor of 0 or next to it is told below
            slowed = (turning / checkpoint.read(divisors.name)).tolist()
    if not slowed or not all(0 < frequency < math.inf for frequency in slowed):
        what = f"{divisors.name} of {keys.where} does not divide {len(turning)} rotary frequencies"
        raise CheckpointProblem(what, fix=GET_AGAIN)
    return *slowed, *plain[len(slowed) :]


def _gguf_windows(keys: Keys, family: Family, layers: int) -> tuple[int, ...]:
    """The window of each layer, 0 for full attention: all of them where no window is given."""
    window = keys.size("attention.sliding_window") if keys.number("attention.sliding_window", 0) else 0
    slides = (family.sliding != "late",) * layers
    if family.sliding == "turns":
        slides = _in_turns(layers, keys.size("attention.sliding_window_pattern", _GEMMA3_PATTERN))
    return tuple(window if slide else 0 for slide in slides)


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
    _refuse_softcaps(keys)
    layers = keys.size("block_count", most=_MOST_LAYERS)
    hidden, blocks = keys.size("embedding_length"), blocks_of_gguf(keys, layers)
    head_dim = keys.size("attention.key_length", hidden // blocks.heads, most=_WIDEST_HEAD)
    dim = keys.size("rope.dimension_count", head_dim, most=_WIDEST_HEAD)
    turns = family.sliding == "turns"
    scalar = hidden / blocks.heads if turns and layers == _GEMMA3_27B_LAYERS else head_dim
    local_base = keys.positive("rope.freq_base_swa", _GEMMA3_LOCAL_BASE, least=1)
    embed = checkpoint.tensors.get(GGUF_NAMES["embed"])
    if embed is None or len(embed.shape) != 2:
        what = f"{GGUF_NAMES['embed']} {'is missing' if embed is None else 'is no matrix'} in {where}"
        raise CheckpointProblem(what, fix=GET_AGAIN)
    return ModelConfig(
        family=family.name,
        layers=layers,
        hidden=hidden,
        heads=blocks.heads,
        kv_heads=blocks.kv_heads,
        head_dim=head_dim,
        ffn=blocks.ffn,
        vocab=embed.shape[0],
        context=keys.size("context_length"),
        norm_eps=keys.positive(f"attention.layer_norm_{'' if family.layer_norm else 'rms_'}epsilon", most=1),
        tied_head=not _holds(checkpoint, family, 1, "head"),
        inv_freq=_gguf_frequencies(checkpoint, keys, keys.positive("rope.freq_base", 10_000.0, least=1), dim),
        local_inv_freq=frequencies(local_base, dim, Keys({}, where)) if turns else (),
        windows=_gguf_windows(keys, family, layers),
        activation=family.activation,
        qkv_bias=family.qkv_bias or _holds(checkpoint, family, layers, *_QKV_BIASES),
        out_bias=_holds(checkpoint, family, layers, "out_bias"),
        mlp_bias=_holds(checkpoint, family, layers, *_MLP_BIASES),
        embed_scale=math.sqrt(hidden) if family.scales_embedding else 1.0,
        attn_scale=1 / math.sqrt(scalar),
        parallel=family.parallel and keys.flag("use_parallel_residual", True),
    )
