"""Tiny seeded models of every family, built in code as ordinary checkpoints.

Nothing here knows trisplit: names, configs and layouts are those of transformers (and of llama.cpp in
`write_gguf`), so that a test which loads these files meets what a real checkpoint would bring.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tests.tiny_gguf import write_gguf

__all__ = ["BOS", "EOS", "GGUF_VARIANTS", "PAD", "UNEVEN", "VARIANTS", "build", "build_variant", "write_gguf"]

Tensors = dict[str, np.ndarray]
Config = dict[str, Any]

PAD, BOS, EOS = 0, 1, 2
SPECIALS = ("<pad>", "<s>", "</s>")
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ message['role'] }}: {{ message['content'] }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}

_COMMON: Config = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 320,
    "max_position_embeddings": 512,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "pad_token_id": None,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}
# What each family's published config.json adds; windows are short so that every test crosses them.
_FAMILIES: dict[str, Config] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "mlp_bias": False},
    "mistral": {"architectures": ["MistralForCausalLM"], "sliding_window": 16},
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"],
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "use_sliding_window": False,
        "sliding_window": 16,
        "max_window_layers": 2,
    },
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "head_dim": 32,
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "use_sliding_window": False,
        "sliding_window": None,
    },
    "phi3": {
        "architectures": ["Phi3ForCausalLM"],
        "sliding_window": 16,
        "original_max_position_embeddings": 512,
        "rope_scaling": None,
    },
    "gemma3_text": {
        "architectures": ["Gemma3ForCausalLM"],
        "num_key_value_heads": 1,
        "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "query_pre_attn_scalar": 32,
        "sliding_window": 16,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    },
    "deci": {  # as the Nemotrons; each layer has a width of its own: `widths` makes their `block_configs`
        "architectures": ["DeciLMForCausalLM"],
        "attention_bias": False,
        "mlp_bias": False,
        "intermediate_size": None,
        "num_key_value_heads": None,
        "widths": (96, 64, 32, 160),
    },
    "gpt_neox": {  # as Pythia: a quarter of each head of 64 turns
        "architectures": ["GPTNeoXForCausalLM"],
        "hidden_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": ...,
        "hidden_act": "gelu",
        "rms_norm_eps": ...,
        "layer_norm_eps": 1e-5,
        "rope_theta": ...,
        "rotary_emb_base": 10_000,
        "rotary_pct": 0.25,
        "use_parallel_residual": True,
    },
}
# The original context of 64 puts some frequencies on each side of Llama 3's ramp and some on it.
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {"family": "llama"},
    "llama-llama3-rope": {"family": "llama", "rope_scaling": _LLAMA3, "rope_theta": 500_000.0},
    "llama-linear-rope": {"family": "llama", "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama-biases": {"family": "llama", "attention_bias": True, "mlp_bias": True, "tied": True},
    "mistral": {"family": "mistral"},
    "mistral-no-window": {"family": "mistral", "sliding_window": None, "head_dim": 32},
    "qwen2": {"family": "qwen2"},
    "qwen2-window": {"family": "qwen2", "use_sliding_window": True, "tied": False},
    "qwen3": {"family": "qwen3"},
    "qwen3-biases": {"family": "qwen3", "attention_bias": True},
    "phi3": {"family": "phi3"},
    "phi3-partial-rotary": {
        "family": "phi3",
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "partial_rotary_factor": 0.5,
        "sliding_window": None,
    },
    "gemma3": {"family": "gemma3_text", "layers": 6},
    "gemma3-biases": {"family": "gemma3_text", "layers": 6, "attention_bias": True},
    # What a config leaves out is what transformers takes for it; `...` leaves a key out.
    "gemma3-defaults": {
        "family": "gemma3_text",
        "layers": 6,
        "sliding_window": ...,
        "layer_types": ...,
        "rope_theta": ...,
        "rope_local_base_freq": ...,
        "rms_norm_eps": ...,
        "hidden_activation": ...,
        "query_pre_attn_scalar": ...,
    },
    # As transformers 5 writes it; the attention scale is not that of the head dimension (as in the 27B).
    "gemma3-linear-rope": {
        "family": "gemma3_text",
        "layers": 6,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
        "query_pre_attn_scalar": 20,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    },
    "neox": {"family": "gpt_neox"},
    "neox-sequential": {  # as GPT-NeoX-20B, 24 dimensions of each head turn
        "family": "gpt_neox",
        "use_parallel_residual": False,
        "num_attention_heads": 4,
        "rotary_pct": 0.75,
    },
    # As transformers 5 writes it, with another gelu, and only the biases that are always there.
    "neox-tanh": {
        "family": "gpt_neox",
        "hidden_act": "gelu_new",
        "attention_bias": False,
        "tied": True,
        "rotary_emb_base": ...,
        "rotary_pct": ...,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50_000.0, "partial_rotary_factor": 1.0},
    },
    "neox-defaults": {
        "family": "gpt_neox",
        **dict.fromkeys(
            ("hidden_act", "layer_norm_eps", "rotary_emb_base", "rotary_pct", "use_parallel_residual"), ...
        ),
    },
}
# Layers of different widths, which stock loaders of other families cannot have.
UNEVEN: dict[str, dict[str, Any]] = {
    "deci": {"family": "deci"},
    "deci-biases": {"family": "deci", "qkv_bias": True, "tied": True, "widths": (32, 96, 96, 64)},
}
# GGUF has no words for a window on some layers of qwen2, for an attention scale of gemma3, or for a gelu.
GGUF_VARIANTS = tuple(
    name
    for name in VARIANTS
    if name not in ("qwen2-window", "gemma3-linear-rope", "gemma3-defaults", "neox-tanh", "neox-defaults")
)


def build_variant(name: str, folder: Path, **changes: Any) -> Path:
    """Build VARIANTS[name] or UNEVEN[name] with `changes` on top; see `build`."""
    return build(**{**VARIANTS, **UNEVEN}[name] | changes, folder=folder)


def build(
    family: str,
    folder: Path,
    *,
    seed: int = 0,
    layers: int = 4,
    dtype: str = "F32",
    shards: int = 1,
    tied: bool | None = None,
    **config_overrides: Any,
) -> Path:
    """Write config, weights and tokenizer of a tiny `family` model into `folder`, and return it.

    Every weight depends on the seed, its name and its shape alone, so that models which differ in one
    override differ in nothing else; an override of `...` leaves its key out. `dtype` is F32, F16 or BF16;
    more than one shard comes with an index.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = _config(family, layers, config_overrides)
    if tied is not None:
        config["tie_word_embeddings"] = tied
    config["torch_dtype"] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[dtype]
    tensors = {
        name: _weight(config, name, shape, seed).astype(DTYPES[dtype])
        for name, shape in _shapes(config).items()
    }
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS})
    _write_shards(folder, tensors, shards)
    _write_tokenizer(folder, config)
    return folder


# --- config and weights ---------------------------------------------------------------------------


def _config(family: str, layers: int, overrides: Config) -> Config:
    config = {"tie_word_embeddings": False, **_COMMON, **_FAMILIES[family], **overrides}
    config |= {"model_type": family, "num_hidden_layers": layers}
    if family == "deci":
        config |= {"model_type": "nemotron-nas", "block_configs": _blocks(config.pop("widths"))}
    if family == "gemma3_text":
        kinds = ["sliding_attention"] * (min(layers, 6) - 1) + ["full_attention"]
        config.setdefault("layer_types", (kinds * layers)[:layers])
        for moved in (
            "hidden_act",
            *(("rope_theta", "rope_local_base_freq") if "rope_parameters" in config else ()),
        ):
            del config[moved]
    return {key: value for key, value in config.items() if value is not ...}


def _blocks(widths: Sequence[int]) -> list[Config]:
    """What DeciLM says of each layer: two query heads share a key and a value head."""
    here = {"no_op": False, "replace_with_linear": False}
    return [
        {"attention": {**here, "n_heads_in_group": 2}, "ffn": {**here, "intermediate_size": width}}
        for width in widths
    ]


def _head_dim(config: Config) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Every tensor transformers expects of this config, by its own name."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    if config["model_type"] == "gpt_neox":
        return _neox_shapes(config)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        of_layer = _layer_shapes(_of_layer(config, layer))
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in of_layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    return shapes


def _of_layer(config: Config, layer: int) -> Config:
    """The config with what only its block says."""
    if "block_configs" not in config:
        return config
    block, heads = config["block_configs"][layer], config["num_attention_heads"]
    groups = heads // block["attention"]["n_heads_in_group"]
    return {**config, "num_key_value_heads": groups, "intermediate_size": block["ffn"]["intermediate_size"]}


def _layer_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    family, hidden, ffn = config["model_type"], config["hidden_size"], config["intermediate_size"]
    dim = _head_dim(config)
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    if family == "phi3":
        rows = {"self_attn.qkv": (q + 2 * kv, hidden), "mlp.gate_up": (2 * ffn, hidden)}
    else:
        rows = {"self_attn.q": (q, hidden), "self_attn.k": (kv, hidden), "self_attn.v": (kv, hidden)}
        rows |= {"mlp.gate": (ffn, hidden), "mlp.up": (ffn, hidden)}
    rows |= {"self_attn.o": (hidden, q), "mlp.down": (hidden, ffn)}
    shapes: dict[str, tuple[int, ...]] = {f"{name}_proj.weight": shape for name, shape in rows.items()}
    biased = {"self_attn.": config.get("attention_bias"), "mlp.": config.get("mlp_bias")}
    of_qkv = family == "qwen2" or config.get("qkv_bias")
    for name, shape in rows.items():
        if any(wanted and name.startswith(part) for part, wanted in biased.items()) or (
            of_qkv and name in ("self_attn.q", "self_attn.k", "self_attn.v")
        ):
            shapes[f"{name}_proj.bias"] = shape[:1]
    norms = ["input_layernorm", "post_attention_layernorm"]
    norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if family == "gemma3_text" else []
    shapes |= {f"{norm}.weight": (hidden,) for norm in norms}
    if family in ("qwen3", "gemma3_text"):
        shapes |= {f"self_attn.{norm}.weight": (dim,) for norm in ("q_norm", "k_norm")}
    return shapes


def _neox_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    biased = config.get("attention_bias", True)
    shapes: dict[str, tuple[int, ...]] = {"gpt_neox.embed_in.weight": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        of_layer = f"gpt_neox.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes |= {f"{of_layer}{norm}.{part}": (hidden,) for part in ("weight", "bias")}
        for name, shape in {
            "attention.query_key_value": (3 * hidden, hidden),
            "attention.dense": (hidden, hidden),
            "mlp.dense_h_to_4h": (ffn, hidden),
            "mlp.dense_4h_to_h": (hidden, ffn),
        }.items():
            shapes[f"{of_layer}{name}.weight"] = shape
            if biased or name.startswith("mlp"):
                shapes[f"{of_layer}{name}.bias"] = shape[:1]
    shapes |= {f"gpt_neox.final_layer_norm.{part}": (hidden,) for part in ("weight", "bias")}
    return shapes if config["tie_word_embeddings"] else {**shapes, "embed_out.weight": (vocab, hidden)}


def _weight(config: Config, name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Uniform noise of a size that keeps activations near 1 and logits some 3 wide, float32.

    Uniform and not normal: it takes no library function whose last bit depends on the platform.
    """
    noise = np.random.default_rng([seed, zlib.crc32(name.encode())]).random(shape) * 2 - 1
    centre, spread = _centre_and_std(config, name, shape)
    return (centre + noise * math.sqrt(3) * spread).astype(np.float32)


def _centre_and_std(config: Config, name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    gemma, tied = config["model_type"] == "gemma3_text", config["tie_word_embeddings"]
    # A tied head answers with the token it just read unless the embedding is small beside the layers.
    embed = 1.0 if not tied else 0.05 if gemma else 0.1
    if name.endswith(".bias"):
        return 0.0, 0.2
    if "norm" in name:
        last = name in ("model.norm.weight", "gpt_neox.final_layer_norm.weight")
        gain = 0.4 / embed if tied and last else 1.5 if "q_norm" in name else 1.0
        return gain - gemma, 0.2
    if "embed_tokens" in name or "embed_in" in name:
        return 0.0, embed
    sharp = ("lm_head", 3.0), ("down_proj", 2.0), ("q_proj", 1.5), ("k_proj", 1.5), ("qkv_proj", 1.5)
    sharp += ("embed_out", 3.0), ("dense_4h_to_h", 2.0), ("query_key_value", 1.5)
    gain = next((gain for part, gain in sharp if part in name), 1.0)
    return 0.0, gain / math.sqrt(shape[-1])


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def _write_shards(folder: Path, tensors: Tensors, shards: int) -> None:
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    weight_map: dict[str, str] = {}
    for shard, names in enumerate(np.array_split(list(tensors), shards), start=1):
        file = f"model-{shard:05d}-of-{shards:05d}.safetensors"
        part = {str(name): tensors[name] for name in names}
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    _write_json(folder / "model.safetensors.index.json", index)


# --- tokenizer ------------------------------------------------------------------------------------


def _adds_bos(config: Config) -> bool:
    return not config["model_type"].startswith("qwen")


def _write_tokenizer(folder: Path, config: Config) -> None:
    """A byte-level BPE with GPT-2's splitting, trained on this file's own docstrings."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config["vocab_size"],
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([__doc__ or "", build.__doc__ or ""], trainer)
    if _adds_bos(config):
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", BOS)])
    tokenizer.save(str(folder / "tokenizer.json"))
    facts = {
        "add_bos_token": _adds_bos(config),
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "chat_template": CHAT_TEMPLATE,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    _write_json(folder / "tokenizer_config.json", facts)
