"""A session hears thousands of damaged frames: each is a word in turn or a PeerProblem, nothing else."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.wire.mutants import Mutator
from tests.wire.test_session import CLIENT_HELLO, IDLE, JOINED, PROVED, QUESTIONS, UPSTREAM_HELLO, words_of
from tests.wire.words import EXAMPLES, framed
from trisplit.errors import OwnProblem, PeerProblem
from trisplit.wire.batch import split
from trisplit.wire.session import BROKEN, CLOSED, MAX_STREAMS, QUESTION_OF, Said, Session, Side

STREAM = (
    " caller:Open called:Opened caller:Activation called:Activation caller:Sample called:Sampling"
    " caller:Drafted caller:Activation caller:Fence called:Activation caller:Close called:Closed"
)
DIALOGUES = {
    "coordinator": (
        JOINED + STREAM + " caller:Load called:Need caller:Offer called:Want caller:Piece called:Loaded",
        PROVED + " called:Welcome caller:Load called:Loaded caller:Join called:Joined" + STREAM,
        JOINED + QUESTIONS + " called:Facts called:Pong caller:Pong caller:Recall called:Recalled" + STREAM,
    ),
    "station": (
        "caller:Hello called:Welcome" + " caller:Activation caller:Fence" * 4 + " caller:Ping called:Pong",
        PROVED + " called:Welcome" + " caller:Activation" * 8,
    ),
    "client": (
        IDLE + " caller:Question called:Waiting" + " called:Token" * 4 + " called:Answered caller:Report",
        PROVED + " called:Welcome caller:Report called:Reported caller:Question called:Answered caller:End",
    ),
}
CORPUS = [framed(said, 0) for said in (*EXAMPLES.values(), UPSTREAM_HELLO, CLIENT_HELLO)]
CALLERS: dict[str, Side] = {"coordinator": "coordinator", "station": "upstream", "client": "client"}


class Hearer:
    """One side of a dialogue, to which the other may be anybody; `mutants` counts those it has heard."""

    def __init__(self, kind: str, side: str, mutator: Mutator, share: float) -> None:
        self._words, self._mutator, self._share = words_of(kind), mutator, share
        self._side = side
        self.session = Session(CALLERS[kind] if side == "caller" else "station")
        self.mutants = self._heard = 0

    def goes_through(self, dialogue: str) -> str:
        """How it ends: heard out, refused, or we ourselves out of turn after a mutant that was in turn."""
        for step in dialogue.split():
            who, word = step.split(":")
            try:
                if who == self._side:
                    self.session.send(self._words[word])
                else:
                    self._hear(self._words[word])
            except PeerProblem as problem:
                return self._refused(problem)
            except OwnProblem:
                return "out of turn"
        return "heard out"

    def _hear(self, said: Said) -> None:
        data = framed(said, self._heard)
        if self._mutator.random.random() < self._share:
            self.mutants += 1
            data = self._mutator.mutant(data)
        for one in split(data):
            self.session.receive(one)
            self._heard += 1

    def _refused(self, problem: PeerProblem) -> str:
        """The reason is one, and nothing is heard any more; a broken batch is refused before the session."""
        assert 0 < len(problem.what) < 1000
        if not problem.what.startswith("a batch "):
            assert self.session.where in (BROKEN, CLOSED)
            with pytest.raises(PeerProblem):
                self.session.receive(framed(EXAMPLES["Ping"], self._heard))
        if self.session.where != CLOSED:
            self.session.send(EXAMPLES["Fault"])
        return "refused"


def fuzz(n: int, seed: int) -> Counter[str]:
    """Has sides of dialogues hear `n` mutants in all; counts how those end."""
    mutator, ends = Mutator(seed, CORPUS), Counter[str]()
    while n > 0:
        kind = mutator.random.choice(list(DIALOGUES))
        side, share = mutator.random.choice(("caller", "called")), mutator.random.choice((0.1, 0.3, 1.0))
        hearer = Hearer(kind, side, mutator, share)
        ends[hearer.goes_through(mutator.random.choice(DIALOGUES[kind]))] += 1
        assert len(hearer.session._streams) <= MAX_STREAMS
        assert len(hearer.session._questions) <= len(QUESTION_OF) * 2
        n -= hearer.mutants
    return ends


def test_20_000_mutants() -> None:
    ends = fuzz(20_000, seed=20_000)
    assert min(ends.values()) > 50, ends


@pytest.mark.slow
def test_1_000_000_mutants() -> None:
    fuzz(1_000_000, seed=1_000_000)
