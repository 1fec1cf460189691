"""A translation as a checkpoint of its own, read as if it had been written: what a file is held against."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trisplit.compress.translate import Translation
from trisplit.errors import CheckpointProblem
from trisplit.models.checkpoint import Format, TensorInfo
from trisplit.models.config import Stage
from trisplit.models.model import Model

Place = tuple[str, Stage, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Translated:
    """The Checkpoint of a model that is translated while it is read, in float32."""

    translation: Translation
    places: Mapping[str, Place] = field(repr=False)

    @property
    def path(self) -> Path:
        return self.translation.model.checkpoint.path

    @property
    def format(self) -> Format:
        return self.translation.format

    @property
    def metadata(self) -> Mapping[str, Any]:
        return {}

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return {
            name: TensorInfo(name, shape, "F32", 4 * math.prod(shape))
            for name, (_, _, shape) in self.places.items()
        }

    @property
    def digest(self) -> str:
        said = (self.translation.model.checkpoint.digest, self.translation.target, self.format)
        return hashlib.sha256(repr(said).encode()).hexdigest()

    @property
    def files(self) -> Sequence[Path]:
        return self.translation.model.checkpoint.files

    def read(self, name: str) -> NDArray[np.float32]:
        return self.translation.tensor(*self.places[name])

    def slabs(self, name: str, n_rows: int) -> Iterator[NDArray[np.float32]]:
        values = self.read(name)
        for first in range(0, len(values), n_rows):
            yield values[first : first + n_rows]

    def blocks(self, name: str) -> NDArray[np.uint8]:
        raise CheckpointProblem(f"{name!r} is not quantised", fix="read its values")

    def content_digest(self) -> str:
        return self.digest


def translated(translation: Translation) -> Model:
    """The model that a translation makes, as if it had been written and opened."""
    places = {
        name: (role, stage, shape)
        for stage in translation.target.stages
        for name, role, shape in translation.parts(stage)
    }
    return Model(Translated(translation, places), translation.target)
