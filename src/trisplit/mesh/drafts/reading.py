"""Drafts that are models themselves: a sequence read by a model, and what the model would choose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trisplit.errors import RequestProblem
from trisplit.machine import gather_into_huge_pages
from trisplit.mesh.drafts.draft import Asked, Draft, Target
from trisplit.models.convert import DTYPES, Dtype
from trisplit.models.decoder import PREFILL_CHUNK, chunks
from trisplit.models.model import Model, open_model, refuse_if_short
from trisplit.models.sampling import Sampling, choose
from trisplit.models.session import Floats, StageSession, Tracks
from trisplit.models.vocabulary import first_difference
from trisplit.table import size


class Reader:
    """One sequence in one model, which goes on from wherever two calls have the same ids before them.

    The ids of its first call are its prompt: they pass in chunks, as a prompt does in plain decoding, and
    every id after them alone. Rows in chunks have other last bits, of which weights of few bits make more; so
    that a result does not depend on what was asked between, a rewind into the prompt runs the same chunks
    again. But whoever was not asked for more than a chunk of ids takes all of them for a prompt: alone, one
    after the other, they would take seconds.
    """

    def __init__(self, session: StageSession) -> None:
        self._track = Tracks(session)
        self._held: list[int] = []
        self._prompt = 0

    def logits(self, ids: Sequence[int]) -> Floats | None:
        """[vocab] after the last of `ids`; the next call overwrites it.

        None where nothing can follow: no ids, a full context, or an id that this model does not know.
        """
        given, session = list(ids), self._track.session
        if not 0 < len(given) < session.context:
            return None
        kept = min(common(self._held, given), len(given) - 1)
        if max(given[kept:]) >= session.config.vocab:
            return None
        if not self._held or len(given) - max(kept, self._prompt) > PREFILL_CHUNK:
            self._prompt = len(given)
        if kept < self._prompt:
            kept -= kept % PREFILL_CHUNK  # the same chunks as before
        del self._held[kept:]
        for piece, position in chunks(given[kept : self._prompt], kept):
            rows = self._track.run(_ids(piece), position)
        if (behind := max(kept, self._prompt)) < len(given):  # each alone, as far as attention can tell
            rows = self._track.step(_ids(given[behind:]), behind, batch=True)
        self._held += given[kept:]
        last: Floats = rows[-1]
        return last

    def close(self) -> None:
        """Gives the memory of keys and values back; what is read afterwards is read anew."""
        self._held.clear()
        self._track.free(0)


def _ids(ids: Sequence[int]) -> dict[str, NDArray[np.int64]]:
    return {"ids": np.asarray(ids, dtype=np.int64)}


def common(held: list[int], given: list[int]) -> int:
    """How many ids both begin with; found by comparing slices.

    >>> common([1, 2, 3], [1, 2, 3, 4]), common([1, 2, 3, 4, 5], [1, 2, 9, 4]), common([], [1])
    (3, 2, 0)
    """
    low, high = 0, min(len(held), len(given))
    if held[:high] == given[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if held[low:middle] == given[low:middle] else (low, middle - 1)
    return low


class ReadingDraft:
    """What a model would choose itself, by the target's own way of choosing."""

    def __init__(self, name: str, reader: Reader, how: Sampling, vocab: int) -> None:
        """Guesses are ids below `vocab`, those the target knows."""
        self.name = name
        self._reader: Reader | None = reader
        self._how, self._vocab = how, vocab

    def guess(self, ids: Sequence[int]) -> int | None:
        """The id at the position after `ids`; CheckpointProblem when the model leaves no numbers."""
        reader = self._reader
        logits = None if reader is None else reader.logits(ids)
        return None if logits is None else choose(logits[: self._vocab], ids, self._how, len(ids))

    def close(self) -> None:
        """Lets go of keys and values."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class Reading:
    """A model that drafts for a target: opened here, loaded by `load` or for the first draft."""

    def __init__(self, name: str, model: Model, dtype: Dtype, target: Target) -> None:
        self.name, self.model, self.dtype = name, model, dtype
        self.context = min(target.context, model.config.context)
        self._target = target
        self._session: StageSession | None = None

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights, a tied head counted once."""
        stages = self.model.stages[1 if self.model.config.tied_head else 0 :]
        return sum(self.model.weight_bytes(stage, self.dtype) for stage in stages)

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values of one sequence that is full."""
        return self.model.kv_bytes(self.model.stages, self.context)

    @property
    def steps(self) -> int:
        """One for each stage."""
        return len(self.model.stages)

    def load(self) -> Iterator[None]:
        """Converts what was never converted, and loads; nothing when loaded. RequestProblem: no memory."""
        if self._session is not None:
            return
        needed = f"{size(self.weight_bytes)} of weights and {size(self.kv_bytes)} of keys and values"
        refuse_if_short(self.weight_bytes + self.kv_bytes, f"{needed} of the draft {self.name}")
        files = []
        for file in self.model.files(self.model.stages, self.dtype):
            files.append(file)
            yield
        self._session = StageSession(
            self.model.config, files, context=self.context, threads=self._target.threads, spin=False
        )
        gather_into_huge_pages()

    def reader(self) -> Reader:
        """A sequence of its own in the one model; loads what is not loaded yet."""
        for _ in self.load():
            pass
        assert self._session is not None  # load has seen to it
        return Reader(self._session)

    def draft(self, how: Sampling) -> Draft:
        """A draft for one sequence; any number of them share the weights."""
        return ReadingDraft(self.name, self.reader(), how, self._target.model.config.vocab)


def place_and_dtype(asked: Asked) -> tuple[str, Dtype]:
    """The argument PLACE, or PLACE@DTYPE, in two; the target's dtype where none is named."""
    place, _, behind = asked.argument.rpartition("@")
    named = next((dtype for dtype in DTYPES if place and dtype == behind), None)
    return (place, named) if named else (asked.argument, asked.target.dtype)


def model_beside(asked: Asked, path: Path, dtype: Dtype) -> Reading:
    """The model at `path`; RequestProblem when its vocabulary is another than the target's."""
    model = open_model(path)
    ours, theirs = asked.target.model.tokenizer().vocabulary, model.tokenizer().vocabulary
    if (id_ := first_difference(ours, theirs)) is not None:
        raise RequestProblem(
            f"the draft {asked.text} has another vocabulary than the model: token {id_} is "
            f"{theirs.token_of(id_)!r} to the draft and {ours.token_of(id_)!r} to the model",
            fix="draft with a model of the same family, or with twin:int8",
        )
    return Reading(asked.text, model, dtype, asked.target)
