"""Stages with random weights: what conversion would make of float weights, in shape if not in sense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trisplit.bench.stand_ins import bytes_of, kept, narrower, stand_ins
from trisplit.models.config import EMBED
from trisplit.models.convert import DTYPES, Dtype
from trisplit.models.decoder import Decoder
from trisplit.models.model import open_model
from trisplit.models.stage_file import misfit

Tiny = Callable[[str], Path]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", ["llama", "llama-biases", "gemma3", "neox"])
def test_they_have_the_arrays_of_converted_weights(
    variant: str, dtype: Dtype, tiny: Tiny, tmp_path: Path
) -> None:
    model = open_model(tiny(variant))
    made = stand_ins(model.config, model.stages, dtype, tmp_path)
    for ours, theirs in zip(made, model.files(model.stages, dtype)):
        assert ours.stage == theirs.stage
        assert misfit(model.config, ours) == ""
        assert ours.tensors.keys() == theirs.tensors.keys()
        assert ours.weight_bytes == theirs.weight_bytes


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_model_of_them_decodes(dtype: Dtype, tiny: Tiny, tmp_path: Path) -> None:
    config = open_model(tiny("llama")).config
    files = stand_ins(config, config.stages, dtype, tmp_path, gates="separate")
    logits = Decoder(config, files, context=8, threads=1).forward([1, 2, 3], 0)
    assert np.isfinite(logits).all()
    assert logits.std() > 0


def test_no_two_say_the_same(tiny: Tiny, tmp_path: Path) -> None:
    config = replace(open_model(tiny("llama")).config, tied_head=False)
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
        stand_ins(config, [EMBED], "f32", folder)
    one, other = (np.fromfile(folder / "embed.bin", np.float32) for folder in folders)
    assert len(np.unique(one)) > 0.99 * len(one)
    assert (one != other).mean() > 0.99


def test_gate_and_up_lie_apart_in_as_many_bytes(tiny: Tiny, tmp_path: Path) -> None:
    config = open_model(tiny("llama")).config
    stages = config.stages[2:3]
    fused, apart = (stand_ins(config, stages, "int8", tmp_path, gates=g) for g in ("fused", "separate"))
    assert [file.parts_of("gate_up") for file in fused] == [["gate_up"]]
    assert [file.parts_of("gate_up") for file in apart] == [["gate_up.0", "gate_up.1"]]
    assert bytes_of(fused) == bytes_of(apart)


def test_narrower_in_blocks(tiny: Tiny) -> None:
    config = open_model(tiny("llama")).config
    assert set(narrower(config, 50).ffn) == {64}
    assert narrower(config, 100) == config
    assert (kept(100, 100), kept(32, 1), kept(40, 99)) == (100, 32, 32)
