"""What the numbers of an exported model are stored as: floats of 32 and 16 bits, and the blocks of GGUF."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType
from gguf.quants import dequantize, quantize
from numpy.typing import DTypeLike, NDArray

from trisplit.errors import RequestProblem, UnknownName

Floats = NDArray[np.float32]
Qtype = GGMLQuantizationType


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of numbers, as numpy has it (None: none that safetensors have) and as GGUF does.

    `ends` is that of embedding and head.
    """

    dtype: DTypeLike | None
    qtype: Qtype
    file_type: LlamaFileType
    ends: Qtype


KINDS: Final[Mapping[str, Kind]] = {
    "f32": Kind(np.float32, Qtype.F32, LlamaFileType.ALL_F32, Qtype.F32),
    "f16": Kind(np.float16, Qtype.F16, LlamaFileType.MOSTLY_F16, Qtype.F16),
    "bf16": Kind(ml_dtypes.bfloat16, Qtype.BF16, LlamaFileType.MOSTLY_BF16, Qtype.BF16),
    "q8_0": Kind(None, Qtype.Q8_0, LlamaFileType.MOSTLY_Q8_0, Qtype.Q8_0),
    "q5_0": Kind(None, Qtype.Q5_0, LlamaFileType.MOSTLY_Q5_0, Qtype.Q8_0),
    "q5_1": Kind(None, Qtype.Q5_1, LlamaFileType.MOSTLY_Q5_1, Qtype.Q8_0),
    "q4_0": Kind(None, Qtype.Q4_0, LlamaFileType.MOSTLY_Q4_0, Qtype.Q8_0),
    "q4_1": Kind(None, Qtype.Q4_1, LlamaFileType.MOSTLY_Q4_1, Qtype.Q8_0),
}
"""By the names people type. Where others have less than 8 bits embedding and head have 8."""


def kind_named(name: str, *, blocks: bool) -> Kind:
    """A kind by its name. UnknownName; RequestProblem for blocks where there are none, as in safetensors."""
    if name not in KINDS:
        raise UnknownName("type", name, KINDS)
    if KINDS[name].dtype is None and not blocks:
        what = f"safetensors that stock loaders read have no {name}"
        raise RequestProblem(what, fix="use --type f32, f16 or bf16, or --format gguf")
    return KINDS[name]


def qtype_of(kind: Kind, role: str, shape: tuple[int, ...]) -> Qtype:
    """The type of one tensor of a GGUF: vectors are F32, rows that are no whole blocks F16."""
    if len(shape) == 1:
        return Qtype.F32
    wanted = kind.ends if role in ("embed", "head") else kind.qtype
    return Qtype.F16 if shape[-1] % GGML_QUANT_SIZES[wanted][0] else wanted


def n_bytes(qtype: Qtype, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of this type."""
    values, size = GGML_QUANT_SIZES[qtype]
    return int(np.prod(shape)) // values * size


def as_blocks(name: str, values: Floats, qtype: Qtype) -> NDArray[Any]:
    """The values as this type; RequestProblem for those it cannot hold."""
    if qtype == Qtype.F32:
        return values
    if qtype == Qtype.F16:
        return as_type(name, values, np.float16)
    return np.ascontiguousarray(quantize(values, qtype))


def as_type(name: str, values: Floats, dtype: DTypeLike) -> NDArray[Any]:
    """The values as this type of numpy; RequestProblem for those it cannot hold."""
    with np.errstate(over="ignore"):
        stored = values.astype(dtype, copy=False)
    if not np.isfinite(stored).all():
        what = f"{name} has values up to {np.abs(values).max():,.0f}, which {np.dtype(dtype)} cannot hold"
        raise RequestProblem(what, fix="use --type f32 or bf16")
    return stored


def rounded(values: Floats, qtype: Qtype) -> Floats:
    """What the values are once they were stored as this type."""
    if qtype == Qtype.F32:
        return values
    return np.asarray(dequantize(quantize(values, qtype), qtype), np.float32).reshape(values.shape)
