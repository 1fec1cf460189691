"""One example of every word, and strategies that make any."""

from __future__ import annotations

from hypothesis import strategies as st

from trisplit.wire import frame, packing, route
from trisplit.wire.choosing import Drafted, Fence, Sample, Sampling
from trisplit.wire.fields import MAX_PIECE
from trisplit.wire.frame import Activation
from trisplit.wire.gauging import MOST_DEADLINE_MS, MOST_ROUNDS, Gauge, Gauged
from trisplit.wire.greeting import Challenge, Counterproof, Hello, Proof, Welcome
from trisplit.wire.losses import (
    Again,
    Begun,
    Refused,
    Replay,
    Resume,
    Resumed,
    Seen,
    Severed,
    Skip,
    Survey,
    Surveyed,
)
from trisplit.wire.messages import (
    Adopt,
    Ask,
    Bye,
    Close,
    Closed,
    Facts,
    Fault,
    FileSpec,
    GroupSpec,
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
    Source,
    StageSpec,
    Visit,
    Want,
    Way,
)
from trisplit.wire.packing import Message
from trisplit.wire.questions import (
    Answered,
    BatchReport,
    DraftReport,
    End,
    How,
    Judge,
    Judged,
    Judging,
    Question,
    Report,
    Reported,
    StationReport,
    Token,
    Waiting,
)
from trisplit.wire.session import Said

BATCH = BatchReport("layers", "ring", 4, 8, 24, 5, 10.0, 9.5, 0.95, 0.965, True, True)
EXAMPLES: dict[str, Said] = {
    type(said).__name__: said
    for said in (
        Hello(1, "attic", "coordinator", "desk"),
        Challenge(bytes(range(32))),
        Proof(bytes(range(32, 64)), bytes(range(64, 96))),
        Counterproof(bytes(range(96, 128))),
        Welcome(1, "s1", 4242, "a cpu", "a runtime 1.2"),
        Load(
            b"{}",
            Source("models/tiny", "00ff"),
            True,
            "f32",
            2,
            2048,
            8,
            (
                GroupSpec(
                    3, (StageSpec(0, "attention"), StageSpec(0, "gate_up"), StageSpec(0, "down")), 9_000
                ),
            ),
            True,
            False,
        ),
        Loading(1, 3, "layer 0"),
        Need((StageSpec(0, "gate_up"),)),
        Offer(StageSpec(0, "gate_up"), (FileSpec(bytes(range(32)), 3),)),
        Want(bytes(range(32)), 0, 3),
        Piece(b"abc"),
        Loaded(1_000, 64, 90_000, True),
        Join(
            (Way(3, 4, False, "127.0.0.1:4002"), Way(3, 5, True, "", bytes.fromhex("01 0007"))),
            9,
            "s2",
            ("s3",),
            (3,),
            False,
            True,
            ("127.0.0.1:4003",),
        ),
        Joined(),
        Open(1),
        Opened(1),
        Sample(1, 2, (1, 17, 49151), 0.8, 40, 0.95, 0.05, 1.1, 2**64 - 1, 64, (2,), "stream"),
        Drafted(1, 65_537, 31, (17, 4)),
        Sampling(1),
        Fence(1, 3),
        Close(1),
        Closed(1),
        Ask(),
        Facts(90_000, 12, 3.5, 2, 3, 4_096, 8_000_000),
        Gauge("127.0.0.1:4002", 20, 500),
        Gauged(40.5, 40.25, 20),
        Adopt(
            Load(b"{}", None, True, "f32", 1, 64, 2, (GroupSpec(3, (StageSpec(0, "down"),), 4),), True, True)
        ),
        Refused("no room", "ask another"),
        Severed("s3", "it hung up"),
        Survey(),
        Surveyed((Seen(1, 3, True, 2, 31),), 1),
        Resume(1, 2, 17, (Skip(4, False, 30),)),
        Resumed(1),
        Replay((3, 4), (Again(1, 2, 0, (Begun(0, 0), Begun(2, 17))),)),
        Recall(1),
        Recalled(1, (Visit(1, 3, 31, 10.5, 11.0, 12.25),)),
        Question("why", True, How(0.8, 40, 0.95, 0.05, 1.1, 7), 128, ("\n\n",), False),
        Waiting(2),
        Token(49151, " because"),
        Answered("stop", 9, 0.5, 30.5, 12.25, DraftReport("twin:int8", 120, 5, 330.5)),
        Report(),
        Reported(
            *("models/tiny", "f32", "layers", "ring", 2, 512, 1, 8, 3, 1, 40, 5, 6, 1, 7.5),
            stations=(
                StationReport(
                    "s1", "layers 0-1", 1, 2, 3, 4, 5, 6, 7.5, 1, 0.25, 4242, "a cpu", "a runtime 1.2"
                ),
                StationReport("coordinator", "", 0, 0, *[None] * 8, "a cpu", ""),
            ),
            spares=("s2",),
            mixed="",
            last_error="station s2 was lost",
            batched=True,
            batch=BATCH,
        ),
        Judge(8, 24, 5),
        Judging(3, 10),
        Judged(BATCH),
        End(),
        Ping(7),
        Pong(7),
        Fault("no room", "use fewer tokens", 1),
        Bye("done"),
        Activation(1, 31, 2, 3, 2, bytes(range(24)), flags=frame.ROW_BY_ROW),
    )
}

u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
streams = st.integers(1, 2**32 - 1)
positive = st.integers(1, 2**32 - 1)
route_words = st.lists(st.integers(1, 7), max_size=5).map(lambda numbers: route.encode(tuple(numbers)))
bytes32 = st.binary(min_size=32, max_size=32)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def floats(low: float, high: float, *, open_below: bool = False) -> st.SearchStrategy[float]:
    """Floats of a closed range, or one that leaves out its lower end."""
    return st.floats(low, high, exclude_min=open_below, allow_nan=False)


stages = st.builds(
    StageSpec, st.integers(-1, 2**16 - 1), st.sampled_from(["embed", "attention", "gate_up", "down", "head"])
)
groups = st.builds(GroupSpec, u16, st.lists(stages, max_size=4).map(tuple), u64)
digests = st.binary(min_size=32, max_size=32)
files = st.builds(FileSpec, digests, u64)
visits = st.builds(Visit, streams, u16, u32, floats(0, 1e12), floats(0, 1e12), floats(0, 1e12))
ways = st.builds(
    Way,
    u16,
    u16,
    st.booleans(),
    texts,
    st.binary(min_size=3, max_size=3),
    texts,
    st.booleans(),
    st.booleans(),
)

hows = st.builds(
    How,
    floats(0, 100),
    u32,
    floats(0, 1, open_below=True),
    floats(0, 1),
    floats(0, 100, open_below=True),
    u64,
)
maybe_ms = st.none() | floats(0, 1e12)
maybe_u64 = st.none() | u64
station_reports = st.builds(
    StationReport,
    *(
        texts,
        texts,
        u64,
        u64,
        maybe_u64,
        maybe_u64,
        st.none() | u32,
        maybe_u64,
        maybe_ms,
        maybe_u64,
        maybe_ms,
    ),
    *(st.none() | u32, texts, texts),
)
batches = st.builds(
    BatchReport,
    *(texts, texts, u32, positive, u32, u32),
    *[floats(0, 1e12)] * 4,
    *(st.booleans(), st.booleans()),
)
loads = st.builds(
    Load,
    st.binary(max_size=40),
    st.none() | st.builds(Source, texts, texts),
    st.booleans(),
    texts,
    positive,
    positive,
    positive,
    st.lists(groups, max_size=3).map(tuple),
    st.booleans(),
    st.booleans(),
)

any_message: st.SearchStrategy[Message] = st.one_of(
    st.builds(Hello, u32, texts, st.sampled_from(["coordinator", "station", "client"]), texts),
    st.builds(Challenge, bytes32),
    st.builds(Proof, bytes32, bytes32),
    st.builds(Counterproof, bytes32),
    st.builds(Welcome, u32, texts, u32, texts, texts),
    loads,
    st.builds(Loading, u64, u64, texts),
    st.builds(Need, st.lists(stages, min_size=1, max_size=4).map(tuple)),
    st.builds(Offer, stages, st.lists(files, min_size=1, max_size=2).map(tuple)),
    st.builds(Want, digests, u64, st.integers(1, MAX_PIECE)),
    st.builds(Piece, st.binary(min_size=1, max_size=40)),
    st.builds(Loaded, u64, u64, u64, st.booleans()),
    st.builds(
        Join,
        st.lists(ways, max_size=4).map(tuple),
        u16,
        texts,
        st.lists(texts, max_size=2).map(tuple),
        st.lists(u16, max_size=3).map(tuple),
        st.booleans(),
        st.booleans(),
        st.lists(texts, max_size=2).map(tuple),
    ),
    st.builds(Joined),
    st.builds(Open, streams),
    st.builds(
        Sample,
        streams,
        u32,
        st.lists(u32, max_size=20).map(tuple),
        floats(0, 100),
        u32,
        floats(0, 1, open_below=True),
        floats(0, 1),
        floats(0, 100, open_below=True),
        u64,
        positive,
        st.lists(u32, max_size=3).map(tuple),
        st.sampled_from(["none", "stream", "rounds"]),
    ),
    st.builds(Drafted, streams, u32, u32, st.lists(u32, min_size=1, max_size=8).map(tuple)),
    st.builds(Opened, streams),
    st.builds(Sampling, streams),
    st.builds(Fence, streams, u32),
    st.builds(Close, streams),
    st.builds(Closed, streams),
    st.builds(Ask),
    st.builds(Facts, u64, u64, floats(0, 1e12), u64, u32, u64, maybe_u64),
    st.builds(Gauge, texts, st.integers(1, MOST_ROUNDS), st.integers(1, MOST_DEADLINE_MS)),
    st.builds(Gauged, *[floats(0, MOST_DEADLINE_MS)] * 2, st.integers(1, MOST_ROUNDS)),
    st.builds(Adopt, loads),
    st.builds(Refused, texts, texts),
    st.builds(Severed, texts, texts),
    st.builds(Survey),
    st.builds(
        Surveyed, st.lists(st.builds(Seen, streams, u16, st.booleans(), u32, u32), max_size=3).map(tuple), u32
    ),
    st.builds(
        Resume, streams, u32, u32, st.lists(st.builds(Skip, u16, st.booleans(), u32), max_size=3).map(tuple)
    ),
    st.builds(Resumed, streams),
    st.builds(
        Replay,
        st.lists(u16, max_size=3).map(tuple),
        st.lists(
            st.builds(Again, streams, u32, u32, st.lists(st.builds(Begun, u32, u32), max_size=2).map(tuple)),
            max_size=3,
        ).map(tuple),
    ),
    st.builds(Recall, streams),
    st.builds(Recalled, streams, st.lists(visits, max_size=3).map(tuple)),
    st.builds(
        Question,
        texts,
        st.booleans(),
        hows,
        st.integers(1, 2**64 - 1),
        st.lists(texts, max_size=3).map(tuple),
        st.booleans(),
    ),
    st.builds(Waiting, u32),
    st.builds(Token, u32, texts),
    st.builds(
        Answered,
        st.sampled_from(["stop", "length", "context"]),
        u32,
        floats(0, 1e12),
        floats(0, 1e12),
        maybe_ms,
        st.none() | st.builds(DraftReport, texts, u32, u32, maybe_ms),
    ),
    st.builds(Report),
    st.builds(
        Reported,
        *(texts, texts, texts, texts, u32, positive, positive, positive, u32, u32, u64, u64, u64, u64),
        floats(0, 1e12),
        st.lists(station_reports, max_size=3).map(tuple),
        st.lists(texts, max_size=3).map(tuple),
        *(texts, texts, st.booleans(), st.none() | batches),
    ),
    st.builds(Judge, positive, st.integers(2, 2**32 - 1), st.integers(1, 1000)),
    st.builds(Judging, u32, u32),
    st.builds(Judged, batches),
    st.builds(End),
    st.builds(Ping, u64),
    st.builds(Pong, u64),
    st.builds(Fault, texts, texts, st.none() | streams),
    st.builds(Bye, texts),
)


@st.composite
def activations(draw: st.DrawFn) -> Activation:
    """Any activation a peer would accept."""
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    payload = draw(st.binary(min_size=4 * rows * width, max_size=4 * rows * width))
    stream, position, epoch, group = draw(streams), draw(u32), draw(u32), draw(u16)
    dtype = draw(st.sampled_from([frame.F32, frame.IDS]))
    flags = draw(
        st.sampled_from([0, frame.ROW_BY_ROW, frame.DECODED] if rows == 1 else [0, frame.ROW_BY_ROW])
    )
    residual, early = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    return Activation(
        stream, position, epoch, group, rows, payload, dtype, flags, residual, draw(route_words), early
    )


any_word: st.SearchStrategy[Said] = any_message | activations()


def framed(said: Said, sequence: int) -> bytes:
    """The frame of a word at any place in the sequence, in turn or not."""
    if isinstance(said, Activation):
        return frame.encode_activation(said, sequence)
    return frame.encode_control(packing.encode(said), sequence)
