"""How likely a model finds texts, and how it goes on: with the same bits alone and among others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trisplit.compress.reading import Body, Head
from trisplit.errors import RequestProblem
from trisplit.models.convert import Dtype
from trisplit.models.generation import Generation, Request
from trisplit.models.model import Model, context_for
from trisplit.models.predictions import log_softmax
from trisplit.models.sampling import Sampling
from trisplit.models.session import Floats
from trisplit.models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Likelihood:
    """The log-likelihood of a text in nats, and whether every token of it was the likeliest."""

    nats: float
    greedy: bool


class Scorer:
    """A model that reads up to `context` ids at once.

    Special tokens written in a text are read as such, as transformers does: prompts of chats have some. BOS
    stands before a text where the model wants it, once.
    """

    def __init__(self, model: Model, dtype: Dtype, *, threads: int, context: int | None = None) -> None:
        """Problems as of loading the model, and for a longer context than it was made for."""
        self.context = context_for(model.config, context)
        self.tokenizer: Tokenizer = model.tokenizer()
        self._body = Body(model, dtype, context=self.context, threads=threads)
        self._head = Head(model, dtype, threads=threads)
        self._read: tuple[list[int], Floats] | None = None

    # --- ids ---

    @property
    def first_id(self) -> int:
        """What stands before the first token of a text that is scored from its beginning: BOS, else EOS."""
        for id_ in (self.tokenizer.bos_id, self.tokenizer.eos_id):
            if id_ is not None:
                return id_
        what = "this model has neither BOS nor EOS, and something must stand before the first token"
        raise RequestProblem(what, fix="score texts that go on from a context")

    def ids_of(self, text: str) -> list[int]:
        """The ids of a text, as the model is given it."""
        ids, bos = self._plain(text), self.tokenizer.bos_id
        begun = [bos] if self.tokenizer.adds_bos and bos is not None else []
        return ids if ids[:1] == begun else begun + ids

    def _plain(self, text: str) -> list[int]:
        return self.tokenizer.vocabulary.encode(text, parse_special=True)

    # --- likelihoods ---

    def likelihood(self, context: str, continuation: str) -> Likelihood:
        """Of `continuation` after `context`; a text from its beginning where there is no context.

        Both are encoded as one text, since a token may reach over the end of the context: what is scored
        begins with the first id that the context alone does not have.
        """
        if not continuation:
            return Likelihood(0.0, True)
        if not context:
            return self._likelihood([self.first_id], self._from_beginning(continuation))
        alone, whole = self.ids_of(context), self.ids_of(context + continuation)
        n_given = min(_in_common(alone, whole), len(whole) - 1)
        return self._likelihood(whole[:n_given] or [self.first_id], whole[n_given:])

    def rolling(self, text: str) -> float:
        """The log-likelihood of a whole text, every token of it, in nats.

        In windows of the context if it is longer; the last one overlaps the one before, so that its tokens
        have as much before them as there is room for.
        """
        ids = [self.first_id, *self._from_beginning(text)]
        nats, done = 0.0, 1
        while done < len(ids):
            end = min(done + self.context, len(ids))
            begin = max(end - 1 - self.context, 0)
            nats += self._likelihood(ids[begin:done], ids[done:end]).nats
            done = end
        return nats

    def _from_beginning(self, text: str) -> list[int]:
        """The ids of a text without the one that stands before it."""
        ids = self._plain(text)
        return ids[1:] if len(ids) > 1 and ids[0] == self.first_id else ids

    def _likelihood(self, given: Sequence[int], scored: Sequence[int]) -> Likelihood:
        """Of ids after others, the last of which are given where all of them are too many."""
        room = self.context - (len(scored) - 1)
        if room < 1:
            what = f"{len(scored):,} tokens are to be scored at once, and the context is {self.context:,}"
            raise RequestProblem(what, fix="ask for a longer max_length, or give shorter texts")
        rows = self._residual(list(given[-room:]))
        if len(scored) > 1:
            rows = np.concatenate([rows, self._body.read(scored[:-1], len(given[-room:]))])
        certain = np.concatenate([log_softmax(logits) for logits in self._head.logits(rows)])
        nats = float(certain[np.arange(len(scored)), scored].sum())
        return Likelihood(nats, certain.argmax(axis=-1).tolist() == list(scored))

    def _residual(self, given: list[int]) -> Floats:
        """[1, hidden] after these ids; read once if they are those of the call before, as with options."""
        if self._read is None or self._read[0] != given:
            self._read = None
            self._read = given, self._body.read(given)[-1:]
        return self._read[1]

    # --- going on ---

    def go_on(self, text: str, *, stop: Sequence[str], max_tokens: int, sampling: Sampling) -> str:
        """What the model says after a text, until EOS, a stop string or `max_tokens`; without those.

        Of a text that leaves no room for as many tokens the last ids are given.
        """
        room = self.context - max_tokens
        if room < 1:
            what = f"{max_tokens:,} tokens are wanted, and the context is {self.context:,}"
            raise RequestProblem(what, fix="ask for a longer max_length, or for fewer tokens")
        request = Request(
            prompt_ids=tuple((self.ids_of(text) or [self.first_id])[-room:]),
            sampling=sampling,
            max_tokens=max_tokens,
            stop=tuple(word for word in stop if word),
            eos_ids=self.tokenizer.eos_ids,
        )
        self._read = None
        answer = Generation(request, self.tokenizer.detokenizer(), self.context)
        while not answer.finished:
            residual = self._body.read(answer.pending, answer.position)[-1:]
            answer.take(next(self._head.logits(residual))[-1])
        return answer.text


def _in_common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
