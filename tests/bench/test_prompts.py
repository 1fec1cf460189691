"""Prompts of the benches of drafts: what they ask, and that no kind is taken for the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trisplit.assets import Article, fetch, held_out, read_articles
from trisplit.bench.prompts import KINDS, distinct_4gram_share, read_prompts
from trisplit.errors import RequestProblem, UnknownName
from trisplit.models.model import open_model
from trisplit.models.sampling import Sampling

Tiny = Callable[[str], Path]

ARTICLES = [Article(title, "the tide comes in. " * 99) for title in ("Afghanistan", "Ayn Rand", "Tides")]


def test_four_of_each_kind() -> None:
    prompts = read_prompts(KINDS, ARTICLES)
    assert [prompt.kind for prompt in prompts] == ["novel"] * 4 + ["draftable"] * 4
    assert len({prompt.name for prompt in prompts}) == 8
    assert read_prompts(["draftable"], []) == prompts[4:]
    assert read_prompts(["novel"], ARTICLES) == prompts[:4]


def test_texts_are_filled_in() -> None:
    prompts = read_prompts(KINDS, ARTICLES)
    assert prompts[0].text == ARTICLES[0].text
    for prompt in prompts[4:]:
        asked, *text = prompt.text.split("\n\n")
        assert len(asked) < 100 < len("".join(text))
        assert "{of}" not in prompt.text
        assert " \\" not in prompt.text


def test_only_as_many_tokens_as_are_wanted(tiny: Tiny) -> None:
    tokenizer = open_model(tiny("llama")).tokenizer()
    continued, *_ = read_prompts(["novel"], ARTICLES)
    assert continued.ids(tokenizer) == tokenizer.encode(ARTICLES[0].text)[:200]
    (quote, *_) = read_prompts(["draftable"], [])
    assert quote.ids(tokenizer) == tokenizer.encode_chat([{"role": "user", "content": quote.text}])


def test_the_penalty_is_for_greedy_answers_to_novel_prompts() -> None:
    novel, draftable = read_prompts(KINDS, ARTICLES)[0], read_prompts(KINDS, ARTICLES)[-1]
    assert novel.sampling(0, 3) == Sampling(repetition_penalty=1.1, seed=3)
    assert novel.sampling(0.8, 3) == Sampling(temperature=0.8, seed=3)
    assert draftable.sampling(0, 3) == Sampling(seed=3)


def test_refused() -> None:
    with pytest.raises(UnknownName, match="noble"):
        read_prompts(["noble"], ARTICLES)
    with pytest.raises(RequestProblem, match="no article Ayn Rand to continue"):
        read_prompts(["novel"], ARTICLES[:1])


@pytest.mark.parametrize(
    ("ids", "share"), [([], 1), ([1, 2, 3], 1), ([5] * 11, 1 / 8), ([*range(20)], 1), ([1, 2, 3, 4] * 2, 0.8)]
)
def test_distinct_4grams(ids: list[int], share: float) -> None:
    assert distinct_4gram_share(ids) == share


@pytest.mark.real
def test_what_they_ask_is_there_and_not_too_long() -> None:
    tokenizer = open_model(fetch("smollm2")).tokenizer()
    lengths = [
        len(prompt.ids(tokenizer)) for prompt in read_prompts(KINDS, held_out(read_articles(fetch("wiki"))))
    ]
    assert max(lengths) < 400
    assert lengths[:2] == [200, 200]
