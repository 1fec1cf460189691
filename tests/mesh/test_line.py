"""A line: so many inside, so many waiting in order, the rest refused, and every place given on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.errors import RequestProblem
from trisplit.mesh.line import Line


class Guest:
    """Somebody in a line, and the numbers they were told."""

    def __init__(self, line: Line) -> None:
        self.told: list[int] = []
        self.is_inside = False
        self._leaving = asyncio.Event()
        self.task = asyncio.ensure_future(self._visit(line))

    async def _visit(self, line: Line) -> None:
        with line.join() as turn:
            async for ahead in line.ahead_of(turn):
                self.told.append(ahead)
            self.is_inside = True
            await self._leaving.wait()
        self.is_inside = False

    async def leave(self) -> None:
        """Goes when inside; gives up when still waiting."""
        self._leaving.set()
        if not self.is_inside:
            self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await settled()


async def settled() -> None:
    """Lets everybody who can do something do it."""
    for _ in range(4):
        await asyncio.sleep(0)


async def arrived(line: Line) -> Guest:
    guest = Guest(line)
    await settled()
    return guest


def test_who_comes_first_goes_first() -> None:
    async def story() -> None:
        line = Line(places=2, most_waiting=3)
        first, second, third, fourth, fifth = [await arrived(line) for _ in range(5)]
        assert [g.is_inside for g in (first, second, third, fourth, fifth)] == [
            True,
            True,
            False,
            False,
            False,
        ]
        assert (line.inside, line.waiting) == (2, 3)
        assert (third.told, fourth.told, fifth.told) == ([0], [1], [2])
        await fourth.leave()  # gives up
        assert (third.told, fifth.told) == ([0], [2, 1])
        await second.leave()
        assert (third.is_inside, fifth.is_inside, fifth.told) == (True, False, [2, 1, 0])
        for guest in (first, third, fifth):
            await guest.leave()
        assert (line.inside, line.waiting) == (0, 0)

    asyncio.run(story())


def test_one_more_than_may_wait_is_refused_with_the_numbers() -> None:
    async def story() -> None:
        line = Line(places=1, most_waiting=1)
        inside, waiting, refused = [await arrived(line) for _ in range(3)]
        with pytest.raises(RequestProblem, match="all 1 sessions are taken and 1 questions wait already"):
            await refused.task
        await inside.leave()
        await waiting.leave()

    asyncio.run(story())


@given(st.integers(1, 3), st.integers(0, 3), st.lists(st.none() | st.integers(0, 9), max_size=30))
def test_whatever_comes_and_goes_places_are_neither_lost_nor_given_twice(
    places: int, most_waiting: int, steps: list[int | None]
) -> None:
    """A step is somebody who comes, or the number of somebody who goes."""

    async def story() -> None:
        line, here = Line(places, most_waiting), list[Guest]()
        for step in steps:
            if step is None:
                guest = await arrived(line)
                if guest.task.done():
                    assert isinstance(guest.task.exception(), RequestProblem)
                    assert len(here) == places + most_waiting
                else:
                    here.append(guest)
            elif step < len(here):
                await here.pop(step).leave()
            check(line, here)
        for guest in [*here]:
            await guest.leave()
        assert (line.inside, line.waiting) == (0, 0)

    def check(line: Line, here: list[Guest]) -> None:
        assert [guest.is_inside for guest in here] == [i < places for i in range(len(here))]
        assert (line.inside, line.waiting) == (min(places, len(here)), max(0, len(here) - places))
        newest: Callable[[Guest], int] = lambda guest: guest.told[-1]  # noqa: E731
        assert [newest(guest) for guest in here[places:]] == [*range(line.waiting)]

    asyncio.run(story())
