"""Buffers of one shape, bound to the engine once: a run is a copy in and a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trisplit.models.pages import Floats


@dataclass(frozen=True, slots=True)
class Buffers:
    """What goes in by name, [batch, rows] ids or [batch, rows, width] floats, and what comes out."""

    inputs: Mapping[str, NDArray[Any]]
    output_name: str
    output: Floats

    @classmethod
    def of(cls, takes: Mapping[str, int], leaves: tuple[str, int], batch: int, rows: int) -> Buffers:
        """Zeros for what a session takes and leaves; logits are of the last row alone."""
        inputs: dict[str, NDArray[Any]] = {
            name: np.zeros((batch, rows), np.int64)
            if name == "ids"
            else np.zeros((batch, rows, width), np.float32)
            for name, width in takes.items()
        }
        name, width = leaves
        output = np.zeros((batch, 1 if name == "logits" else rows, width), np.float32)
        return cls(inputs, f"{name}_out", output)

    def first(self, batch: int) -> Buffers:
        """The same memory, and less of it."""
        return Buffers({n: v[:batch] for n, v in self.inputs.items()}, self.output_name, self.output[:batch])


@dataclass(frozen=True, slots=True)
class Bound:
    """Buffers that are bound, with the places of rows: `last` of each entry, `total` of the longest."""

    engine: Any
    binding: Any
    inputs: Mapping[str, NDArray[Any]]
    last: NDArray[np.int32]
    total: NDArray[np.int32]
    output: Floats

    def run(self) -> Floats:
        """One pass; what it leaves, [batch, rows, width], is overwritten by the next."""
        self.engine.run_with_iobinding(self.binding)
        return self.output


def bind(
    engine: Any,
    wanted: frozenset[str],
    buffers: Buffers,
    kv: Mapping[str, Floats],
    rotary: Mapping[str, Floats],
) -> Bound:
    """`kv` are read and written in place, [batch, kv_heads, room, head_dim] each.

    All is bound by address, which the engine does not keep alive: what is not of the Bound must outlive it.
    """
    binding, batch = engine.io_binding(), len(buffers.output)
    last, total = np.zeros(batch, np.int32), np.zeros(1, np.int32)
    given = {**buffers.inputs, "last": last, "total": total, **rotary}
    given = {name: array for name, array in given.items() if name in wanted}
    given |= {f"past_{name}": array for name, array in kv.items()}
    left = {buffers.output_name: buffers.output, **{f"present_{name}": array for name, array in kv.items()}}
    for name, array in given.items():
        binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    for name, array in left.items():
        binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    return Bound(engine, binding, buffers.inputs, last, total, buffers.output)
