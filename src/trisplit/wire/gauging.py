"""How far it is from one station to another: what a coordinator asks before it loads anything."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from trisplit.wire.fields import Name, Word

MOST_ROUNDS: Final = 1000
MOST_DEADLINE_MS: Final = 120_000

RoundTripMs = Annotated[float, msgspec.Meta(ge=0, le=MOST_DEADLINE_MS)]
Rounds = Annotated[int, msgspec.Meta(ge=1, le=MOST_ROUNDS)]


class Gauge(Word, frozen=True):
    """Call the station at this address, and ping it so many `rounds`, one after the other.

    Answered within `deadline_ms` by Gauged, or by Refused when there is no way there.
    """

    address: Name
    rounds: Rounds
    deadline_ms: Annotated[int, msgspec.Meta(ge=1, le=MOST_DEADLINE_MS)]


class Gauged(Word, frozen=True):
    """What a round trip took: the median and the least of so many `rounds`."""

    p50_ms: RoundTripMs
    best_ms: RoundTripMs
    rounds: Rounds


GaugeMessage = Gauge | Gauged
