"""A model's tensors as another form of the same decoder would hold them: another family, format or width."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from trisplit.compress.zeros import Neurons
from trisplit.errors import CheckpointProblem
from trisplit.models.checkpoint import Format
from trisplit.models.config import HEAD, ModelConfig, Stage
from trisplit.models.families import FAMILIES
from trisplit.models.layout import layout
from trisplit.models.model import Model
from trisplit.models.plain import Floats, plain, stored


@dataclass(frozen=True, slots=True)
class Translation:
    """A model and what it becomes: the facts of that, and how its files name and order tensors.

    `kept` has the neurons of a layer that stay; all do of layers that are not in it. Layers that the target
    has wider are filled up with neurons of zeros, which give nothing; a bias that only the target has is
    zero; a head that only the target has is the embedding.
    """

    model: Model
    target: ModelConfig
    format: Format
    kept: Mapping[int, Neurons] = field(default_factory=dict)

    def parts(self, stage: Stage) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        """Name, role and shape of the tensors of one stage, as the target has them, in order."""
        parts, names = layout(self.target, stage), FAMILIES[self.target.family].names_in(self.format)
        for matrix in () if stage == HEAD and self.target.tied_head else parts.matrices:
            for part in matrix.parts:
                yield names[part.role].format(stage.layer), part.role, (part.n, matrix.columns)
                if matrix.bias:
                    yield names[f"{part.role}_bias"].format(stage.layer), f"{part.role}_bias", (part.n,)
        for role, width in parts.norms:
            yield names[role].format(stage.layer), role, (width,)

    def stage(self, stage: Stage) -> Iterator[tuple[str, Floats]]:
        """The tensors of one stage, in order, each read when it is asked for. Problems as of `tensor`."""
        for name, role, shape in self.parts(stage):
            yield name, self.tensor(role, stage, shape)

    def tensor(self, role: str, stage: Stage, shape: tuple[int, ...]) -> Floats:
        """One tensor of the target; Problems as of reading, CheckpointProblem for what is no number."""
        values = np.ascontiguousarray(self._tensor(role, stage, shape))
        if not np.isfinite(values).all():
            what = f"the {role} of {stage} has values that are no numbers, or infinite"
            raise CheckpointProblem(what, fix="get the model again")
        return values

    def _tensor(self, role: str, stage: Stage, shape: tuple[int, ...]) -> Floats:
        model, source = self.model, self.model.config
        names = FAMILIES[source.family].names_in(model.checkpoint.format)
        if names[role].format(stage.layer) not in model.checkpoint.tensors:
            if role != "head":
                return np.zeros(shape, np.float32)
            role = "embed"
        is_same = (source.family, model.checkpoint.format) == (self.target.family, self.format)
        if is_same:  # not by way of ours, which may round
            values = model.checkpoint.read(names[role].format(stage.layer))
        else:
            values = plain(model, role, stage.layer)
        if stage.layer >= 0:
            values = self._cut(role, stage.layer, values)
        return values if is_same else stored(self.target, self.format, role, values)

    def _cut(self, role: str, layer: int, values: Floats) -> Floats:
        """Of what a layer's neurons own those that stay, and zeros for those that the target has more."""
        kept, wide, now = self.kept.get(layer), self.model.config.ffn[layer], self.target.ffn[layer]
        tensor = role.removesuffix("_bias")
        if kept is None and wide == now:
            return values
        if role == "down":
            less = values if kept is None else values[:, kept]
            return np.pad(less, ((0, 0), (0, now - less.shape[1])))
        if tensor not in ("gate", "up", "gate_up"):
            return values
        halves = []
        for half in np.split(values, len(values) // wide):
            less = half if kept is None else half[kept]
            halves.append(np.pad(less, ((0, now - len(less)), *((0, 0),) * (values.ndim - 1))))
        return np.concatenate(halves)
