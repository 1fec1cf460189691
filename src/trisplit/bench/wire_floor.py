"""What a frame takes from one process to another over a link, beside as many bytes over a bare TCP socket."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from trisplit.bench.posts import end_of_wire
from trisplit.bench.rounds import Turn, alternate, started


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Medians over loopback, of frames with a row of SmolLM2 each.

    `leg_us`, `tcp_us`: one way, half of there and back, over links and over blocking sockets.
    `frames_per_s`, `frames_per_s_batched`: one way, none waiting for the one before; each alone, and batched.
    """

    leg_us: float
    tcp_us: float
    frames_per_s: float
    frames_per_s_batched: float


async def floor(iterations: int, *, rounds: int) -> Floor:
    """Sends at least `iterations` frames each way; the ways take turns, `rounds` times over."""
    n = -(-iterations // rounds)
    async with (
        started([end_of_wire("far")]) as (far,),
        started([end_of_wire("near", far.ready)]) as (near,),
    ):
        await far.ask({"address": near.ready["address"]})
        turns: list[Turn] = [(near, {"what": what, "n": n}) for what in ("link", "tcp", "frames", "batched")]
        link, tcp, frames, batched = await alternate(turns, rounds)
    return Floor(
        leg_us=median(us for answer in link for us in answer["us"]),
        tcp_us=median(us for answer in tcp for us in answer["us"]),
        frames_per_s=median(answer["per_s"] for answer in frames),
        frames_per_s_batched=median(answer["per_s"] for answer in batched),
    )
