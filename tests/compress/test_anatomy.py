"""Anatomy: every family has the matrices of its file, whichever file it is; encoders by their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.compress import encoders
from tests.tiny import GGUF_VARIANTS, VARIANTS, build, write_gguf
from trisplit.compress.anatomy import ROLES, Anatomy, dissect, head_rows
from trisplit.compress.spectra import singular_values
from trisplit.errors import CheckpointProblem, RequestProblem

Tiny = Callable[[str], Path]


def spectra(anatomy: Anatomy) -> dict[tuple, np.ndarray]:
    """Of every matrix and every head."""
    found = {}
    for part in anatomy.parts:
        matrix = part.read()
        found[part.layer, part.role] = singular_values(matrix)
        for head, rows in head_rows(anatomy, part.role, matrix):
            found[part.layer, part.role, head] = singular_values(rows)
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_family_has_its_matrices(variant: str, tiny: Tiny) -> None:
    """All numbers of the file's layers, no more: fused matrices come apart."""
    anatomy = dissect(tiny(variant))
    stored = {
        name: values
        for name, values in load_file(tiny(variant) / "model.safetensors").items()
        if values.ndim == 2 and "layers." in name
    }
    parts = [part.read() for part in anatomy.parts]
    assert sum(part.size for part in parts) == sum(values.size for values in stored.values())
    total = sum(float((values.astype(np.float64) ** 2).sum()) for values in stored.values())
    assert sum(float((p.astype(np.float64) ** 2).sum()) for p in parts) == pytest.approx(total)
    gated = "neox" not in variant
    assert [part.role for part in anatomy.of(1)] == [role for role in ROLES if gated or role != "gate"]


@pytest.mark.parametrize("variant", GGUF_VARIANTS)
def test_both_formats_have_the_same_spectra(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    """Also head by head: GGUF has rows of heads in another order, and fused matrices by another rule."""
    ours, theirs = (
        spectra(dissect(path)) for path in (tiny(variant), write_gguf(tiny(variant), tmp_path / "m.gguf"))
    )
    assert ours.keys() == theirs.keys()
    for place, values in ours.items():
        assert theirs[place] == pytest.approx(values, rel=1e-4, abs=1e-6), place


def test_the_heads_are_those_of_the_file(tiny: Tiny) -> None:
    """GQA: four heads of queries, two of keys and values, 16 wide; of out the columns."""
    stored = load_file(tiny("llama") / "model.safetensors")
    anatomy = dissect(tiny("llama"))
    for part in anatomy.of(2):
        heads = dict(head_rows(anatomy, part.role, part.read()))
        assert len(heads) == {"q": 4, "k": 2, "v": 2, "out": 4}.get(part.role, 0)
        if part.role == "out":
            assert np.array_equal(heads[3], stored["model.layers.2.self_attn.o_proj.weight"][:, 48:])
        if part.role == "v":
            assert np.array_equal(heads[1], stored["model.layers.2.self_attn.v_proj.weight"][16:])


def test_half_precision_is_safe(tmp_path: Path) -> None:
    anatomies = [dissect(build("llama", tmp_path / t, layers=2, dtype=t)) for t in ("F32", "F16", "BF16")]
    exact, *halves = map(spectra, anatomies)
    for half in halves:
        for place, values in exact.items():
            assert half[place] == pytest.approx(values, rel=2e-2, abs=1e-2)


# --- encoders -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "vit", "onnx"])
def test_encoders(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("m.onnx" if kind == "onnx" else "m")
    {"bert": encoders.bert, "vit": encoders.vit, "onnx": encoders.onnx_encoder}[kind](path)
    anatomy = dissect(path, heads=encoders.HEADS if kind == "onnx" else None)
    assert (anatomy.kind, anatomy.layers, anatomy.heads, anatomy.model) == (kind, 2, encoders.HEADS, None)
    for layer in range(2):
        parts = anatomy.of(layer)
        assert [part.role for part in parts] == ["q", "k", "v", "out", "up", "down"]
        assert np.array_equal(parts[-1].read(), encoders.matrix(layer, "down", encoders.HIDDEN, encoders.FFN))
        if kind == "vit":
            fused = encoders.matrix(layer, "qkv", 3 * encoders.HIDDEN, encoders.HIDDEN)
            assert np.array_equal(np.concatenate([part.read() for part in parts[:3]]), fused)
        else:
            assert np.array_equal(
                parts[1].read(), encoders.matrix(layer, "k", encoders.HIDDEN, encoders.HIDDEN)
            )


def test_heads_that_nobody_names_are_left_out_and_wrong_ones_refused(tmp_path: Path) -> None:
    path = encoders.onnx_encoder(tmp_path / "m.onnx")
    silent = dissect(path)
    assert list(head_rows(silent, "q", silent.parts[0].read())) == []
    wrong = dissect(path, heads=5)
    with pytest.raises(RequestProblem, match="5 heads do not divide"):
        list(head_rows(wrong, "q", wrong.parts[0].read()))


# --- refused --------------------------------------------------------------------------------------


def test_values_that_are_no_numbers_are_refused_by_name(tmp_path: Path) -> None:
    folder = build("llama", tmp_path / "m", layers=2)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5:7] = np.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointProblem, match=r"layers\.1\.mlp\.up_proj\.weight has 2 values"):
        spectra(dissect(folder))


def test_what_has_no_layers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "odd"}')
    save_file({"w": np.ones((2, 2), np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "bad.onnx").write_bytes(b"no graph at all")
    for path in (tmp_path, tmp_path / "bad.onnx"):
        with pytest.raises(CheckpointProblem):
            dissect(path)


def test_two_stacks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "clip", "num_attention_heads": 2}')
    tensors = {f"{m}.layers.0.mlp.fc1.weight": np.ones((4, 2), np.float32) for m in ("text", "vision")}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointProblem, match="more than one stack"):
        dissect(tmp_path)
