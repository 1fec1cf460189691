"""A model written as one GGUF file, a tensor at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from trisplit.compress.gguf_keys import ROPE_TENSOR, keys_of, rope_tensor
from trisplit.compress.gguf_values import add_values
from trisplit.compress.kinds import Floats, Kind, Qtype, as_blocks, n_bytes, qtype_of
from trisplit.compress.reading import Report, told
from trisplit.compress.targets import ARCHS
from trisplit.compress.translate import Translation

Qtypes = Mapping[str, tuple[Qtype, tuple[int, ...]]]


def qtypes_of(translation: Translation, kind: Kind) -> Qtypes:
    """Type and shape of every tensor of the stages, in the order they are written in."""
    return {
        name: (qtype_of(kind, role, shape), shape)
        for stage in translation.target.stages
        for name, role, shape in translation.parts(stage)
    }


def write_gguf(translation: Translation, kind: Kind, path: Path, report: Report) -> None:
    """Writes the file. OSError when there is no room; Problems as of reading and of `keys_of`."""
    target, model = translation.target, translation.model
    slowed = rope_tensor(model, target)
    writer = GGUFWriter(path, ARCHS[target.family])
    add_values(writer, keys_of(model, target, kind))
    if slowed is not None:
        writer.add_tensor_info(ROPE_TENSOR, slowed.shape, slowed.dtype, slowed.nbytes)
    types = qtypes_of(translation, kind)
    for name, (qtype, shape) in types.items():
        writer.add_tensor_info(name, shape, np.dtype(np.float32), n_bytes(qtype, shape), raw_dtype=qtype)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        if slowed is not None:
            writer.write_tensor_data(slowed)
        for name, values in told(_tensors(translation), "writing", len(types), report):
            writer.write_tensor_data(as_blocks(name, values, types[name][0]))
    finally:
        writer.close()


def _tensors(translation: Translation) -> Iterator[tuple[str, Floats]]:
    for stage in translation.target.stages:
        yield from translation.stage(stage)
