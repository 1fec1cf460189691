"""Rows of `bench dtypes`: divergences worked out by hand, and the decoder's own, token by token."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trisplit.assets import fetch, held_out, read_articles
from trisplit.bench.dtypes import dtypes, windows_of
from trisplit.bench.weights import weight_bytes
from trisplit.errors import RequestProblem
from trisplit.models.decoder import Decoder
from trisplit.models.model import open_model
from trisplit.models.predictions import scores

Tiny = Callable[[str], Path]

TEXTS = [f"Text {n}: {'the tide goes out and comes in again; ' * n}" for n in range(1, 12)]
TOKENS = 100


def test_windows_are_beginnings_of_texts_spread_evenly(tiny: Tiny) -> None:
    tokenizer = open_model(tiny("llama")).tokenizer()
    long_enough = [text for text in TEXTS if len(tokenizer.encode(text)) > TOKENS]
    assert 4 < len(long_enough) < len(TEXTS)
    chosen = windows_of(tokenizer, TEXTS, 3, TOKENS)
    n = len(long_enough)
    assert chosen == [tokenizer.encode(long_enough[i])[: TOKENS + 1] for i in (0, n // 3, 2 * n // 3)]
    assert all(ids[0] == tokenizer.bos_id for ids in chosen)


def test_too_few_long_texts_are_refused_with_numbers(tiny: Tiny) -> None:
    tokenizer = open_model(tiny("llama")).tokenizer()
    with pytest.raises(RequestProblem, match="12 texts of more than 20 tokens are wanted, and there are 11"):
        windows_of(tokenizer, TEXTS, 12, 20)


@pytest.mark.parametrize("variant", ["llama", "gemma3"])
def test_the_same_as_decoders_that_read_token_by_token(variant: str, tiny: Tiny) -> None:
    """100 tokens: two chunks for the layers, six full pieces and a rest for the head."""
    rows = dtypes(tiny(variant), TEXTS, windows=2, window_tokens=TOKENS, dtypes=["int8", "int4"], threads=1)
    passages = windows_of(open_model(tiny(variant)).tokenizer(), TEXTS, 2, TOKENS)
    exact = Decoder.load(tiny(variant), "f32", context=TOKENS)
    assert [row.dtype for row in rows] == ["int8", "int4"]
    for row in rows:
        twin = Decoder.load(tiny(variant), row.dtype, context=TOKENS)
        measured = np.concatenate(
            [
                scores(exact.forward([id_], at)[None], twin.forward([id_], at)[None], np.array([ids[at + 1]]))
                for ids in passages
                for at, id_ in enumerate(ids[:-1])
            ]
        )
        kl, top1, surprise, surprise_f32 = measured.mean(axis=0)
        assert row.tokens == len(measured) == 2 * TOKENS
        assert row.kl == pytest.approx(kl, rel=1e-2)
        assert row.top1 == pytest.approx(top1, abs=0.011)
        assert math.log(row.ppl) == pytest.approx(surprise, abs=2e-3)
        assert math.log(row.ppl_f32) == pytest.approx(surprise_f32, abs=1e-5)
        assert (
            row.weight_bytes
            == twin.session.weight_bytes
            == weight_bytes(open_model(tiny(variant)), row.dtype)
        )
    assert 0 < rows[0].kl < rows[1].kl


def test_f32_does_not_differ_from_itself(tiny: Tiny) -> None:
    (row,) = dtypes(tiny("llama"), TEXTS, windows=1, window_tokens=40, dtypes=["f32"], threads=1)
    assert (row.kl, row.top1, row.ppl) == (0, 1, row.ppl_f32)


def test_windows_longer_than_the_context_are_refused(tiny: Tiny) -> None:
    with pytest.raises(RequestProblem, match="513"):
        dtypes(tiny("llama"), TEXTS, windows=1, window_tokens=513, dtypes=["int8"], threads=1)


@pytest.mark.real
@pytest.mark.slow
def test_smollm2_stays_within_its_gates() -> None:
    texts = [article.text for article in held_out(read_articles(fetch("wiki")))]
    wanted = {"windows": 4, "window_tokens": 512, "threads": 2}
    int8, int4 = dtypes(fetch("smollm2"), texts, dtypes=["int8", "int4"], **wanted)
    assert int8.tokens == int4.tokens == 2048
    assert int8.kl <= 0.01
    assert int4.kl <= 0.03
