"""Our decoder continues text with the same tokens as transformers, on the real models."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from tests.oracle.answers import REAL, TOLERANCE, Answers, RealModel, first_difference, load_answers
from trisplit.models.decoder import Decoder


class Pair(NamedTuple):
    """A loaded model and what transformers said about it."""

    model: RealModel
    ours: Decoder
    theirs: Answers


def _marks(model: RealModel) -> list[pytest.MarkDecorator]:
    return [pytest.mark.real, *([pytest.mark.slow] if model.slow else [])]


@pytest.fixture(scope="module", params=[pytest.param(m, id=m.name, marks=_marks(m)) for m in REAL])
def pair(request: pytest.FixtureRequest) -> Pair:
    model: RealModel = request.param
    if model.file is None:
        pytest.skip(f"not here yet: run `trisplit fetch {model.name}`")
    return Pair(model, Decoder.load(model.file, "f32", threads=1, context=704), load_answers(model.name))


def test_the_last_row_of_a_prompt(pair: Pair) -> None:
    for length in pair.model.lengths:
        logits = pair.ours.forward(pair.theirs[f"ids_{length}"].tolist(), 0)[pair.theirs[f"columns_{length}"]]

        np.testing.assert_allclose(
            logits, pair.theirs[f"last_{length}"], rtol=0, atol=TOLERANCE, err_msg=f"length {length}"
        )


def test_the_same_greedy_tokens(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    prompt, expected = pair.theirs["greedy_prompt"].tolist(), pair.theirs["greedy_ids"].tolist()
    tokens = [int(pair.ours.forward(prompt, 0).argmax())]
    for position in range(len(prompt), len(prompt) + len(expected) - 1):
        tokens.append(int(pair.ours.forward(tokens[-1:], position).argmax()))

    step = first_difference(tokens, expected)
    if step is not None:
        gap = pair.theirs["greedy_gap"][step]
        told = (
            f"{pair.model.name}, token {step}: {tokens[step]} here, {expected[step]} there, {gap:.1e} apart"
        )
        assert gap <= TOLERANCE, told
        with capsys.disabled():
            print(f"a tie: {told}")
