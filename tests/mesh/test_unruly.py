"""Speculation over a wire that delays as it likes: stations without sockets, and a simulated clock."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mesh.test_holding import CONTEXT, STREAM, holding, owned
from trisplit.mesh.flow import Flow
from trisplit.mesh.group import LoadedGroup
from trisplit.mesh.holding import Held
from trisplit.mesh.speculation import Guesses
from trisplit.mesh.streams import Stream
from trisplit.mesh.tail import Tail
from trisplit.models.config import Stage, layer_stages
from trisplit.models.decoder import Decoder
from trisplit.models.generation import Generation, Request
from trisplit.models.model import Model, open_model
from trisplit.models.sampling import Sampling
from trisplit.wire.choosing import Drafted, Fence
from trisplit.wire.frame import DECODED, DRAFTED, IDS, Activation

PROMPT = (5, 9, 17, 3)
END = 24
HOW = Sampling(temperature=0.9, repetition_penalty=1.3, seed=3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    from tests.tiny import build

    return open_model(build("llama", tmp_path_factory.mktemp("unruly") / "model", layers=3))


@pytest.fixture(scope="module")
def truth(model: Model) -> list[int]:
    """The prompt and what the decoder says to it."""

    class Silent:
        def push(self, _: int) -> str:
            return ""

        def flush(self) -> str:
            return ""

    request = Request(prompt_ids=PROMPT, sampling=HOW, max_tokens=END - len(PROMPT), ignore_eos=True)
    answer = Generation(request, Silent(), CONTEXT)
    decoder = Decoder.load(model.checkpoint.path, context=CONTEXT)
    for _ in decoder.generate(answer):
        pass
    return answer.ids.tolist()


@pytest.fixture(scope="module")
def groups(model: Model) -> list[LoadedGroup]:
    """A ring of three stations, a layer each."""
    cut = [list(layer_stages(range(n, n + 1))) for n in range(3)]
    cut[0].insert(0, Stage(-1, "embed"))
    cut[2].append(Stage(-1, "head"))
    return [
        LoadedGroup(number, holding(model, [stages]).groups[0].tracks) for number, stages in enumerate(cut)
    ]


Event = tuple[float, int, str, object]


@dataclass
class Ring:
    """A coordinator that drafts, and three stations.

    What is sent on a link comes in the order it was sent, after a time drawn for it; links do not wait for
    each other. A station runs one work after another, each for a time drawn for it.
    """

    stations: list[Held]
    stream: Stream
    draw_ms: partial[float]
    window: int
    guess: partial[int | None]
    now_ms: float = 0.0
    most_ahead: int = 0
    ran: int = 0
    ids: list[int] = field(default_factory=list)
    _events: list[Event] = field(default_factory=list)
    _last_ms: dict[str, float] = field(default_factory=dict)
    _count: int = 0

    def answer(self) -> list[int]:
        guesses = Guesses(PROMPT, self.stream.epoch)
        self._send("c0", Activation(STREAM, 0, self.stream.epoch, 0, len(PROMPT), packed(PROMPT), IDS))
        while len(guesses.ids) - guesses.ahead < END:
            self.now_ms, _, link, what = heapq.heappop(self._events)
            self._happens(link, what)
            for came in iter(self.stream.next_came, None):
                guesses.judge(*came)
                self.ids.append(came.token_id)
            if self.ids:
                self._draft(guesses)
        return [*PROMPT, *self.ids]

    def _draft(self, guesses: Guesses) -> None:
        while guesses.ahead < self.window and guesses.next_position < END - 1:
            at = guesses.next_position
            token_id = self.guess(at)
            if token_id is None:
                return
            guesses.add(token_id)
            self._send("c2", Drafted(STREAM, guesses.epoch, at, (token_id,)))
            flags = DECODED | DRAFTED
            self._send("c0", Activation(STREAM, at, guesses.epoch, 0, 1, packed([token_id]), IDS, flags))
            self.most_ahead = max(self.most_ahead, guesses.ahead)

    def _send(self, link: str, what: object) -> None:
        at_ms = max(self.now_ms + self.draw_ms(), self._last_ms.get(link, 0.0))
        self._last_ms[link] = at_ms
        self._count += 1
        heapq.heappush(self._events, (at_ms, self._count, link, what))

    def _happens(self, link: str, what: object) -> None:
        """A link is named by its ends; `r` stands for a station that is to run what waits."""
        end = link[1]
        if end == "c":
            assert isinstance(what, Activation)
            self.stream.arrive(what)
            return
        here = self.stations[int(end)]
        if link[0] == "r":
            self._run(int(end), here)
        elif isinstance(what, Fence):
            here.fence(what.stream, what.epoch)
        elif isinstance(what, Drafted):
            here.draft(what)
        else:
            assert isinstance(what, Activation)
            here.take(what)
            for _ in range(len(here.turns)):
                self._send(f"r{end}", None)

    def _run(self, number: int, here: Held) -> None:
        for on in here.run(works) if (works := here.next()) else ():
            self.ran += 1
            if isinstance(on, Fence):
                here.fence(on.stream, on.epoch)
                for other in {0, 1, 2} - {number}:
                    self._send(f"{number}{other}", on)
            else:
                home = "c" if on.group == len(self.stations) else str(on.group)
                self._send(f"{number}{home}", owned(on))


def packed(ids: Sequence[int]) -> bytes:
    return b"".join(token_id.to_bytes(4, "little") for token_id in ids)


def stations(groups: Sequence[LoadedGroup], epoch: int) -> Iterator[Held]:
    """Each with one group and one stream, as if just opened; the last is told to sample."""
    for number, group in enumerate(groups):
        here = Held({number: group}, rows_equal=True, kv_bytes_per_token=0, end=len(groups))
        here.flows = {number: (Flow(number, number + 1),)}
        here.open(STREAM)
        if number == len(groups) - 1:
            tail = Tail(PROMPT, HOW, epoch=epoch, end=END, stop_ids=frozenset(), drafts="stream")
            here.sample(STREAM, tail)
        yield here


@settings(max_examples=60, deadline=None)
@given(data=st.data(), window=st.integers(0, 12), slow=st.sampled_from([0.2, 3.0, 30.0]))
def test_no_delay_and_no_draft_changes_a_token(
    data: st.DataObject, window: int, slow: float, truth: list[int], groups: list[LoadedGroup], model: Model
) -> None:
    """Whatever overtakes what: drafts their epoch's first row, fences the rows they make void, or not."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    wrong = data.draw(st.sets(st.integers(len(PROMPT), END)))
    silent = data.draw(st.sets(st.integers(len(PROMPT), END), max_size=4))

    def guess(at: int) -> int | None:
        if at in silent and random.random() < 0.5:
            return None
        return (truth[at] + 1) % model.config.vocab if at in wrong else truth[at]

    stream = Stream(STREAM, model.config.hidden)
    stream.move_to(0, len(PROMPT))
    ring = Ring(
        stations=list(stations(groups, stream.epoch)),
        stream=stream,
        draw_ms=partial(random.exponential, slow),
        window=window,
        guess=partial(guess),
    )
    assert ring.answer() == truth
    assert ring.most_ahead <= window
    if not wrong and not silent:
        assert ring.ran <= 4 * END, "rows that were right ran once"
