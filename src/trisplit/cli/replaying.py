"""Answers given before, token by token: only of one process, where equal bits are promised."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Self

import msgspec

from trisplit.cache.code import code_of, machine
from trisplit.cache.entry import STDOUT, Entry, Frame
from trisplit.cache.key import Impure, Key, key_of
from trisplit.cache.marks import digest_once
from trisplit.cache.recall import Stopwatch, recall, remember
from trisplit.cache.store import Store, open_store
from trisplit.cli.answered import Answered
from trisplit.cli.settings import Settings
from trisplit.errors import RequestProblem
from trisplit.machine import free_cores
from trisplit.models import decoder, description
from trisplit.models.generation import Generation, Request
from trisplit.models.model import Model, context_for
from trisplit.models.tokenizer import Tokenizer

SURFACE = "generate"


@dataclass(frozen=True, slots=True)
class Replays:
    """What one request may be answered with, and where its answer is kept."""

    store: Store
    model: Model
    digest: str
    where: Settings
    request: Request
    code: str
    watch: Stopwatch

    @classmethod
    def of(cls, model: Model, where: Settings, request: Request) -> Self:
        """For one process; RequestProblem for a mesh, which is asked because it is to compute."""
        if where.addresses or where.processes:
            raise RequestProblem("--cache is for one process", fix="leave out --cache, or --stations")
        watch = Stopwatch()
        code, store = code_of(decoder.__name__), open_store()
        facts = (model.checkpoint.digest, description.pack(model.config))
        digest = digest_once(store, model.checkpoint.files, facts, model.content_digest)
        return cls(store, model, digest, where, request, code, watch)

    @classmethod
    def unless_refused(
        cls, model: Model, where: Settings, request: Request, wanted: bool | None
    ) -> Self | None:
        """As `of` where it is wanted; where nothing was said, for one process, if there is a store."""
        if wanted is False or (wanted is None and (where.addresses or where.processes)):
            return None
        try:
            return cls.of(model, where, request)
        except RequestProblem:
            if wanted:
                raise
            return None

    def answer(self, tokenizer: Tokenizer, *, aloud: bool) -> Answered | None:
        """The answer as it was, its text made anew from its tokens; None when it was not given yet."""
        threads = self.where.threads or free_cores()
        entry = recall(self.store, self._key(threads), self.watch)
        if entry is None:
            return None
        began = time.perf_counter()
        context = context_for(self.model.config, self.where.context)
        answer = Generation(self.request, tokenizer.detokenizer(), context)
        for token_id in msgspec.json.decode(entry.output(), type=list[int]):
            piece = answer.accept(token_id)
            if aloud:
                print(piece.text, end="", flush=True)
        if aloud:
            print(flush=True)
        return Answered(
            text=answer.text,
            token_ids=list(answer.token_ids),
            finish_reason=answer.finished or "",
            prompt_tokens=len(self.request.prompt_ids),
            spares=[],
            legs_per_token=0,
            threads=threads,
            context=context,
            max_tokens=self.request.max_tokens,
            first_token_ms=1e3 * (time.perf_counter() - began),
            ms_per_token=None,
            tok_per_s=None,
            from_cache=True,
        )

    def keep(self, answered: Answered, label: str) -> None:
        """Keeps an answer that came to its end, unless our code changed on disk since the question."""
        if self.code != code_of(decoder.__name__):
            return
        entry = Entry(
            frames=(Frame(STDOUT, msgspec.json.encode(answered.token_ids)),),
            surface=SURFACE,
            label=label,
            cpu_us=self.watch.cpu_us,
            wall_us=self.watch.wall_us,
        )
        remember(self.store, self._key(answered.threads), entry)

    def _key(self, threads: int) -> Key:
        asked = {name: value for name, value in asdict(self.request).items() if name != "eos_ids"}
        key = key_of(
            SURFACE,
            model=self.digest,
            # Weights that were converted before are found by this, whatever the files hold by now.
            converted=self.model.checkpoint.digest,
            rounding=None if self.model.rounding is None else self.model.rounding.name,
            asked=asked,
            eos_ids=sorted(self.request.eos_ids),
            dtype=self.where.dtype,
            context=context_for(self.model.config, self.where.context),
            threads=threads,
            chunk=decoder.PREFILL_CHUNK,
            code=self.code,
            machine=machine(),
        )
        assert not isinstance(key, Impure)  # texts and numbers have content
        return key
