"""How good drafts are: what they say on text they are given, and along the target's own answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from trisplit.bench.dtypes import windows_of
from trisplit.bench.progress import shown
from trisplit.bench.prompts import LEAST_DISTINCT, Prompt, distinct_4gram_share
from trisplit.mesh.drafts import Draft, Source, Target
from trisplit.mesh.drafts.reading import Reader, Reading
from trisplit.models.decoder import Decoder
from trisplit.models.generation import Generation, Request
from trisplit.models.predictions import scores
from trisplit.models.sampling import Sampling, choose
from trisplit.models.session import Floats
from trisplit.models.tokenizer import Tokenizer

GREEDY = Sampling()


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRow:
    """One draft on `tokens` predictions of held-out text, which target and draft are both given.

    `greedy_agreement`: share where it says the target's likeliest id; saying nothing does not agree.
    `coupled_agreement`: the same where both sample at `temperature` with the same noise. `kl`: mean
    KL(target ‖ draft) in nats a token, None where a draft has no likelihoods. `guessed`: share of predictions
    it made at all. `ms_per_token`: median time of one guess after ids that grew by one. `weight_bytes`,
    `kv_bytes`: its weights, and keys and values of one full sequence.
    """

    draft: str
    tokens: int
    greedy_agreement: float
    coupled_agreement: float
    temperature: float
    kl: float | None
    guessed: float
    ms_per_token: float
    weight_bytes: int
    kv_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceRow:
    """One draft along the target's own answer to one prompt; `prompt` "median": over those of a kind.

    `acceptance`: share of the answer's `tokens` that it guesses, each from the true ids before. `in_a_row`:
    tokens of the answer for each that it does not guess. `distinct_4gram_share` is the answer's: under 0.8 a
    novel one is a loop, and `counts` is false.
    """

    draft: str
    prompts: str
    prompt: str
    temperature: float
    tokens: int
    acceptance: float
    in_a_row: float
    guessed: float
    distinct_4gram_share: float
    counts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """What `bench draft` finds: on held-out text, and along answers."""

    rows: Sequence[DraftRow]
    acceptance: Sequence[AcceptanceRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """What every draft is asked: passages of ids that are read, the last id of each only predicted; prompts
    with their ids, answered with `tokens` tokens at each temperature, whatever ends they would have.
    """

    passages: Sequence[Sequence[int]]
    prompts: Sequence[tuple[Prompt, Sequence[int]]]
    tokens: int
    temperatures: Sequence[float]
    seed: int

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        texts: Sequence[str],
        prompts: Sequence[Prompt],
        *,
        windows: int,
        window_tokens: int,
        tokens: int,
        temperatures: Sequence[float],
        seed: int = 0,
    ) -> Exam:
        """RequestProblem when the texts are too short, or a prompt cannot be asked of this model."""
        return cls(
            passages=windows_of(tokenizer, texts, windows, window_tokens),
            prompts=[(prompt, prompt.ids(tokenizer)) for prompt in prompts],
            tokens=tokens,
            temperatures=temperatures,
            seed=seed,
        )

    @property
    def context(self) -> int:
        """The longest sequence there must be room for."""
        asked = [len(ids) + self.tokens for _, ids in self.prompts]
        return max([*asked, *map(len, self.passages)])

    @property
    def coupled(self) -> Sampling:
        """How both sample where their noise is the same: at the highest temperature."""
        return Sampling(temperature=max(self.temperatures), seed=self.seed)


def examine(target: Target, sources: Sequence[Source], exam: Exam) -> Drafted:
    """Runs the target in this process and every draft beside it."""
    path, threads = target.model.checkpoint.path, target.threads
    decoder = Decoder.load(path, target.dtype, threads=threads, context=target.context)
    return Drafted(
        rows=_on_text(decoder, sources, exam), acceptance=_along_answers(target, decoder, sources, exam)
    )


# --- on text it is given --------------------------------------------------------------------------


class _Candidate:
    """A draft that reads along: what it says after each id, greedily and coupled, and how long that takes."""

    def __init__(self, source: Source, coupled: Sampling) -> None:
        self.source, self._coupled = source, coupled
        self._reader: Reader | None = source.reader() if isinstance(source, Reading) else None
        self._draft = source.draft(GREEDY)
        self._agreed: list[tuple[bool, bool, bool]] = []
        self._divergences: list[float] = []
        self._times_ms: list[float] = []

    def predict(self, ids: Sequence[int], exact: Floats, right: tuple[int, int]) -> None:
        """Notes how near it comes to the target, whose logits are `exact` and whose choices are `right`."""
        began_s = time.perf_counter()
        guess, logits = self._says(ids, len(exact))
        self._times_ms.append(1e3 * (time.perf_counter() - began_s))
        warm = guess
        if logits is not None:
            warm = choose(logits, ids, self._coupled, len(ids))
            both = exact[None, : len(logits)], logits[None]
            self._divergences.append(float(scores(*both, np.zeros(1, dtype=np.int64))[0, 0]))
        self._agreed.append((guess == right[0], warm == right[1], guess is not None))

    def _says(self, ids: Sequence[int], vocab: int) -> tuple[int | None, Floats | None]:
        """Its likeliest id below `vocab`, and its logits where it has any."""
        if self._reader is None:
            return self._draft.guess(ids), None
        logits = self._reader.logits(ids)
        if logits is None:
            return None, None
        return choose(logits[:vocab], ids, GREEDY, len(ids)), logits[:vocab]

    def row(self) -> DraftRow:
        """All of it."""
        greedy, coupled, guessed = np.mean(self._agreed, axis=0).tolist()
        return DraftRow(
            draft=self.source.name,
            tokens=len(self._agreed),
            greedy_agreement=greedy,
            coupled_agreement=coupled,
            temperature=self._coupled.temperature,
            kl=float(np.mean(self._divergences)) if self._divergences else None,
            guessed=guessed,
            ms_per_token=median(self._times_ms),
            weight_bytes=self.source.weight_bytes,
            kv_bytes=self.source.kv_bytes,
        )


def _on_text(decoder: Decoder, sources: Sequence[Source], exam: Exam) -> list[DraftRow]:
    """Target and drafts read the same passages, an id at a time."""
    candidates = [_Candidate(source, exam.coupled) for source in sources]
    for passage in shown(exam.passages, "held-out text"):
        for at, id_ in enumerate(passage[:-1]):
            exact, ids = decoder.forward([id_], at), passage[: at + 1]
            right = choose(exact, ids, GREEDY, at + 1), choose(exact, ids, exam.coupled, at + 1)
            for candidate in candidates:
                candidate.predict(ids, exact, right)
    return [candidate.row() for candidate in candidates]


# --- along answers --------------------------------------------------------------------------------


def _along_answers(
    target: Target, decoder: Decoder, sources: Sequence[Source], exam: Exam
) -> list[AcceptanceRow]:
    """Every draft guesses every token of the target's own answers; singly, then the medians of each kind."""
    tokenizer, rows = target.model.tokenizer(), []
    asked = [(prompt, ids, warmth) for prompt, ids in exam.prompts for warmth in exam.temperatures]
    for prompt, prompt_ids, temperature in shown(asked, "answers"):
        how = prompt.sampling(temperature, exam.seed)
        request = Request(prompt_ids=tuple(prompt_ids), sampling=how, max_tokens=exam.tokens, ignore_eos=True)
        answer = Generation(request, tokenizer.detokenizer(), decoder.context)
        whole = [*prompt_ids, *(piece.token_id for piece in decoder.generate(answer))]
        for source in sources:
            said = _guesses(source.draft(how), whole, len(prompt_ids))
            rows.append(accepted(source.name, prompt, temperature, whole[len(prompt_ids) :], said))
    return [*rows, *medians(rows)]


def _guesses(draft: Draft, whole: Sequence[int], first: int) -> list[int | None]:
    said = [draft.guess(whole[:length]) for length in range(first, len(whole))]
    draft.close()
    return said


def accepted(
    name: str, prompt: Prompt, temperature: float, answer: Sequence[int], said: Sequence[int | None]
) -> AcceptanceRow:
    """What guesses that were `said` are worth beside the answer, id by id."""
    right = sum(guess == id_ for guess, id_ in zip(said, answer))
    distinct = distinct_4gram_share(answer)
    return AcceptanceRow(
        draft=name,
        prompts=prompt.kind,
        prompt=prompt.name,
        temperature=temperature,
        tokens=len(answer),
        acceptance=right / len(answer),
        in_a_row=len(answer) / max(1, len(answer) - right),
        guessed=sum(guess is not None for guess in said) / len(answer),
        distinct_4gram_share=distinct,
        counts=prompt.kind == "draftable" or distinct >= LEAST_DISTINCT,
    )


def medians(rows: Sequence[AcceptanceRow]) -> Iterator[AcceptanceRow]:
    """A row for each draft, kind of prompts and temperature, of the rows that count."""
    groups: dict[tuple[str, str, float], list[AcceptanceRow]] = {}
    for row in rows:
        groups.setdefault((row.draft, row.prompts, row.temperature), []).append(row)
    for (draft, kind, temperature), some in groups.items():
        counted = [row for row in some if row.counts] or some
        yield AcceptanceRow(
            draft=draft,
            prompts=kind,
            prompt="median",
            temperature=temperature,
            tokens=sum(row.tokens for row in counted),
            acceptance=median(row.acceptance for row in counted),
            in_a_row=median(row.in_a_row for row in counted),
            guessed=median(row.guessed for row in counted),
            distinct_4gram_share=median(row.distinct_4gram_share for row in counted),
            counts=any(row.counts for row in some),
        )
