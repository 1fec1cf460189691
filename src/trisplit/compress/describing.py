"""config.json of a decoder: its own, or one written from the facts that we know it by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from trisplit.errors import RequestProblem
from trisplit.models.config import ModelConfig
from trisplit.models.families import FAMILIES
from trisplit.models.keys import Keys
from trisplit.models.model import Model
from trisplit.models.rope import frequencies

Words = dict[str, Any]

_ARCHITECTURES: Final[Mapping[str, str]] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "deci": "DeciLMForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
}
# Keys that say nothing, or something else, once a model is written as another family.
_OF_ONE_FAMILY: Final = frozenset(
    (
        *("auto_map", "block_configs", "qkv_bias", "num_key_value_heads_per_layer"),
        *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types"),
    )
)
_ACTIVATIONS: Final = {"silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}
_LOCAL_BASE: Final = 10_000.0
# Of a rope slowed as Llama 3 slows it: what its files say beside the factor; contexts to try, theirs first.
_RAMP: Final = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_CONTEXTS: Final = (8192, *(2**n for n in range(4, 21)))
_CLOSE: Final = 1e-5  # frequencies are float32, and were divided


def config_json(model: Model) -> Words:
    """config.json for tensors of the model's own shapes: its own, or one made from the facts of a GGUF file.

    RequestProblem for facts that no config.json can say.
    """
    return restated(model, own_shapes(model))


def own_shapes(model: Model) -> ModelConfig:
    """The model as a family that a folder of safetensors can say, each layer as wide as it is."""
    return model.config if model.config.family == "deci" else stock(model)


def stock(model: Model) -> ModelConfig:
    """The same decoder as a family that stock loaders have, all layers as wide as the widest."""
    config = replace(model.config, ffn=(max(model.config.ffn),) * model.config.layers)
    is_own = model.checkpoint.format == "safetensors" and config.family != "deci"
    if is_own or config.family in ("phi3", "gpt_neox"):
        return config
    if config.family not in ("llama", "deci"):
        biased = config.qkv_bias if config.family == "qwen2" else config.qkv_bias or config.out_bias
        return replace(config, qkv_bias=biased, out_bias=biased and config.family != "qwen2")
    if any(config.windows):
        return replace(config, family="mistral")
    if config.qkv_bias and not config.out_bias and not config.mlp_bias:
        return replace(config, family="qwen2")
    biased = config.qkv_bias or config.out_bias
    return replace(config, family="llama", qkv_bias=biased, out_bias=biased)


def restated(model: Model, config: ModelConfig) -> Words:
    """The config.json of the model written as `config`: its own, but for what is no longer so.

    RequestProblem for a rope that no config.json can say.
    """
    if model.checkpoint.format == "safetensors":
        own = dict(model.checkpoint.metadata)
        if config == model.config:
            return own
        if config.family == model.config.family:
            return own | (_deci(config) if config.family == "deci" else {"intermediate_size": config.ffn[0]})
        return {key: value for key, value in own.items() if key not in _OF_ONE_FAMILY} | facts(config)
    tokenizer = model.tokenizer()
    ends = {"bos_token_id": tokenizer.bos_id, "eos_token_id": sorted(tokenizer.eos_ids)}
    rope = rope_words(config, rope_base(model), str(model.checkpoint.path))
    return facts(config) | rope | ends


def facts(config: ModelConfig) -> Words:
    """config.json of a model with these facts; all but its rope and its special tokens."""
    family = FAMILIES[config.family]
    plain = {
        "architectures": [_ARCHITECTURES[config.family]],
        "model_type": config.family,
        "num_hidden_layers": config.layers,
        "hidden_size": config.hidden,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.ffn[0],
        "vocab_size": config.vocab,
        "max_position_embeddings": config.context,
        family.word("rms_norm_eps"): float(f"{config.norm_eps:.7g}"),  # a GGUF has it in 32 bits
        family.word("hidden_act"): _ACTIVATIONS[config.activation],
        "attention_bias": config.out_bias,
        "mlp_bias": config.mlp_bias,
        "tie_word_embeddings": config.tied_head,
    }
    return plain | _OF_FAMILY.get(config.family, _nothing)(config)


# --- rope -----------------------------------------------------------------------------------------


def rope_base(model: Model) -> float:
    """What the rotary frequencies of (full) layers are powers of, before they are slowed."""
    metadata, family = model.checkpoint.metadata, FAMILIES[model.config.family]
    if model.checkpoint.format == "gguf":
        keys = Keys(metadata, str(model.checkpoint.path), f"{metadata['general.architecture']}.")
        return keys.positive("rope.freq_base", 10_000.0)
    keys = Keys(metadata, str(model.checkpoint.path))
    new = Keys(keys.table("rope_parameters"), keys.where)
    of_full = Keys(new.table("full_attention"), keys.where)
    plain = keys.positive(family.word("rope_theta"), family.rope_base)
    return of_full.positive("rope_theta", new.positive("rope_theta", plain))


def slowing(config: ModelConfig, base: float) -> tuple[float, ...]:
    """How many times each pair turns slower than it would by `base` alone."""
    turning = [frequency for frequency in config.inv_freq if frequency]
    plain = frequencies(base, 2 * len(turning), Keys({}, ""))
    return tuple(fast / slow for fast, slow in zip(plain, turning))


def rope_words(config: ModelConfig, base: float, where: str) -> Words:
    """`rope_theta` and `rope_scaling` of these frequencies. RequestProblem where there are none."""
    said = {FAMILIES[config.family].word("rope_theta"): base}
    slowed, dim = slowing(config, base), 2 * int(np.count_nonzero(config.inv_freq))
    if np.allclose(slowed, 1, rtol=_CLOSE):
        return said
    factor = float(f"{max(slowed):.6g}")
    if np.allclose(slowed, factor, rtol=_CLOSE):
        return said | {"rope_scaling": {"rope_type": "linear", "factor": factor}}
    for context in _CONTEXTS:
        scaling = {
            "rope_type": "llama3",
            "factor": factor,
            **_RAMP,
            "original_max_position_embeddings": context,
        }
        if np.allclose(frequencies(base, dim, Keys(scaling, where)), config.inv_freq, rtol=_CLOSE):
            return said | {"rope_scaling": scaling}
    what = f"the rotary frequencies of {where} are slowed as no config.json can say"
    raise RequestProblem(what, fix="start from the folder of safetensors it was made from")


# --- what one family says and others do not -------------------------------------------------------


def _nothing(_: ModelConfig) -> Words:
    return {}


def _window(config: ModelConfig) -> Words:
    """The window of all layers."""
    return {"sliding_window": max(config.windows) or None}


def _no_window(_: ModelConfig) -> Words:
    return {"use_sliding_window": False, "sliding_window": None}


def _phi3(config: ModelConfig) -> Words:
    turned = 2 * int(np.count_nonzero(config.inv_freq))
    return _window(config) | {
        "partial_rotary_factor": turned / config.head_dim,
        "original_max_position_embeddings": config.context,
        "pad_token_id": None,  # else transformers takes one that a small vocabulary does not have
    }


def _gemma3(config: ModelConfig) -> Words:
    scalar = 1 / config.attn_scale**2
    return _window(config) | {
        "layer_types": ["sliding_attention" if window else "full_attention" for window in config.windows],
        "query_pre_attn_scalar": round(scalar) if abs(scalar - round(scalar)) < 1e-3 else scalar,
        "rope_local_base_freq": local_base(config),
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    }


def local_base(config: ModelConfig) -> float:
    """What the frequencies of layers with a window are powers of."""
    turning = [frequency for frequency in config.local_inv_freq if frequency]
    if len(turning) < 2:
        return _LOCAL_BASE
    return float(f"{turning[1] ** -len(turning):.5g}")


def _neox(config: ModelConfig) -> Words:
    turned = 2 * int(np.count_nonzero(config.inv_freq))
    return {
        "rotary_pct": turned / config.head_dim,
        "use_parallel_residual": config.parallel,
        "attention_bias": config.qkv_bias,
    }


def _deci(config: ModelConfig) -> Words:
    return {
        "model_type": "nemotron-nas",
        "intermediate_size": None,
        "num_key_value_heads": None,
        "qkv_bias": config.qkv_bias,
        "block_configs": blocks(config.ffn, config.heads // config.kv_heads),
    }


def blocks(widths: Sequence[int], group: int) -> list[Words]:
    """What DeciLM says of each layer."""
    whole = {"no_op": False, "replace_with_linear": False}
    return [
        {"attention": {**whole, "n_heads_in_group": group}, "ffn": {**whole, "intermediate_size": width}}
        for width in widths
    ]


_OF_FAMILY: Final[Mapping[str, Callable[[ModelConfig], Words]]] = {
    "mistral": _window,
    "qwen2": _no_window,
    "qwen3": _no_window,
    "phi3": _phi3,
    "gemma3_text": _gemma3,
    "gpt_neox": _neox,
    "deci": _deci,
}
