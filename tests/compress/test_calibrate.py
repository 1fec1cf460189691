"""Statistics of a text: what a decoder that reads it meets, layer by layer, whatever the text's shape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import build
from trisplit.compress.calibrate import Moments, Stream, calibrate
from trisplit.compress.passages import PASSAGE_TOKENS, passages_of
from trisplit.errors import CheckpointProblem, RequestProblem
from trisplit.models.config import Stage, layer_stages
from trisplit.models.layout import Matrix, layout
from trisplit.models.model import Model, open_model
from trisplit.models.rounding import NEAREST
from trisplit.models.session import StageSession, Tracks
from trisplit.models.statistics import Statistics, open_statistics

Tiny = Callable[[str], Path]
PASSAGES = [[5, 6, 7, 8, 9, 10, 11], [40], list(range(20, 50))]


def statistics(model: Model, path: Path, passages: list[list[int]] = PASSAGES) -> Statistics:
    assert list(calibrate(model, passages, path, threads=1)) == list(range(model.config.layers))
    return open_statistics(path)


def matrix(model: Model, stage: Stage) -> Matrix:
    return layout(model.config, stage).matrices[0]


def test_moments_are_those_of_the_rows() -> None:
    rows = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    moments = Moments(8)
    assert not moments.mean().any()
    for part in (rows[:13], rows[13:13], rows[13:]):
        moments.add(part)
    np.testing.assert_allclose(moments.mean(), rows.astype(float).T @ rows / 50, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("variant", ["llama", "gemma3", "neox"])
def test_statistics_are_those_of_what_a_decoder_computes(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    """What the last down multiplies is what the gate_up before it leaves, and that of all tokens alike."""
    model = open_model(tiny(variant))
    last = Stage(model.config.layers - 1, "down")
    files = list(model.files(model.stages[: model.stages.index(last)], "f32"))
    session, moments = StageSession(model.config, files, context=64, threads=1), Moments(model.config.ffn[-1])
    for passage in PASSAGES:
        moments.add(Tracks(session).run({"ids": np.array(passage)}, 0))
    found = statistics(model, tmp_path / "s.npz")
    np.testing.assert_allclose(
        found.gram(last, matrix(model, last)), moments.mean(), rtol=1e-3, atol=1e-5 * moments.mean().max()
    )
    assert found.about.tokens == 38


def test_whose_they_are_is_said(tiny: Tiny, tmp_path: Path) -> None:
    model, other = open_model(tiny("llama")), open_model(tiny("mistral"))
    first = statistics(model, tmp_path / "a.npz").about
    again = statistics(model, tmp_path / "b.npz").about
    cut = statistics(model, tmp_path / "c.npz", [[*PASSAGES[0], *PASSAGES[1]], PASSAGES[2]]).about
    assert first == again  # wherever they lie
    assert first.text != cut.text
    assert first.model == model.content_digest() != other.content_digest()


def test_threads_change_no_bit(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    seen = []
    for threads in (1, 3):
        with Stream(model, [*PASSAGES, *PASSAGES], threads=threads) as stream:
            shown = [
                rows.tobytes()
                for all in stream.through(0, list(model.files(layer_stages(range(1)), "f32")))
                for rows in all.values()
            ]
            seen.append((shown, stream.residual(5).tobytes()))
    assert seen[0] == seen[1]


def test_layers_after_an_edited_one_see_what_it_leaves(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    stages = layer_stages(range(1))
    seen = []
    for dtype, how in (("f32", model), ("int4", model.rounded(NEAREST))):
        with Stream(model, PASSAGES, threads=1) as stream:
            before = stream.residual(2)
            files = list(how.files(stages, dtype))  # type: ignore[arg-type]
            assert len(list(stream.through(0, files))) == len(stream) == 3
            assert not np.array_equal(stream.residual(2), before)
            seen.append(stream.residual(2))
    assert 0 < np.abs(seen[0] - seen[1]).max() < 1


def test_passages_begin_with_every_text_and_each_as_a_text_does(tiny: Tiny) -> None:
    tokenizer = open_model(tiny("llama")).tokenizer()
    texts = ["the tide comes in. " * 300, "short", "and goes out. " * 300]
    ids = [tokenizer.encode(text, special=False) for text in texts]
    bos, step = tokenizer.bos_id, PASSAGE_TOKENS - 1
    assert min(len(ids[0]), len(ids[2])) > step
    passages = passages_of(tokenizer, texts, 2 * PASSAGE_TOKENS + len(ids[1]) + 1 + 7)
    assert passages[:3] == [[bos, *ids[0][:step]], [bos, *ids[1]], [bos, *ids[2][:step]]]
    assert passages[3:] == [[bos, *ids[0][step : step + 6]]]
    everything = passages_of(tokenizer, texts, 10**9, longest=64)
    assert sum(len(passage) - 1 for passage in everything) == sum(map(len, ids))
    assert {len(passage) for passage in everything} >= {64}


def test_a_text_shorter_than_a_passage_is_enough_and_none_is_not(tiny: Tiny) -> None:
    tokenizer = open_model(tiny("qwen2")).tokenizer()
    assert len(passages_of(tokenizer, ["tide"], 100)) == 1
    with pytest.raises(RequestProblem, match="no text"):
        passages_of(tokenizer, ["", ""], 100)


def test_weights_that_are_no_numbers_are_told_by_their_layer(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = build("llama", tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.2.mlp.down_proj.weight"][3, 3] = np.nan
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointProblem, match="layer 2"):
        statistics(open_model(folder), tmp_path / "s.npz")
    assert not (tmp_path / "s.npz").exists()


def test_a_passage_past_the_context_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(RequestProblem, match="513"):
        statistics(open_model(tiny("llama")), tmp_path / "s.npz", [list(range(3)) * 171])
