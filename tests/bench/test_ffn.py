"""Rows of `bench ffn`: every variant computes what its name says, over the layers of a working set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trisplit.bench import ffn as bench
from trisplit.bench.ffn import SKIPPING, VARIANTS, config_of, ffn, shape_named
from trisplit.errors import RequestProblem
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]


def test_a_row_for_every_variant() -> None:
    rows = ffn(config_of(64, 128, 3), batches=[1, 8], dtypes=["f32", "int8"], rounds=2, threads=1)
    assert [(r.dtype, r.batch, r.variant) for r in rows] == [
        (dtype, batch, variant) for dtype in ("f32", "int8") for batch in (1, 8) for variant in VARIANTS
    ]
    whole = rows[0]
    assert (whole.shape, whole.layers, whole.ratio_to_separate) == ("64x128", 3, 1.0)
    assert whole.working_set_bytes == 3 * 4 * (3 * 64 * 128 + 64)
    for row in rows:
        assert 0 < row.best_us <= row.us


def test_ratios_are_those_of_medians_and_of_bytes() -> None:
    rows = ffn(config_of(64, 128, 2), batches=[1], dtypes=["f32"], rounds=3, threads=1)
    by_name = {row.variant: row for row in rows}
    for row in rows:
        assert row.ratio_to_separate == pytest.approx(by_name["separate"].us / row.us)
    norm, a_neuron = 64, 3 * 64
    half = (128 * a_neuron + norm) / (64 * a_neuron + norm)
    assert by_name["fused"].ratio_by_bytes == 1.0
    assert by_name["sliced50"].ratio_by_bytes == by_name["fused+sliced50"].ratio_by_bytes == half
    skipped = (128 * a_neuron + norm) / (128 * 2 * 64 + 64 * 64 + norm)
    assert by_name[SKIPPING].ratio_by_bytes == skipped


def test_no_more_layers_than_a_working_set_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WORKING_SET_BYTES", 3 * 4 * 64 * 128 * 3)
    rows = ffn(config_of(64, 128, 50), batches=[1], dtypes=["f32", "int8"], rounds=1, threads=1)
    assert {(row.dtype, row.layers) for row in rows} == {("f32", 3), ("int8", 11)}


def test_skipping_gives_down_the_first_half(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in VARIANTS}
    for folder in folders.values():
        folder.mkdir()
    chain = bench._chains(bench._few_layers(config_of(64, 128, 2), "f32"), "f32", folders, 1)[SKIPPING]
    bound = chain.rows(1)
    x, r = (bound.inputs[name][0, 0] for name in ("x", "r"))
    expected = by_hand(folders[SKIPPING], x, r)
    np.testing.assert_allclose(bound.run()[0, 0], expected, rtol=1e-4, atol=1e-5)


def by_hand(folder: Path, x: np.ndarray, r: np.ndarray) -> np.ndarray:
    for layer in range(2):
        wide = np.fromfile(folder / f"gate_up-{layer:03}.bin", np.float32)
        gate, up = wide[64:].reshape(2, 64, 128)  # behind the norm, which is ones
        down = np.fromfile(folder / f"down-{layer:03}.bin", np.float32).reshape(64, 64)
        normed = x / np.sqrt((x**2).mean() + 1e-5)
        g = normed @ gate
        x = r + (g / (1 + np.exp(-g)) * (normed @ up))[:64] @ down
    return x


def test_a_family_with_more_than_products(tiny: Tiny) -> None:
    """Norms after the FFN, and another activation."""
    config = open_model(tiny("gemma3")).config
    rows = ffn(config, batches=[1], dtypes=["int8"], rounds=1, threads=1)
    assert [row.variant for row in rows] == [*VARIANTS]


def test_an_ffn_without_a_gate_is_refused(tiny: Tiny) -> None:
    with pytest.raises(RequestProblem, match="gpt_neox have no gate"):
        ffn(open_model(tiny("neox")).config, batches=[1], dtypes=["f32"], rounds=1, threads=1)


def test_shapes_by_name_and_by_number() -> None:
    named = shape_named("smollm2")
    assert named is not None
    assert (named.hidden, set(named.ffn), named.layers) == (576, {1536}, 30)
    assert shape_named("576x1536x30") == named
    assert shape_named("576x1536") is None
