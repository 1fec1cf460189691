"""Tiny encoders, BERT and ViT, with the names real checkpoints have."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

HIDDEN, FFN, HEADS = 32, 48, 4
_BERT = {
    "q": ("attention.self.query", HIDDEN, HIDDEN),
    "k": ("attention.self.key", HIDDEN, HIDDEN),
    "v": ("attention.self.value", HIDDEN, HIDDEN),
    "out": ("attention.output.dense", HIDDEN, HIDDEN),
    "up": ("intermediate.dense", FFN, HIDDEN),
    "down": ("output.dense", HIDDEN, FFN),
}
_TIMM = {
    "qkv": ("attn.qkv", 3 * HIDDEN, HIDDEN),
    "out": ("attn.proj", HIDDEN, HIDDEN),
    "up": ("mlp.fc1", FFN, HIDDEN),
    "down": ("mlp.fc2", HIDDEN, FFN),
}


def matrix(layer: int, role: str, rows: int, columns: int) -> np.ndarray:
    """What the encoder has there, (out, in)."""
    seed = [layer, sum(map(ord, role))]
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def bert(folder: Path) -> Path:
    """A folder of safetensors, as transformers saves BERT."""
    return _folder(folder, "bert", "bert.encoder.layer.{}.", _BERT)


def vit(folder: Path) -> Path:
    """The same with q, k and v in one, as timm names ViT."""
    return _folder(folder, "vit", "blocks.{}.", _TIMM)


def _folder(folder: Path, kind: str, prefix: str, names: dict[str, tuple[str, int, int]]) -> Path:
    folder.mkdir()
    tensors = {"embeddings.position_ids": np.arange(5), "pooler.dense.weight": np.ones((4, 4), np.float32)}
    for layer in range(2):
        for role, (name, rows, columns) in names.items():
            tensors[f"{prefix.format(layer)}{name}.weight"] = matrix(layer, role, rows, columns)
            tensors[f"{prefix.format(layer)}{name}.bias"] = np.zeros(rows, np.float32)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": kind, "num_attention_heads": HEADS}))
    return folder


def onnx_encoder(path: Path) -> Path:
    """An ONNX graph as torch exports one: nodes named after modules, matrices (in, out) after nothing."""
    nodes, held = [], []
    for layer in range(2):
        for number, (role, (name, rows, columns)) in enumerate(_BERT.items()):
            values = matrix(layer, role, rows, columns)
            gemm = role == "down"
            held.append(
                numpy_helper.from_array(values if gemm else values.T.copy(), f"onnx::MatMul_{layer}{number}")
            )
            kind, more = ("Gemm", {"transB": 1}) if gemm else ("MatMul", {})
            module = f"/encoder/layer.{layer}/{name.replace('.', '/')}/{kind}"
            nodes.append(
                helper.make_node(
                    kind, [f"x{rows}{role}", held[-1].name], [f"y{layer}{role}"], name=module, **more
                )
            )
    graph = helper.make_graph(nodes, "g", [], [], held)
    assert held[0].data_type == TensorProto.FLOAT
    onnx.save(helper.make_model(graph), path)
    return path
