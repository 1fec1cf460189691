"""config.json written from facts: what is read from it are those facts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import GGUF_VARIANTS, UNEVEN, build_variant, write_gguf
from trisplit.compress.describing import config_json, rope_base, rope_words, stock
from trisplit.errors import RequestProblem
from trisplit.models.checkpoint import open_checkpoint
from trisplit.models.config import ModelConfig
from trisplit.models.metadata import read_config
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]


@pytest.mark.parametrize("variant", [*GGUF_VARIANTS, *UNEVEN])
def test_facts_of_a_gguf_come_back_from_the_config_written_of_it(
    variant: str, tiny: Tiny, tmp_path: Path
) -> None:
    config = config_json(open_model(write_gguf(tiny(variant), tmp_path / "m.gguf")))
    own = json.loads((tiny(variant) / "config.json").read_text())
    for key in ("architectures", "model_type", "rope_scaling", "layer_types", "block_configs", "rotary_pct"):
        if variant != "mistral-no-window" and own.get(key) is not None:
            assert config[key] == own[key]
    checkpoint = replace(open_checkpoint(tiny(variant)), metadata=config)  # type: ignore[type-var]
    ours, theirs = read_config(checkpoint), open_model(tiny(variant)).config
    for name in ModelConfig.__dataclass_fields__:
        here, there = getattr(ours, name), getattr(theirs, name)
        if name in ("inv_freq", "local_inv_freq"):
            np.testing.assert_allclose(here, there, rtol=1e-6)
        elif name != "family" or variant != "mistral-no-window":
            assert here == pytest.approx(there) if isinstance(there, float) else here == there, name


def test_a_folder_keeps_its_own(tiny: Tiny) -> None:
    for variant in ("qwen2-window", "neox-tanh", "deci"):
        own = json.loads((tiny(variant) / "config.json").read_text())
        assert config_json(open_model(tiny(variant))) == own


@pytest.mark.parametrize(
    ("variant", "family"),
    [("deci", "llama"), ("deci-biases", "qwen2"), ("llama-biases", "llama"), ("mistral", "mistral")],
)
def test_the_family_that_stock_loaders_have(variant: str, family: str, tiny: Tiny, tmp_path: Path) -> None:
    for path in (tiny(variant), write_gguf(tiny(variant), tmp_path / "m.gguf")):
        config = stock(open_model(path))
        assert config.family == family
        assert set(config.ffn) == {max(open_model(path).config.ffn)}


@pytest.mark.parametrize("base", [10_000.0, 500_000.0, 1_234_567.0])
@pytest.mark.parametrize("context", [64, 8192])
def test_scalings_are_found_again(base: float, context: int, tmp_path: Path) -> None:
    ramp = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": context}
    for scaling in ({"rope_type": "llama3", "factor": 32.0, **ramp}, {"rope_type": "linear", "factor": 2.5}):
        path = build_variant(
            "llama", tmp_path / scaling["rope_type"], rope_theta=base, rope_scaling=scaling, head_dim=64
        )
        model = open_model(path)
        assert rope_base(model) == base
        assert rope_words(model.config, base, "m") == {"rope_theta": base, "rope_scaling": scaling}


def test_a_rope_that_nothing_says_is_refused(tiny: Tiny) -> None:
    config = open_model(tiny("llama")).config
    odd = replace(config, inv_freq=tuple(f / (1 + n) for n, f in enumerate(config.inv_freq)))
    with pytest.raises(RequestProblem, match="no config"):
        rope_words(odd, 10_000.0, "m")
