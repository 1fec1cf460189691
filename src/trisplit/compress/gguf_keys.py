"""The keys of an exported GGUF: those of the GGUF it comes from, or the facts of a folder in GGUF's words."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from gguf import GGUFReader, GGUFValueType
from gguf.constants import GGML_QUANT_VERSION

from trisplit.compress.describing import local_base, rope_base, slowing
from trisplit.compress.gguf_tokenizer import tokenizer_keys
from trisplit.compress.gguf_values import Value, typed
from trisplit.compress.kinds import Floats, Kind
from trisplit.compress.targets import ARCHS
from trisplit.models.config import ModelConfig
from trisplit.models.families import FAMILIES
from trisplit.models.model import Model

ROPE_TENSOR: Final = "rope_freqs.weight"

_LOCAL_BASE: Final = 10_000.0
# Of one file alone: they are written anew, or hold no more.
_OWN: Final = ("GGUF.", "split.")
_WRITTEN: Final = ("general.architecture", "general.file_type", "general.quantization_version")


def keys_of(model: Model, target: ModelConfig, kind: Kind) -> dict[str, Value]:
    """All keys of the model as a GGUF of these facts and numbers, but for its architecture.

    Problems as of `tokenizer_keys`.
    """
    arch = ARCHS[target.family]
    if model.checkpoint.format == "gguf":
        keys = _carried(model, arch)
    else:
        keys = typed(_facts(model, target, arch)) | tokenizer_keys(model, target.vocab)
    widths = target.ffn[0] if len(set(target.ffn)) == 1 else list(target.ffn)
    keys |= typed({f"{arch}.feed_forward_length": widths, "general.file_type": int(kind.file_type)})
    if kind.dtype is None:
        keys |= typed({"general.quantization_version": GGML_QUANT_VERSION})
    return keys


def rope_tensor(model: Model, target: ModelConfig) -> Floats | None:
    """What llama.cpp divides each rotary frequency by, where that is not the same for all; else None."""
    if ROPE_TENSOR in model.checkpoint.tensors:
        return model.checkpoint.read(ROPE_TENSOR)
    slowed = np.array(slowing(target, rope_base(model)), np.float32)
    return None if np.allclose(slowed, slowed[0], rtol=1e-5) else slowed


def _carried(model: Model, arch: str) -> dict[str, Value]:
    """Every key of the file that the model comes from; those of its architecture by the new one's name."""
    old = f"{model.checkpoint.metadata['general.architecture']}."
    keys = dict[str, Value]()
    for name, field in GGUFReader(model.checkpoint.path).fields.items():
        if name.startswith(_OWN) or name in _WRITTEN:
            continue
        called = f"{arch}.{name.removeprefix(old)}" if name.startswith(old) else name
        main, item = field.types[0], field.types[-1]
        if GGUFValueType.STRING in (main, item):
            texts = [field.parts[i].tobytes() for i in field.data]
            value: Any = texts if main == GGUFValueType.ARRAY else texts[0]
        else:
            value = field.contents()
        keys[called] = Value(value, main, item if main == GGUFValueType.ARRAY else None)
    return keys


# --- facts ----------------------------------------------------------------------------------------


def _facts(model: Model, target: ModelConfig, arch: str) -> dict[str, Any]:
    family, window = FAMILIES[target.family], max(target.windows)
    norm = f"attention.layer_norm_{'' if family.layer_norm else 'rms_'}epsilon"
    facts: dict[str, Any] = {
        "vocab_size": target.vocab,
        "context_length": target.context,
        "embedding_length": target.hidden,
        "block_count": target.layers,
        "attention.head_count": target.heads,
        "attention.head_count_kv": target.kv_heads,
        "attention.key_length": target.head_dim,
        "attention.value_length": target.head_dim,
        norm: float(target.norm_eps),
        "rope.dimension_count": 2 * int(np.count_nonzero(target.inv_freq)),
        "rope.freq_base": float(rope_base(model)),
    }
    if window:
        facts["attention.sliding_window"] = window
    if target.local_inv_freq and local_base(target) != _LOCAL_BASE:
        facts["rope.freq_base_swa"] = local_base(target)
    if family.parallel:
        facts["use_parallel_residual"] = target.parallel
    if target.family == "phi3":
        facts["rope.scaling.original_context_length"] = target.context
    slowed = slowing(target, rope_base(model))
    if rope_tensor(model, target) is None and not np.isclose(slowed[0], 1, rtol=1e-5):
        facts |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(f"{slowed[0]:.6g}")}
    named = model.checkpoint.metadata.get("_name_or_path") or model.checkpoint.path.absolute().name
    return {"general.name": str(named)} | {f"{arch}.{key}": value for key, value in facts.items()}
