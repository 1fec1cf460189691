"""Stage files with other arrays: read whole, written anew, and those that stay beside them in one folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from trisplit.models.config import Stage
from trisplit.models.session import Floats
from trisplit.models.stage_file import StageFile, Stored, stem


def arrays_of(file: StageFile) -> dict[str, Floats]:
    """All arrays of a stage in f32, by their names in the file."""
    arrays = {}
    for name, at in file.tensors.items():
        values = np.fromfile(file.folder / at.file, np.float32, at.n_bytes // 4, offset=at.offset)
        arrays[name] = values.reshape(at.shape)
    return arrays


def altered(stage: Stage, arrays: Mapping[str, Floats], folder: Path) -> StageFile:
    """The file of a stage with these arrays, in f32, written into `folder`."""
    tensors, at, name = dict[str, Stored](), 0, f"{stem(stage)}.bin"
    with (folder / name).open("wb") as stream:
        for role, values in arrays.items():
            raw = np.ascontiguousarray(values, np.float32)
            stream.write(raw.data)
            tensors[role] = Stored(name, "F32", raw.shape, at, raw.nbytes)
            at += raw.nbytes
    return StageFile(stage, folder, tensors)


def beside(file: StageFile, folder: Path) -> StageFile:
    """The same file, seen in `folder`: linked to, for the engine takes all stages from one folder."""
    for name in file.files:
        if (folder / name).exists():
            continue
        try:
            os.link(file.folder / name, folder / name)
        except OSError:  # another disk
            shutil.copyfile(file.folder / name, folder / name)
    return replace(file, folder=folder)
