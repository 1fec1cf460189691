"""The atlas: planted cliffs are found, layers have their zones, neurons their shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.tiny import build
from trisplit.compress.anatomy import dissect
from trisplit.compress.atlas import Atlas, survey
from trisplit.compress.given import Given
from trisplit.compress.neurons import neurons
from trisplit.errors import RequestProblem

Tiny = Callable[[str], Path]


def with_cliff(folder: Path, layer: int, *, layers: int = 10) -> Path:
    """A model whose FFN in one layer has σ1 ten times σ2, and layer 5 a value matrix of zeros."""
    build("llama", folder, layers=layers)
    tensors = load_file(folder / "model.safetensors")
    for name in ("gate_proj", "up_proj", "down_proj"):
        weight = tensors[f"model.layers.{layer}.mlp.{name}.weight"]
        left, values, right = np.linalg.svd(weight.astype(np.float64), full_matrices=False)
        values[0] = 10 * values[1]
        weight[:] = (left * values) @ right
    tensors["model.layers.5.self_attn.v_proj.weight"][:] = 0
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    return survey(dissect(with_cliff(tmp_path_factory.mktemp("m") / "m", 6)))


def test_a_planted_cliff_is_found(planted: Atlas) -> None:
    assert [layer.layer for layer in planted.layers if planted.passes(layer.cliff)] == [6]
    assert planted.layers[6].cliff == pytest.approx(10, rel=1e-4)
    assert planted.passing(heads=False) == (3, 70)
    assert planted.passing(heads=True)[1] == 10 * (4 + 2 + 2 + 4)
    cliffs = {row.matrix: row.plain.cliff for row in planted.of(6)}
    assert planted.layers[6].cliff == min(cliffs[role] for role in ("gate", "up", "down"))


def test_zeros_pass_nothing(planted: Atlas) -> None:
    (zeros,) = [row for row in planted.of(5) if row.matrix == "v"]
    assert math.isnan(zeros.plain.cliff)
    assert not planted.passes(zeros.plain.cliff)


def test_zones_are_depth_and_the_lowest_cliffs(planted: Atlas) -> None:
    zones = [layer.zone for layer in planted.layers]
    assert (zones[:2], zones[-2:]) == (["fragile"] * 2, ["refinement"] * 2)
    lowest = min(range(10), key=lambda layer: planted.layers[layer].cliff)
    middle = {layer: zone for layer, zone in enumerate(zones) if 2 <= layer <= 7}
    assert set(middle.values()) <= {"valley", "fragile"}
    assert [layer for layer, zone in middle.items() if zone == "fragile"] in ([], [lowest])


def test_a_percentile_is_a_threshold(tmp_path: Path) -> None:
    anatomy = dissect(build("llama", tmp_path / "m", layers=2))
    half = survey(anatomy, cliff="p50")
    k, n = half.passing(heads=False)
    assert n / 2 - 1 <= k <= n / 2 + 1
    assert survey(anatomy, cliff="p100").passing(heads=False)[0] == 1
    assert survey(anatomy, cliff="p0").passing(heads=False) == (n, n)
    assert survey(anatomy, cliff="1.0").threshold == 1.0


@pytest.mark.parametrize("cliff", ["", "high", "p", "p101", "-8", "0", "nan"])
def test_what_is_no_cliff_is_refused(cliff: str, tiny: Tiny) -> None:
    with pytest.raises(RequestProblem, match="is no cliff"):
        survey(dissect(tiny("llama")), cliff=cliff)


# --- calibrated -----------------------------------------------------------------------------------


def given_for(rank: int) -> Callable[[int], Mapping[str, Given]]:
    """Inputs that fill `rank` dimensions of each matrix."""

    def given(layer: int) -> dict[str, Given]:
        random, seen = np.random.default_rng(layer), {}
        for name, width in (("qkv", 64), ("out", 64), ("gate_up", 64), ("down", 96)):
            rows = random.standard_normal((300, rank)) @ random.standard_normal((rank, width))
            seen[name] = Given(rows.T @ rows / len(rows), rows.mean(axis=0))
        return seen

    return given


def test_whitened_rows_know_what_the_text_fills(tiny: Tiny) -> None:
    atlas = survey(dissect(tiny("llama")), given_for(8))
    for row in atlas.rows:
        assert row.white is not None
        assert row.white.effective_rank < 8.001
        if row.head is None:
            assert row.plain.effective_rank > 20
            assert max(row.white.tail[1:]) < 1e-12
    assert all(layer.neurons and len(layer.neurons.shares) == 96 for layer in atlas.layers)


def test_a_head_of_out_sees_its_part_of_the_input(tiny: Tiny) -> None:
    """Only the second head's outputs vary, so only its columns matter."""

    def given(_: int) -> dict[str, Given]:
        gram = np.zeros((64, 64))
        gram[16:32, 16:32] = np.eye(16)
        return {"out": Given(gram, np.zeros(64))}

    rows = [row for row in survey(dissect(tiny("llama")), given).of(0, heads=True) if row.matrix == "out"]
    assert [bool(row.white and row.white.stable_rank) for row in rows] == [False, True, False, False]
    assert rows[1].white == rows[1].plain


def test_shares_of_neurons_by_hand() -> None:
    down = np.array([[1.0, 2.0, 0.0, 1.0]], np.float32)
    mean = np.array([0.0, 1.0, 9.0, 3.0])
    second = np.array([6.0, 2.0, 90.0, 9.0])  # variances 6, 1, 9, 0
    shares = neurons(down, np.diag(second), mean)
    assert shares.shares == pytest.approx([0.6, 0.4, 0, 0])
    assert [shares.carrying(share) for share in (0.5, 0.6, 0.61, 0.99, 1.0)] == [1, 1, 2, 2, 2]
    dead = neurons(down, np.zeros((4, 4)), np.zeros(4))
    assert dead.carrying(0.9) == 0
