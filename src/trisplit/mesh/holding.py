"""What a station holds: stage groups as sessions, and the rows of each stream passing them; no sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from trisplit.errors import CheckpointProblem, OwnProblem, PeerProblem
from trisplit.models.config import ModelConfig, Stage
from trisplit.models.convert import DTYPES, Dtype
from trisplit.models.model import Model, open_model
from trisplit.models.session import Floats, StageSession, Track
from trisplit.wire.frame import ROW_BY_ROW, SAME_VERSION, Activation
from trisplit.wire.messages import GroupSpec, Load

_F32_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class LoadedGroup:
    """A stage group as a session; `number` is its place on a token's way."""

    number: int
    session: StageSession

    @property
    def main(self) -> str:
        """The input that is not the residual beside it: x, r or h."""
        return next(iter(self.session.takes))

    @property
    def joins(self) -> bool:
        """Whether two frames meet here: the widened rows, and the residual that went past them."""
        return len(self.session.takes) == 2

    @property
    def targets(self) -> tuple[tuple[int, bool], ...]:
        """Groups that get what this one leaves; a residual also goes past the next to the one after it."""
        on = (self.number + 1, False)
        return (on, (self.number + 2, True)) if self.session.leaves[0] == "r" else (on,)

    def rows(self, said: Activation) -> Floats:
        """The frame's payload as [rows, width]; a view. PeerProblem when it is of another size."""
        name = "r" if said.residual else self.main
        width = self.session.takes.get(name) if self.joins or not said.residual else None
        n_bytes, end = len(said.payload), said.position + said.rows
        if end > self.session.context:
            what = f"rows up to position {end} where there is room for {self.session.context}"
            raise PeerProblem(what, fix=SAME_VERSION)
        if width is None or n_bytes != said.rows * width * _F32_BYTES:
            raise PeerProblem(
                f"{n_bytes:,} bytes in {said.rows} rows, which group {self.number} cannot take as {name}",
                fix=SAME_VERSION,
            )
        return np.frombuffer(said.payload, dtype=np.float32).reshape(said.rows, width)


@dataclass(slots=True)
class Stream:
    """One sequence on this station: a track per group, and rows waiting for their other half."""

    tracks: dict[int, Track]
    halves: dict[tuple[int, int, bool], Floats] = field(default_factory=dict)
    epoch: int = 0

    def inputs(self, group: LoadedGroup, said: Activation) -> dict[str, Floats] | None:
        """What the group runs on; None while the other half of a join is still on its way.

        Residual and widened rows come over different links and in either order.
        """
        rows = group.rows(said)
        if not group.joins:
            return {group.main: rows}
        other = self.halves.pop((said.group, said.position, not said.residual), None)
        if other is not None and len(other) != said.rows:
            what = f"halves of {len(other)} and {said.rows} rows meet at position {said.position}"
            raise PeerProblem(what, fix=SAME_VERSION)
        if other is None:
            self.halves[said.group, said.position, said.residual] = rows.copy()
            return None
        return {group.main: other, "r": rows} if said.residual else {group.main: rows, "r": other}


@dataclass(slots=True)
class Held:
    """What a coordinator has loaded on this station, and the streams that pass it."""

    groups: dict[int, LoadedGroup]
    rows_equal: bool
    kv_bytes_per_token: int
    streams: dict[int, Stream] = field(default_factory=dict)
    frames: int = 0
    busy_ms: float = 0.0

    @property
    def weight_bytes(self) -> int:
        return sum(group.session.weight_bytes for group in self.groups.values())

    def open(self, stream: int) -> None:
        """Makes room for a sequence in every group."""
        self.streams[stream] = Stream({n: Track(group.session) for n, group in self.groups.items()})

    def close(self, stream: int) -> None:
        """Forgets a sequence; what of it is still on its way will be dropped."""
        self.streams.pop(stream, None)

    def run(self, said: Activation) -> list[Activation]:
        """Runs the group a frame is for; the frames to send on, none while it waits or its stream is closed.

        Payloads are views that the next run overwrites. PeerProblem for a frame that makes no sense.
        """
        stream = self.streams.get(said.stream)
        if stream is None or said.epoch < stream.epoch:
            return []
        if said.epoch > stream.epoch:  # a rewind: halves from before it meet nobody
            stream.epoch = said.epoch
            stream.halves.clear()
        group = self.groups.get(said.group)
        if group is None:
            raise PeerProblem(f"a frame for group {said.group}, which is not here", fix=SAME_VERSION)
        inputs = stream.inputs(group, said)
        if inputs is None:
            return []
        began = time.perf_counter()
        out = self._through(stream.tracks[group.number], inputs, said)
        self.frames += 1
        self.busy_ms += (time.perf_counter() - began) * 1e3
        payload = out.data.cast("B")
        return [
            msgspec.structs.replace(said, group=number, payload=payload, residual=residual)
            for number, residual in group.targets
        ]

    def _through(self, track: Track, inputs: dict[str, Floats], said: Activation) -> Floats:
        try:
            if said.flags & ROW_BY_ROW:
                return track.step(inputs, said.position, batch=self.rows_equal)
            return track.run(inputs, said.position)
        except OwnProblem as problem:  # positions that do not follow are the sender's doing
            raise PeerProblem(problem.what, fix=SAME_VERSION) from None


# --- loading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Order:
    """A Load message, understood and checked: what to build, from what."""

    model: Model
    dtype: Dtype
    threads: int
    context: int
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
            yield LoadedGroup(number, StageSession(self.model.config, files, spin=False, **how))


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
    understood = Order(model, dtype, order.threads, order.context, groups)
    model.refuse_if_short(understood.stages, dtype, order.context)
    return understood


def _stages(group: GroupSpec, model: Model) -> tuple[Stage, ...]:
    """The group's stages, which must be neighbours in the model."""
    stages = tuple(Stage(stage.layer, stage.kind) for stage in group.stages)
    first = model.stages.index(stages[0]) if stages and stages[0] in model.stages else 0
    if model.stages[first : first + len(stages)] != stages or not stages:
        what = f"group {group.number} is no run of neighbouring stages of the model"
        raise PeerProblem(what, fix=SAME_VERSION)
    return stages
