"""Facts of a model: the same from config.json and from GGUF, and clear refusals of what we do not run."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from tests import tiny_gguf
from tests.tiny import GGUF_VARIANTS, UNEVEN, VARIANTS, build_variant
from tests.tiny_gguf import write_gguf
from trisplit.errors import CheckpointProblem
from trisplit.models.checkpoint import Checkpoint, open_checkpoint
from trisplit.models.config import ModelConfig
from trisplit.models.decoder import Decoder
from trisplit.models.families import FAMILIES, GGUF_FAMILIES
from trisplit.models.metadata import read_config
from trisplit.models.model import Model
from trisplit.models.promises import broken

Tiny = Callable[[str], Path]


def facts(path: Path) -> ModelConfig:
    return read_config(open_checkpoint(path))


def changed(folder: Path, variant: str = "llama", **changes: Any) -> Path:
    """A tiny model whose config.json says something else than its weights; `...` removes a key."""
    path = build_variant(variant, folder / "model")
    config = json.loads((path / "config.json").read_text())
    config |= changes
    (path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))
    return path


def with_tensor(path: Path, name: str, like: str) -> Path:
    """The model with one tensor more, of the shape of another."""
    tensors = load_file(path / "model.safetensors")
    save_file({**tensors, name: tensors[like]}, path / "model.safetensors")
    return path


def test_every_family_is_tried_by_a_tiny_model() -> None:
    assert {variant["family"] for variant in (VARIANTS | UNEVEN).values()} == set(FAMILIES)


@pytest.mark.parametrize("variant", [*GGUF_VARIANTS, *UNEVEN])
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


@pytest.mark.parametrize(
    ("variant", "changes", "windows"),
    [
        ("llama", {"sliding_window": 16}, (0,) * 4),  # a key of other families
        ("mistral", {}, (16,) * 4),
        ("mistral", {"sliding_window": ...}, (4096,) * 4),
        ("mistral", {"sliding_window": None}, (0,) * 4),
        ("mistral", {"layer_types": ["full_attention"] * 4}, (16,) * 4),
        ("phi3", {}, (16,) * 4),
        ("phi3", {"sliding_window": ...}, (0,) * 4),
        ("qwen2", {}, (0,) * 4),  # a window without use_sliding_window
        ("qwen2-window", {}, (0, 0, 16, 16)),
        ("qwen2-window", {"sliding_window": ...}, (0, 0, 4096, 4096)),
        ("qwen2-window", {"max_window_layers": ...}, (0,) * 4),  # the first 28 are full
        ("qwen2-window", {"sliding_window": None}, (0,) * 4),
        ("qwen2-window", {"layer_types": ["sliding_attention", *["full_attention"] * 3]}, (16, 0, 0, 0)),
        ("gemma3", {}, (16, 16, 16, 16, 16, 0)),
        ("gemma3", {"layer_types": ..., "sliding_window_pattern": 2}, (16, 0) * 3),
        ("gemma3", {"sliding_window": ...}, (4096,) * 5 + (0,)),
    ],
)
def test_windows_are_those_transformers_takes(
    variant: str, changes: dict[str, Any], windows: tuple[int, ...], tmp_path: Path
) -> None:
    assert facts(changed(tmp_path, variant, **changes)).windows == windows


def test_gguf_without_a_window_is_full_attention(tmp_path: Path) -> None:
    path = build_variant("gemma3", tmp_path / "model", sliding_window=None)
    config = facts(write_gguf(path, tmp_path / "model.gguf"))
    assert config.windows == (0,) * 6
    assert config.frequencies(0) is config.inv_freq


def test_what_a_config_leaves_out_is_what_transformers_takes(tmp_path: Path) -> None:
    gemma = facts(changed(tmp_path / "gemma", "gemma3", head_dim=..., query_pre_attn_scalar=...))
    assert (gemma.head_dim, gemma.attn_scale, gemma.tied_head) == (256, 1 / 16, True)
    assert facts(changed(tmp_path / "gemma2", "gemma3-defaults")).activation == "gelu_tanh"
    assert facts(changed(tmp_path / "qwen", "qwen3", head_dim=...)).head_dim == 128
    assert facts(changed(tmp_path / "phi", "phi3", rms_norm_eps=...)).norm_eps == 1e-5
    llama = facts(changed(tmp_path / "llama", rms_norm_eps=..., tie_word_embeddings=..., rope_theta=...))
    assert (llama.norm_eps, llama.tied_head, llama.activation) == (1e-6, False, "silu")
    np.testing.assert_allclose(llama.inv_freq[1], 10_000.0 ** (-2 / 16), rtol=1e-6)


def test_neox_has_words_of_its_own(tmp_path: Path) -> None:
    neox = facts(build_variant("neox", tmp_path / "neox"))
    assert (neox.parallel, neox.activation, len(neox.inv_freq), neox.kv_heads) == (True, "gelu", 8, 2)
    assert facts(build_variant("neox-defaults", tmp_path / "defaults")) == neox
    sequential = facts(build_variant("neox-sequential", tmp_path / "sequential"))
    assert (sequential.parallel, np.count_nonzero(sequential.inv_freq)) == (False, 12)
    assert sequential.inv_freq[12:] == (0.0,) * 4
    assert facts(build_variant("neox-tanh", tmp_path / "tanh")).activation == "gelu_tanh"
    foreign = {"rms_norm_eps": 0.5, "rope_theta": 5.0, "partial_rotary_factor": 1.0, "num_key_value_heads": 2}
    assert facts(changed(tmp_path / "foreign", "neox", **foreign)) == neox
    said = {"layer_norm_eps": 0.5, "rotary_emb_base": 100.0, "rotary_pct": 1.0}
    changed_facts = facts(changed(tmp_path / "said", "neox", **said))
    assert (changed_facts.norm_eps, len(changed_facts.inv_freq)) == (0.5, 32)
    np.testing.assert_allclose(changed_facts.inv_freq[16], 0.1, rtol=1e-6)


def test_gguf_blocks_are_parallel_unless_it_says_otherwise(tiny: Tiny, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_gguf(tiny("neox-sequential"), tmp_path / "model.gguf"))
    assert not read_config(checkpoint).parallel
    left_out = {k: v for k, v in checkpoint.metadata.items() if k != "gptneox.use_parallel_residual"}
    assert read_config(replace(checkpoint, metadata=left_out)).parallel  # type: ignore[type-var]


def test_keys_of_other_families_change_nothing(tmp_path: Path) -> None:
    plain = facts(changed(tmp_path / "plain"))
    foreign = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 20, "max_window_layers": 1}
    foreign |= {"use_parallel_residual": True, "layer_norm_eps": 0.5, "rotary_pct": 0.5}
    assert facts(changed(tmp_path / "foreign", use_sliding_window=True, **foreign)) == plain


# --- biases, and the head -------------------------------------------------------------------------


def biases(config: ModelConfig) -> tuple[bool, bool, bool]:
    return config.qkv_bias, config.out_bias, config.mlp_bias


@pytest.mark.parametrize(
    ("variant", "promise", "expected"),
    [
        ("llama", {}, (False, False, False)),
        ("llama", {"attention_bias": True}, (True, True, False)),
        ("llama", {"mlp_bias": True}, (False, False, True)),
        ("llama-biases", {}, (True, True, True)),
        ("llama-biases", {"attention_bias": False, "mlp_bias": ...}, (True, True, True)),
        ("qwen2", {}, (True, False, False)),
        ("qwen2", {"attention_bias": True}, (True, False, False)),  # in q, k and v alone
        ("qwen3-biases", {}, (True, True, False)),
        ("gemma3-biases", {}, (True, True, False)),
        ("neox", {}, (True, True, True)),
        ("neox", {"attention_bias": False}, (True, True, True)),  # the file has them
        ("neox-tanh", {}, (False, False, True)),
        ("neox-tanh", {"attention_bias": ...}, (True, True, True)),
    ],
)
def test_biases_are_those_the_config_promises_or_the_file_has(
    variant: str, promise: dict[str, Any], expected: tuple[bool, bool, bool], tmp_path: Path
) -> None:
    assert biases(facts(changed(tmp_path, variant, **promise))) == expected


@pytest.mark.parametrize(
    ("variant", "name", "like", "expected"),
    [
        ("mistral", "layers.3.self_attn.v_proj.bias", "layers.0.input_layernorm", (True, False, False)),
        ("qwen2", "layers.1.self_attn.o_proj.bias", "layers.0.input_layernorm", (True, True, False)),
        ("phi3", "layers.0.self_attn.qkv_proj.bias", "layers.0.input_layernorm", (True, False, False)),
        ("phi3", "layers.2.mlp.gate_up_proj.bias", "layers.0.input_layernorm", (False, False, True)),
        ("qwen3", "layers.2.mlp.down_proj.bias", "layers.0.input_layernorm", (False, False, True)),
    ],
)
def test_a_bias_in_one_layer_is_not_overlooked(
    variant: str, name: str, like: str, expected: tuple[bool, bool, bool], tmp_path: Path
) -> None:
    path = build_variant(variant, tmp_path / "model")
    assert biases(facts(with_tensor(path, f"model.{name}", f"model.{like}.weight"))) == expected


def test_a_head_in_the_file_is_the_model_s_own_whatever_the_config_says(tmp_path: Path) -> None:
    """So does transformers since version 5."""
    path = build_variant("gemma3", tmp_path / "model")
    assert facts(path).tied_head
    assert not facts(with_tensor(path, "lm_head.weight", "model.embed_tokens.weight")).tied_head


# --- rope -----------------------------------------------------------------------------------------


def test_gemma_has_two_rotary_bases(tiny: Tiny) -> None:
    config = facts(tiny("gemma3"))
    np.testing.assert_allclose(config.frequencies(0)[1], 10_000.0 ** (-2 / config.head_dim), rtol=1e-6)
    np.testing.assert_allclose(config.frequencies(5)[1], 1e6 ** (-2 / config.head_dim), rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "mamba"}, "model type 'mamba' is not supported"),
        ({"model_type": ..., "architectures": ...}, "names neither model_type nor architectures"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope scaling 'yarn' is not supported"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "rope scaling 'dynamic' is not supported"),
        ({"hidden_act": "relu"}, "activation 'relu' is not supported"),
        ({"head_dim": 24}, "head dimension 24 is not a multiple of 16"),
        ({"num_key_value_heads": 3}, "4 attention heads cannot share 3 key/value heads"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000"),
        ({"num_attention_heads": ...}, "num_attention_heads is missing"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide', not a number"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"rms_norm_eps": -1e-6}, "rms_norm_eps is -1e-06"),
        ({"intermediate_size": 10**400}, "intermediate_size is 10000"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no', neither true nor false"),
        ({"rope_scaling": "linear"}, "rope_scaling is 'linear', not an object"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor is missing"),
        ({"rope_theta": 1e-320}, "rope_theta is 9.99989e-321"),
        ({"partial_rotary_factor": 0.5}, "llama with a partial_rotary_factor of 0.5 is not supported"),
        ({"rope_parameters": {"full_attention": {}}}, "rope_parameters is not as llama has it"),
        ({"use_bidirectional_attention": True}, "attention in both directions is not supported"),
        ({"final_logit_softcapping": 30.0}, "soft-capping is not supported"),
    ],
)
def test_what_we_do_not_run_is_refused_by_name(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointProblem, match=said) as caught:
        facts(changed(tmp_path, **changes))
    assert caught.value.fix


@pytest.mark.parametrize(
    ("variant", "changes", "said"),
    [
        ("mistral", {"sliding_window": 1e300}, "sliding_window is 1"),
        ("mistral", {"sliding_window": 0}, "sliding_window is 0"),
        ("gemma3", {"sliding_window": None}, "sliding layers and no sliding_window"),
        ("gemma3", {"layer_types": ..., "sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
        ("gemma3", {"layer_types": ["full_attention"]}, "layer_types does not call each of 6 layers"),
        ("gemma3", {"layer_types": ["chunked_attention"] * 6}, "layer_types does not call each of 6 layers"),
        ("gemma3", {"layer_types": [["full_attention"]] * 6}, "layer_types does not call each of 6 layers"),
        ("gemma3", {"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters is not as gemma3_text has it"),
        ("qwen2", {"layer_types": ["sliding_attention"] * 4}, "sliding layers and no sliding_window"),
        ("neox", {"rotary_pct": 0.05}, "3 rotated dimensions are no pairs"),
        ("neox", {"rotary_pct": 2}, "partial_rotary_factor is 2"),
        ("neox", {"use_parallel_residual": "yes"}, "use_parallel_residual is 'yes', neither true nor false"),
        ("phi3", {"partial_rotary_factor": 0.01}, "0 rotated dimensions are no pairs"),
        ("phi3", {"head_dim": 40, "partial_rotary_factor": 0.4}, "head dimension 40 is not a multiple of 16"),
    ],
)
def test_what_a_family_does_not_run_is_refused_by_name(
    variant: str, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointProblem, match=said):
        facts(changed(tmp_path, variant, **changes))


@pytest.mark.parametrize(
    ("variant", "changes", "said"),
    [
        ("llama", {"feed_forward_length": ["a"] * 4}, r"feed_forward_length is 'a', not a number"),
        ("llama", {"feed_forward_length": [96, 96]}, r"feed_forward_length has 2 numbers for 4 layers"),
        ("llama", {"feed_forward_length": [96, 96, 96, -1]}, r"feed_forward_length is -1"),
        ("llama", {"rope.dimension_count": 24}, "24 rotated dimensions in heads of 16"),
        ("llama", {"rope.dimension_count": 15}, "15 rotated dimensions are no pairs"),
        ("llama", {"rope.dimension_count": 32}, "32 rotated dimensions in heads of 16"),
        ("llama", {"attention.layer_norm_rms_epsilon": -1.0}, "rms_epsilon is -1"),
        ("llama", {"rope.scaling.type": "yarn"}, "rope scaling 'yarn' is not supported"),
        ("mistral", {"attention.sliding_window": -1}, "sliding_window is -1"),
        ("mistral", {"attention.sliding_window": 2**40}, "sliding_window is 1099511627776"),
        ("gemma3", {"attention.sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
        ("gemma3", {"final_logit_softcapping": 30.0}, "soft-capping is not supported"),
    ],
)
def test_what_we_do_not_run_of_gguf_is_refused_by_name(
    variant: str, changes: dict[str, Any], said: str, tiny: Tiny, tmp_path: Path
) -> None:
    checkpoint = open_checkpoint(write_gguf(tiny(variant), tmp_path / "model.gguf"))
    arch = checkpoint.metadata["general.architecture"]
    metadata = {**checkpoint.metadata, **{f"{arch}.{key}": value for key, value in changes.items()}}
    with pytest.raises(CheckpointProblem, match=said):
        read_config(replace(checkpoint, metadata=metadata))  # type: ignore[type-var]


@pytest.mark.parametrize("divisors", [np.zeros(8), np.ones(3), np.full(8, np.nan), np.full(8, 1e-45)])
def test_rope_divisors_that_cannot_be_are_refused(
    divisors: np.ndarray, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_gguf, "_llama3_divisors", lambda *_: divisors.astype(np.float32))
    path = write_gguf(tiny("llama-llama3-rope"), tmp_path / "model.gguf")
    with pytest.raises(CheckpointProblem, match=r"rope_freqs\.weight of .* does not divide 8"):
        facts(path)


def test_a_factor_in_gguf_scales_without_a_type(tiny: Tiny, tmp_path: Path) -> None:
    """As in llama.cpp, where linear is the type unless another is named."""
    checkpoint = open_checkpoint(write_gguf(tiny("llama-linear-rope"), tmp_path / "model.gguf"))
    metadata = {k: v for k, v in checkpoint.metadata.items() if k != "llama.rope.scaling.type"}
    untyped = read_config(replace(checkpoint, metadata=metadata))  # type: ignore[type-var]
    assert untyped == read_config(checkpoint)


# --- junk -----------------------------------------------------------------------------------------

NUMBERS = (0, -1, 7, 24, 2**40, 10**400, 0.5, -1e-6, 1e-308, 1e300, math.inf, math.nan)
LISTS = ([], [1, 2], ["a"] * 4, [0] * 4, [-1] * 6, [96] * 4, [None] * 4)
SCALARS = (None, True, *NUMBERS, "", "x", "llama3", "linear", "none")
WEIRD = (*SCALARS, *LISTS, {}, {"rope_type": "linear"}, {"full_attention": 1})


@cache
def opened(variant: str, *, gguf: bool = False) -> Checkpoint:
    """A tiny model that outlives single examples."""
    folder = Path(tempfile.mkdtemp())
    path = build_variant(variant, folder / "model")
    return open_checkpoint(write_gguf(path, folder / "model.gguf") if gguf else path)


@cache
def hf_keys() -> list[str]:
    """Every key a tiny config.json has, and some rare ones."""
    known = {key for variant in (*VARIANTS, *UNEVEN) for key in opened(variant).metadata} - {
        "model_type",
        "architectures",
    }
    return sorted(known | {"sliding_window_pattern", "use_bidirectional_attention"})


@cache
def gguf_keys() -> list[str]:
    """Every key of an architecture that a tiny GGUF has, without the architecture, and some rare ones."""
    keys = {key for variant in (*GGUF_VARIANTS, *UNEVEN) for key in opened(variant, gguf=True).metadata}
    of_arch = {key.partition(".")[2] for key in keys if key.partition(".")[0] in GGUF_FAMILIES}
    return sorted(of_arch | {"attention.sliding_window_pattern", "rope.freq_base_swa", "rope.scale_linear"})


def junk(values: Sequence[Any], base: object) -> Iterator[Any]:
    """Each of the values, and where the right one is an object, the object with each of its values so."""
    yield from values
    if isinstance(base, dict):
        for key, inner in base.items():
            yield from ({**base, key: value} for value in junk(values, inner))


def runs_or_is_refused(checkpoint: Checkpoint, changes: dict[str, Any], tried: set[ModelConfig]) -> None:
    """What is not refused with a Problem before anything is read must give numbers."""
    changed = replace(checkpoint, metadata={**checkpoint.metadata, **changes})  # type: ignore[type-var]
    try:
        config = read_config(changed)
        if problem := next(broken(changed, config), None):
            raise problem
    except CheckpointProblem:
        return
    if config in tried:
        return
    tried.add(config)
    turned = np.count_nonzero(config.inv_freq)
    made_of = repr(
        (checkpoint.path, config.tied_head, biases(config), turned)
    )  # what decides its stage files
    changed = replace(changed, digest=hashlib.sha256(made_of.encode()).hexdigest())
    files = list(Model(changed, config).files(config.stages, "f32"))
    decoder = Decoder(config, files, context=min(8, config.context), threads=1)
    assert np.isfinite(decoder.forward([3], 0)).all(), changes


@pytest.mark.parametrize(
    "variant",
    ["mistral", "qwen2-window", "phi3-partial-rotary", "gemma3-defaults", "neox-sequential", "deci"],
)
def test_a_weird_value_in_a_config_is_a_clear_error_or_harmless(variant: str) -> None:
    checkpoint, tried = opened(variant), set[ModelConfig]()
    for key in hf_keys():
        for value in junk(WEIRD, checkpoint.metadata.get(key)):
            runs_or_is_refused(checkpoint, {key: value}, tried)


def test_a_weird_value_in_rope_settings_is_a_clear_error_or_harmless() -> None:
    for variant in ("llama-llama3-rope", "gemma3-linear-rope"):
        checkpoint, tried = opened(variant), set[ModelConfig]()
        for key in ("rope_scaling", "rope_parameters"):
            for value in junk(WEIRD, checkpoint.metadata.get(key)):
                runs_or_is_refused(checkpoint, {key: value}, tried)


@pytest.mark.parametrize("variant", ["llama-llama3-rope", "mistral", "phi3", "gemma3", "neox", "deci"])
def test_a_weird_value_in_gguf_keys_is_a_clear_error_or_harmless(variant: str) -> None:
    checkpoint, tried = opened(variant, gguf=True), set[ModelConfig]()
    arch = checkpoint.metadata["general.architecture"]
    for key in gguf_keys():
        for value in (*SCALARS, *LISTS):
            runs_or_is_refused(checkpoint, {f"{arch}.{key}": value}, tried)


@settings(max_examples=200, deadline=None)
@given(variant=st.sampled_from([*VARIANTS, *UNEVEN]), data=st.data())
def test_weird_values_together_are_a_clear_error_or_harmless(variant: str, data: st.DataObject) -> None:
    some = st.dictionaries(st.sampled_from(hf_keys()), st.sampled_from(WEIRD), min_size=2, max_size=3)
    runs_or_is_refused(opened(variant), data.draw(some), set())


def test_long_rope_is_refused_by_name(tmp_path: Path) -> None:
    scaling = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    with pytest.raises(CheckpointProblem, match="'longrope'"):
        facts(changed(tmp_path, "phi3", rope_scaling=scaling))
