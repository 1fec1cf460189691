"""What matrices are given: the very rows they multiply, beside what the stages leave as ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trisplit.models.config import Stage, layer_stages
from trisplit.models.model import Model, open_model
from trisplit.models.session import Floats, StageSession, Tracks
from trisplit.models.stages import given
from trisplit.models.watching import Watched

Tiny = Callable[[str], Path]
LAYER = 1
ROWS = 40  # past the windows of 16


def residuals(model: Model) -> Floats:
    return np.random.default_rng(0).standard_normal((ROWS, model.config.hidden), dtype=np.float32)


def shown(model: Model, x: Floats) -> tuple[Floats, dict[str, Floats]]:
    files = list(model.files(layer_stages(range(LAYER, LAYER + 1)), "f32"))
    return Watched(model.config, files, longest=64, threads=1).run({"x": x})


@pytest.mark.parametrize("variant", ["llama", "mistral", "qwen2", "qwen3", "phi3", "gemma3", "neox"])
def test_stages_leave_what_they_always_leave_and_show_every_matrix(variant: str, tiny: Tiny) -> None:
    model = open_model(tiny(variant))
    stages, x = layer_stages(range(LAYER, LAYER + 1)), residuals(model)
    left, seen = shown(model, x)
    session = StageSession(model.config, list(model.files(stages, "f32")), context=64, threads=1)
    np.testing.assert_allclose(left, Tracks(session).run({"x": x}, 0), atol=1e-5)
    assert {name: rows.shape for name, rows in seen.items()} == {
        name: (ROWS, width) for name, width in given(model.config, stages).items()
    }
    assert [name.rpartition(".")[2] for name in seen] == ["qkv", "out", "gate_up", "down"]


def test_what_is_shown_is_what_is_multiplied(tiny: Tiny) -> None:
    """Worked out again by hand, from the file's own tensors."""
    model = open_model(tiny("llama"))
    x = residuals(model)
    left, seen = shown(model, x)

    def weights(role: str) -> Floats:
        return model.checkpoint.read(f"model.layers.{LAYER}.{role}.weight")

    normed = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + model.config.norm_eps)
    np.testing.assert_allclose(seen["attention-001.qkv"], normed * weights("input_layernorm"), atol=1e-5)
    r = x + seen["attention-001.out"] @ weights("self_attn.o_proj").T
    normed = r / np.sqrt(np.square(r).mean(-1, keepdims=True) + model.config.norm_eps)
    wide = normed * weights("post_attention_layernorm")
    np.testing.assert_allclose(seen["gate_up-001.gate_up"], wide, atol=1e-4)
    np.testing.assert_allclose(left, r + seen["down-001.down"] @ weights("mlp.down_proj").T, atol=1e-4)


def test_ends_show_nothing(tiny: Tiny) -> None:
    config = open_model(tiny("llama")).config
    assert given(config, [Stage(-1, "embed"), Stage(-1, "head")]) == {}
