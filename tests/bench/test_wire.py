"""The row of `bench wire`: sizes that are those of the bytes, a guard that notices, rates that are rates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from trisplit.bench import wire as bench
from trisplit.bench.wire import WireRow, codec_rates, decode_guard, wire
from trisplit.bench.wire_floor import Floor
from trisplit.errors import PeerProblem
from trisplit.mesh import routes
from trisplit.wire import route


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> WireRow:
    async def floor(iterations: int, *, rounds: int) -> Floor:
        assert (iterations, rounds) == (60, 3)
        return Floor(leg_us=30.0, tcp_us=12.0, frames_per_s=1e5, frames_per_s_batched=2e5)

    monkeypatch.setattr(bench, "floor", floor)
    monkeypatch.setattr(bench, "decode_guard", lambda: True)
    return asyncio.run(wire(iterations=60, rounds=3))


def test_the_packed_response_says_what_the_json_says(row: WireRow) -> None:
    said = json.loads(row.json_payload)
    packed = route.encode_response(tuple(said["route"]))
    assert packed[0] == said["count"] == len(said["route"]) == 5
    assert (
        (row.packed_payload_bytes, row.json_payload_bytes) == (len(packed), len(row.json_payload)) == (3, 31)
    )


def test_figures_of_the_wire(row: WireRow) -> None:
    assert (row.leg_us, row.tcp_us, row.leg_over_tcp) == (30.0, 12.0, 2.5)
    assert (row.frames_per_s, row.frames_per_s_batched) == (1e5, 2e5)
    assert row.frame_bytes == 10 + 17 + 576 * 4
    assert row.decode_guard is True


def test_a_rate_is_of_responses_not_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call pretends to take one round's number of milliseconds."""
    taken = iter(range(1, 9))

    class Fixed:
        def __init__(self, call: Any) -> None:
            call()
            self.p50_ms = float(next(taken))

    monkeypatch.setattr(bench, "timed", lambda call, **_: Fixed(call))
    assert codec_rates(500, 1) == pytest.approx((500e3, 250e3, 500e3 / 3, 125e3))


def test_the_guard_finds_nothing_wrong_with_ours() -> None:
    assert decode_guard()


Decode = Callable[[Any], Any]


def accepting_all(good: Decode) -> Decode:
    def decode(data: Any) -> Any:
        try:
            return good(data)
        except PeerProblem:
            return ()

    return decode


def refusing_one(good: Decode) -> Decode:
    """It refuses what it decodes first."""
    first: list[Any] = []

    def decode(data: Any) -> Any:
        told = good(data)
        first.append(data)
        if data is first[0]:
            raise PeerProblem("not this one", fix="none")
        return told

    return decode


def telling_nothing(good: Decode) -> Decode:
    return lambda data: good(data)[:0]


@pytest.mark.parametrize(
    ("codec", "name", "bad"),
    [
        (route, "decode", accepting_all),
        (route, "decode", refusing_one),
        (route, "decode", telling_nothing),
        (route, "decode_response", accepting_all),
        (route, "decode_response", refusing_one),
        (route, "decode_response", telling_nothing),
        (routes, "decode", accepting_all),
        (routes, "decode", telling_nothing),
    ],
)
def test_the_guard_notices(
    codec: Any, name: str, bad: Callable[[Decode], Decode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, name, bad(getattr(codec, name)))
    assert not decode_guard()
