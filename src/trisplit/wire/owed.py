"""What a coordinator owes a station that loads: offers of stages it needs, pieces of files it wants."""

from __future__ import annotations

from collections import deque
from typing import Final, get_args

from trisplit.wire.messages import Loaded, Need, Offer, Piece, StageSpec, Want

MOST_WANTS: Final = 64  # at once

OfALoad = Need | Offer | Want | Piece | Loaded
OWED: Final = get_args(OfALoad)


class Owed:
    """Both answered in the order they were asked for."""

    def __init__(self) -> None:
        self._stages: deque[StageSpec] = deque()
        self._wanted: deque[int] = deque()

    def take(self, said: OfALoad) -> str:
        """Moves on by this word; or stays, and says why it is out of turn."""
        word = type(said).__name__
        match said:
            case Need():
                if self._stages:
                    return f"{word} while {len(self._stages)} stages are needed"
                self._stages.extend(said.stages)
            case Offer():
                if not self._stages or self._stages[0] != said.stage:
                    return f"{word} of {said.stage.kind} {said.stage.layer}, which is not needed next"
                self._stages.popleft()
            case Want():
                if len(self._wanted) == MOST_WANTS:
                    return f"{word} while {MOST_WANTS} pieces are wanted"
                self._wanted.append(said.n_bytes)
            case Piece():
                if not self._wanted or self._wanted[0] != len(said.data):
                    return f"{word} of {len(said.data):,} bytes, which is not wanted next"
                self._wanted.popleft()
            case Loaded():
                if self._stages or self._wanted:
                    return f"{word} while {len(self._stages)} stages and {len(self._wanted)} pieces are owed"
        return ""
