"""Which word may follow which on one connection: tables, and a session that keeps its place in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from trisplit.errors import OwnProblem, PeerProblem
from trisplit.wire import frame, packing
from trisplit.wire.choosing import Drafted, Fence, Sample, Sampling
from trisplit.wire.frame import SAME_VERSION, Activation
from trisplit.wire.gauging import Gauge, Gauged
from trisplit.wire.greeting import VERSION, Challenge, Counterproof, Hello, Proof, Role, Welcome
from trisplit.wire.losses import Refused, Replay, Resume, Resumed, Severed, Survey, Surveyed
from trisplit.wire.messages import (
    Adopt,
    Ask,
    Bye,
    Close,
    Closed,
    Facts,
    Fault,
    Join,
    Joined,
    Load,
    Loaded,
    Loading,
    Need,
    Offer,
    Open,
    Opened,
    Piece,
    Ping,
    Pong,
    Recall,
    Recalled,
    Want,
)
from trisplit.wire.owed import OWED, Owed
from trisplit.wire.packing import Message
from trisplit.wire.questions import (
    Answered,
    End,
    Judge,
    Judged,
    Judging,
    Question,
    Report,
    Reported,
    Token,
    Waiting,
)

Said = Message | Activation
Side = Literal["coordinator", "upstream", "client", "station"]
Speaker = Literal["caller", "called"]
Turns = dict[tuple[str, Speaker, type[Said]], str]

START, BROKEN, CLOSED, NONE = "start", "broken", "closed", "none"
GREETING = ("met", "challenged", "proving", "proved")
MAX_STREAMS = 1024  # open at once on one link

_PINGS: tuple[tuple[Speaker, type[Said]], ...] = tuple(
    (speaker, word) for speaker in ("caller", "called") for word in (Ping, Pong)
)


def _turns(own: Turns, asides: tuple[tuple[Speaker, type[Said]], ...]) -> Turns:
    """`own`, with the words that change nothing once greeted, and those that end the link from anywhere."""
    greeted = set(own.values()).difference(GREETING)
    stay: Turns = {(place, *aside): place for place in greeted for aside in asides}
    end: Turns = {
        (place, speaker, word): CLOSED
        for place in (START, *GREETING, BROKEN, *greeted)
        for speaker in ("caller", "called")
        for word in (Fault, Bye)
    }
    return own | stay | end


def _greeting(greeted: str) -> Turns:
    """From Hello to Welcome; whoever is called decides whether it takes a secret to come there."""
    return {
        (START, "caller", Hello): "met",
        ("met", "called", Welcome): greeted,
        ("met", "called", Challenge): "challenged",
        ("challenged", "caller", Proof): "proving",
        ("proving", "called", Counterproof): "proved",
        ("proved", "called", Welcome): greeted,
    }


def _stays(place: str, *, caller: Sequence[type[Said]], called: Sequence[type[Said]]) -> Turns:
    """Words that change nothing in this place."""
    said: Turns = {(place, "caller", word): place for word in caller}
    answered: Turns = {(place, "called", word): place for word in called}
    return said | answered


_OFFERS: tuple[type[Said], ...] = (Offer, Piece)
_NEEDS: tuple[type[Said], ...] = (Loading, Need, Want)

# Coordinator (caller) and station (called). After a station was lost, others adopt its groups and join anew.
_LIFE: Turns = {
    ("empty", "caller", Gauge): "gauging",
    ("gauging", "called", Gauged): "empty",
    ("gauging", "called", Refused): "empty",
    ("empty", "caller", Load): "loading",
    ("loading", "called", Loaded): "loaded",
    ("loaded", "caller", Join): "joining",
    ("joining", "called", Joined): "joined",
    ("loaded", "caller", Load): "loading",
    ("joined", "caller", Load): "loading",  # only when every stream is closed
}
COORDINATOR_LINK = _turns(
    _greeting("empty")
    | _LIFE
    | _stays("joining", caller=(), called=(Severed,))
    | _stays("loading", caller=_OFFERS, called=_NEEDS)
    | _stays(
        "joined",
        caller=(Open, Sample, Drafted, Fence, Activation, Close, Adopt, Join, Resume, Replay, *_OFFERS),
        called=(Opened, Sampling, Activation, Closed, Loaded, Refused, Joined, Resumed, Severed, *_NEEDS),
    ),
    asides=(
        ("caller", Ask),
        ("called", Facts),
        ("caller", Survey),
        ("called", Surveyed),
        ("caller", Recall),
        ("called", Recalled),
        *_PINGS,
    ),
)

# A station (caller) and its successor, or whom a tail tells (called): all flows one way.
STATION_LINK = _turns(
    _greeting("flowing") | _stays("flowing", caller=(Activation, Fence), called=()),
    asides=_PINGS,
)

# A client (caller) and the mesh it asks (called): one question at a time.
CLIENT_LINK = _turns(
    _greeting("idle")
    | {
        ("idle", "caller", Question): "asked",
        ("asked", "called", Waiting): "asked",
        ("asked", "called", Token): "asked",
        ("asked", "called", Answered): "idle",
        ("idle", "caller", Report): "reporting",
        ("reporting", "called", Reported): "idle",
        ("idle", "caller", Judge): "judging",
        ("judging", "called", Judging): "judging",
        ("judging", "called", Judged): "idle",
        ("idle", "caller", End): "ending",
    },
    asides=_PINGS,
)

LINKS: dict[Role, Turns] = {
    "coordinator": COORDINATOR_LINK,
    "station": STATION_LINK,
    "client": CLIENT_LINK,
}
CALLERS: dict[Side, Turns] = {
    "coordinator": COORDINATOR_LINK,
    "upstream": STATION_LINK,
    "client": CLIENT_LINK,
}

# One stream of a coordinator link. What was under way when the coordinator said Close still arrives,
# and no number is used twice, so that rows still on their way between stations meet no later stream.
STREAM: Turns = {
    (NONE, "caller", Open): "opening",
    ("opening", "caller", Sample): "opening",
    ("opening", "called", Opened): "open",
    ("open", "caller", Activation): "open",
    ("open", "called", Activation): "open",
    ("open", "caller", Sample): "open",
    ("open", "called", Sampling): "open",
    ("open", "caller", Drafted): "open",
    ("open", "caller", Fence): "open",
    ("open", "caller", Resume): "open",
    ("open", "called", Resumed): "open",
    ("open", "caller", Close): "closing",
    ("closing", "called", Activation): "closing",
    ("closing", "called", Sampling): "closing",
    ("closing", "called", Resumed): "closing",
    ("closing", "called", Closed): NONE,
}

OfAStream = (
    Activation | Open | Opened | Sample | Sampling | Drafted | Fence | Resume | Resumed | Close | Closed
)
OF_A_STREAM = get_args(OfAStream)

# An answer needs its question, and one question of a kind is open at a time.
Aside = Ping | Pong | Ask | Facts | Survey | Surveyed | Recall | Recalled
ASIDES = get_args(Aside)
QUESTION_OF: dict[type[Said], type[Said]] = {Pong: Ping, Facts: Ask, Surveyed: Survey, Recalled: Recall}


class Session:
    """One side of one connection: makes the bytes to send, checks the bytes that arrive, keeps the place.

    `side`: the `coordinator`, the `upstream` station and the `client` connect; a `station` is connected to
    by any and learns by which from the Hello. No input or output happens here.
    """

    def __init__(self, side: Side) -> None:
        self.where = START
        self._me: Speaker = "called" if side == "station" else "caller"
        self._peer: Speaker = "caller" if side == "station" else "called"
        self._turns = CALLERS.get(side, COORDINATOR_LINK)
        self._streams: dict[int, str] = {}
        self._newest = 0
        self._questions: dict[tuple[Speaker, type[Said]], Said] = {}
        self._owed = Owed()
        self._to_send = 0
        self._to_hear = 0

    @property
    def heard(self) -> int:
        """Frames heard so far, modulo 2³²: another number is a sign of life."""
        return self._to_hear

    def send(self, said: Said) -> bytes:
        """The frame that says it. Raises `OwnProblem`, and stays where it is, when it is not our turn."""
        if isinstance(said, Activation):
            data = frame.encode_activation(said, self._to_send)
        else:
            data = frame.encode_control(packing.encode(said), self._to_send)
        why = self._take_turn(self._me, said)
        if why:
            raise OwnProblem(f"out of turn: {why}", fix="the allowed turns are in trisplit.wire.session")
        self._to_send = frame.after(self._to_send)
        return data

    def receive(self, data: bytes | memoryview) -> Said:
        """What a frame says; an activation's payload is a view of `data`.

        Raises `PeerProblem` for a frame or message that cannot be read, a gap or repeat in the
        sequence, another version, and a word out of turn; after that only Fault or Bye may be sent.
        """
        try:
            said = self._read(data)
            why = self._take_turn(self._peer, said)
            if why:
                raise PeerProblem(f"out of turn: {why}", fix=SAME_VERSION)
        except PeerProblem:
            self.where = BROKEN if self.where != CLOSED else CLOSED
            raise
        self._to_hear = frame.after(self._to_hear)
        return said

    def _read(self, data: bytes | memoryview) -> Said:
        sequence, body = frame.decode(data)
        if sequence != self._to_hear:
            raise PeerProblem(f"frame {sequence} where {self._to_hear} was due", fix=SAME_VERSION)
        if isinstance(body, Activation):
            return body
        said = packing.decode(body)
        if isinstance(said, (Hello, Welcome)) and said.version != VERSION:
            raise PeerProblem(
                f"version {said.version} of the wire where {VERSION} is spoken", fix=SAME_VERSION
            )
        return said

    def _take_turn(self, speaker: Speaker, said: Said) -> str:
        """Move on by this word; or stay, and say why it is out of turn."""
        word = type(said)
        place = self._turns.get((self.where, speaker, word))
        if place is None:
            return f"{word.__name__} while the link is {self.where}"
        why = ""
        if isinstance(said, OF_A_STREAM):
            if self._turns is COORDINATOR_LINK:
                why = self._take_stream_turn(speaker, said)
        elif isinstance(said, ASIDES):
            why = self._take_aside(speaker, said)
        elif isinstance(said, OWED):
            why = self._owed.take(said)
        elif isinstance(said, Hello):
            why = self._be_called(speaker, said.role)
        elif isinstance(said, Load) and self._streams:
            why = f"Load before {len(self._streams)} open streams are closed"
        if not why:
            self.where = place
        return why

    def _be_called(self, speaker: Speaker, role: Role) -> str:
        turns = LINKS[role]
        if speaker == self._me and turns is not self._turns:
            return f"Hello as a {role} on this link"
        self._turns = turns
        return ""

    def _take_aside(self, speaker: Speaker, said: Aside) -> str:
        word = type(said)
        question = QUESTION_OF.get(word)
        if question is None:
            if (speaker, word) in self._questions:
                return f"{word.__name__} before the last one is answered"
            self._questions[speaker, word] = said
            return ""
        asker: Speaker = "called" if speaker == "caller" else "caller"
        asked = self._questions.get((asker, question))
        if asked is None or (
            isinstance(said, Pong) and isinstance(asked, Ping) and said.nonce != asked.nonce
        ):
            return f"{word.__name__} to no {question.__name__}"
        del self._questions[asker, question]
        return ""

    def _take_stream_turn(self, speaker: Speaker, said: OfAStream) -> str:
        before = self._streams.get(said.stream, NONE)
        place = STREAM.get((before, speaker, type(said)))
        if place is None:
            state = "not open" if before == NONE else before
            return f"{type(said).__name__} on stream {said.stream}, which is {state}"
        if isinstance(said, Open):
            if said.stream <= self._newest:
                return f"Open of stream {said.stream} after {self._newest}; numbers only rise"
            if len(self._streams) >= MAX_STREAMS:
                return f"Open of stream {said.stream} while {MAX_STREAMS:,} are open"
            self._newest = said.stream
        if place == NONE:
            del self._streams[said.stream]
        elif place != before:
            self._streams[said.stream] = place
        return ""
