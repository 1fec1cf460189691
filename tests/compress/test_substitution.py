"""A changed layer on the dense stream: nothing changed is nothing off, and else it is off as the model is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from trisplit.compress.reading import Body
from trisplit.compress.substitution import places
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]
PASSAGES = [[1, *range(3 + n, 40 + n)] for n in range(2)]
FUSED = ("qkv", "out", "gate_up", "down")
APART = ("q", "k", "v", "out", "gate", "up", "down")


@pytest.mark.parametrize(
    ("variant", "roles"),
    [("llama-biases", APART), ("phi3", FUSED), ("gemma3", APART), ("neox", ("qkv", "out", "up", "down"))],
)
def test_the_same_rows_are_no_change_and_others_are(variant: str, roles: tuple[str, ...], tiny: Tiny) -> None:
    model = open_model(tiny(variant))
    for place in list(places(model, PASSAGES, threads=1))[:2]:
        for role in roles:
            rows = place.rows(role)
            assert place.error({role: rows}) == 0
            assert place.error({role: 1.01 * rows}) > 0


def test_the_error_is_that_of_the_changed_model(tiny: Tiny, tmp_path: Path) -> None:
    """In the last layer, whose residuals are what the body of a model leaves."""
    model = open_model(tiny("llama"))
    place = list(places(model, PASSAGES, threads=1))[-1]
    name = f"model.layers.{place.layer}.mlp.up_proj.weight"
    tensors = load_file(tiny("llama") / "model.safetensors")
    assert np.array_equal(place.rows("up"), tensors[name])
    tensors[name] = tensors[name] * 0.5
    for file in tiny("llama").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    bodies = [Body(m, "f32", context=40, threads=1) for m in (model, open_model(tmp_path))]
    off = [bodies[1].read(ids[:-1]) - bodies[0].read(ids[:-1]) for ids in PASSAGES]
    wanted = float(np.square(np.concatenate(off).astype(float)).sum(axis=1).mean())
    assert place.error({"up": place.rows("up") * 0.5}) == pytest.approx(wanted, rel=1e-4)
