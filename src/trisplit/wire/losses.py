"""What is said when a station is lost: who has seen what, and what is to be played again."""

from __future__ import annotations

from trisplit.wire.fields import U16, U32, Name, Part, Stream, Text, Word


class Refused(Word, frozen=True):
    """What was to be adopted cannot be, or a way that was to be gauged is none; all else goes on."""

    what: Text
    fix: Text


class Severed(Word, frozen=True):
    """The link to this successor has ended, or could not be had."""

    station: Name
    why: Text


class Survey(Word, frozen=True):
    """What of every stream has come to you?"""


class Seen(Part, frozen=True):
    """The rows of a stream that came last for a group, or as the residual it adds."""

    stream: Stream
    group: U16
    residual: bool
    epoch: U32
    end: U32


class Surveyed(Word, frozen=True):
    """What has come, and how many frames of it wait to be run."""

    seen: tuple[Seen, ...]
    waiting: U32


class Skip(Part, frozen=True):
    """Rows before `position` have been with group `target` already."""

    target: U16
    residual: bool
    position: U32


class Resume(Word, frozen=True):
    """Rows of the stream's past will come again: keep what they leave, send on what is news to others.

    They come as rows of this epoch, which began at position `began`.
    """

    stream: Stream
    epoch: U32
    began: U32
    skips: tuple[Skip, ...]


class Resumed(Word, frozen=True):
    """They may come."""

    stream: Stream


class Begun(Part, frozen=True):
    """Where an epoch began: rows of earlier ones are void from there on."""

    epoch: U32
    position: U32


class Again(Part, frozen=True):
    """Of a stream, what stood at `since` or later and no later epoch has made void, as rows of this epoch."""

    stream: Stream
    epoch: U32
    since: U32
    epochs: tuple[Begun, ...]


class Replay(Word, frozen=True):
    """Send again what you have sent to these groups, whose station was lost, to their new one; then go on."""

    targets: tuple[U16, ...]
    streams: tuple[Again, ...]
