"""An order to load, understood and checked: which stages to build, from what, for how many sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trisplit.errors import CheckpointProblem, PeerProblem
from trisplit.mesh.holding import LoadedGroup
from trisplit.models.config import ModelConfig, Stage
from trisplit.models.convert import DTYPES, Dtype
from trisplit.models.model import Model, open_model
from trisplit.models.session import StageSession, Tracks
from trisplit.wire.frame import SAME_VERSION
from trisplit.wire.messages import GroupSpec, Load


@dataclass(frozen=True, slots=True)
class Order:
    """A Load message, understood and checked: what to build, from what."""

    model: Model
    dtype: Dtype
    threads: int
    context: int
    sessions: int
    groups: tuple[tuple[int, tuple[Stage, ...]], ...]

    @property
    def stages(self) -> list[Stage]:
        """All stages of all groups."""
        return [stage for _, stages in self.groups for stage in stages]

    def build(self) -> Iterator[Stage | LoadedGroup]:
        """Each stage when its weights are ready, converted if need be; each group when it is."""
        for number, stages in self.groups:
            files = []
            for file in self.model.files(stages, self.dtype):
                files.append(file)
                yield file.stage
            how = {"context": self.context, "threads": self.threads}
            session = StageSession(self.model.config, files, spin=False, **how)
            yield LoadedGroup(number, Tracks(session, self.sessions))


def understand(order: Load) -> Order:
    """Opens the model a coordinator speaks of and checks that its order can be carried out here.

    PeerProblem for an order that makes no sense, CheckpointProblem for a model that is not here or
    not the same, RequestProblem when memory is short.
    """
    try:
        config = msgspec.msgpack.decode(order.config, type=ModelConfig)
    except msgspec.DecodeError as error:
        raise PeerProblem(f"a model description that cannot be read: {error}", fix=SAME_VERSION) from None
    dtype = next((d for d in DTYPES if d == order.dtype), None)
    if dtype is None:
        raise PeerProblem(f"dtype {order.dtype!r} is not one of {', '.join(DTYPES)}", fix=SAME_VERSION)
    model = open_model(Path(order.checkpoint))
    if model.checkpoint.digest != order.digest or model.config != config:
        raise CheckpointProblem(
            f"{order.checkpoint} is not the file the coordinator opened", fix="give both the same model"
        )
    numbers = [group.number for group in order.groups]
    if len(set(numbers)) < len(numbers):
        raise PeerProblem(f"groups {numbers} are not all different", fix=SAME_VERSION)
    groups = tuple((group.number, _stages(group, model)) for group in order.groups)
    understood = Order(model, dtype, order.threads, order.context, order.sessions, groups)
    model.refuse_if_short(understood.stages, dtype, order.context * order.sessions)
    return understood


def _stages(group: GroupSpec, model: Model) -> tuple[Stage, ...]:
    """The group's stages, which must be neighbours in the model."""
    stages = tuple(Stage(stage.layer, stage.kind) for stage in group.stages)
    first = model.stages.index(stages[0]) if stages and stages[0] in model.stages else 0
    if model.stages[first : first + len(stages)] != stages or not stages:
        what = f"group {group.number} is no run of neighbouring stages of the model"
        raise PeerProblem(what, fix=SAME_VERSION)
    return stages
