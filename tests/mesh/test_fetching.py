"""Files that a station has sent: whole and right, resumed, once more after a wrong beginning, never half."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import time
import tracemalloc
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.errors import PeerProblem, RequestProblem
from trisplit.mesh import fetching
from trisplit.mesh.fetching import FILES_AT_ONCE, PIECE_BYTES, Pace, Supplier, fetch
from trisplit.models.receiving import Receiving
from trisplit.models.shelf import file_of, shelf
from trisplit.wire.messages import FileSpec, Offer, Piece, StageSpec, Want
from trisplit.wire.owed import MOST_WANTS, Owed

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

    def hear(self, want: Want) -> None:
        assert self.owed.take(want) == ""
        self.wants.append(want)
        self.most_at_once = max(self.most_at_once, len(self.wants) - self.answered)

    async def say(self) -> Offer | Piece:
        while self.answered == len(self.wants):
            await asyncio.sleep(0)
        want = self.wants[self.answered]
        piece = Piece(self.content(self.answered)[want.offset : want.offset + want.n_bytes])
        self.answered += 1
        assert self.owed.take(piece) == ""
        return piece

    def send(self, spec: FileSpec = SPEC) -> list[int]:
        async def all_of_it() -> list[int]:
            async with (
                Supplier(self.hear, self.say) as supplier,
                aclosing(fetch(supplier, spec, "down 3")) as coming,
            ):
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


@pytest.mark.parametrize("gone", [True, False])
def test_a_coordinator_that_falls_silent_leaves_what_has_come(
    gone: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trisplit.mesh.fetching.PIECE_DEADLINE_S", 0.05)

    class Dying(Coordinator):
        async def say(self) -> Offer | Piece:
            if self.answered < 4:
                return await super().say()
            if gone:
                raise PeerProblem("the coordinator hung up", fix="look")
            await asyncio.Event().wait()
            raise AssertionError

    why = "hung up" if gone else r"sent nothing that was asked for in 0\.05 s"
    with pytest.raises(PeerProblem, match=f"the coordinator {why}"):
        Dying().send()
    (part,) = names(folder)
    assert part == f"{DIGEST.hex()}.part"
    have = (folder / part).read_bytes()
    assert len(have) in ([4 * PIECE_BYTES] if not gone else range(0, 5 * PIECE_BYTES, PIECE_BYTES))
    assert have == CONTENT[: len(have)]


def test_a_file_that_the_disk_cannot_take_is_not_begun(folder: Path) -> None:
    coordinator = Coordinator()
    with pytest.raises(RequestProblem, match=r"of weights are to come and the disk of .* short"):
        coordinator.send(FileSpec(DIGEST, 2**62))
    assert coordinator.wants == []
    assert names(folder) == []


def test_answers_come_in_the_order_of_their_questions() -> None:
    offers = [Offer(StageSpec(n, "down"), (SPEC,)) for n in (0, 1)]
    words: list[Offer | Piece] = [offers[0], Piece(b"1"), offers[1], Piece(b"2")]

    async def say() -> Offer | Piece:
        return words.pop(0) if words else await asyncio.Event().wait()  # type: ignore[func-returns-value]

    async def dialogue() -> None:
        async with Supplier(lambda _: None, say) as supplier:
            wanted = [supplier.want(Want(DIGEST, 0, 1)) for _ in range(2)]
            expected = [supplier.expect(Offer) for _ in range(2)]
            assert [(await supplier.wait(answer, 1)).data for answer in reversed(wanted)] == [b"2", b"1"]
            assert [await supplier.wait(answer, 1) for answer in expected] == offers

    asyncio.run(dialogue())


class Many(Coordinator):
    """Has several files, and is gone after so many pieces."""

    def __init__(self, contents: dict[bytes, bytes], until: float = math.inf) -> None:
        super().__init__()
        self.contents, self.until = contents, until

    async def say(self) -> Offer | Piece:
        while self.answered == len(self.wants):
            await asyncio.sleep(0)
        if self.answered >= self.until:
            raise PeerProblem("the coordinator hung up", fix="look")
        want = self.wants[self.answered]
        self.answered += 1
        piece = Piece(self.contents[want.digest][want.offset : want.offset + want.n_bytes])
        assert self.owed.take(piece) == ""
        return piece

    async def all_of_them(self) -> None:
        """All files at once."""

        async def one(supplier: Supplier, digest: bytes) -> None:
            spec = FileSpec(digest, len(self.contents[digest]))
            async with aclosing(fetch(supplier, spec, "x")) as coming:
                async for _ in coming:
                    pass

        async with Supplier(self.hear, self.say) as supplier:
            await asyncio.gather(*(one(supplier, digest) for digest in self.contents))

    def send_all(self) -> None:
        asyncio.run(self.all_of_them())


def some_files() -> dict[bytes, bytes]:
    contents = [os.urandom(5 * PIECE_BYTES + n) for n in range(FILES_AT_ONCE)]
    return {hashlib.sha256(content).digest(): content for content in contents}


def test_files_at_once_want_no_more_than_the_wire_allows(folder: Path) -> None:
    coordinator = Many(some_files())
    coordinator.send_all()
    assert coordinator.most_at_once <= MOST_WANTS
    assert len(coordinator.wants) == 5 * FILES_AT_ONCE + FILES_AT_ONCE - 1, "one file has no odd bytes"
    assert {path.read_bytes() for path in folder.iterdir()} == set(coordinator.contents.values())


@pytest.mark.parametrize("until", [1, 4, 7, 12])
def test_files_at_once_go_on_each_where_it_was_cut_off(until: int, folder: Path) -> None:
    contents = some_files()
    with pytest.raises(PeerProblem, match="hung up"):
        Many(contents, until).send_all()
    here = dict.fromkeys(contents, 0)
    for path in folder.iterdir():
        digest = bytes.fromhex(path.stem)
        here[digest] = path.stat().st_size
        assert path.suffix == ".part" or here[digest] == len(contents[digest])
        assert path.read_bytes() == contents[digest][: here[digest]]
    # The cut may come between a file's last byte and its name: then it is all here, and nothing is wanted.
    done = {path.name for path in folder.iterdir()}
    missing = {d: content for d, content in contents.items() if file_of(d.hex()) not in done}
    again = Many(missing)
    again.send_all()
    for digest, content in missing.items():
        wants = [want for want in again.wants if want.digest == digest]
        assert [want.offset for want in wants[:1]] == [here[digest]] * (here[digest] < len(content))
        assert sum(want.n_bytes for want in wants) == len(content) - here[digest]
    assert {path.read_bytes() for path in folder.iterdir()} == set(contents.values())
    assert names(folder) == sorted(file_of(digest.hex()) for digest in contents)


@pytest.mark.parametrize(
    ("round_trip_s", "mbit", "least_share", "most_queue_s"),
    [(0.001, 1000, 0.99, 0.1), (0.04, 100, 0.99, 0.12), (0.04, 10, 0.85, 0.12), (0.3, 20, 0.85, 0.13)],
)
def test_a_link_is_kept_busy_without_a_long_queue(
    round_trip_s: float, mbit: float, least_share: float, most_queue_s: float
) -> None:
    """On a link that does nothing else, after some pieces to find out."""
    sending_s, now_s, free_s = 8 * PIECE_BYTES / (1e6 * mbit), 0.0, 0.0
    pace, under_way = Pace(), deque[tuple[float, float]]()
    began_s = longest_s = 0.0
    for n in range(600):
        while len(under_way) < pace.window:
            arrives_s = now_s + round_trip_s / 2
            free_s = max(arrives_s, free_s) + sending_s
            longest_s = max(longest_s, free_s - arrives_s - sending_s) if n > 100 else 0.0
            under_way.append((now_s, free_s + round_trip_s / 2))
        asked_s, now_s = under_way.popleft()
        pace.took(now_s - asked_s)
        began_s = now_s if n == 100 else began_s
    assert 499 * sending_s / (now_s - began_s) > least_share
    assert longest_s < most_queue_s


def test_a_way_that_has_become_longer_is_no_queue() -> None:
    pace = Pace()
    for seconds in (0.02,) * 50 + (0.4,) * 300:
        pace.took(seconds)
    assert pace.window > 15


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
        async def say(self) -> Offer | Piece:
            while not self.wants:
                await asyncio.sleep(0)
            self.wants.pop()
            return Piece(zeros)

        def hear(self, want: Want) -> None:
            self.wants.append(want)

    tracemalloc.start()
    Zeros().send(FileSpec(content.digest(), n_pieces * PIECE_BYTES))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * PIECE_BYTES


def test_what_a_thread_opens_after_all_was_given_up_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Receiving] = []
    closed: list[Receiving] = []

    class Slow(Receiving):
        def __init__(self, digest: str, n_bytes: int) -> None:
            time.sleep(0.2)
            super().__init__(digest, n_bytes)
            opened.append(self)

        def close(self) -> None:
            closed.append(self)
            super().close()

    monkeypatch.setattr(fetching, "Receiving", Slow)

    async def ends_meanwhile() -> None:
        coordinator = Many(some_files())
        sending = asyncio.create_task(coordinator.all_of_them())
        await asyncio.sleep(0.1)
        assert not sending.done()
        assert not opened

    asyncio.run(ends_meanwhile())
    assert len(opened) == FILES_AT_ONCE
    assert set(map(id, closed)) == set(map(id, opened))
