"""The coordinator's end of a stream: what comes while nobody waits is not missed."""

from __future__ import annotations

import asyncio

from trisplit.mesh.streams import Stream
from trisplit.wire.frame import EPOCHS_OF_A_TAIL, IDS, Activation

HIDDEN = 4


def chosen(position: int, token_id: int, epoch: int = 0) -> Activation:
    return Activation(1, position, epoch, 9, 1, token_id.to_bytes(4, "little"), IDS)


def started() -> Stream:
    stream = Stream(1, HIDDEN)
    stream.move_to(0, 3)
    return stream


def test_what_came_before_somebody_waits_ends_the_wait_at_once_and_once() -> None:
    async def story() -> None:
        stream = started()
        stream.arrive(chosen(3, 7))
        assert stream.arrival().done()
        waiting = stream.arrival()
        assert not waiting.done()
        stream.arrive(chosen(4, 8))
        assert waiting.done()
        assert not stream.arrival().done(), "it was heard"

    asyncio.run(story())


def test_an_epoch_of_the_tail_is_followed_and_one_given_up_is_not() -> None:
    async def story() -> None:
        stream = started()
        stream.known = 3
        for said in (chosen(3, 7, 1), chosen(4, 8, 1), chosen(5, 9, 0), chosen(5, 6, 2)):
            stream.arrive(said)
        assert [tuple(came) for came in iter(stream.next_came, None)] == [(3, 7, 1), (4, 8, 1), (5, 6, 2)]
        assert stream.epochs == [(0, 0), (1, 3), (2, 5)]
        stream.known = 6
        stream.restart()
        assert (stream.epoch, stream.epochs[-1]) == (EPOCHS_OF_A_TAIL, (EPOCHS_OF_A_TAIL, 5))
        stream.arrive(chosen(6, 1, 3))
        assert stream.next_came() is None, "of before the restart"
        assert stream.ids == [7, 8]

    asyncio.run(story())
