"""What a station has sent, kept so that it can be said again, and what of it is news to nobody."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from trisplit.mesh.onward import Onward
from trisplit.mesh.sent import Sent
from trisplit.wire.frame import Activation
from trisplit.wire.losses import Again, Resume
from trisplit.wire.messages import Join

Flow = tuple[int, bool]  # a target group, and whether what flows is the residual it adds


class Keeper:
    """Stands before the ways on. Of what goes to other stations each stream has a log for each flow."""

    def __init__(self) -> None:
        self._onward = Onward()
        self._kept: frozenset[int] = frozenset()
        self._held: set[int] = set()
        self._sent: dict[tuple[int, Flow], Sent] = {}
        self._skips: dict[tuple[int, Flow], tuple[int, int]] = {}

    def point(self, onward: Onward, order: Join, *, kept: Collection[int]) -> None:
        """From now on frames go these ways, and of what goes to groups in `kept` there are logs."""
        self._onward, self._kept = onward, frozenset(kept)
        self._held = {way.target for way in order.ways if way.held}

    def send(self, said: Activation) -> None:
        """Keeps a frame, and sends it on unless its way is held or it has been there."""
        flow = said.stream, (said.group, said.residual)
        if said.group in self._kept:
            if flow not in self._sent:
                self._sent[flow] = Sent()
            self._sent[flow].add(said)
        epoch, position = self._skips.get(flow, (-1, 0))
        if said.group not in self._held and not (said.epoch == epoch and said.position < position):
            self._onward.send(said)

    def resume(self, order: Resume) -> None:
        """Rows of a stream's past will run again: what others have seen of them is not sent."""
        for skip in order.skips:
            self._skips[order.stream, (skip.target, skip.residual)] = order.epoch, skip.position

    def replay(self, targets: Collection[int], streams: Iterable[Again]) -> None:
        """Sends again what went to these groups, and holds them no more."""
        self._held -= set(targets)
        for again in streams:
            for (stream, (target, _)), sent in self._sent.items():
                if stream == again.stream and target in targets:
                    for said in sent.again(again.epoch, again.since, again.epochs):
                        self._onward.send(said)

    def forget(self, stream: int) -> None:
        """A stream is closed."""
        for flow in [flow for flow in self._sent if flow[0] == stream]:
            self._sent.pop(flow).close()
        self._skips = {flow: skip for flow, skip in self._skips.items() if flow[0] != stream}

    def clear(self) -> None:
        """All of it is of a coordinator that has left."""
        for sent in self._sent.values():
            sent.close()
        self._onward, self._kept = Onward(), frozenset()
        self._held, self._sent, self._skips = set(), {}, {}
