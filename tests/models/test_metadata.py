"""Facts of a model: the same from config.json and from GGUF, and clear refusals of what we do not run."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny import GGUF_VARIANTS, VARIANTS, build_variant
from tests.tiny_gguf import write_gguf
from trisplit.errors import CheckpointProblem
from trisplit.models.checkpoint import open_checkpoint
from trisplit.models.config import ModelConfig
from trisplit.models.families import FAMILIES
from trisplit.models.metadata import read_config

Tiny = Callable[[str], Path]


def facts(path: Path) -> ModelConfig:
    return read_config(open_checkpoint(path))


def changed(folder: Path, variant: str = "llama", **changes: Any) -> Path:
    """A tiny model whose config.json says something else; None removes a key."""
    path = build_variant(variant, folder / "model")
    config = json.loads((path / "config.json").read_text())
    config |= changes
    (path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return path


def test_every_family_is_tried_by_a_tiny_model() -> None:
    assert {variant["family"] for variant in VARIANTS.values()} == set(FAMILIES)


@pytest.mark.parametrize("variant", GGUF_VARIANTS)
def test_gguf_says_the_same_as_config_json(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    path = tiny(variant)
    ours, theirs = facts(path), facts(write_gguf(path, tmp_path / "model.gguf"))
    if ours.family == "mistral":  # llama.cpp has no word for mistral: it is llama, with a window at most
        assert theirs.family == "llama"
    else:
        assert theirs.family == ours.family
    for name in ModelConfig.__dataclass_fields__:
        here, there = getattr(ours, name), getattr(theirs, name)
        if name in ("inv_freq", "local_inv_freq", "norm_eps", "attn_scale", "embed_scale"):
            np.testing.assert_allclose(there, here, rtol=1e-6, err_msg=name)
        elif name != "family":
            assert there == here, name


def test_llama3_scaling_keeps_short_waves_and_slows_long_ones(tiny: Tiny) -> None:
    plain, scaled = facts(tiny("llama")), facts(tiny("llama-llama3-rope"))
    base = 500_000.0 ** -(np.arange(0, 16, 2) / 16)
    assert len(plain.inv_freq) == len(scaled.inv_freq) == 8
    ratios = base / np.array(scaled.inv_freq)
    wavelengths = 2 * math.pi / base
    np.testing.assert_allclose(ratios[wavelengths < 64 / 4], 1, rtol=1e-5)
    np.testing.assert_allclose(ratios[wavelengths > 64 / 1], 8, rtol=1e-5)


def test_linear_scaling_divides(tiny: Tiny) -> None:
    plain, scaled = facts(tiny("llama")), facts(tiny("llama-linear-rope"))
    np.testing.assert_allclose(np.array(plain.inv_freq) / np.array(scaled.inv_freq), 4, rtol=1e-6)


def test_windows_of_each_family(tiny: Tiny) -> None:
    assert facts(tiny("mistral")).windows == (16,) * 4
    assert facts(tiny("mistral-no-window")).windows == (0,) * 4
    assert facts(tiny("qwen2")).windows == (0,) * 4  # a window without use_sliding_window
    assert facts(tiny("gemma3")).windows == (16, 16, 16, 16, 16, 0)


def test_gemma_has_two_rotary_bases(tiny: Tiny) -> None:
    config = facts(tiny("gemma3"))
    np.testing.assert_allclose(config.frequencies(0)[1], 10_000.0 ** (-2 / config.head_dim), rtol=1e-6)
    np.testing.assert_allclose(config.frequencies(5)[1], 1e6 ** (-2 / config.head_dim), rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "mamba"}, "model type 'mamba' is not supported"),
        ({"model_type": None, "architectures": None}, "names neither model_type nor architectures"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope scaling 'yarn' is not supported"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "rope scaling 'dynamic' is not supported"),
        ({"hidden_act": "relu"}, "activation 'relu' is not supported"),
        ({"head_dim": 24}, "head dimension 24 is not a multiple of 16"),
        ({"num_key_value_heads": 3}, "4 attention heads cannot share 3 key/value heads"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": 10**6}, "says 1000000 layers"),
        ({"num_attention_heads": None}, "num_attention_heads is missing"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide', not a number"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"final_logit_softcapping": 30.0}, "soft-capping is not supported"),
    ],
)
def test_what_we_do_not_run_is_refused_by_name(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointProblem, match=said) as caught:
        facts(changed(tmp_path, **changes))
    assert caught.value.fix


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**63, 10**30, 1e308, 1e-308, 0.5, float("inf"), float("nan")]),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(
        st.sampled_from(["rope_type", "factor", "rope_theta", "full_attention", "sliding_attention"]),
        st.one_of(st.integers(-2, 2), st.sampled_from(["llama3", "linear", "default"]), st.floats()),
        max_size=3,
    ),
)


@settings(max_examples=300, deadline=None)
@given(variant=st.sampled_from(sorted(VARIANTS)), data=st.data())
def test_junk_in_a_config_is_a_clear_error_or_harmless(variant: str, data: st.DataObject) -> None:
    path = tiny_configs(variant)
    known = dict(open_checkpoint(path).metadata)
    names = sorted({*known, "rope_parameters", "rope_scaling", "head_dim", "layer_types", "sliding_window"})
    changes = data.draw(st.dictionaries(st.sampled_from(names), JUNK, min_size=1, max_size=3))
    try:
        config = read_config(replace(open_checkpoint(path), metadata=known | changes))  # type: ignore[type-var]
    except CheckpointProblem:
        return
    assert len(config.windows) == len(config.ffn) == config.layers
    assert all(math.isfinite(f) for f in (*config.inv_freq, *config.local_inv_freq))


@cache
def tiny_configs(variant: str) -> Path:
    """A tiny model that outlives single examples."""
    return build_variant(variant, Path(tempfile.mkdtemp()) / "model")


def test_long_rope_is_refused_by_name(tmp_path: Path) -> None:
    scaling = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    with pytest.raises(CheckpointProblem, match="'longrope'"):
        facts(changed(tmp_path, "phi3", rope_scaling=scaling))
