"""What is said about choosing ids: how, which were drafted before they were chosen, and what is void."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from trisplit.wire.fields import MOST_DRAFTED, U32, U64, Positive, Share, Stream, Word

Drafts = Literal["none", "stream", "rounds"]


class Sample(Word, frozen=True):
    """To the tail of a ring: `ids` are those of the stream so far, choose what follows, from `epoch` on.

    Temperature 0 is greedy, top_k 0 is off. None is chosen at position `end` or later, nor after one of
    `stop_ids`. What is chosen is fed to the first group, unless it was drafted. `drafts` says how ids are:
    none; one by one, as a `stream`, where what the tail feeds begins an epoch; or in `rounds`, frames of
    several rows, where the tail feeds nothing.
    """

    stream: Stream
    epoch: U32
    ids: tuple[U32, ...]
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)]
    top_k: U32
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)]
    min_p: Share
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=100)]
    seed: U64
    end: Positive
    stop_ids: tuple[U32, ...]
    drafts: Drafts


class Sampling(Word, frozen=True):
    """The tail will sample on this stream."""

    stream: Stream


class Drafted(Word, frozen=True):
    """To the tail: these ids are fed from `position` on in this epoch, though nobody has chosen them yet."""

    stream: Stream
    epoch: U32
    position: U32
    ids: Annotated[tuple[U32, ...], msgspec.Meta(min_length=1, max_length=MOST_DRAFTED)]


class Fence(Word, frozen=True):
    """Rows of epochs before this one are void, wherever they are."""

    stream: Stream
    epoch: U32
