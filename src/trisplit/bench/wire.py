"""What is on the wire, how fast: route words beside JSON, frames alone and batched, a leg beside bare TCP."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, product
from typing import Any, Final

import numpy as np

from trisplit.bench.measure import timed
from trisplit.bench.wire_ends import FRAME_BYTES
from trisplit.bench.wire_floor import floor
from trisplit.errors import PeerProblem
from trisplit.mesh import routes
from trisplit.wire import route
from trisplit.wire.route import MOST_HOPS, MOST_NEIGHBOURS, Route

EXAMPLE: Final[Route] = (3, 1, 4, 1, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRow:
    """Figures of one wire; rates are medians of all rounds.

    `packed_payload_bytes`, `json_payload_bytes`: of the response that tells a route of five, in three bytes
    and as the `json_payload`. `decode_guard`: whether `decode_guard` found every refusal in its place.
    `encode_per_s`, `decode_per_s`: responses one by one; `batched_…`: by the array. `frame_bytes`: of each
    frame that the rest is about, for which see `Floor`; `leg_over_tcp` is leg_us over tcp_us.
    """

    packed_payload_bytes: int
    json_payload_bytes: int
    json_payload: str
    decode_guard: bool
    encode_per_s: float
    decode_per_s: float
    batched_encode_per_s: float
    batched_decode_per_s: float
    frame_bytes: int
    frames_per_s: float
    frames_per_s_batched: float
    leg_us: float
    tcp_us: float
    leg_over_tcp: float


async def wire(*, iterations: int, rounds: int) -> WireRow:
    """Measures responses `iterations` times in each round, and as many frames over all rounds."""
    packed = route.encode_response(EXAMPLE)
    said = json.dumps({"count": len(EXAMPLE), "route": EXAMPLE}, separators=(",", ":"))
    sent = await floor(iterations, rounds=rounds)
    encode, decode, batched_encode, batched_decode = codec_rates(iterations, rounds)
    return WireRow(
        packed_payload_bytes=len(packed),
        json_payload_bytes=len(said),
        json_payload=said,
        decode_guard=decode_guard(),
        encode_per_s=encode,
        decode_per_s=decode,
        batched_encode_per_s=batched_encode,
        batched_decode_per_s=batched_decode,
        frame_bytes=FRAME_BYTES,
        frames_per_s=sent.frames_per_s,
        frames_per_s_batched=sent.frames_per_s_batched,
        leg_us=sent.leg_us,
        tcp_us=sent.tcp_us,
        leg_over_tcp=sent.leg_us / sent.tcp_us,
    )


def codec_rates(iterations: int, rounds: int) -> tuple[float, float, float, float]:
    """Responses a second: encoded and decoded one by one, then encoded and decoded by the array."""
    some = random.Random(0).choices(_all_routes(), k=iterations)
    responses = [*map(route.encode_response, some)]
    array = np.frombuffer(b"".join(responses), np.uint8).reshape(-1, 3)
    padded = np.ascontiguousarray(routes.decode_responses(array))
    calls: tuple[Callable[[], object], ...] = (
        lambda: _each(route.encode_response, some),
        lambda: _each(route.decode_response, responses),
        lambda: routes.encode_responses(padded),
        lambda: routes.decode_responses(array),
    )
    encode, decode, batched_encode, batched_decode = (
        1e3 * iterations / timed(call, warm=1, repeats=rounds).p50_ms for call in calls
    )
    return encode, decode, batched_encode, batched_decode


def _each(call: Callable[[Any], object], items: Iterable[object]) -> None:
    for item in items:
        call(item)


def _all_routes() -> list[Route]:
    numbers = range(1, MOST_NEIGHBOURS + 1)
    return [told for n in range(MOST_HOPS + 1) for told in product(numbers, repeat=n)]


# --- the guard ------------------------------------------------------------------------------------


def decode_guard() -> bool:
    """Whether exactly the words and responses that tell a route are decoded, and to that route.

    Tried: all words, one by one, and by the array the good ones at once and each other beside a good one;
    all responses with counts from 0 to 6, and some of other lengths.
    """
    of_word = {route.encode(told): told for told in _all_routes()}
    of_response = {route.encode_response(told): told for told in of_word.values()}
    words = range(2**16)
    responses = (bytes((count, *word.to_bytes(2))) for count in range(MOST_HOPS + 2) for word in words)
    odd = (b"", b"\0", b"\0\0", b"\1\0\7\0")
    good = routes.decode(np.array([*of_word], np.uint16)).tolist()
    bad = (np.array([1, word], np.uint16) for word in words if word not in of_word)
    return (
        all(_heard(route.decode, word) == of_word.get(word) for word in words)
        and all(
            _heard(route.decode_response, data) == of_response.get(data) for data in chain(odd, responses)
        )
        and good == [[*told, *(0,) * (MOST_HOPS - len(told))] for told in of_word.values()]
        and all(_heard(routes.decode, pair) is None for pair in bad)
    )


def _heard(decode: Callable[[Any], Any], data: object) -> Any:
    """What it decodes to; None when it is refused."""
    try:
        return decode(data)
    except PeerProblem:
        return None
