"""The same tiny model as a GGUF file, laid out as llama.cpp's converter lays it out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

Config = dict[str, Any]

_ARCHS = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "nemotron-nas": gguf.MODEL_ARCH.DECI,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "gpt_neox": gguf.MODEL_ARCH.GPTNEOX,
}


def write_gguf(
    checkpoint: Path, path: Path, *, types: str | Mapping[str, str] = "F32", split_max_tensors: int = 0
) -> Path:
    """Write the safetensors folder `checkpoint` as llama.cpp's converter would, and return the (first) file.

    `types` is F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 or Q5_1 for all matrices, or a mapping from patterns of
    GGUF tensor names to those (the first match wins, F32 where none does). Vectors stay F32, and so do
    matrices whose rows are no multiple of the type's block. With `split_max_tensors` the model is cut into
    files `…-00001-of-0000N.gguf`. ValueError for a model that GGUF has no words for.
    """
    config: Config = _read_json(checkpoint / "config.json")
    arch = _ARCHS[config["model_type"]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch], split_max_tensors=split_max_tensors)
    _add_facts(writer, config)
    _add_rope(writer, config)
    _add_tokenizer(writer, checkpoint, config)
    wanted = {"*": types} if isinstance(types, str) else types
    # llama.cpp's own table of deci lacks the biases that it loads; llama's has the same names.
    named = gguf.MODEL_ARCH.LLAMA if arch == gguf.MODEL_ARCH.DECI else arch
    names = gguf.get_tensor_name_map(named, config["num_hidden_layers"])
    for file in sorted(checkpoint.glob("*.safetensors")):
        for hf_name, tensor in load_file(file).items():
            name = names.get_name(hf_name, try_suffixes=(".weight", ".bias"))
            if name is None:
                raise ValueError(f"llama.cpp has no name for {hf_name}")
            _add_tensor(writer, name, _as_gguf(config, hf_name, tensor.astype(np.float32)), wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    files = [
        shard for shard in (path, *sorted(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))) if shard.exists()
    ]
    writer.close()
    return files[-1]


def _as_gguf(config: Config, hf_name: str, tensor: np.ndarray) -> np.ndarray:
    """The tensor in llama.cpp's layout: rotary pairs side by side, norms 1 + w, all q before all k and v."""
    if config["model_type"] == "gemma3_text" and "norm" in hf_name:
        return tensor + 1
    if "query_key_value" in hf_name:  # head by head, each q k v
        by_head = tensor.reshape(config["num_attention_heads"], 3, _head_dim(config), *tensor.shape[1:])
        return np.ascontiguousarray(by_head.swapaxes(0, 1)).reshape(tensor.shape)
    if config["model_type"] in ("llama", "mistral", "nemotron-nas") and any(
        part in hf_name for part in (".q_proj.", ".k_proj.")
    ):
        halves = tensor.reshape(-1, 2, _head_dim(config) // 2, *tensor.shape[1:])
        return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(tensor.shape)
    return tensor


def _add_tensor(writer: gguf.GGUFWriter, name: str, tensor: np.ndarray, wanted: Mapping[str, str]) -> None:
    kind = next((kind for pattern, kind in wanted.items() if fnmatch(name, pattern)), "F32")
    qtype = gguf.GGMLQuantizationType[kind]
    if tensor.ndim == 1 or tensor.shape[-1] % gguf.GGML_QUANT_SIZES[qtype][0]:
        qtype = gguf.GGMLQuantizationType.F32
    writer.add_tensor(name, gguf.quants.quantize(tensor, qtype), raw_dtype=qtype)


def _add_facts(writer: gguf.GGUFWriter, config: Config) -> None:
    dim = _head_dim(config)
    writer.add_name(config["model_type"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(
        _of_layers(config, "ffn", "intermediate_size") or config["intermediate_size"]
    )
    writer.add_head_count(config["num_attention_heads"])
    if config["model_type"] == "gpt_neox":
        writer.add_parallel_residual(config["use_parallel_residual"])
        writer.add_layer_norm_eps(config["layer_norm_eps"])
    else:
        groups = _of_layers(config, "attention", "n_heads_in_group")
        shared = [config["num_attention_heads"] // group for group in groups]
        writer.add_head_count_kv(shared or config["num_key_value_heads"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if config.get("head_dim"):
        writer.add_key_length(dim)
        writer.add_value_length(dim)
    if config["model_type"].startswith("qwen"):
        if config["use_sliding_window"]:
            raise ValueError("GGUF has no words for a window on some layers of qwen")
    elif config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if config["model_type"] == "gemma3_text":
        if config["query_pre_attn_scalar"] != dim:
            raise ValueError("GGUF has no words for an attention scale of gemma3")
        period = config["layer_types"].index("full_attention") + 1
        if period != 6:  # llama.cpp's default; published files do not carry the key
            writer.add_sliding_window_pattern(period)


def _of_layers(config: Config, part: str, key: str) -> list[int]:
    """What each layer of DeciLM says; nothing for other families."""
    return [block[part][key] for block in config.get("block_configs", ())]


def _add_rope(writer: gguf.GGUFWriter, config: Config) -> None:
    dim = int(_head_dim(config) * config.get("partial_rotary_factor", config.get("rotary_pct", 1.0)))
    writer.add_rope_dimension_count(dim)
    writer.add_rope_freq_base(config.get("rope_theta") or config["rotary_emb_base"])
    if config["model_type"] == "phi3":
        writer.add_rope_scaling_orig_ctx_len(config["original_max_position_embeddings"])
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif scaling.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_divisors(config["rope_theta"], dim, scaling))


def _llama3_divisors(base: float, dim: int, scaling: Config) -> np.ndarray:
    """What llama.cpp divides each rotary frequency by, shape (dim / 2,)."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] / (2 * math.pi * base ** (np.arange(0, dim, 2) / dim))
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return np.asarray(1 / ((1 - smooth) / scaling["factor"] + smooth), dtype=np.float32)


def _head_dim(config: Config) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _add_tokenizer(writer: gguf.GGUFWriter, checkpoint: Path, config: Config) -> None:
    tokenizer = _read_json(checkpoint / "tokenizer.json")
    facts = _read_json(checkpoint / "tokenizer_config.json")
    ids: dict[str, int] = tokenizer["model"]["vocab"]
    tokens = sorted(ids, key=ids.__getitem__)
    unused = [f"[PAD{number}]" for number in range(len(tokens), config["vocab_size"])]
    special = {token["content"] for token in tokenizer["added_tokens"]}
    kinds = [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens + unused)
    writer.add_token_types(kinds + [gguf.TokenType.UNUSED] * len(unused))
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(ids[facts["bos_token"]])
    writer.add_eos_token_id(ids[facts["eos_token"]])
    writer.add_pad_token_id(ids[facts["pad_token"]])
    writer.add_add_bos_token(facts["add_bos_token"])
    writer.add_chat_template(facts["chat_template"])


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
