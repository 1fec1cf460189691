"""What a station offers, and sizes as people write them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from trisplit.errors import PlanProblem, RequestProblem
from trisplit.table import size

MOST_SLOWNESS_PERCENT: Final = 100_000


@dataclass(frozen=True, slots=True)
class Room:
    """What a station offers for weights and KV buffers; None where no limit was stated.

    A station with `slowness_percent` 200 takes twice as long as one with 100, and is given half as much.
    """

    name: str
    memory_bytes: int | None
    slowness_percent: int = 100


def check_rooms(rooms: Sequence[Room], needed_bytes: int) -> None:
    """PlanProblem where there is no station, RequestProblem for names or limits that make no sense."""
    if not rooms:
        raise PlanProblem(
            f"no station is given for {size(needed_bytes)} of stages", fix="give at least one station"
        )
    for name, count in Counter(room.name for room in rooms).items():
        if count > 1:
            raise RequestProblem(f"{count} stations are named {name!r}", fix="give each its own name")
    for room in rooms:
        if room.memory_bytes is not None and room.memory_bytes < 0:
            raise RequestProblem(
                f"station {room.name} offers {room.memory_bytes} bytes",
                fix="state a limit of 0 or more bytes",
            )
        if not 1 <= room.slowness_percent <= MOST_SLOWNESS_PERCENT:
            raise RequestProblem(
                f"station {room.name} takes {room.slowness_percent} % of the time of the quickest",
                fix=f"give 1 to {MOST_SLOWNESS_PERCENT:,} %, or leave the station out",
            )


def parse_size(text: str) -> int:
    """Bytes from `200MB`, `1.5 GiB`, `900`; RequestProblem for anything else.

    >>> parse_size("1.5GB"), parse_size("2 KiB"), parse_size("900")
    (1500000000, 2048, 900)
    """
    factors = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([a-z]*)", text.strip().lower())
    if match is None or match[2] not in factors or ("." in match[1] and factors[match[2]] == 1):
        raise RequestProblem(
            f"{text!r} is not a size", fix="write a number with B, kB, MB, GB, KiB, MiB or GiB, such as 200MB"
        )
    return int(Decimal(match[1]) * factors[match[2]])
