"""What a draft is, what it is made for, and where drafts of one kind come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trisplit.errors import RequestProblem
from trisplit.models.convert import Dtype
from trisplit.models.model import Model
from trisplit.models.sampling import Sampling


class Draft(Protocol):
    """Guesses the ids of one sequence, one after the other. It may be wrong: the target verifies."""

    @property
    def name(self) -> str:
        """As it was asked for: `ngram`, `twin:int8`."""

    def guess(self, ids: Sequence[int]) -> int | None:
        """The id expected after `ids`: the prompt and the answer so far, guesses of its own included.

        None: no guess, also where the sequence is full. It depends on `ids` alone, once the first call has
        said what the prompt is: what a draft keeps from call to call only saves time, most when `ids` have
        grown by one. Called from one thread at a time.
        """

    def close(self) -> None:
        """Gives its memory back; it guesses nothing any more."""


class Source(Protocol):
    """Where drafts of one kind come from: weights are loaded once, each sequence has a draft of its own.

    `weight_bytes` are the weights it loads, `kv_bytes` the keys and values of one draft whose sequence is
    full. Both are known before anything is loaded.
    """

    @property
    def name(self) -> str: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def kv_bytes(self) -> int: ...
    @property
    def steps(self) -> int:
        """How often `load` yields."""

    def load(self) -> Iterator[None]:
        """Loads, step by step, so that progress can be shown. RequestProblem when memory is short."""

    def draft(self, how: Sampling) -> Draft:
        """A draft for one sequence whose tokens are chosen as `how` says; loads what is not loaded yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is drafted for: a model, how its weights are kept, and the longest sequence it has room for.

    `threads` are those a draft computes with.
    """

    model: Model
    dtype: Dtype
    context: int
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A draft as a person writes it, KIND or KIND:ARGUMENT, for a target.

    `text` is all of it; `find` turns the name of a model into its path.
    """

    text: str
    argument: str
    target: Target
    find: Callable[[str], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weightless:
    """A source that loads nothing."""

    made: Draft
    weight_bytes: int = 0
    kv_bytes: int = 0
    steps: int = 0

    @property
    def name(self) -> str:
        return self.made.name

    def load(self) -> Iterator[None]:
        yield from ()

    def draft(self, how: Sampling) -> Draft:  # noqa: ARG002  # it knows nothing of likelihoods
        return self.made


def weightless(draft: Draft, asked: Asked) -> Source:
    """A draft that keeps nothing, as its own source; RequestProblem when it was given an argument."""
    if asked.argument:
        raise RequestProblem(f"the draft {asked.text} makes no sense", fix=f"write {draft.name} alone")
    return Weightless(made=draft)
