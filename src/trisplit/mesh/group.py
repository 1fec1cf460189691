"""A stage group as a station holds it: its session, and what frames may bring to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from trisplit.errors import PeerProblem
from trisplit.models.session import Floats, StageSession, Tracks
from trisplit.wire.frame import F32, IDS, SAME_VERSION, Activation

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

    @property
    def may_start_ahead(self) -> bool:
        """Whether it adds something to what it takes, so that it can start on another row."""
        return (self.main, self.session.leaves[0]) == ("x", "r") and not self.joins

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
