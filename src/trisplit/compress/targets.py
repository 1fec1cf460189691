"""What a model can be exported as: the facts of the copy for each format, and why some cannot be had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from trisplit.compress.describing import rope_base, slowing, stock
from trisplit.errors import RequestProblem, UnknownName
from trisplit.models.config import ModelConfig
from trisplit.models.families import FAMILIES, GGUF_FAMILIES
from trisplit.models.model import Model

FORMATS: Final[Mapping[str, str]] = {
    "safetensors": "a folder that stock loaders read, all layers as wide as the widest",
    "deci": "a folder of safetensors with a width for each layer (DeciLM)",
    "gguf": "one file, as llama.cpp reads it",
}
# Families that differ from DeciLM in nothing, once they have no window.
_AS_DECI: Final = ("llama", "mistral", "qwen2", "deci")
# general.architecture of what a family is written as.
ARCHS: Final[Mapping[str, str]] = {family: arch for arch, family in GGUF_FAMILIES.items()} | {
    "mistral": "llama"
}
# Biases that llama.cpp knows in architectures that may not have them all.
_BIASES: Final[Mapping[str, tuple[str, ...]]] = {"qwen2": ("qkv",), "qwen3": (), "phi3": (), "gemma3": ()}
_LLAMA_PERIOD: Final = 6  # layers from one full one to the next that llama.cpp takes for gemma3
_SLOWED_BY_TENSOR: Final = ("llama", "deci")  # architectures that llama.cpp reads rope_freqs of


def target_of(model: Model, format: str, widths: Sequence[int]) -> ModelConfig:
    """The facts of the model with FFNs of these widths, as it is written in a format.

    UnknownName for what is no format; RequestProblem for a model that has what the format cannot say.
    """
    if format not in FORMATS:
        raise UnknownName("format", format, FORMATS)
    narrower = replace(model, config=replace(model.config, ffn=tuple(widths)))
    if format == "safetensors":
        return stock(narrower)
    return as_deci(narrower.config) if format == "deci" else _as_gguf(narrower)


def may_differ(config: ModelConfig) -> bool:
    """Whether some format can say a width for each layer of such a model."""
    return config.family in _AS_DECI and config.activation == "silu" and not any(config.windows)


def as_deci(config: ModelConfig) -> ModelConfig:
    """The same decoder as DeciLM says it; RequestProblem, with the reason, for what DeciLM cannot say."""
    if config.family not in _AS_DECI:
        raise _refused(config, "DeciLM", _why_not(config))
    if any(config.windows):
        raise _refused(config, "DeciLM", "its layers have a window")
    if config.activation != "silu":
        raise _refused(config, "DeciLM", f"its activation is {config.activation}")
    return replace(config, family="deci")


def _why_not(config: ModelConfig) -> str:
    family = FAMILIES[config.family]
    quirks = {
        "a norm of each query and key head": family.qk_norm,
        "fused matrices": family.fused_qkv,
        "norms behind attention and FFN": family.sandwich,
        "layer norms": family.layer_norm,
    }
    return f"a {config.family} has {' and '.join(what for what, has in quirks.items() if has)}"


def _as_gguf(model: Model) -> ModelConfig:
    config = model.config
    if len(set(config.ffn)) > 1 or config.family == "deci":
        config = as_deci(config)
    arch = ARCHS[config.family]
    slowed = np.array(slowing(config, rope_base(model)))
    if not np.allclose(slowed, slowed[0], rtol=1e-5) and arch not in _SLOWED_BY_TENSOR:
        raise _refused(config, "GGUF", "some of its rotary waves are slowed and others are not")
    if config.family in ("qwen2", "qwen3") and any(config.windows):
        raise _refused(config, "GGUF", "some of its layers have a window, and GGUF has no word for that")
    biases = {"qkv": config.qkv_bias, "out": config.out_bias, "mlp": config.mlp_bias}
    if odd := [name for name, has in biases.items() if has and name not in _BIASES.get(arch, biases)]:
        raise _refused(config, "GGUF", f"llama.cpp knows no biases of {' and '.join(odd)} in a {arch}")
    if config.family == "gemma3_text":
        _refuse_odd_gemma(config)
    if config.family == "gpt_neox":
        if config.activation != "gelu":
            raise _refused(config, "GGUF", f"its activation is {config.activation}, and GGUF has gelu alone")
        # llama.cpp takes no model of this family without its biases or a head of its own.
        return replace(config, qkv_bias=True, out_bias=True, tied_head=False)
    return replace(config, family="llama") if config.family == "mistral" else config


def _refuse_odd_gemma(config: ModelConfig) -> None:
    if not np.isclose(config.attn_scale, config.head_dim**-0.5):
        raise _refused(config, "GGUF", "its attention scale is not that of its heads")
    period = period_of(config)
    if period != _LLAMA_PERIOD and period <= config.layers:
        raise _refused(config, "GGUF", f"every {period}th layer has no window; llama.cpp takes every 6th")


def period_of(config: ModelConfig) -> int:
    """Every how many layers there is one without a window."""
    return config.windows.index(0) + 1 if 0 in config.windows else config.layers + 1


def _refused(config: ModelConfig, format: str, why: str) -> RequestProblem:
    what = f"this {config.family} cannot be written as {format}: {why}"
    return RequestProblem(what, fix="use --format safetensors, which takes every model we load")
