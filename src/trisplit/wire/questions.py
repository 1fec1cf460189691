"""What clients and the mesh they ask say to each other, beside the words of every link."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from trisplit.wire.fields import U32, U64, Milliseconds, Name, Part, Positive, Share, Text, Word

MOST_STOPS: Final = 64
MOST_CHARACTERS: Final = 2**19  # in UTF-8 at most half of a message

Ratio = Annotated[float, msgspec.Meta(ge=0)]
LongText = Annotated[str, msgspec.Meta(max_length=MOST_CHARACTERS)]


class How(Part, frozen=True):
    """How to choose tokens. Temperature 0 is greedy, top_k 0 is off."""

    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)]
    top_k: U32
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)]
    min_p: Share
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=100)]
    seed: U64


class Question(Word, frozen=True):
    """Continue this text, or `as_chat` answer it."""

    text: LongText
    as_chat: bool
    how: How
    max_tokens: Annotated[int, msgspec.Meta(ge=1)]
    stop: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MOST_STOPS)]
    ignore_eos: bool


class Waiting(Word, frozen=True):
    """All sessions are taken; so many questions will be answered before yours."""

    ahead: U32


class Token(Word, frozen=True):
    """One token of the answer, and the text that is ready to show since it came."""

    token_id: U32
    text: LongText


class DraftReport(Part, frozen=True):
    """Guesses of a draft that were judged, and a token's whole trip, where one was seen."""

    draft: Text
    right: U32
    wrong: U32
    trip_ms: Milliseconds | None


class Answered(Word, frozen=True):
    """The answer is whole; times as the mesh saw them, `ms_per_token` the median after the first token."""

    finish_reason: Literal["stop", "length", "context"]
    prompt_tokens: U32
    waited_ms: Milliseconds
    first_token_ms: Milliseconds
    ms_per_token: Milliseconds | None
    drafts: DraftReport | None


class Report(Word, frozen=True):
    """How is the mesh?"""


class StationReport(Part, frozen=True):
    """One process of the mesh; what it did not tell is None, and for a coordinator what it has none of.

    `kv_bytes` is the room for keys and values, `kv_used_bytes` what the `streams` on it have filled;
    `refused` counts callers it did not let in and peers it has sent away.
    """

    name: Text
    stages: Text
    weight_bytes: U64
    kv_bytes: U64
    rss_bytes: U64 | None
    kv_used_bytes: U64 | None
    streams: U32 | None
    frames: U64 | None
    busy_ms: Milliseconds | None
    refused: U64 | None
    round_trip_ms: Milliseconds | None
    pid: U32 | None
    cpu: Text
    runtime: Text


class BatchReport(Part, frozen=True):
    """Batched sends as the mesh measured them: milliseconds from token to token, and whether they are on.

    On if `ratio`, batched over unbatched, is at most `limit`, and no token was another.
    """

    cut: Name
    topology: Name
    stations: U32
    sessions: Positive
    tokens: U32
    rounds: U32
    unbatched_ms: Milliseconds
    batched_ms: Milliseconds
    ratio: Ratio
    limit: Ratio
    tokens_equal: bool
    on: bool


class Reported(Word, frozen=True):
    """A mesh and what it does now; `mixed` says why no identity is claimed, if none is.

    `refused` counts questions, `dropped` clients that left or did not read, `recovered` losses of stations.
    `batched` says whether frames leave in batches, `batch` what was measured of that here, if it was.
    """

    model: Text
    dtype: Name
    cut: Name
    topology: Name
    legs_per_token: U32
    context: Positive
    threads: Positive
    sessions: Positive
    open: U32
    waiting: U32
    answered: U64
    refused: U64
    dropped: U64
    recovered: U64
    up_s: Annotated[float, msgspec.Meta(ge=0)]
    stations: tuple[StationReport, ...]
    spares: tuple[Name, ...]
    mixed: Text
    last_error: Text
    batched: bool
    batch: BatchReport | None


class Judge(Word, frozen=True):
    """Measure batched sends beside single ones, and leave them on if their gate passes, else off.

    So many `sessions` at once, of `tokens` each, `rounds` times with batches and as many without.
    """

    sessions: Positive
    tokens: Annotated[int, msgspec.Meta(ge=2, lt=2**32)]
    rounds: Annotated[int, msgspec.Meta(ge=1, le=1000)]


class Judging(Word, frozen=True):
    """So many runs of `total` are done."""

    done: U32
    total: U32


class Judged(Word, frozen=True):
    """The mesh has measured, and sends by the verdict from here on."""

    batch: BatchReport


class End(Word, frozen=True):
    """Take the mesh down. Bye follows when all is ended."""


ClientMessage = Question | Waiting | Token | Answered | Report | Reported | Judge | Judging | Judged | End
