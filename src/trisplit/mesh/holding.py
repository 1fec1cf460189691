"""What a station holds: stage groups as sessions, and the rows of each stream passing them; no sockets."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import numpy as np

from trisplit.errors import OwnProblem, PeerProblem
from trisplit.mesh.flow import Flow
from trisplit.mesh.group import LoadedGroup
from trisplit.mesh.rows import Stream, Work
from trisplit.mesh.tail import Chosen, Tail
from trisplit.mesh.turns import Turns
from trisplit.models.session import Floats, Row
from trisplit.wire.choosing import Drafted, Fence
from trisplit.wire.frame import DECODED, DRAFTED, F32, IDS, ROW_BY_ROW, SAME_VERSION, Activation
from trisplit.wire.losses import Seen, Surveyed
from trisplit.wire.messages import Join, Visit

MOST_WAITING: Final = 2  # times the rows of a sequence, for each group
MOST_WAITING_RESUMED: Final = 8  # where a past comes again, with what it has overwritten
VISITS_KEPT: Final = 8192


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
    turns: Turns = field(default_factory=Turns)
    ahead: frozenset[int] = frozenset()
    rewrites: bool = True
    frames: int = 0
    busy_ms: float = 0.0
    _ms_a_row: dict[tuple[int, bool], float] = field(default_factory=dict)
    context: int = field(init=False)
    """The longest sequence there is room for; a field because every frame asks for it."""

    def __post_init__(self) -> None:
        self.context = min((group.session.context for group in self.groups.values()), default=0)

    @property
    def weight_bytes(self) -> int:
        return sum(group.session.weight_bytes for group in self.groups.values())

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values that the streams have filled."""
        return sum(group.tracks.kv_bytes for group in self.groups.values())

    def join(self, order: Join) -> None:
        """From now on what groups leave goes these ways. PeerProblem for one that cannot start ahead."""
        self.end = order.end
        for n in order.ahead:
            if n not in self.groups or not self.groups[n].may_start_ahead:
                raise PeerProblem(f"group {n} is no attention that could start ahead", fix=SAME_VERSION)
        self.ahead, self.rewrites = frozenset(order.ahead), order.rewrites
        self.flows = {
            n: tuple(
                Flow(way.source, way.target, way.residual, way.early) for way in order.ways if way.source == n
            )
            for n in self.groups
        }

    # --- streams ---

    def open(self, number: int) -> None:
        """Makes room for a sequence in every group. PeerProblem when all slots are taken."""
        free = set(range(self.sessions)) - {stream.slot for stream in self.streams.values()}
        if not free:
            what = f"stream {number} where there is room for {self.sessions}"
            raise PeerProblem(what, fix="close one first, or load for more sessions")
        self.streams[number] = Stream(min(free))

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
            stream.is_closed = True
            self.turns.forget_void()

    def adopt(self, others: Held) -> None:
        """Holds these groups too; what streams have done in them is still to come."""
        self.groups |= others.groups
        self.__post_init__()
        self.rows_equal = self.rows_equal and others.rows_equal
        self.kv_bytes_per_token += others.kv_bytes_per_token
        for stream in self.streams.values():
            stream.seen = {flow: seen for flow, seen in stream.seen.items() if flow[0] not in others.groups}

    def resume(self, number: int, epoch: int, began: int) -> None:
        """Rows of a stream's past will come, as rows of this epoch, which began there."""
        if number in self.streams:
            self.streams[number].resumed = epoch, began

    def survey(self) -> Surveyed:
        """What of every stream has come, and how much of it is still to run."""
        seen = [
            Seen(number, group, residual, *last)
            for number, stream in self.streams.items()
            for (group, residual), last in stream.seen.items()
        ]
        return Surveyed(tuple(seen), len(self.turns))

    def fence(self, number: int, epoch: int) -> None:
        """Voids what was said in a stream before an epoch."""
        if number in self.streams:
            self.streams[number].fence(epoch)
            self.turns.forget_void()

    def sample(self, number: int, tail: Tail) -> None:
        """Has the tail of a ring choose what follows in a stream."""
        stream = self.streams.get(number)
        if stream is not None:
            stream.fence(tail.epoch)
            self.turns.forget_void()
            stream.tail = tail

    def draft(self, said: Drafted) -> None:
        """Tells the tail which ids are fed though it has not chosen them."""
        stream = self.streams.get(said.stream)
        if stream is not None and stream.tail is not None:
            stream.tail.draft(said.epoch, said.position, said.ids)

    # --- frames ---

    def take(self, said: Activation) -> None:
        """A frame that has come; its payload is copied. PeerProblem when it makes no sense."""
        stream = self.streams.get(said.stream)
        if stream is None or said.epoch < stream.epoch:
            return
        if said.flags & DRAFTED and said.group == 0 and stream.fed_in != said.epoch:
            stream.keep_draft(said)
            return
        if said.epoch > stream.epoch:
            stream.fence(said.epoch)
            self.turns.forget_void()
        group = self.groups.get(said.group)
        if group is None:
            raise PeerProblem(f"a frame for group {said.group}, which is not here", fix=SAME_VERSION)
        self._refuse_to_hoard(stream, said)
        starts_ahead = bool(said.flags & DECODED) and said.group in self.ahead
        if said.early and not starts_ahead:
            raise PeerProblem(
                f"an early row for group {said.group}, which does not start ahead", fix=SAME_VERSION
            )
        inputs = stream.inputs(group, said)
        if inputs is not None:
            bare = msgspec.structs.replace(said, payload=b"")
            work = Work(group, stream, bare, inputs, time.monotonic())
            for each in stream.ahead(work) if starts_ahead else [work]:
                self.turns.put(each)
        if said.group == 0 and not said.flags & DRAFTED and stream.fed_in != said.epoch:
            for draft in stream.drafts_behind(said):
                self.take(draft)

    def _refuse_to_hoard(self, stream: Stream, said: Activation) -> None:
        """PeerProblem when more rows wait than a sequence has, even if all of it was sent again."""
        waiting = self.turns.rows(said.stream, said.group) + stream.halves_for(said.group)
        most = MOST_WAITING_RESUMED if stream.resumed else MOST_WAITING
        if waiting + said.rows > most * self.context:
            what = f"{waiting:,} rows of stream {said.stream} wait for group {said.group}"
            raise PeerProblem(what, fix="send no row twice, and less before an answer comes")

    def next(self) -> list[Work]:
        """What to run now, all of one group; empty when there is nothing."""
        return self.turns.next(together=self.rows_equal)

    def expected_ms(self, works: Sequence[Work]) -> float:
        """How long running these will take, by what it took last; 0 where nothing like it has run."""
        said = works[0].said
        if works[0].step == "join":
            return 0.0
        return said.rows * self._ms_a_row.get((said.group, said.rows > 1), 0.0)

    def run(self, works: Sequence[Work]) -> list[Activation | Fence]:
        """Runs what `next` returned; what to send on, with payloads that the next run overwrites.

        A Fence is for ourselves and every other station.

        PeerProblem for rows that do not follow those before.
        """
        began_s = time.monotonic()
        outs = self._through(works)
        ended_s = time.monotonic()
        said = works[0].said
        self.frames += len(works)
        self.busy_ms += 1e3 * (ended_s - began_s)
        if works[0].step != "join":
            self._ms_a_row[said.group, said.rows > 1] = 1e3 * (ended_s - began_s) / said.rows
        frames: list[Activation | Fence] = []
        for work, out in zip(works, outs):
            times_ms = (1e3 * work.arrived_s, 1e3 * began_s, 1e3 * ended_s)
            self.visits.append(Visit(work.said.stream, work.said.group, work.said.position, *times_ms))
            frames += self._after(work, out)
        return frames

    def _after(self, work: Work, out: Floats) -> Sequence[Activation | Fence]:
        """The frames to send on, if it is time for them."""
        if work.step == "rewrite":
            return []
        if work.step == "early":
            if work.guess is not None:
                work.guess.left = out.copy()
            return []
        if work.step == "join" and self.rewrites:
            self.turns.put_off(replace(work, step="rewrite", guess=None))
        return self._leaving(work, out)

    def _through(self, works: Sequence[Work]) -> list[Floats]:
        tracks, first = works[0].group.tracks, works[0]
        if first.step == "join":
            return [w.guess.corrected(w.inputs[w.group.main]) for w in works if w.guess is not None]
        try:
            if len(works) > 1 and works[1].stream is first.stream:
                return self._one_behind_the_other(works)
            if first.said.rows == 1:
                return tracks.together([Row(w.stream.slot, w.inputs, w.said.position) for w in works])
            if first.said.flags & ROW_BY_ROW:
                slot, batch = first.stream.slot, self.rows_equal
                return [tracks.step(first.inputs, first.said.position, slot, batch=batch)]
            return [tracks.run(first.inputs, first.said.position, first.stream.slot)]
        except OwnProblem as problem:  # positions that do not follow are the sender's doing
            raise PeerProblem(problem.what, fix=SAME_VERSION) from None

    def _one_behind_the_other(self, works: Sequence[Work]) -> list[Floats]:
        """Rows of one stream that came in frames of their own, in one pass."""
        first = works[0]
        inputs = {name: np.concatenate([work.inputs[name] for work in works]) for name in first.inputs}
        slot, batch = first.stream.slot, self.rows_equal
        out = first.group.tracks.step(inputs, first.said.position, slot, batch=batch)
        return [out[i : i + 1] for i in range(len(works))]

    def _leaving(self, work: Work, out: Floats) -> Sequence[Activation | Fence]:
        """The frames for what a run has left; to the coordinator goes the last row of a prompt alone."""
        said = work.said
        if work.group.session.leaves[0] == "logits":
            return [] if work.ends_in_the_past else self._chosen(work, out)
        frames, flows = [], self.flows.get(said.group, ())
        last = out if said.flags & ROW_BY_ROW else out[-1:]
        # The others go where whoever is there knows the way.
        routed = next((flow for flow in flows if not (flow.residual or flow.early)), None)
        for flow in flows:
            if flow.target == self.end and work.ends_in_the_past:
                continue
            if flow.early and not said.flags & DECODED:
                continue
            rows = work.group.part(last if flow.target == self.end else out, residual=flow.residual)
            on = msgspec.structs.replace(
                said,
                group=flow.target,
                position=said.position + said.rows - len(rows),
                rows=len(rows),
                payload=rows.data.cast("B"),
                dtype=F32,
                residual=flow.residual,
                early=flow.early,
                route=said.route if flow is routed else 0,
            )
            frames.append(on)
        return frames

    def _chosen(self, work: Work, logits: Floats) -> list[Activation | Fence]:
        """The ids after the rows that have passed: on to the first group if it is to be fed, and a copy."""
        said, tail = work.said, work.stream.tail
        if tail is None and work.stream.resumed:  # nobody has asked for more
            return []
        if tail is None:
            raise PeerProblem(f"rows of stream {said.stream} before an order to sample", fix=SAME_VERSION)
        chosen = tail.after(said.epoch, said.position + said.rows - len(logits) + 1, logits)
        if chosen is None:
            return []
        copy = id_frame(said.stream, chosen, self.end)
        on = [msgspec.structs.replace(copy, group=0, flags=DECODED)] if chosen.feeds else []
        return [*on, copy, *([Fence(said.stream, chosen.epoch)] if chosen.voids else [])]


def id_frame(stream: int, chosen: Chosen, group: int) -> Activation:
    """Ids on their way to a group."""
    payload = b"".join(token_id.to_bytes(4, "little") for token_id in chosen.token_ids)
    return Activation(stream, chosen.position, chosen.epoch, group, len(chosen.token_ids), payload, IDS)
