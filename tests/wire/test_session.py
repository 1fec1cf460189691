"""Two sides of a connection over memory: the whole dialogue, every word out of turn, every damaged byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.words import EXAMPLES, any_word, framed
from trisplit.errors import OwnProblem, PeerProblem
from trisplit.wire.frame import Activation
from trisplit.wire.greeting import Hello, Welcome
from trisplit.wire.messages import Ask, Bye, Close, Closed, Facts, Fault, Load, Open, Opened, Ping, Pong
from trisplit.wire.session import MAX_STREAMS, Said, Session

UPSTREAM_HELLO = Hello(1, "attic", "station", "s1")
CLIENT_HELLO = Hello(1, "", "client", "desk")
CALLER, CALLED = "caller", "called"
LAST = ["Fault", "Bye"]


@dataclass
class Pair:
    """Both ends of one connection, and how many frames each has sent."""

    caller: Session
    called: Session
    sent: dict[str, int] = field(default_factory=lambda: {CALLER: 0, CALLED: 0})

    def say(self, who: str, said: Said) -> Said:
        """One end says it, the other hears it."""
        speaker, hearer = (self.caller, self.called) if who == CALLER else (self.called, self.caller)
        data = speaker.send(said)
        assert data == framed(said, self.sent[who])
        self.sent[who] += 1
        return hearer.receive(data)


def coordinator_link() -> Pair:
    return Pair(Session("coordinator"), Session("station"))


def station_link() -> Pair:
    return Pair(Session("upstream"), Session("station"))


def client_link() -> Pair:
    return Pair(Session("client"), Session("station"))


CHALLENGED = "caller:Hello called:Challenge"
PROVED = CHALLENGED + " caller:Proof called:Counterproof"
GAUGING = "caller:Hello called:Welcome caller:Gauge"
LOADING = "caller:Hello called:Welcome caller:Load"
LOADED = LOADING + " called:Loading called:Loaded"
JOINED = LOADED + " caller:Join called:Joined"
ADOPTING, ADOPTED = "Adopt Join Replay", "Loading Need Want Loaded Refused Joined Severed"
QUESTIONS = " caller:Ask caller:Ping called:Ping"

# Where a link can be: how to come there, what the caller may say then, and what the called.
# Fault and Bye may be said everywhere, and anything not listed nowhere.
COORDINATOR_PLACES = {
    "start": ("", "Hello", ""),
    "met": ("caller:Hello", "", "Welcome Challenge"),
    "challenged": (CHALLENGED, "Proof", ""),
    "proving": (CHALLENGED + " caller:Proof", "", "Counterproof"),
    "proved": (PROVED, "", "Welcome"),
    "empty": ("caller:Hello called:Welcome", "Gauge Load Ask Survey Recall Ping", "Ping"),
    "empty by a secret": (PROVED + " called:Welcome", "Gauge Load Ask Survey Recall Ping", "Ping"),
    "gauging": (GAUGING, "Ask Survey Recall Ping", "Gauged Refused Ping"),
    "gauged": (GAUGING + " called:Gauged", "Gauge Load Ask Survey Recall Ping", "Ping"),
    "no way": (GAUGING + " called:Refused", "Gauge Load Ask Survey Recall Ping", "Ping"),
    "loading": (LOADING, "Ask Survey Recall Ping", "Loading Need Want Loaded Ping"),
    "loading on": (LOADING + " called:Loading", "Ask Survey Recall Ping", "Loading Need Want Loaded Ping"),
    "in need": (LOADING + " called:Need", "Offer Ask Survey Recall Ping", "Loading Want Ping"),
    "in want": (LOADING + " called:Want", "Piece Ask Survey Recall Ping", "Loading Need Want Ping"),
    "in both": (
        LOADING + " called:Need called:Want",
        "Offer Piece Ask Survey Recall Ping",
        "Loading Want Ping",
    ),
    "loaded": (LOADED, "Join Load Ask Survey Recall Ping", "Ping"),
    "joining": (LOADED + " caller:Join", "Ask Survey Recall Ping", "Joined Severed Ping"),
    "joined": (JOINED, f"Open Load {ADOPTING} Ask Survey Recall Ping", f"{ADOPTED} Ping"),
    "loading again": (JOINED + " caller:Load", "Ask Survey Recall Ping", "Loading Need Want Loaded Ping"),
    "asked": (
        JOINED + QUESTIONS,
        f"Open Load {ADOPTING} Survey Recall Pong",
        f"{ADOPTED} Facts Pong",
    ),
    "opening": (
        JOINED + " caller:Open",
        f"Sample {ADOPTING} Ask Survey Recall Ping",
        f"Opened {ADOPTED} Ping",
    ),
    "open": (
        JOINED + " caller:Open called:Opened",
        f"Activation Sample Drafted Fence Resume Close {ADOPTING} Ask Survey Recall Ping",
        f"Activation Sampling Resumed {ADOPTED} Ping",
    ),
    "closing": (
        JOINED + " caller:Open called:Opened caller:Close",
        f"{ADOPTING} Ask Survey Recall Ping",
        f"Activation Sampling Resumed Closed {ADOPTED} Ping",
    ),
    "closed stream": (
        JOINED + " caller:Open called:Opened caller:Close called:Closed",
        f"Load {ADOPTING} Ask Survey Recall Ping",
        f"{ADOPTED} Ping",
    ),
}
STATION_PLACES = {
    "start": ("", "Hello", ""),
    "met": ("caller:Hello", "", "Welcome Challenge"),
    "challenged": (CHALLENGED, "Proof", ""),
    "proving": (CHALLENGED + " caller:Proof", "", "Counterproof"),
    "proved": (PROVED, "", "Welcome"),
    "flowing": ("caller:Hello called:Welcome", "Activation Fence Ping", "Ping"),
    "flowing by a secret": (PROVED + " called:Welcome", "Activation Fence Ping", "Ping"),
    "asked": ("caller:Hello called:Welcome caller:Ping called:Ping", "Activation Fence Pong", "Pong"),
}

IDLE = "caller:Hello called:Welcome"
CLIENT_PLACES = {
    "start": ("", "Hello", ""),
    "met": ("caller:Hello", "", "Welcome Challenge"),
    "challenged": (CHALLENGED, "Proof", ""),
    "idle": (IDLE, "Question Report Judge End Ping", "Ping"),
    "idle by a secret": (PROVED + " called:Welcome", "Question Report Judge End Ping", "Ping"),
    "asked": (IDLE + " caller:Question", "Ping", "Waiting Token Answered Ping"),
    "waiting": (IDLE + " caller:Question called:Waiting", "Ping", "Waiting Token Answered Ping"),
    "told": (IDLE + " caller:Question called:Token", "Ping", "Waiting Token Answered Ping"),
    "answered": (
        IDLE + " caller:Question called:Token called:Answered",
        "Question Report Judge End Ping",
        "Ping",
    ),
    "reporting": (IDLE + " caller:Report", "Ping", "Reported Ping"),
    "reported": (IDLE + " caller:Report called:Reported", "Question Report Judge End Ping", "Ping"),
    "judging": (IDLE + " caller:Judge", "Ping", "Judging Judged Ping"),
    "judging on": (IDLE + " caller:Judge called:Judging", "Ping", "Judging Judged Ping"),
    "judged": (
        IDLE + " caller:Judge called:Judging called:Judged",
        "Question Report Judge End Ping",
        "Ping",
    ),
    "ending": (IDLE + " caller:End", "Ping", "Ping"),
}


class Place(NamedTuple):
    """Where a link can be, how to come there, and who may say what then."""

    kind: str
    name: str
    path: str
    caller: str
    called: str


PLACES = [Place("coordinator", name, *place) for name, place in COORDINATOR_PLACES.items()]
PLACES += [Place("station", name, *place) for name, place in STATION_PLACES.items()]
PLACES += [Place("client", name, *place) for name, place in CLIENT_PLACES.items()]
PAIRS = {"coordinator": coordinator_link, "station": station_link, "client": client_link}
HELLOS = {"coordinator": EXAMPLES["Hello"], "station": UPSTREAM_HELLO, "client": CLIENT_HELLO}

everywhere = pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.kind} link, {place.name}")


def words_of(kind: str) -> dict[str, Said]:
    """The examples, with the Hello this kind of link begins with."""
    return EXAMPLES | {"Hello": HELLOS[kind]}


def brought(kind: str, path: str) -> Pair:
    pair = PAIRS[kind]()
    for step in path.split():
        who, word = step.split(":")
        pair.say(who, words_of(kind)[word])
    return pair


@everywhere
def test_every_word_in_every_place(place: Place) -> None:
    allowed = {CALLER: place.caller.split() + LAST, CALLED: place.called.split() + LAST}
    for who in (CALLER, CALLED):
        for word, said in words_of(place.kind).items():
            pair = brought(place.kind, place.path)
            speaker, hearer = (pair.caller, pair.called) if who == CALLER else (pair.called, pair.caller)
            if word in allowed[who]:
                assert pair.say(who, said) == said, (who, word)
                continue
            before = speaker.where
            with pytest.raises(OwnProblem, match=word):
                speaker.send(said)
            assert speaker.where == before
            with pytest.raises(PeerProblem, match=word):
                hearer.receive(framed(said, pair.sent[who]))
            assert hearer.where == "broken"


@everywhere
def test_every_damaged_frame_in_every_place(place: Place) -> None:
    for who, words in ((CALLER, place.caller), (CALLED, place.called)):
        for word in words.split() + LAST:
            data = framed(words_of(place.kind)[word], brought(place.kind, place.path).sent[who])
            for damaged in (*(data[:n] for n in range(len(data))), data + b"\0"):
                pair = brought(place.kind, place.path)
                with pytest.raises(PeerProblem):
                    (pair.called if who == CALLER else pair.caller).receive(damaged)


def test_the_whole_dialogue() -> None:
    pair = coordinator_link()
    steps = (
        LOADING + " called:Need called:Loading caller:Offer called:Want called:Want caller:Piece caller:Piece"
    )
    steps += (
        " called:Loaded caller:Join called:Joined"
        + QUESTIONS
        + " called:Facts called:Pong caller:Pong caller:Open called:Opened"
    )
    for step in steps.split():
        who, word = step.split(":")
        assert pair.say(who, EXAMPLES[word]) == EXAMPLES[word]
    down = Activation(1, 0, 0, 0, 2, bytes(range(16)))
    for position in range(5):
        row = Activation(1, position, 0, 3, 1, bytes(8), residual=bool(position % 2))
        assert pair.say(CALLER, down) == down
        assert pair.say(CALLED, row) == row
    pair.say(CALLER, Close(1))
    assert pair.say(CALLED, row) == row, "what was under way still arrives"
    pair.say(CALLED, Closed(1))
    pair.say(CALLER, Open(2))
    pair.say(CALLED, Opened(2))
    pair.say(CALLER, Close(2))
    pair.say(CALLED, Closed(2))
    pair.say(CALLER, EXAMPLES["Load"])
    pair.say(CALLED, EXAMPLES["Loaded"])
    pair.say(CALLER, Bye("done"))
    assert (pair.caller.where, pair.called.where) == ("closed", "closed")


def test_several_streams_at_once() -> None:
    pair = brought("coordinator", JOINED)
    for stream in (1, 3, 2**32 - 1):
        pair.say(CALLER, Open(stream))
    pair.say(CALLED, Opened(1))
    row = Activation(1, 0, 0, 0, 1, bytes(4))
    pair.say(CALLER, row)
    other = Activation(3, 0, 0, 0, 1, bytes(4))
    with pytest.raises(OwnProblem, match="Activation on stream 3, which is opening"):
        pair.caller.send(other)
    with pytest.raises(OwnProblem, match="Load before 3 open streams are closed"):
        pair.caller.send(EXAMPLES["Load"])
    with pytest.raises(PeerProblem, match="stream 9, which is not open"):
        pair.called.receive(framed(Activation(9, 0, 0, 0, 1, bytes(4)), pair.sent[CALLER]))


def test_only_so_many_streams_at_once() -> None:
    pair = brought("coordinator", JOINED)
    for stream in range(1, MAX_STREAMS + 1):
        pair.say(CALLER, Open(stream))
    one_more = Open(MAX_STREAMS + 1)
    with pytest.raises(OwnProblem, match="Open of stream 1025 while 1,024 are open"):
        pair.caller.send(one_more)
    with pytest.raises(PeerProblem, match="Open of stream 1025 while 1,024 are open"):
        pair.called.receive(framed(one_more, pair.sent[CALLER]))


@pytest.mark.parametrize("stream", [1, 4, 5])
def test_no_stream_number_is_used_twice(stream: int) -> None:
    pair = brought("coordinator", JOINED)
    pair.say(CALLER, Open(5))
    pair.say(CALLED, Opened(5))
    pair.say(CALLER, Close(5))
    pair.say(CALLED, Closed(5))
    again = Open(stream)
    with pytest.raises(OwnProblem, match=f"Open of stream {stream} after 5"):
        pair.caller.send(again)
    with pytest.raises(PeerProblem, match=f"Open of stream {stream} after 5"):
        pair.called.receive(framed(again, pair.sent[CALLER]))


def test_a_station_learns_from_hello_what_the_link_is_for() -> None:
    pair = brought("station", "caller:Hello called:Welcome")
    with pytest.raises(PeerProblem, match="Load while the link is flowing"):
        pair.called.receive(framed(EXAMPLES["Load"], 1))
    with pytest.raises(OwnProblem, match="Hello as a coordinator"):
        Session("upstream").send(EXAMPLES["Hello"])
    with pytest.raises(OwnProblem, match="Hello as a station"):
        Session("coordinator").send(UPSTREAM_HELLO)
    with pytest.raises(OwnProblem, match="Hello as a station"):
        Session("client").send(UPSTREAM_HELLO)


@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
def test_another_version_is_refused_by_both_sides(version: int) -> None:
    with pytest.raises(PeerProblem, match=f"version {version} of the wire where 1 is spoken"):
        Session("station").receive(framed(Hello(version, "attic", "coordinator", "desk"), 0))
    pair = brought("coordinator", "caller:Hello")
    with pytest.raises(PeerProblem, match=f"version {version}"):
        pair.caller.receive(framed(Welcome(version, "s", 1, "", ""), 0))


@pytest.mark.parametrize("sequence", [0, 2, 4, 2**32 - 1])
def test_a_gap_or_a_repeat_is_refused(sequence: int) -> None:
    pair = brought("coordinator", "caller:Hello called:Welcome caller:Ask caller:Ping")
    with pytest.raises(PeerProblem, match=f"frame {sequence} where 3 was due"):
        pair.called.receive(framed(EXAMPLES["Load"], sequence))


def test_the_sequence_goes_round() -> None:
    pair = brought("station", "caller:Hello called:Welcome")
    for sequence in (2**32 - 1, 0, 1):
        pair.caller._to_send = pair.called._to_hear = sequence
        assert pair.called.receive(pair.caller.send(EXAMPLES["Activation"])) == EXAMPLES["Activation"]
        assert pair.caller._to_send == pair.called._to_hear == (sequence + 1) % 2**32


def test_an_answer_must_be_to_the_question() -> None:
    pair = brought("coordinator", JOINED)
    pair.say(CALLER, Ping(7))
    with pytest.raises(OwnProblem, match="Ping before the last one is answered"):
        pair.caller.send(Ping(8))
    with pytest.raises(OwnProblem, match="Pong to no Ping"):
        pair.called.send(Pong(8))
    with pytest.raises(OwnProblem, match="Facts to no Ask"):
        pair.called.send(Facts(1, 1, 1.0, 0, 0, 0, None))
    pair.say(CALLED, Pong(7))
    pair.say(CALLER, Ping(8))
    pair.say(CALLER, Ask())
    pair.say(CALLED, Facts(1, 1, 1.0, 0, 0, 0, None))
    pair.say(CALLER, Ask())


@pytest.mark.parametrize("last", [Fault("what", "fix"), Bye("why")], ids=["Fault", "Bye"])
def test_after_the_last_word_there_is_none(last: Said) -> None:
    for place in PLACES:
        for who in (CALLER, CALLED):
            pair = brought(place.kind, place.path)
            pair.say(who, last)
            for session in (pair.caller, pair.called):
                assert session.where == "closed"
                for word, said in EXAMPLES.items():
                    with pytest.raises(OwnProblem, match=f"{word} while the link is closed"):
                        session.send(said)
            with pytest.raises(PeerProblem):
                pair.caller.receive(framed(last, pair.sent[CALLED]))
            assert pair.caller.where == "closed"


def test_a_broken_session_may_only_say_why() -> None:
    for word, said in EXAMPLES.items():
        pair = brought("coordinator", JOINED)
        with pytest.raises(PeerProblem):
            pair.called.receive(b"nonsense")
        if word in ("Fault", "Bye"):
            assert pair.say(CALLED, said) == said
        else:
            with pytest.raises(OwnProblem, match=f"{word} while the link is broken"):
                pair.called.send(said)
            with pytest.raises(PeerProblem):
                pair.called.receive(framed(EXAMPLES["Load"], pair.sent[CALLER]))


def test_what_was_not_said_leaves_no_trace() -> None:
    pair = brought("coordinator", JOINED)
    with pytest.raises(OwnProblem):
        pair.caller.send(Close(1))
    with pytest.raises(OwnProblem):
        pair.caller.send(Ping(2**64))
    assert isinstance(pair.say(CALLER, EXAMPLES["Load"]), Load)


@given(st.sampled_from(PLACES), st.sampled_from([CALLER, CALLED]), any_word, st.data())
def test_changed_bytes_are_a_word_or_a_peer_problem(
    place: Place, who: str, said: Said, data: st.DataObject
) -> None:
    pair = brought(place.kind, place.path)
    sound = bytearray(framed(said, pair.sent[who]))
    for _ in range(data.draw(st.integers(0, 3))):
        sound[data.draw(st.integers(0, len(sound) - 1))] = data.draw(st.integers(0, 255))
    hearer = pair.called if who == CALLER else pair.caller
    try:
        heard = hearer.receive(bytes(sound))
    except PeerProblem:
        assert hearer.where == "broken"
    else:
        assert isinstance(heard, Said)
        assert hearer.where != "broken"
