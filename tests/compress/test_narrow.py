"""Narrow copies: of every family the function that was meant, with stock names and shapes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.tiny import VARIANTS, build, write_gguf
from trisplit.compress.anatomy import dissect
from trisplit.compress.methods.ffn import Refit
from trisplit.compress.narrow import write_narrow
from trisplit.compress.study import down_of
from trisplit.errors import RequestProblem
from trisplit.models.decoder import Decoder
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]
IDS = [1, 40, 77, 120, 13]


def as_it_is(path: Path, gone: int = 0) -> list[Refit]:
    """Refits that change nothing: all neurons but the last `gone`, with their own columns of down."""
    anatomy, refits = dissect(path), []
    for layer in range(anatomy.layers):
        down = down_of(anatomy, layer)
        kept = np.arange(down.shape[1] - gone)
        refits.append(Refit(kept, down[:, kept], 0.0))
    return refits


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_cut_is_nothing_changed(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    """All tensors are there under their own names, and every logit is the same bits."""
    ffn = open_model(tiny(variant)).config.ffn[0]
    write_narrow(dissect(tiny(variant)), as_it_is(tiny(variant)), ffn, tmp_path / "m")
    before = load_file(tiny(variant) / "model.safetensors")
    after = {n: v for f in (tmp_path / "m").glob("*.safetensors") for n, v in load_file(f).items()}
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    logits = [Decoder.load(path).forward(IDS, 0).tobytes() for path in (tiny(variant), tmp_path / "m")]
    assert logits[0] == logits[1]


@pytest.mark.parametrize("variant", VARIANTS)
def test_neurons_that_say_nothing_can_be_cut(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    """A model whose last 32 neurons have no column in down, with and without them; one layer is filled up."""
    config = open_model(tiny(variant)).config
    refits = as_it_is(tiny(variant), gone=32)
    zeroed = [Refit(np.arange(n), np.pad(r.down, ((0, 0), (0, 32))), 0.0) for r, n in zip(refits, config.ffn)]
    refits[1] = zeroed[1]
    anatomy, full = dissect(tiny(variant)), config.ffn[0]
    write_narrow(anatomy, zeroed, full, tmp_path / "whole")
    write_narrow(anatomy, refits, full, tmp_path / "padded")
    refits[1] = as_it_is(tiny(variant), gone=32)[1]
    write_narrow(anatomy, refits, full - 32, tmp_path / "cut")
    assert open_model(tmp_path / "cut").config.ffn == (full - 32,) * config.layers
    names = ("whole", "padded", "cut")
    whole, padded, cut = (Decoder.load(tmp_path / name).forward(IDS, 0).copy() for name in names)
    assert padded == pytest.approx(whole, abs=1e-5)
    assert cut == pytest.approx(whole, abs=1e-5)


@pytest.mark.parametrize("variant", ["llama", "qwen2"])
def test_from_a_gguf_as_from_its_folder(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    gguf = write_gguf(tiny(variant), tmp_path / "m.gguf")
    for path, name in ((tiny(variant), "a"), (gguf, "b")):
        write_narrow(dissect(path), as_it_is(path, gone=32), 64, tmp_path / name)
    a, b = (Decoder.load(tmp_path / name).forward(IDS, 0).copy() for name in "ab")
    assert a == pytest.approx(b, abs=1e-4)
    assert json.loads((tmp_path / "b" / "config.json").read_text())["intermediate_size"] == 64


def test_what_is_no_decoder_is_refused(tmp_path: Path) -> None:
    from tests.compress import encoders

    anatomy = dissect(encoders.bert(tmp_path / "m"))
    with pytest.raises(RequestProblem, match="only decoders"):
        write_narrow(anatomy, [], 32, tmp_path / "out")


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    path = build("llama", tmp_path / "m", layers=1)
    with pytest.raises(RequestProblem, match="not empty"):
        write_narrow(dissect(path), as_it_is(path), 96, path)
