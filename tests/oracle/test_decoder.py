"""Our decoder says what transformers says about every tiny model, read from safetensors and from GGUF."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests import tiny
from tests.oracle.answers import INNER_ROWS, LENGTHS, TOLERANCE, Answers, load_answers, weights_digest
from trisplit.models.decoder import Decoder

SOURCES = [(name, "safetensors") for name in tiny.VARIANTS] + [(name, "gguf") for name in tiny.GGUF_VARIANTS]


class Pair(NamedTuple):
    """A loaded model and what transformers said about it."""

    ours: Decoder
    theirs: Answers


@pytest.fixture(scope="module", params=SOURCES, ids="-".join)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    name, source = request.param
    folder: Path = tmp_path_factory.mktemp(name)
    checkpoint = tiny.build_variant(name, folder / "model")
    theirs = load_answers(name)
    if weights_digest(checkpoint) != theirs["weights_sha256"]:
        pytest.fail(f"tests/tiny.py now builds another {name} than the one answered for: run `make oracle`")
    path = tiny.write_gguf(checkpoint, folder / "model.gguf") if source == "gguf" else checkpoint
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRISPLIT_CACHE", str(folder / "cache"))
        yield Pair(Decoder.load(path, "f32", threads=1, context=320), theirs)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_last_row_of_a_prompt(pair: Pair, length: int) -> None:
    logits = pair.ours.forward(pair.theirs[f"ids_{length}"].tolist(), 0)

    np.testing.assert_allclose(logits, pair.theirs[f"last_{length}"], rtol=0, atol=TOLERANCE)


def test_rows_inside_a_prompt(pair: Pair) -> None:
    prompt = pair.theirs[f"ids_{LENGTHS[-1]}"].tolist()
    rows = [pair.ours.forward(prompt[: row + 1], 0).copy() for row in INNER_ROWS]

    np.testing.assert_allclose(np.stack(rows), pair.theirs["inner"], rtol=0, atol=TOLERANCE)


def test_a_greedy_decode(pair: Pair) -> None:
    prompt = pair.theirs["greedy_prompt"].tolist()
    steps = [pair.ours.forward(prompt, 0).copy()]
    for position in range(len(prompt), len(prompt) + len(pair.theirs["greedy_ids"]) - 1):
        steps.append(pair.ours.forward([int(steps[-1].argmax())], position).copy())

    assert [int(step.argmax()) for step in steps] == pair.theirs["greedy_ids"].tolist()
    np.testing.assert_allclose(np.stack(steps), pair.theirs["greedy_logits"], rtol=0, atol=TOLERANCE)
