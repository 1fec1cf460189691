"""A model as a person names it: what it needs, and refusals before anything is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trisplit.errors import RequestProblem
from trisplit.models import model as models
from trisplit.models.config import EMBED, HEAD
from trisplit.models.decoder import Decoder
from trisplit.models.model import DEFAULT_CONTEXT, context_for, open_model

Tiny = Callable[[str], Path]


def test_stages_are_embed_every_third_and_head(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    assert model.stages[0] == EMBED
    assert model.stages[-1] == HEAD
    first = ["attention 0", "gate_up 0", "down 0", "attention 1"]
    assert [str(stage) for stage in model.stages[1:5]] == first
    assert len(model.stages) == 3 * model.config.layers + 2
    assert [(stage.layer, stage.kind) for stage in model.stages[1:-1]] == list(model.thirds)


def test_the_context_is_the_model_s_own_up_to_a_default(tiny: Tiny) -> None:
    config = open_model(tiny("llama")).config
    assert context_for(config, None) == min(config.context, DEFAULT_CONTEXT) == 512
    assert context_for(config, 100) == 100
    with pytest.raises(RequestProblem, match="513 tokens was asked, the model was made for 1 to 512"):
        context_for(config, 513)


def test_memory_that_is_not_there_is_refused_before_anything_is_read(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path))
    monkeypatch.setattr(models, "available_bytes", lambda: 300_000)
    with pytest.raises(RequestProblem) as caught:
        Decoder.load(tiny("llama"), "f32")
    model = open_model(tiny("llama"))
    kv = 2 * 4 * 2 * 16 * 512 * 4
    assert model.kv_bytes(model.stages, 512) == kv == 524_288
    assert "524.3 kB for 512 tokens of keys and values" in caught.value.what
    assert "300.0 kB of memory are free" in caught.value.what
    assert list(tmp_path.iterdir()) == []


def test_memory_that_nobody_can_tell_is_not_refused(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "available_bytes", lambda: None)
    assert Decoder.load(tiny("llama"), "f32").context == 512
