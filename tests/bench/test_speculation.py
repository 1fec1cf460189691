"""Speculation on real stations behind relays: rows as counted by hand, tokens as of one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from tests.bench.test_plot import texts
from tests.mesh.adversaries import ADVERSARIES
from trisplit.bench.answers import answered_alone
from trisplit.bench.answers import given as give
from trisplit.bench.driven import driven
from trisplit.bench.meshes import Subject
from trisplit.bench.peers import Answer
from trisplit.bench.prompts import Prompt
from trisplit.bench.report import Report
from trisplit.bench.speculation import (
    PLAIN,
    Asked,
    Question,
    Setting,
    SpeculationRow,
    Way,
    bottleneck_ms,
    medians,
    predicted,
    row,
    speculation,
    traversals,
    ways,
)
from trisplit.bench.speculation_plot import best, draw_rates
from trisplit.machine import this_machine
from trisplit.models.decoder import Decoder

Tiny = Callable[[str], Path]

NOVEL = Prompt(name="go on", kind="novel", text="The tide", as_chat=False, greedy_penalty=1.2)
AGAIN = Prompt(name="again", kind="draftable", text="In and out, in and out", as_chat=False)
QUESTIONS = [
    Question(prompt=prompt, prompt_ids=(5, 9, 6, 5, 9, 6, 5, 9), temperature=warmth)
    for prompt in (NOVEL, AGAIN)
    for warmth in (0.0, 0.8)
]
TOKENS = 14


def asked_of(path: Path) -> Asked:
    return Asked(
        subject=Subject(path=str(path)),
        stations=2,
        cut="layers",
        topology="ring",
        dtype="f32",
        threads=1,
        one_way_ms=[1.0, 2.0],
        ways=ways(["ngram"], ["plain", "auto", "stream", "rounds"], [3]),
        places={},
        questions=QUESTIONS,
        tokens=TOKENS,
        most_s=20.0,
        seed=3,
    )


# --- on stations ----------------------------------------------------------------------------------


def test_every_answer_is_that_of_one_process(tiny: Tiny) -> None:
    asked = asked_of(tiny("llama"))
    rows = asyncio.run(speculation(asked))
    singles = [each for each in rows if each.prompt != "median"]
    assert len(singles) == 2 * len(QUESTIONS) * len(asked.ways)
    assert len(rows) == 2 * len(singles), "each prompt here is the only one of its kind"
    assert all(each.tokens_equal for each in rows)
    assert {(each.tokens, each.legs_per_token) for each in rows} == {(TOKENS, 2)}
    for each in singles:
        assert each.tok_per_s / each.serial_floor_tok_per_s == pytest.approx(each.ratio_to_serial_floor)
    plain = [each for each in singles if each.mode == "plain"]
    assert {(each.draft, each.k, each.acceptance) for each in plain} == {("none", None, None)}
    assert {(each.tokens_per_traversal, each.in_flight) for each in plain} == {(1.0, 1.0)}


def test_adversaries_change_no_token_and_are_counted(tiny: Tiny) -> None:
    """The draft is put into this process: what is right or wrong is known."""
    asked = asked_of(tiny("llama"))
    facts, model = asked.mesh(1.0, 64), asked.subject.opened()
    decoder = Decoder.load(tiny("llama"), "f32", context=64)

    async def run() -> dict[tuple[str, str], SpeculationRow]:
        found = {}
        async with driven(facts) as mesh:
            for question in QUESTIONS[:2]:
                one = answered_alone(decoder, asked.order(question, PLAIN))
                whole = [*question.prompt_ids, *one["token_ids"]]
                plain = await give(mesh, asked.order(question, PLAIN), None)
                for name, made in ADVERSARIES.items():
                    for way in (Way(name, "stream"), Way(name, "rounds", 3)):
                        draft = made(whole, model.config.vocab)
                        answer = await give(mesh, asked.order(question, way), draft)
                        setting = Setting(one_way_ms=1.0, legs_per_token=2, threads=1, cores=2)
                        each = row(setting, question, way, answer, plain, one)
                        assert each.tokens_equal, (name, way)
                        found[name, way.mode] = each
        return found

    found = asyncio.run(run())
    for mode in ("stream", "rounds"):
        assert (found["right", mode].acceptance, found["wrong", mode].acceptance) == (1.0, 0.0)
        assert found["silent", mode].acceptance is None
        assert found["silent", mode].tokens_per_traversal == 1.0
        assert found["wrong", mode].tokens_per_traversal == 1.0
        assert found["right", mode].tokens_per_traversal >= 1
    assert found["right", "rounds"].predicted_tokens_per_traversal == 4
    # 13 tokens after the first: three rounds of three guesses and the one behind them, and one more.
    assert found["right", "rounds"].tokens_per_traversal == pytest.approx(13 / 4)


def test_an_answer_is_ended_in_time(tiny: Tiny) -> None:
    asked = replace(asked_of(tiny("llama")), most_s=0.0)

    async def run() -> Answer:
        async with driven(asked.mesh(1.0, 64)) as mesh:
            first = await give(mesh, asked.order(QUESTIONS[0], PLAIN), None)
            second = await give(mesh, asked.order(QUESTIONS[0], PLAIN), None)
            assert first["token_ids"] == second["token_ids"]
            return first

    answer = asyncio.run(run())
    assert len(answer["token_ids"]) == len(answer["came_ms"]) == 2, "fewer have no rate"


# --- the arithmetic -------------------------------------------------------------------------------

SETTING = Setting(one_way_ms=20.0, legs_per_token=6, threads=1, cores=2)


def answer_of(came_ms: list[float], hits: list[bool], ahead: list[int], ids: list[int]) -> Answer:
    return {
        "token_ids": ids,
        "came_ms": came_ms,
        "hits": hits,
        "ahead": ahead,
        "judged": [sum(hits), 1],
        "window": 8,
        "draft_ms": 10.0,
    }


ALONE: Answer = {"token_ids": [7, 8, 9, 7, 8, 9], "came_ms": [0.0, 30.0, 60.0, 90.0, 120.0, 150.0]}
SLOW = answer_of([0.0, 150.0, 300.0], [False] * 3, [0] * 3, [7, 8, 9])
QUICK = answer_of(
    [0.0, 150.0, 170.0, 180.0, 200.0], [False, True, True, True, False], [4, 3, 2, 1, 0], [7, 8, 9, 7, 8]
)


def test_a_row_by_hand() -> None:
    found = row(SETTING, QUESTIONS[2], Way("d", "stream"), QUICK, SLOW, ALONE)
    assert (found.tok_per_s, found.plain_tok_per_s) == (pytest.approx(20.0), pytest.approx(1e3 / 150))
    assert found.serial_floor_tok_per_s == pytest.approx(1e3 / (6 * 20 + 30))
    assert found.ratio_to_serial_floor == pytest.approx(20 * 0.150)
    assert (found.bottleneck_ms, found.share_of_bottleneck_rate) == (20.0, pytest.approx(0.4))
    assert (found.acceptance, found.predicted_tokens_per_traversal) == (0.75, 4.0)
    assert (found.in_flight, found.tokens_per_traversal) == (3.0, 4.0)
    assert (found.tokens, found.tokens_equal, found.counts) == (5, True, True)
    other = row(
        SETTING, QUESTIONS[0], Way("d", "stream"), QUICK | {"token_ids": [7, 8, 9, 7, 7]}, SLOW, ALONE
    )
    assert not other.tokens_equal


def test_more_threads_are_more_work() -> None:
    assert bottleneck_ms(2 * 30.0, 10.0, 2) == 35.0
    two = row(replace(SETTING, threads=2), QUESTIONS[0], PLAIN, SLOW | {"draft_ms": 0.0}, SLOW, ALONE)
    assert two.bottleneck_ms == 30.0


def test_predictions() -> None:
    assert predicted(PLAIN, 0.0, 0) == 1
    assert predicted(Way("d", "rounds", 5), 0.8, 0) == pytest.approx(3.689, abs=1e-3)
    assert predicted(Way("d", "rounds", 8), 0.8, 0) == pytest.approx(4.329, abs=1e-3)
    assert predicted(Way("d", "stream"), 0.8, 20) == pytest.approx(5)
    assert predicted(Way("d", "stream"), 0.99, 20) == 21
    assert predicted(Way("d", "stream"), 1.0, 20) == 21


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 8)), min_size=2, max_size=60))
def test_traversals_are_between_none_but_one_and_one_a_token(seen: list[tuple[bool, int]]) -> None:
    hits, ahead = [hit for hit, _ in seen], [n for _, n in seen]
    assert 1 <= traversals(hits, ahead) <= len(seen) - 1
    assert traversals([False] * len(hits), ahead) == len(hits) - 1
    assert traversals(hits, ahead) >= traversals(hits, [n + 1 for n in ahead])


def test_a_full_window_waits_again() -> None:
    """All right, but only two under way behind each: three tokens, with its own, a traversal."""
    assert traversals([False] + [True] * 9, [2] * 10) == 3


def test_loops_do_not_count_and_kinds_are_never_blended() -> None:
    """Whether it is a loop is told by all of the answer of one process, however much of it came here."""
    slow = QUICK | {"came_ms": [2 * ms for ms in QUICK["came_ms"]]}
    loop, fresh = ALONE | {"token_ids": [7, 8, 9, 7] * 6}, ALONE | {"token_ids": [7, 8, 9, 7, *range(20)]}
    rows = [
        row(SETTING, question, Way("d", "stream"), answer, SLOW, one)
        for question in (QUESTIONS[0], QUESTIONS[2])
        for answer, one in ((QUICK, loop), (slow, fresh))
    ]
    assert [each.counts for each in rows] == [False, True, True, True]
    novel, draftable = medians(rows)
    assert (novel.prompts, novel.tok_per_s, novel.tokens, novel.counts) == ("novel", 10.0, 5, True)
    assert (draftable.prompts, draftable.tok_per_s, draftable.tokens) == ("draftable", 15.0, 10)
    (nothing,) = medians(rows[:1])
    assert not nothing.counts


def test_the_table(snapshot: SnapshotAssertion) -> None:
    plain = SLOW | {"judged": [0, 0], "draft_ms": 0.0}
    rows = [
        row(SETTING, question, way, answer, SLOW, ALONE)
        for question in (QUESTIONS[0], QUESTIONS[3])
        for way, answer in ((PLAIN, plain), (Way("d", "rounds", 5), QUICK))
    ]
    report = Report(rows=[*rows, *medians(rows)], machine=this_machine(), command="")
    assert str(report.table()) == snapshot


def test_plain_is_always_asked_first_and_once() -> None:
    assert ways(["none"], ["plain"], [5]) == [PLAIN]
    found = ways(["a", "b"], ["stream", "rounds"], [5, 8])
    assert found[0] == PLAIN
    assert found[1:4] == [Way("a", "stream"), Way("a", "rounds", 5), Way("a", "rounds", 8)]
    assert len(found) == 7


def test_the_picture(tmp_path: Path) -> None:
    rows = [
        row(replace(SETTING, one_way_ms=ms), QUESTIONS[2], way, answer, SLOW, ALONE)
        for ms in (50.0, 20.0)
        for way, answer in ((PLAIN, SLOW), (Way("a", "stream"), QUICK), (Way("b", "stream"), SLOW))
    ]
    rows = [*medians(rows)]
    quickest = best(rows, "stream", "draftable")
    assert [(each.one_way_ms, each.draft) for each in quickest] == [(20.0, "a"), (50.0, "a")]
    draw_rates(rows, tmp_path / "rates.svg", title="A model")
    said = texts(tmp_path / "rates.svg")
    for words in ("plain", "stream", "serial floor", "bottleneck", "ms one way"):
        assert words in said
