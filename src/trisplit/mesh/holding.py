"""What a station holds: stage groups as sessions, and the rows of each stream passing them; no sockets."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from trisplit.errors import OwnProblem, PeerProblem
from trisplit.mesh.flow import Flow
from trisplit.mesh.tail import Tail
from trisplit.models.session import Floats, Row, StageSession, Tracks
from trisplit.wire.frame import F32, IDS, ROW_BY_ROW, SAME_VERSION, Activation
from trisplit.wire.messages import Visit

MOST_TOGETHER: Final = 16  # rows of different streams in one pass
VISITS_KEPT: Final = 8192
_ITEM_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class LoadedGroup:
    """A stage group as a session with room for its streams; `number` is its place on a token's way."""

    number: int
    tracks: Tracks

    @property
    def session(self) -> StageSession:
        return self.tracks.session

    @property
    def main(self) -> str:
        """The input that is not the residual beside it: ids, x, r or h."""
        return next(iter(self.session.takes))

    @property
    def joins(self) -> bool:
        """Whether two frames meet here: the widened rows, and the residual that went past them."""
        return len(self.session.takes) == 2

    def part(self, left: Floats, *, residual: bool) -> Floats:
        """Of the rows it leaves what goes to one group: where x and r lie side by side, one of them."""
        if self.session.leaves[0] != "xr":
            return left
        hidden = self.session.config.hidden
        return np.ascontiguousarray(left[:, hidden:] if residual else left[:, :hidden])

    def rows(self, said: Activation) -> Floats:
        """The frame's payload as [rows, width], or ids [rows]; a copy. PeerProblem if of another size."""
        name = "r" if said.residual else self.main
        width = self.session.takes.get(name) if self.joins or not said.residual else None
        n_bytes, end = len(said.payload), said.position + said.rows
        if end > self.session.context:
            what = f"rows up to position {end} where there is room for {self.session.context}"
            raise PeerProblem(what, fix=SAME_VERSION)
        dtype = IDS if name == "ids" else F32
        if width is None or (said.dtype, n_bytes) != (dtype, said.rows * width * _ITEM_BYTES):
            raise PeerProblem(
                f"{n_bytes:,} bytes in {said.rows} rows, which group {self.number} cannot take as {name}",
                fix=SAME_VERSION,
            )
        if dtype == IDS:
            return self._ids(said)
        return np.frombuffer(said.payload, dtype=np.float32).reshape(said.rows, width).copy()

    def _ids(self, said: Activation) -> Floats:
        ids = np.frombuffer(said.payload, dtype="<i4").astype(np.int64)
        vocab = self.session.config.vocab
        if ids.min() < 0 or ids.max() >= vocab:
            raise PeerProblem(f"token ids up to {ids.max()} of {vocab:,}", fix=SAME_VERSION)
        return ids  # type: ignore[return-value]


@dataclass(slots=True)
class Stream:
    """One sequence on this station: its slot, and rows waiting for their other half."""

    slot: int
    halves: dict[tuple[int, int, bool], Floats] = field(default_factory=dict)
    epoch: int = 0
    tail: Tail | None = None

    def fence(self, epoch: int) -> None:
        """From here on rows of earlier epochs are void: halves of them meet nobody."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.halves.clear()

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
            self.halves[said.group, said.position, said.residual] = rows
            return None
        return {group.main: other, "r": rows} if said.residual else {group.main: rows, "r": other}


@dataclass(frozen=True, slots=True)
class Work:
    """Rows that are ready to run: the frame that made them so, without its payload, and their inputs."""

    group: LoadedGroup
    stream: Stream
    said: Activation
    inputs: dict[str, Floats]
    arrived_s: float

    @property
    def is_void(self) -> bool:
        return self.said.epoch < self.stream.epoch or self.stream.slot < 0


@dataclass(slots=True)
class Held:
    """What a coordinator has loaded on this station, and the streams that pass it.

    Frames come in by `take`; `next` says what to run, `run` runs it and returns the frames to send on.
    """

    groups: dict[int, LoadedGroup]
    rows_equal: bool
    kv_bytes_per_token: int
    sessions: int = 1
    flows: dict[int, tuple[Flow, ...]] = field(default_factory=dict)
    end: int = 0
    streams: dict[int, Stream] = field(default_factory=dict)
    visits: deque[Visit] = field(default_factory=lambda: deque(maxlen=VISITS_KEPT))
    frames: int = 0
    busy_ms: float = 0.0
    _rows: deque[Work] = field(default_factory=deque)
    _chunks: deque[Work] = field(default_factory=deque)
    _ms_a_row: dict[tuple[int, bool], float] = field(default_factory=dict)

    @property
    def weight_bytes(self) -> int:
        return sum(group.session.weight_bytes for group in self.groups.values())

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values that the streams have filled."""
        return sum(group.tracks.kv_bytes for group in self.groups.values())

    # --- streams ---

    def open(self, number: int) -> None:
        """Makes room for a sequence in every group. PeerProblem when all slots are taken."""
        free = set(range(self.sessions)) - {stream.slot for stream in self.streams.values()}
        if not free:
            what = f"stream {number} where there is room for {self.sessions}"
            raise PeerProblem(what, fix="close one first, or load for more sessions")
        self.streams[number] = Stream(min(free))

    @property
    def context(self) -> int:
        """The longest sequence there is room for."""
        return min((group.session.context for group in self.groups.values()), default=0)

    @property
    def vocab(self) -> int:
        """Ids are below it."""
        return min((group.session.config.vocab for group in self.groups.values()), default=0)

    def close(self, number: int) -> None:
        """Forgets a sequence and gives back its memory; what of it is still on its way will be dropped."""
        stream = self.streams.pop(number, None)
        if stream is not None:
            for group in self.groups.values():
                group.tracks.free(stream.slot)
            stream.slot = -1
            self._forget_void()

    def fence(self, number: int, epoch: int) -> None:
        """Voids what was said in a stream before an epoch."""
        if number in self.streams:
            self.streams[number].fence(epoch)
            self._forget_void()

    def sample(self, number: int, tail: Tail) -> None:
        """Has the tail of a ring choose what follows in a stream."""
        stream = self.streams.get(number)
        if stream is not None:
            stream.fence(tail.epoch)
            stream.tail = tail

    # --- frames ---

    def take(self, said: Activation) -> None:
        """A frame that has come; its payload is copied. PeerProblem when it makes no sense."""
        stream = self.streams.get(said.stream)
        if stream is None or said.epoch < stream.epoch:
            return
        if said.epoch > stream.epoch:
            stream.fence(said.epoch)
            self._forget_void()
        group = self.groups.get(said.group)
        if group is None:
            raise PeerProblem(f"a frame for group {said.group}, which is not here", fix=SAME_VERSION)
        self._refuse_to_hoard(stream, said)
        inputs = stream.inputs(group, said)
        if inputs is not None:
            bare = msgspec.structs.replace(said, payload=b"")
            queue = self._rows if said.rows == 1 else self._chunks
            queue.append(Work(group, stream, bare, inputs, time.monotonic()))

    def _forget_void(self) -> None:
        """What is void waits no longer: it would take memory until its turn came."""
        self._rows = deque(work for work in self._rows if not work.is_void)
        self._chunks = deque(work for work in self._chunks if not work.is_void)

    def _refuse_to_hoard(self, stream: Stream, said: Activation) -> None:
        """PeerProblem when more rows wait than a sequence has, even if all of it was sent again."""
        halves = sum(len(rows) for (group, *_), rows in stream.halves.items() if group == said.group)
        queued = sum(
            work.said.rows
            for queue in (self._rows, self._chunks)
            for work in queue
            if work.stream is stream and work.said.group == said.group
        )
        if halves + queued + said.rows > 2 * self.context:
            what = f"{halves + queued:,} rows of stream {said.stream} wait for group {said.group}"
            raise PeerProblem(what, fix="send no row twice, and less before an answer comes")

    def next(self) -> list[Work]:
        """What to run now, all of one group; empty when there is nothing.

        Single rows go first, those of different streams for one group together: a prompt of somebody else
        holds nobody up for longer than a chunk.
        """
        for queue in (self._rows, self._chunks):
            while queue:
                first = queue.popleft()
                if not first.is_void:
                    return [first, *self._company(first)]
        return []

    def _company(self, first: Work) -> Iterator[Work]:
        if first.said.rows > 1 or not self.rows_equal:
            return
        streams = {first.said.stream}
        for work in [*self._rows]:
            if len(streams) == MOST_TOGETHER:
                return
            if work.group is first.group and work.said.stream not in streams and not work.is_void:
                streams.add(work.said.stream)
                self._rows.remove(work)
                yield work

    def expected_ms(self, works: Sequence[Work]) -> float:
        """How long running these will take, by what it took last; 0 where nothing like it has run."""
        said = works[0].said
        return said.rows * self._ms_a_row.get((said.group, said.rows > 1), 0.0)

    def run(self, works: Sequence[Work]) -> list[Activation]:
        """Runs what `next` returned; the frames to send on, with payloads that the next run overwrites.

        PeerProblem for rows that do not follow those before.
        """
        began_s = time.monotonic()
        outs = self._through(works)
        ended_s = time.monotonic()
        said = works[0].said
        self.frames += len(works)
        self.busy_ms += 1e3 * (ended_s - began_s)
        self._ms_a_row[said.group, said.rows > 1] = 1e3 * (ended_s - began_s) / said.rows
        frames: list[Activation] = []
        for work, out in zip(works, outs):
            times_ms = (1e3 * work.arrived_s, 1e3 * began_s, 1e3 * ended_s)
            self.visits.append(Visit(work.said.stream, work.said.group, work.said.position, *times_ms))
            frames += self._leaving(work, out)
        return frames

    def _through(self, works: Sequence[Work]) -> list[Floats]:
        tracks, first = works[0].group.tracks, works[0]
        try:
            if first.said.rows == 1:
                return tracks.together([Row(w.stream.slot, w.inputs, w.said.position) for w in works])
            if first.said.flags & ROW_BY_ROW:
                slot, batch = first.stream.slot, self.rows_equal
                return [tracks.step(first.inputs, first.said.position, slot, batch=batch)]
            return [tracks.run(first.inputs, first.said.position, first.stream.slot)]
        except OwnProblem as problem:  # positions that do not follow are the sender's doing
            raise PeerProblem(problem.what, fix=SAME_VERSION) from None

    def _leaving(self, work: Work, out: Floats) -> list[Activation]:
        """The frames for what a run has left; to the coordinator goes the last row alone."""
        said = work.said
        if work.group.session.leaves[0] == "logits":
            return self._chosen(work, out[-1])
        frames, flows = [], self.flows.get(said.group, ())
        routed = next((flow for flow in flows if not flow.residual), None)  # others know the way
        for flow in flows:
            rows = work.group.part(out[-1:] if flow.target == self.end else out, residual=flow.residual)
            on = msgspec.structs.replace(
                said,
                group=flow.target,
                position=said.position + said.rows - len(rows),
                rows=len(rows),
                payload=rows.data.cast("B"),
                dtype=F32,
                residual=flow.residual,
                route=said.route if flow is routed else 0,
            )
            frames.append(on)
        return frames

    def _chosen(self, work: Work, logits: Floats) -> list[Activation]:
        """The id after the rows that have passed: on to the first group if it is to be fed, and a copy."""
        said, tail = work.said, work.stream.tail
        if tail is None or said.epoch < tail.epoch:
            raise PeerProblem(f"rows of stream {said.stream} before an order to sample", fix=SAME_VERSION)
        position = said.position + said.rows
        token_id, fed = tail.after(position, logits)
        on = Activation(said.stream, position, said.epoch, 0, 1, token_id.to_bytes(4, "little"), IDS)
        copy = msgspec.structs.replace(on, group=self.end)
        return [on, copy] if fed else [copy]
