"""A model with narrower FFNs in the engine's own layout, to be judged without being exported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from trisplit.compress.altered import altered, arrays_of, beside
from trisplit.compress.methods.ffn import Neurons
from trisplit.compress.spectra import Doubles
from trisplit.errors import RequestProblem
from trisplit.models.config import Stage
from trisplit.models.convert import Dtype
from trisplit.models.model import Model
from trisplit.models.session import Floats
from trisplit.models.stage_file import StageFile


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What becomes of an FFN: neurons kept, down over them [hidden, kept], what is added to it [hidden]."""

    kept: Neurons
    down: Doubles
    bias: Doubles | None = None


@dataclass(frozen=True, slots=True)
class Trial(Model):
    """The model a trial was made of, but for its FFNs, which are those of the trial; f32 alone."""

    cut: Mapping[Stage, StageFile] = field(default_factory=dict)
    folder: Path = Path()

    def files(self, stages: Sequence[Stage], dtype: Dtype) -> Iterator[StageFile]:
        """As of Model."""
        if dtype != "f32":
            raise RequestProblem(f"a trial is f32, not {dtype}", fix="write the model, and use that")
        dense = Model(self.checkpoint, self.config)
        for stage in stages:
            yield self.cut.get(stage) or beside(next(dense.files([stage], dtype)), self.folder)

    def weight_bytes(self, stage: Stage, dtype: Dtype) -> int:
        """As of Model."""
        if stage in self.cut:
            return self.cut[stage].weight_bytes
        return Model(self.checkpoint, self.config).weight_bytes(stage, dtype)


def trial(model: Model, layers: Iterable[Narrowed], folder: Path) -> Trial:
    """Writes gate, up and down of every layer into `folder`, which must outlive the trial.

    It lies best where models are kept: what is as before is linked to, since the engine takes one folder.
    """
    cut: dict[Stage, StageFile] = {}
    widths = []
    for layer, narrowed in enumerate(layers):
        widths.append(len(narrowed.kept))
        wide, down = (Stage(layer, "gate_up"), Stage(layer, "down"))
        cut[wide] = altered(wide, _wide(model, wide, narrowed.kept), folder)
        arrays = arrays_of(next(model.files([down], "f32")))
        arrays["down.w"] = narrowed.down.T.astype(np.float32)
        if narrowed.bias is not None:
            before = arrays.get("down.bias", np.zeros(len(narrowed.bias), np.float32))
            arrays["down.bias"] = before + narrowed.bias.astype(np.float32)
        cut[down] = altered(down, arrays, folder)
    config = replace(model.config, ffn=tuple(widths))
    return Trial(model.checkpoint, config, cut=cut, folder=folder)


def _wide(model: Model, stage: Stage, kept: Neurons) -> dict[str, Floats]:
    arrays, n = arrays_of(next(model.files([stage], "f32"))), model.config.ffn[stage.layer]
    for name in ("gate_up.w", "gate_up.bias"):
        if name in arrays:
            parts = np.split(arrays[name], arrays[name].shape[-1] // n, axis=-1)
            arrays[name] = np.concatenate([part[..., kept] for part in parts], axis=-1)
    return arrays
