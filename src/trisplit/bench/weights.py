"""How many bytes of weights a model has, and how many of them a token reads; told from headers alone."""

from __future__ import annotations

from trisplit.models.convert import Dtype
from trisplit.models.model import Model


def weight_bytes(model: Model, dtype: Dtype) -> int:
    """Bytes of all weights, a tied head counted once."""
    embed = 0 if model.config.tied_head else model.weight_bytes(model.stages[0], dtype)
    return embed + bytes_per_token(model, dtype)


def bytes_per_token(model: Model, dtype: Dtype) -> int:
    """Bytes of weights decoding one token reads: all layers and the head, and of the embedding just a row."""
    return sum(model.weight_bytes(stage, dtype) for stage in model.stages[1:])


def file_bytes_per_token(model: Model) -> int:
    """The same for an engine that runs a GGUF file as it is."""
    tensors = model.checkpoint.tensors
    apart = "token_embd.weight" if "output.weight" in tensors else ""
    return sum(tensor.n_bytes for name, tensor in tensors.items() if name != apart)
