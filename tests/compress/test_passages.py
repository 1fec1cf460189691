"""Passages: as long as asked, begun as any text, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trisplit.compress.passages import beginning, passages
from trisplit.errors import RequestProblem
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]
TEXTS = [" ".join(f"Tide {n}.{i}" for i in range(60)) for n in range(6)]


@pytest.mark.parametrize("variant", ["llama", "qwen2"])
def test_every_passage_begins_as_a_text_and_has_one_id_more(variant: str, tiny: Tiny) -> None:
    tokenizer = open_model(tiny(variant)).tokenizer()
    begun = beginning(tokenizer)
    assert len(begun) == (variant == "llama")
    found = passages(tokenizer, TEXTS, count=5, n_tokens=16)
    assert {len(passage) for passage in found} == {17}
    assert all(passage[: len(begun)] == begun for passage in found)
    spelled = [tokenizer.decode(passage) for passage in found]
    places = [next(n for n, text in enumerate(TEXTS) if part in text) for part in spelled]
    assert places == sorted(places)


def test_the_seed_chooses(tiny: Tiny) -> None:
    tokenizer = open_model(tiny("llama")).tokenizer()
    first, again, other = (passages(tokenizer, TEXTS, count=4, n_tokens=16, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_too_little_text_is_refused_with_the_numbers(tiny: Tiny) -> None:
    tokenizer = open_model(tiny("llama")).tokenizer()
    with pytest.raises(RequestProblem, match=r"999 passages of 16 tokens are wanted, the text gives \d+"):
        passages(tokenizer, TEXTS, count=999, n_tokens=16)
