"""What coordinator and stations say to each other beside activations: msgpack maps with a `type`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from trisplit.wire.choosing import Drafted, Fence, Sample, Sampling
from trisplit.wire.fields import (
    MAX_PIECE,
    MOST_FILES,
    U16,
    U32,
    U64,
    Digest,
    Milliseconds,
    Name,
    Part,
    Positive,
    Response,
    Stream,
    Text,
    Word,
)
from trisplit.wire.greeting import Challenge, Counterproof, Hello, Proof, Welcome
from trisplit.wire.losses import Refused, Replay, Resume, Resumed, Severed, Survey, Surveyed


class StageSpec(Part, frozen=True):
    """A third of layer `layer` (from 0), or an end of the model (`layer` is -1)."""

    layer: Annotated[int, msgspec.Meta(ge=-1, lt=2**16)]
    kind: Literal["embed", "attention", "gate_up", "down", "head"]


class GroupSpec(Part, frozen=True):
    """Stages that run one after the other as one session; `number` is what frames are addressed to.

    `n_bytes` is what their weights take.
    """

    number: U16
    stages: tuple[StageSpec, ...]
    n_bytes: U64


class Source(Part, frozen=True):
    """Where the coordinator reads the model, and a stamp of its files: if both agree, they are the same."""

    path: Text
    stamp: Name


class Load(Word, frozen=True):
    """Build these stages: `config` is the model's own description, `source` where it may lie.

    Weights that are not there are offered, and sent if the coordinator `pushes`. `context` is the number of
    tokens to keep room for in each of `sessions` sequences. A spare `builds` nothing yet, and has the weights
    ready. Who `keeps` what it sends can send it again when a successor is lost.
    """

    config: bytes
    source: Source | None
    pushes: bool
    dtype: Name
    threads: Positive
    context: Positive
    sessions: Positive
    groups: tuple[GroupSpec, ...]
    builds: bool
    keeps: bool


class Loading(Word, frozen=True):
    """Bytes of weights that are here, and of all, as often as the station likes; `what` it is at."""

    done: U64
    total: U64
    what: Text


class Loaded(Word, frozen=True):
    """The stages answer; `rows_equal` says whether rows may be batched without changing a bit."""

    weight_bytes: U64
    kv_bytes_per_token: U64
    rss_bytes: U64
    rows_equal: bool


class Need(Word, frozen=True):
    """A station has no weights of these stages, in this order: what are they?"""

    stages: Annotated[tuple[StageSpec, ...], msgspec.Meta(min_length=1)]


class FileSpec(Part, frozen=True):
    """A file of weights: the SHA-256 of its bytes, and how many they are."""

    digest: Digest
    n_bytes: U64


class Offer(Word, frozen=True):
    """The files of the stage that is needed next."""

    stage: StageSpec
    files: Annotated[tuple[FileSpec, ...], msgspec.Meta(min_length=1, max_length=MOST_FILES)]


class Want(Word, frozen=True):
    """Send this much of a file that was offered, from byte `offset` on."""

    digest: Digest
    offset: U64
    n_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_PIECE)]


class Piece(Word, frozen=True):
    """What was wanted, in the order it was."""

    data: Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_PIECE)]


class Way(Part, frozen=True):
    """Where what group `source` leaves goes: to group `target` at HOST:PORT, or empty for the coordinator.

    With `residual` it is not that group's input but the residual it adds; if `early` it is what that group
    starts on, for decoded tokens alone. `route` is the response
    (`trisplit.wire.route`) that tells the route its frames carry on from there, `00 0000` where they carry
    none. Every address a station is told for the first time is its next neighbour number, from 1; `station`
    is who is there. What is `held` is kept and not sent until a Replay of its target.
    """

    source: U16
    target: U16
    residual: bool
    address: Name
    route: Response = bytes(3)
    station: Name = ""
    held: bool = False
    early: bool = False


class Join(Word, frozen=True):
    """Connect to your successors, as `name`; hear no more of the stations called `without`.

    Frames for group `end`, where a trip ends, are for the coordinator. Links that are needed no more are
    closed, the others stay. Groups that start `ahead` wait for two rows of a decoded token, the early one and
    their input; with `rewrites` its keys and values are in the end those of the input. `batched`: what leaves
    together leaves as one message. A tail tells those at `told` when what was drafted is void.
    """

    ways: tuple[Way, ...]
    end: U16
    name: Name
    without: tuple[Name, ...]
    ahead: tuple[U16, ...]
    rewrites: bool
    batched: bool
    told: tuple[Name, ...]


class Joined(Word, frozen=True):
    """All successors have answered."""


class Open(Word, frozen=True):
    """Make room for a stream."""

    stream: Stream


class Opened(Word, frozen=True):
    """The stream may carry activations now."""

    stream: Stream


class Close(Word, frozen=True):
    """No more will be sent on the stream; forget its keys and values."""

    stream: Stream


class Closed(Word, frozen=True):
    """The stream is forgotten; nothing of it will follow."""

    stream: Stream


class Ask(Word, frozen=True):
    """How are you?"""


class Facts(Word, frozen=True):
    """Resident bytes now, frames answered and milliseconds computed since loading.

    So many `streams` are open, and have filled `kv_bytes` of keys and values.
    `refused` counts since the start: callers that were not let in, and peers whose link was ended
    for what they sent or would not read. `free_bytes` is the memory its host has to spare, where it says so.
    """

    rss_bytes: U64
    frames: U64
    busy_ms: Milliseconds
    refused: U64
    streams: U32
    kv_bytes: U64
    free_bytes: U64 | None


class Adopt(Word, frozen=True):
    """Build these groups too: their station was lost. Answered as Load is, or by Refused."""

    order: Load


class Recall(Word, frozen=True):
    """Which rows of a stream have passed you lately, and when?"""

    stream: Stream


class Visit(Part, frozen=True):
    """Rows from `position` on passed a group: milliseconds of the station's monotonic clock."""

    stream: Stream
    group: U16
    position: U32
    arrived_ms: Milliseconds
    began_ms: Milliseconds
    ended_ms: Milliseconds


class Recalled(Word, frozen=True):
    """The last visits of a stream, oldest first; a station remembers some thousands of all."""

    stream: Stream
    visits: tuple[Visit, ...]


class Ping(Word, frozen=True):
    """Answer with the same number."""

    nonce: U64


class Pong(Word, frozen=True):
    """The number of the ping."""

    nonce: U64


class Fault(Word, frozen=True):
    """It cannot go on: what happened, what to do about it, and on which stream if on one. Ends the link."""

    what: Text
    fix: Text
    stream: Stream | None = None


class Bye(Word, frozen=True):
    """The link ends in good order."""

    reason: Text


Message = (
    Hello
    | Challenge
    | Proof
    | Counterproof
    | Welcome
    | Load
    | Loading
    | Need
    | Offer
    | Want
    | Piece
    | Loaded
    | Join
    | Joined
    | Open
    | Opened
    | Sample
    | Sampling
    | Drafted
    | Fence
    | Close
    | Closed
    | Ask
    | Facts
    | Adopt
    | Refused
    | Severed
    | Survey
    | Surveyed
    | Resume
    | Resumed
    | Replay
    | Recall
    | Recalled
    | Ping
    | Pong
    | Fault
    | Bye
)
