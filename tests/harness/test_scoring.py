"""Likelihoods and answers are those of the decoder, BOS stands once, and windows score each token once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.compress.test_questions import QUESTIONS
from trisplit.compress.questions import ask, worths
from trisplit.compress.reading import Body, Head
from trisplit.errors import RequestProblem
from trisplit.harness.scoring import Scorer
from trisplit.models.decoder import Decoder
from trisplit.models.generation import Generation, Request
from trisplit.models.model import open_model
from trisplit.models.predictions import log_softmax
from trisplit.models.sampling import Sampling

Tiny = Callable[[str], Path]
TEXT = "The keeper of the lighthouse wrote down the weather."
GREEDY = Sampling()


def scorer(path: Path, context: int | None = 128) -> Scorer:
    return Scorer(open_model(path), "f32", threads=1, context=context)


def nats_of(path: Path, given: Sequence[int], scored: Sequence[int]) -> list[float]:
    """Of each id after those before it, by the decoder, an id at a time."""
    decoder, found = Decoder.load(path, context=256), []
    for at in range(len(scored)):
        logits = decoder.forward([*given, *scored[:at]], 0)
        found.append(float(log_softmax(logits[None])[0, scored[at]]))
    return found


@pytest.mark.parametrize("variant", ["llama", "qwen2", "gemma3"])
def test_likelihoods_are_those_of_the_decoder(variant: str, tiny: Tiny) -> None:
    path = tiny(variant)
    tokenizer = open_model(path).tokenizer()
    whole = tokenizer.encode(TEXT + " Then it rained.", special=False)
    alone = tokenizer.encode(TEXT, special=False)
    assert whole[: len(alone)] == alone
    begun = [tokenizer.bos_id] if tokenizer.adds_bos and tokenizer.bos_id is not None else []
    expected = nats_of(path, [*begun, *alone], whole[len(alone) :])
    found = scorer(path).likelihood(TEXT, " Then it rained.")
    assert found.nats == pytest.approx(sum(expected), abs=1e-3)


def test_a_text_that_is_what_greedy_decoding_says_is_told(tiny: Tiny) -> None:
    ours = scorer(tiny("llama"))
    decoder, given = Decoder.load(tiny("llama"), context=64), ours.ids_of(TEXT)
    likeliest = int(decoder.forward(given, 0).argmax())
    assert ours._likelihood(given, [likeliest]).greedy
    assert not ours._likelihood(given, [likeliest, (likeliest + 1) % 300, 5, 6]).greedy


def test_bos_stands_once(tiny: Tiny) -> None:
    ours = scorer(tiny("llama"))
    bos = ours.tokenizer.bos_id
    assert ours.tokenizer.adds_bos
    assert ours.ids_of(TEXT)[0] == bos
    assert ours.ids_of("<s>" + TEXT) == ours.ids_of(TEXT)
    assert ours.likelihood("", "<s>" + TEXT) == ours.likelihood("", TEXT)


def test_a_token_over_the_end_of_the_context_is_scored_whole(tiny: Tiny) -> None:
    ours = scorer(tiny("llama"))
    begun, whole = ours.ids_of("i"), ours.ids_of("it")
    assert begun[1] not in whole, "both letters are one token"
    expected = sum(nats_of(tiny("llama"), whole[:1], whole[1:]))
    assert ours.likelihood("i", "t").nats == pytest.approx(expected, abs=1e-3)


def test_the_empty_continuation_is_certain(tiny: Tiny) -> None:
    ours = scorer(tiny("llama"))
    assert (ours.likelihood(TEXT, "").nats, ours.likelihood(TEXT, "").greedy) == (0.0, True)


@pytest.mark.parametrize("context", [8, 13, 128])
def test_every_token_of_a_long_text_is_scored_once(context: int, tiny: Tiny) -> None:
    """As the harness asks: full windows, and a last one that overlaps the one before."""
    path = tiny("llama")
    ours, tokenizer = scorer(path, context), open_model(path).tokenizer()
    ids = [ours.first_id, *tokenizer.encode(TEXT, special=False)]
    expected, done = 0.0, 1
    while done < len(ids):
        end = min(done + context, len(ids))
        given = ids[max(end - 1 - context, 0) : done]
        expected += sum(nats_of(path, given, ids[done:end]))
        done = end
    assert ours.rolling(TEXT) == pytest.approx(expected, abs=1e-3)


def test_the_last_ids_of_a_long_context_are_given(tiny: Tiny) -> None:
    short, path = scorer(tiny("llama"), 8), tiny("llama")
    given = short.ids_of(TEXT)
    expected = sum(nats_of(path, given[-7:], [5, 6]))
    assert short._likelihood(given, [5, 6]).nats == pytest.approx(expected, abs=1e-3)


def test_the_same_bits_alone_and_among_others(tiny: Tiny) -> None:
    asked = [(TEXT, " A"), (TEXT, " B, then"), ("Then", " it"), (TEXT, " A"), ("", TEXT)]
    among = scorer(tiny("llama"))
    assert [among.likelihood(*pair) for pair in asked] == [
        scorer(tiny("llama")).likelihood(*pair) for pair in asked
    ]


@pytest.mark.parametrize("scoring", ["letter", "answer"])
def test_options_are_worth_what_evaluate_finds(scoring: str, tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    paper = ask(model.tokenizer(), QUESTIONS, scoring)  # type: ignore[arg-type]
    body = Body(model, "f32", context=max(asked.length for asked in paper), threads=1)
    expected = [*worths(body, Head(model, "f32", threads=1), paper)]
    ours, tokenizer = scorer(tiny("llama"), 512), model.tokenizer()
    for asked, worth in zip(paper, expected):
        shown = tokenizer.decode(asked.shown)
        ways = [tokenizer.decode([*asked.shown, *way]).removeprefix(shown) for way in asked.ways]
        found = [ours.likelihood(shown, way).nats / n for way, n in zip(ways, asked.n_bytes)]
        np.testing.assert_allclose(found, worth, atol=1e-5)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.9, seed=3)])
def test_going_on_is_what_generate_says(sampling: Sampling, tiny: Tiny) -> None:
    path = tiny("llama")
    model, ours = open_model(path), scorer(path, 64)
    tokenizer = model.tokenizer()
    request = Request(
        prompt_ids=tuple(tokenizer.encode(TEXT)), sampling=sampling, max_tokens=8, eos_ids=tokenizer.eos_ids
    )
    answer = Generation(request, tokenizer.detokenizer(), 64)
    for _ in Decoder.load(path, context=64).generate(answer):
        pass
    said = ours.go_on(TEXT, stop=(), max_tokens=8, sampling=sampling)
    assert said == answer.text
    stop = said[len(said) // 2]
    assert ours.go_on(TEXT, stop=[stop, ""], max_tokens=8, sampling=sampling) == said.split(stop)[0]


def test_a_long_prompt_makes_room_for_the_answer(tiny: Tiny) -> None:
    ours = scorer(tiny("llama"), 16)
    ends_alike = ours.tokenizer.decode(ours.ids_of(TEXT)[-12:])
    one, other = (ours.go_on(t, stop=(), max_tokens=4, sampling=GREEDY) for t in (TEXT, "x" + ends_alike))
    assert one == other


def test_what_has_no_room_is_refused(tiny: Tiny) -> None:
    ours = scorer(tiny("llama"), 8)
    with pytest.raises(RequestProblem, match="scored at once, and the context is 8"):
        ours.likelihood("The", TEXT)
    with pytest.raises(RequestProblem, match="8 tokens are wanted, and the context is 8"):
        ours.go_on("The", stop=(), max_tokens=8, sampling=GREEDY)
