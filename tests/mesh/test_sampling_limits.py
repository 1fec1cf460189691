"""What may be sampled with is what may be said: two packages that do not know each other set one limit."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from trisplit.errors import OwnProblem, PeerProblem, RequestProblem
from trisplit.models.sampling import Sampling
from trisplit.wire.choosing import Sample
from trisplit.wire.packing import decode, encode

EDGES: dict[str, tuple[float, ...]] = {
    "temperature": (-1e-9, 0.0, 100.0, 100.001, 1e300, math.inf, -math.inf, math.nan),
    "top_k": (-1, 0, 2**32 - 1, 2**32),
    "top_p": (-0.1, 0.0, 1e-300, 1.0, 1.001, math.nan),
    "min_p": (-1e-9, 0.0, 1.0, 1.001, math.nan),
    "repetition_penalty": (-1.0, 0.0, 1e-300, 100.0, 100.001, math.inf, math.nan),
    "seed": (-1, 0, 2**63, 2**64 - 1, 2**64),
}


def edges() -> list[tuple[str, float]]:
    return [(name, value) for name, values in EDGES.items() for value in values]


def fields(name: str, value: float) -> dict[str, float]:
    plain = Sampling()
    return {each: getattr(plain, each) for each in EDGES} | {name: value}


def test_every_parameter_has_edges() -> None:
    assert set(Sampling.__dataclass_fields__) == set(EDGES) <= set(Sample.__struct_fields__)


@pytest.mark.parametrize(("name", "value"), edges())
def test_sampling_and_wire_take_the_same(name: str, value: float) -> None:
    said = fields(name, value)
    ours = taken(lambda: Sampling(**said))  # type: ignore[arg-type]
    theirs = taken(lambda: decode(encode(Sample(1, 0, (5,), **said, end=9, stop_ids=(), drafts="none"))))  # type: ignore[arg-type]
    assert ours == theirs


def taken(make: Callable[[], object]) -> bool:
    try:
        make()
    except (RequestProblem, OwnProblem, PeerProblem):
        return False
    return True
