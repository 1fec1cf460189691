"""Which matrices the layers of a model are made of: decoders we run, BERT and ViT encoders."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from trisplit.errors import CheckpointProblem, RequestProblem
from trisplit.models import head_order
from trisplit.models.checkpoint import Checkpoint, open_checkpoint
from trisplit.models.config import Stage, layer_stages
from trisplit.models.families import FAMILIES, HF_FAMILIES
from trisplit.models.layout import layout
from trisplit.models.model import Model, open_model
from trisplit.models.session import Floats

Role = Literal["q", "k", "v", "out", "gate", "up", "down"]
ROLES: Final[tuple[Role, ...]] = ("q", "k", "v", "out", "gate", "up", "down")

# Which of a layer's matrices of ours the input of a role is counted for.
GIVEN: Final[Mapping[Role, str]] = {
    "q": "qkv",
    "k": "qkv",
    "v": "qkv",
    "out": "out",
    "gate": "gate_up",
    "up": "gate_up",
    "down": "down",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A matrix of a layer; `read` gives it as (out, in)."""

    layer: int
    role: Role
    read: Callable[[], Floats]


@dataclass(frozen=True, slots=True)
class Anatomy:
    """All matrices of a model's layers, in order.

    `heads` of queries and `kv_heads` of keys and values; 0 where nobody says. `model` is there for decoders.
    """

    kind: str
    layers: int
    heads: int
    kv_heads: int
    parts: tuple[Part, ...]
    model: Model | None = None

    def of(self, layer: int) -> list[Part]:
        """The matrices of one layer."""
        return [part for part in self.parts if part.layer == layer]

    def decoder(self) -> Model:
        """The model; RequestProblem for encoders, of which we can only look at the spectra."""
        if self.model is None:
            raise RequestProblem("only decoders can be made smaller here", fix="name a decoder")
        return self.model


def dissect(path: Path, *, heads: int | None = None) -> Anatomy:
    """The anatomy of a model: a decoder, or an encoder as safetensors or ONNX.

    `heads`: of an encoder whose file does not say. CheckpointProblem for what is none of these;
    RequestProblem when the heads do not divide its width.
    """
    if path.suffix == ".onnx":
        anatomy = _encoder("onnx", _onnx_matrices(path), heads or 0)
    else:
        checkpoint = open_checkpoint(path)
        if checkpoint.format == "gguf" or checkpoint.metadata.get("model_type") in HF_FAMILIES:
            return _decoder(open_model(path))
        said = checkpoint.metadata.get("num_attention_heads", 0)
        stored = {name: _reader(checkpoint, name) for name in checkpoint.tensors}
        anatomy = _encoder(str(checkpoint.metadata.get("model_type", "encoder")), stored, heads or said)
    if not anatomy.parts:
        what = f"{path} has no layers whose matrices we know by their names"
        raise CheckpointProblem(what, fix="use a decoder we run, or a BERT or ViT encoder")
    return anatomy


# --- decoders -------------------------------------------------------------------------------------


def _decoder(model: Model) -> Anatomy:
    config = model.config
    stages = layer_stages(range(config.layers))
    parts = tuple(part for stage in stages for part in _stage_parts(model, stage))
    return Anatomy(config.family, config.layers, config.heads, config.kv_heads, parts, model)


def _stage_parts(model: Model, stage: Stage) -> Iterator[Part]:
    for matrix in layout(model.config, stage).matrices:
        for rows in matrix.parts:
            for role, begin, past in _within(model, rows.role, stage.layer):
                yield Part(stage.layer, role, _rows(model, rows.role, stage.layer, begin, past))


def _within(model: Model, stored: str, layer: int) -> Iterator[tuple[Role, int, int]]:
    """The roles whose rows a stored matrix has, from and to which row of it in our order."""
    q, k, v = model.config.qkv_widths
    ffn, hidden = model.config.ffn[layer], model.config.hidden
    fused: dict[str, list[tuple[Role, int]]] = {
        "qkv": [("q", q), ("k", k), ("v", v)],
        "gate_up": [("gate", ffn), ("up", ffn)],
    }
    widths: dict[Role, int] = {"q": q, "k": k, "v": v, "out": hidden, "gate": ffn, "up": ffn, "down": hidden}
    at = 0
    for role, n in fused.get(stored) or [(role, widths[role]) for role in ROLES if role == stored]:
        yield role, at, at + n
        at += n


def _rows(model: Model, stored: str, layer: int, begin: int, past: int) -> Callable[[], Floats]:
    checkpoint = model.checkpoint
    name = FAMILIES[model.config.family].names_in(checkpoint.format)[stored].format(layer)

    def read() -> Floats:
        values = checkpoint.read(name)
        places = head_order.places(model.config, checkpoint.format, stored, len(values))
        if places is not None:
            ours = np.empty_like(values)
            ours[places] = values
            values = ours
        return _finite(values[begin:past], name)

    return read


# --- encoders -------------------------------------------------------------------------------------

_LAYER: Final = re.compile(r"(?:^|\.)(?:layers?|blocks?|h|resblocks)\.(\d{1,4})\.(.+)")
# Ends of what stands after the layer's number; the first that fits counts. None: three under each other.
_ENDS: Final[tuple[tuple[str, Role | None], ...]] = (
    (r"(query|q_proj|q_lin)", "q"),
    (r"(key|k_proj|k_lin)", "k"),
    (r"(value|v_proj|v_lin)", "v"),
    (r"(qkv|in_proj|in_proj_weight)", None),
    (r"(attention\.output\.dense|attn\.proj|out_proj|out_lin|o_proj|projection)", "out"),
    (r"(intermediate\.dense|fc1|lin1|linear1|up_proj|c_fc|wi)", "up"),
    (r"(output\.dense|fc2|lin2|linear2|down_proj|c_proj|wo)", "down"),
    (r"(gate_proj)", "gate"),
)


def _encoder(kind: str, matrices: Mapping[str, Callable[[], Floats]], heads: int) -> Anatomy:
    parts: list[Part] = []
    for name, read in matrices.items():
        found = _LAYER.search(name.removesuffix(".weight"))
        if not found or not (name.endswith((".weight", "in_proj_weight"))):
            continue
        end = next((role for end, role in _ENDS if re.search(rf"(^|\.){end}$", found[2])), "")
        if end == "":
            continue
        parts += [replace(part, layer=int(found[1])) for part in _apart(end, read)]  # type: ignore[arg-type]
    parts.sort(key=lambda part: (part.layer, ROLES.index(part.role)))
    layers = 1 + max((part.layer for part in parts), default=-1)
    if len({(part.layer, part.role) for part in parts}) < len(parts):
        what = "more than one stack of layers has the same names"
        raise CheckpointProblem(what, fix="name a model that is one stack of layers")
    return Anatomy(kind, layers, heads, heads, tuple(parts))


def _apart(role: Role | None, read: Callable[[], Floats]) -> Iterator[Part]:
    """One part, or the three of q, k and v under each other."""
    if role is not None:
        yield Part(-1, role, read)
        return
    fused: tuple[Role, ...] = ("q", "k", "v")
    for place, each in enumerate(fused):
        yield Part(-1, each, _third(read, place))


def _third(read: Callable[[], Floats], place: int) -> Callable[[], Floats]:
    return lambda: np.split(read(), 3)[place]


def _reader(checkpoint: Checkpoint, name: str) -> Callable[[], Floats]:
    return lambda: _finite(checkpoint.read(name), name)


def _onnx_matrices(path: Path) -> dict[str, Callable[[], Floats]]:
    """The matrices of an ONNX graph by the names of the nodes that multiply with them.

    Exporters name nodes after modules, `/encoder/layer.0/mlp/fc1/MatMul`, and matrices after nothing.
    """
    import onnx

    try:
        graph = onnx.load(path).graph
    except Exception as error:  # of protobuf, of the library, or of the disk
        raise CheckpointProblem(
            f"{path} cannot be read as ONNX: {error}", fix="get the file again"
        ) from error
    held = {tensor.name: tensor for tensor in graph.initializer if len(tensor.dims) == 2}
    found: dict[str, Callable[[], Floats]] = {}
    for node in graph.node:
        if node.op_type in ("MatMul", "Gemm") and len(node.input) > 1 and node.input[1] in held:
            module = ".".join(node.name.strip("/").split("/")[:-1])
            turned = any(a.name == "transB" and a.i for a in node.attribute)
            found[f"{module}.weight"] = _initializer(held[node.input[1]], module, turned)
    return found


def _initializer(tensor: Any, name: str, turned: bool) -> Callable[[], Floats]:
    from onnx import numpy_helper

    def read() -> Floats:
        values = numpy_helper.to_array(tensor).astype(np.float32)
        return _finite(values if turned else values.T, name)

    return read


# --- what they share ------------------------------------------------------------------------------


def _finite(values: Floats, name: str) -> Floats:
    """CheckpointProblem when a value is none: a spectrum of such a matrix says nothing."""
    wrong = int(values.size - np.count_nonzero(np.isfinite(values)))
    if wrong:
        what = f"{name} has {wrong:,} values that are no numbers"
        raise CheckpointProblem(what, fix="get the model again: it is damaged")
    return values


def head_rows(anatomy: Anatomy, role: Role, matrix: Floats) -> Iterator[tuple[int, Floats]]:
    """The heads of a matrix of attention, each (head_dim, in), of `out` (out, head_dim).

    Nothing for other matrices, and where nobody says how many heads there are. RequestProblem when they do
    not divide its width.
    """
    count = {"q": anatomy.heads, "k": anatomy.kv_heads, "v": anatomy.kv_heads, "out": anatomy.heads}.get(role)
    if not count:
        return
    axis = 1 if role == "out" else 0
    if matrix.shape[axis] % count:
        what = f"{count} heads do not divide the {matrix.shape[axis]} of {role}"
        raise RequestProblem(what, fix="give the right number with --heads")
    yield from enumerate(np.split(matrix, count, axis=axis))
