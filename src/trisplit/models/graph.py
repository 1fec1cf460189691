"""A small ONNX graph builder: nodes by name, weights as byte ranges of files that lie beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from trisplit.models.stage_file import Stored

CONTRIB: Final = "com.microsoft"
_ONNX_TYPES: Final[Mapping[str, int]] = {
    "F32": TensorProto.FLOAT,
    "U8": TensorProto.UINT8,
    "I32": TensorProto.INT32,
    "I64": TensorProto.INT64,
}


@dataclass(slots=True)
class Graph:
    """Nodes, weights and borders of one ONNX graph under construction.

    `op` returns the name of a node's output, so that a stage reads as arithmetic. Weights never
    pass through protobuf: a file is mapped by the runtime (peak 1.08 × the weights; initializers
    handed over from memory are copied and peak at 2.1 ×). `given` notes which value a matrix multiplies.
    """

    nodes: list[NodeProto] = field(default_factory=list)
    initializers: dict[str, TensorProto] = field(default_factory=dict)
    inputs: dict[str, ValueInfoProto] = field(default_factory=dict)
    outputs: dict[str, ValueInfoProto] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)

    def input(self, name: str, kind: str, shape: Sequence[int | str]) -> str:
        """An input of the graph; asked for twice it is the same one."""
        self.inputs.setdefault(name, helper.make_tensor_value_info(name, _ONNX_TYPES[kind], shape))
        return name

    def output(self, name: str, kind: str, shape: Sequence[int | str], source: str) -> None:
        """Names what the graph gives back."""
        self.nodes.append(helper.make_node("Identity", [source], [name]))
        self.outputs[name] = helper.make_tensor_value_info(name, _ONNX_TYPES[kind], shape)

    def weight(self, name: str, stored: Stored, shape: Sequence[int] | None = None) -> str:
        """A weight that lies in a file: location, offset and length, never its bytes."""
        if name not in self.initializers:
            dims = list(stored.shape if shape is None else shape)
            tensor = TensorProto(name=name, data_type=_ONNX_TYPES[stored.kind], dims=dims)
            tensor.data_location = TensorProto.EXTERNAL
            places = {"location": stored.file, "offset": stored.offset, "length": stored.n_bytes}
            for key, value in places.items():
                tensor.external_data.add(key=key, value=str(value))
            self.initializers[name] = tensor
        return name

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """A small constant kept inside the graph."""
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def op(
        self, kind: str, *inputs: str, domain: str = "", n: int = 1, to: Sequence[str] = (), **attributes: Any
    ) -> Any:
        """Adds a node; returns its output's name, or a tuple of `n` names."""
        names = list(to) or [f"{kind.lower()}_{len(self.nodes)}_{i}" for i in range(n)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attributes))
        return names[0] if len(names) == 1 else tuple(names)

    def build(self) -> bytes:
        """The serialized model; small, for it holds no weights."""
        graph = helper.make_graph(
            self.nodes,
            "stages",
            list(self.inputs.values()),
            list(self.outputs.values()),
            list(self.initializers.values()),
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="trisplit")
        return bytes(model.SerializeToString())
