"""Rotated copies: other weights, the same logits, and a folder that opens like any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests import tiny_gguf
from tests.tiny_gguf import write_gguf
from trisplit.assets import fetch
from trisplit.compress.rotate import orthogonal, rotate
from trisplit.errors import RequestProblem
from trisplit.models.decoder import Decoder
from trisplit.models.families import FAMILIES
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]
IDS = [7, 80, 33, 201, 5, 90, 14, 66, 120, 9, 3, 250, 17, 18, 19, 20, 21, 22, 23, 24]
VARIANTS = ["llama", "llama-biases", "llama-llama3-rope", "mistral", "qwen2", "qwen3", "phi3"]
VARIANTS += ["phi3-partial-rotary", "mistral-no-window"]


def logits(path: Path) -> np.ndarray:
    decoder = Decoder.load(path, "f32", context=64)
    return np.stack([decoder.forward([id_], at).copy() for at, id_ in enumerate(IDS)])


@pytest.mark.parametrize("n", [1, 2, 64])
def test_orthogonal_matrices_are_and_depend_on_their_seeds(n: int) -> None:
    q = orthogonal(n, 3, 1)
    np.testing.assert_allclose(q @ q.T, np.eye(n), atol=1e-12)
    assert np.array_equal(q, orthogonal(n, 3, 1))
    assert n == 1 or not np.allclose(q, orthogonal(n, 3, 2))


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_those_of_the_model(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    rotate(open_model(tiny(variant)), tmp_path / "copy", seed=1)
    exact, turned = logits(tiny(variant)), logits(tmp_path / "copy")
    assert np.abs(exact - turned).max() <= 1e-4
    model, copy = open_model(tiny(variant)), open_model(tmp_path / "copy")
    names, norms = FAMILIES[model.config.family].names, {"q_norm", "k_norm"}
    for role in ("out", "down", *({"qkv", "q", "k", "v", "gate_up", "gate"} & names.keys() - norms)):
        name = names[role].format(1)
        if name in model.checkpoint.tensors:
            before, after = (each.checkpoint.read(name) for each in (model, copy))
            assert np.abs(before - after).mean() > 0.5 * np.abs(before).mean()
    assert copy.tokenizer().encode("the tide") == model.tokenizer().encode("the tide")


def test_a_gguf_file_becomes_a_folder(tiny: Tiny, tmp_path: Path) -> None:
    file = write_gguf(tiny("llama"), tmp_path / "m.gguf", types={"*": "Q8_0"})
    rotate(open_model(file), tmp_path / "copy", seed=2)
    assert np.abs(logits(file) - logits(tmp_path / "copy")).max() <= 1e-4
    before, after = (open_model(path).tokenizer() for path in (file, tmp_path / "copy"))
    text = "The tide, 12 times; çà et là"
    assert before.encode(text) == after.encode(text)
    assert after.decode(after.encode(text)) == text
    assert (before.eos_ids, before.bos_id) == (after.eos_ids, after.bos_id)


@pytest.mark.parametrize("variant", ["gemma3", "neox"])
def test_norms_that_cannot_be_folded_are_refused(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(RequestProblem, match="norms"):
        rotate(open_model(tiny(variant)), tmp_path / "copy", seed=1)
    assert not (tmp_path / "copy").exists()


def test_a_folder_that_holds_something_is_left_alone(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RequestProblem, match="not empty"):
        rotate(open_model(tiny("llama")), tmp_path, seed=1)
    with pytest.raises(RequestProblem, match="cannot be written"):
        rotate(open_model(tiny("llama")), tmp_path / "notes.txt", seed=1)


def test_a_gguf_file_with_facts_we_cannot_write_is_refused(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_gguf, "_llama3_divisors", lambda *_: np.linspace(1, 3, 8, dtype=np.float32))
    file = write_gguf(tiny("llama-llama3-rope"), tmp_path / "m.gguf")
    with pytest.raises(RequestProblem, match="config"):
        rotate(open_model(file), tmp_path / "copy", seed=1)


@pytest.mark.real
@pytest.mark.slow
def test_smollm2_says_the_same(tmp_path: Path) -> None:
    rotate(open_model(fetch("smollm2")), tmp_path / "copy", seed=1)
    exact, turned = (Decoder.load(path, "f32", context=64) for path in (fetch("smollm2"), tmp_path / "copy"))
    ids = open_model(fetch("smollm2")).tokenizer().encode("The tide goes out and comes in again;")
    at = 0
    for _ in range(24):
        one, other = (decoder.forward(ids[at:], at).copy() for decoder in (exact, turned))
        assert np.abs(one - other).max() <= 1e-3
        assert one.argmax() == other.argmax()
        at, ids = len(ids), [*ids, int(one.argmax())]
