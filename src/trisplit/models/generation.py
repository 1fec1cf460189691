"""The state of one answer: what was asked, what has come, when it ends; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from trisplit.errors import OwnProblem, RequestProblem
from trisplit.models.sampling import Sampling, choose


class Detokenizer(Protocol):
    """Text from ids as they come; what is pushed and flushed, joined, is the text of all ids."""

    def push(self, id_: int, /) -> str: ...
    def flush(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked. RequestProblem: no prompt, no token wanted, an empty stop string.

    An id of `eos_ids` ends the answer, unless `ignore_eos`; so does any of the strings in `stop`.
    """

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    stop: tuple[str, ...] = ()
    eos_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise RequestProblem("the prompt has no tokens", fix="ask something")
        if self.max_tokens < 1:
            raise RequestProblem(f"max_tokens is {self.max_tokens}", fix="ask for at least one token")
        if "" in self.stop:
            raise RequestProblem("a stop string is empty", fix="leave it out")


@dataclass(frozen=True, slots=True)
class Piece:
    """One token and the text that is ready to show since it came, often none."""

    token_id: int
    text: str


class Generation:
    """One answer under way. Feed `pending` to the model, give `take` the logits after its last id, repeat.

    `pending`: ids to feed next, none when finished; `position`: where the first of them stands.
    `finished`: why it ended, or None: "stop" (an EOS id or a stop string), "length" (`max_tokens` came),
    "context" (prompt and answer, `length` tokens together, fill the `context`).
    `token_ids`: every token chosen, with the EOS id if it came, as vLLM and transformers give them; the
    last one was never fed. `text`: all pieces joined: never EOS, and cut where a stop string begins.
    """

    def __init__(self, request: Request, detokenizer: Detokenizer, context: int, *, kept: int = 0) -> None:
        """`kept` prompt ids are in the keys and values already. RequestProblem: no room for a token."""
        n_prompt = len(request.prompt_ids)
        if n_prompt >= context:
            raise RequestProblem(
                f"the prompt has {n_prompt:,} tokens and the context is {context:,}",
                fix=f"shorten it by {n_prompt - context + 1:,} tokens or more, or choose a longer context",
            )
        if not 0 <= kept < n_prompt:
            raise OwnProblem(
                f"{kept} of {n_prompt} prompt tokens kept, and one must be fed", fix="report this to trisplit"
            )
        self.request = request
        self._detokenizer = detokenizer
        self._screen = StopScreen(request.stop)
        self._ids = np.empty(min(context, n_prompt + request.max_tokens), dtype=np.int64)
        self._ids[:n_prompt] = request.prompt_ids
        self.context = context
        self.length = n_prompt
        self.pending: tuple[int, ...] = request.prompt_ids[kept:]
        self.position = kept
        self.finished: Literal["stop", "length", "context"] | None = None
        self.token_ids: list[int] = []
        self.text = ""

    def take(self, logits: NDArray[np.float32]) -> Piece:
        """Chooses the next token from `logits` [vocabulary]; returns it with what can now be shown."""
        if self.finished:
            raise OwnProblem(f"a token after the end ({self.finished})", fix="report this to trisplit")
        return self.accept(choose(logits, self.ids, self.request.sampling, self.length))

    def accept(self, token_id: int) -> Piece:
        """The next token is this one; returns it with what can now be shown."""
        if self.finished:
            raise OwnProblem(f"a token after the end ({self.finished})", fix="report this to trisplit")
        self._ids[self.length] = token_id
        self.token_ids.append(token_id)
        self.pending, self.position = (token_id,), self.length
        self.length += 1
        ended = token_id in self.request.eos_ids and not self.request.ignore_eos
        text = "" if ended else self._screen.push(self._detokenizer.push(token_id))
        self.finished = self._why_finished(ended)
        if self.finished:
            text += self._screen.push(self._detokenizer.flush()) + self._screen.release()
            self.finished = "stop" if self._screen.stopped else self.finished
            self.pending = ()
        self.text += text
        return Piece(token_id, text)

    @property
    def ids(self) -> NDArray[np.int64]:
        """The prompt and what has come, [length]."""
        return self._ids[: self.length]

    @property
    def longest(self) -> int:
        """The length at which the answer ends if nothing else ends it."""
        return len(self._ids)

    def _why_finished(self, ended: bool) -> Literal["stop", "length", "context"] | None:
        if ended or self._screen.stopped:
            return "stop"
        if len(self.token_ids) == self.request.max_tokens:
            return "length"
        return "context" if self.length == self.context else None


class StopScreen:
    """Lets text through until a stop string is complete, and holds back what could still become one.

    Of several stop strings the one that is complete first counts, and of those complete at the same
    character the longest: so where the text is cut does not depend on how it came in pieces.
    """

    def __init__(self, stop: tuple[str, ...]) -> None:
        self._stop = stop
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that can be shown now that `text` has come; none once stopped."""
        if self.stopped:
            return ""
        text = self._held + text
        matches = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        if matches:
            self.stopped, self._held = True, ""
            return text[: min(matches)[1]]
        shown = len(text) - self._n_open(text)
        self._held = text[shown:]
        return text[:shown]

    def release(self) -> str:
        """What was held back, when nothing more will come."""
        held, self._held = self._held, ""
        return held

    def _n_open(self, text: str) -> int:
        """Characters of the longest end of `text` that a stop string begins with."""
        longest = min(len(text), max(map(len, self._stop), default=1) - 1)
        return next((n for n in range(longest, 0, -1) if self._begins_a_stop(text[-n:])), 0)

    def _begins_a_stop(self, text: str) -> bool:
        return any(stop.startswith(text) for stop in self._stop)
