"""Files that a station has sent: whole and right, resumed, once more after a wrong beginning, never half."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tracemalloc
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.errors import PeerProblem, RequestProblem
from trisplit.mesh.fetching import PIECE_BYTES, Pace, Supplier, fetch
from trisplit.models.receiving import Receiving
from trisplit.models.shelf import file_of, shelf
from trisplit.wire.messages import FileSpec, Offer, Piece, StageSpec, Want
from trisplit.wire.owed import MOST_WANTS, Owed
from trisplit.wire.session import Said

CONTENT = os.urandom(10 * PIECE_BYTES + 77)
DIGEST = hashlib.sha256(CONTENT).digest()
SPEC = FileSpec(DIGEST, len(CONTENT))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path))
    return shelf()


class Coordinator:
    """Answers every want in order, from `content(number of this want)`; it keeps to the turns of the wire."""

    def __init__(self, content: Callable[[int], bytes] = lambda _: CONTENT) -> None:
        self.content, self.owed = content, Owed()
        self.wants: list[Want] = []
        self.most_at_once = self.answered = 0
        self.supplier = Supplier(self.hear, self.say)

    def hear(self, want: Want) -> None:
        assert self.owed.take(want) == ""
        self.wants.append(want)
        self.most_at_once = max(self.most_at_once, len(self.wants) - self.answered)

    async def say(self, deadline_s: float) -> Said:
        await asyncio.sleep(0)
        if self.answered == len(self.wants):
            raise PeerProblem(f"the coordinator said nothing for {deadline_s:g} s", fix="look")
        want = self.wants[self.answered]
        piece = Piece(self.content(self.answered)[want.offset : want.offset + want.n_bytes])
        self.answered += 1
        assert self.owed.take(piece) == ""
        return piece

    def send(self, spec: FileSpec = SPEC) -> list[int]:
        async def all_of_it() -> list[int]:
            async with aclosing(fetch(self.supplier, spec, "down 3")) as coming:
                return [length async for length in coming]

        return asyncio.run(all_of_it())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def cut_off(content: bytes) -> None:
    coming = Receiving(DIGEST.hex(), len(CONTENT))
    coming.write(content)
    coming.close()


def test_a_file_comes_piece_by_piece(folder: Path) -> None:
    lengths = (coordinator := Coordinator()).send()
    assert lengths == [*range(PIECE_BYTES, len(CONTENT), PIECE_BYTES), len(CONTENT)]
    assert (folder / file_of(DIGEST.hex())).read_bytes() == CONTENT
    assert names(folder) == [file_of(DIGEST.hex())]
    assert [want.offset for want in coordinator.wants] == [*range(0, len(CONTENT), PIECE_BYTES)]
    assert 1 < coordinator.most_at_once <= MOST_WANTS


def test_it_goes_on_where_it_was_cut_off(folder: Path) -> None:
    cut_off(CONTENT[:200_001])
    coordinator = Coordinator()
    coordinator.send()
    assert coordinator.wants[0].offset == 200_001
    assert sum(want.n_bytes for want in coordinator.wants) == len(CONTENT) - 200_001
    assert (folder / file_of(DIGEST.hex())).read_bytes() == CONTENT


def test_what_was_cut_off_whole_is_not_sent_again(folder: Path) -> None:
    cut_off(CONTENT)
    assert Coordinator().send() == []
    assert names(folder) == [file_of(DIGEST.hex())]


def test_after_a_wrong_beginning_all_of_it_comes_once_more(folder: Path) -> None:
    cut_off(bytes(1000))
    coordinator = Coordinator()
    coordinator.send()
    assert [want.offset for want in coordinator.wants].count(0) == 1
    assert sum(want.n_bytes for want in coordinator.wants) == 2 * len(CONTENT) - 1000
    assert (folder / file_of(DIGEST.hex())).read_bytes() == CONTENT


@pytest.mark.parametrize("beginning", [b"", bytes(1000)])
def test_what_is_not_what_was_promised_is_told_and_gone(beginning: bytes, folder: Path) -> None:
    if beginning:
        cut_off(beginning)
    other = CONTENT[:-1] + b"\0"
    with pytest.raises(
        PeerProblem, match=f"the weights of down 3 came with another SHA-256 .*{DIGEST.hex()}"
    ):
        Coordinator(lambda _: other).send()
    assert names(folder) == []


def test_a_coordinator_that_falls_silent_leaves_what_has_come(folder: Path) -> None:
    coordinator = Coordinator()
    said = coordinator.say

    async def no_more(deadline_s: float) -> Said:
        if coordinator.answered == 4:
            raise PeerProblem(f"the coordinator said nothing for {deadline_s:g} s", fix="look")
        return await said(deadline_s)

    coordinator.supplier = Supplier(coordinator.hear, no_more)
    with pytest.raises(PeerProblem, match="said nothing for 60 s"):
        coordinator.send()
    assert names(folder) == [f"{DIGEST.hex()}.part"]
    assert (folder / f"{DIGEST.hex()}.part").read_bytes() == CONTENT[: 4 * PIECE_BYTES]


def test_a_file_that_the_disk_cannot_take_is_not_begun(folder: Path) -> None:
    coordinator = Coordinator()
    with pytest.raises(RequestProblem, match=r"of weights are to come and the disk of .* short"):
        coordinator.send(FileSpec(DIGEST, 2**62))
    assert coordinator.wants == []
    assert names(folder) == []


def test_offers_and_pieces_wait_for_their_turn() -> None:
    offers = [Offer(StageSpec(n, "down"), (SPEC,)) for n in (0, 1)]
    words: list[Said] = [offers[0], Piece(b"1"), offers[1], Piece(b"2")]

    async def say(_: float) -> Said:
        return words.pop(0)

    async def dialogue() -> None:
        supplier = Supplier(lambda _: None, say)
        assert [(await supplier.next(Piece, 1)).data for _ in range(2)] == [b"1", b"2"]
        assert [await supplier.next(Offer, 1) for _ in range(2)] == offers

    asyncio.run(dialogue())


def test_a_window_opens_while_nothing_queues_and_closes_when_something_does() -> None:
    pace = Pace()
    for _ in range(10):
        pace.took(0.3)  # far away, and no queue
    assert pace.window == 12
    pace.took(0.45)
    assert pace.window == 9
    for _ in range(100):
        pace.took(1.0)
    assert pace.window == 1
    for _ in range(100):
        pace.took(0.3)
    assert pace.window == MOST_WANTS


@given(st.lists(st.floats(0, 1e6), max_size=200))
def test_a_window_is_never_shut_nor_wider_than_the_wire_allows(times_s: list[float]) -> None:
    pace = Pace()
    for seconds in times_s:
        pace.took(seconds)
        assert 1 <= pace.window <= MOST_WANTS


def test_receiving_takes_the_memory_of_a_few_pieces() -> None:
    """64 MB of zeros, never in one place."""
    n_pieces = 512
    zeros, content = bytes(PIECE_BYTES), hashlib.sha256()
    for _ in range(n_pieces):
        content.update(zeros)

    class Zeros(Coordinator):
        async def say(self, _: float) -> Said:
            self.wants.pop()
            return Piece(zeros)

        def hear(self, want: Want) -> None:
            self.wants.append(want)

    tracemalloc.start()
    Zeros().send(FileSpec(content.digest(), n_pieces * PIECE_BYTES))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * PIECE_BYTES
