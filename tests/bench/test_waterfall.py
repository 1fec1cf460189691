"""The picture of a token has its rows in order, its words where there is room, and its own figures."""

from __future__ import annotations

from pathlib import Path

from tests.bench.test_plot import texts
from trisplit.bench.plot import BLUE, GREEN, ORANGE, PINK
from trisplit.bench.waterfall import BYPASS, LEG, Span, draw_waterfall, rows_of, summary


def work(who: str, what: str, start_ms: float, end_ms: float) -> Span:
    return Span(who=who, what=what, start_ms=start_ms, end_ms=end_ms)


def leg(who: str, to: str, start_ms: float, what: str = LEG) -> Span:
    return Span(who=who, to=to, what=what, start_ms=start_ms, end_ms=start_ms + 20)


TOKEN = [
    work("coordinator", "embed", 0, 1),
    leg("coordinator", "s2", 1),
    work("s2", "attention 0", 21, 31),
    leg("s2", "s3", 31, BYPASS),
    leg("s2", "s1", 31),
    work("s1", "gate_up 0", 51, 71),
    leg("s1", "s3", 71),
    work("s3", "down 0", 91, 91.5),
    leg("s3", "coordinator", 91.5),
    work("coordinator", "head", 111.5, 115.5),
]


def test_rows_follow_the_token_below_the_coordinator() -> None:
    assert rows_of(TOKEN) == {"coordinator": 0, "s2": 1, "s1": 2, "s3": 3}
    assert rows_of(list(reversed(TOKEN))) == rows_of(TOKEN)
    ring = [work("s1", "embed, attention 0", 0, 1), leg("s1", "s2", 1), work("s2", "gate_up 0", 21, 22)]
    assert rows_of([*ring, leg("s2", "coordinator", 22)]) == {"coordinator": 0, "s1": 1, "s2": 2}


def test_the_bypass_is_no_leg_of_the_path() -> None:
    assert summary(TOKEN) == "115.5 ms, of which 4 legs 80.0 ms and work 35.5 ms"


def test_a_kind_has_no_numbers_and_one_colour() -> None:
    labels = [
        "embed",
        "head",
        "attention 3",
        "gate_up 3",
        "down 3, attention 4",
        "down 9, head",
        "layers 0-4",
    ]
    spans = [work("s1", what, 0, 1) for what in [*labels, "embed, attention 0"]]
    assert [(span.kind, span.colour) for span in spans] == [
        ("embed", PINK),
        ("head", PINK),
        ("attention", BLUE),
        ("gate_up", ORANGE),
        ("down + attention", GREEN),
        ("down + head", GREEN),
        ("layers", BLUE),
        ("embed + attention", BLUE),
    ]


def test_everybody_and_everything_can_be_read(tmp_path: Path) -> None:
    draw_waterfall(TOKEN, tmp_path / "token.svg", title="One token")
    said = texts(tmp_path / "token.svg")
    assert {"One token", summary(TOKEN), "ms", "coordinator", "s1", "s2", "s3"} <= set(said)
    assert {"leg", "residual bypass", "embed / head", "attention", "gate_up", "down"} <= set(said)
    assert "gate_up 0" in said  # 20 of 115 ms hold nine letters
    assert "down 0" not in said  # half a millisecond does not
    assert said.count("leg") == 1


def test_a_longer_token_is_a_picture_of_the_same_size(tmp_path: Path) -> None:
    """Every slope and bar is there: a picture of a hundred spans says more than one of ten."""
    later = [
        Span(who=s.who, what=s.what, start_ms=s.start_ms + 115.5 * n, end_ms=s.end_ms + 115.5 * n, to=s.to)
        for n in range(10)
        for s in TOKEN
    ]
    draw_waterfall(TOKEN, tmp_path / "short.svg", title="")
    draw_waterfall(later, tmp_path / "long.svg", title="")
    short, long = ((tmp_path / name).read_text() for name in ("short.svg", "long.svg"))
    assert short.split("viewBox=")[1][:40] == long.split("viewBox=")[1][:40]
    assert long.count(f"fill: {ORANGE.lower()}") - 1 == 10 * (short.count(f"fill: {ORANGE.lower()}") - 1)
