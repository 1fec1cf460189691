"""What the stages need of a file: told from headers, for every family, before anything is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.tiny import GGUF_VARIANTS, UNEVEN, VARIANTS, build_variant
from tests.tiny_gguf import write_gguf
from trisplit.errors import CheckpointProblem
from trisplit.models.checkpoint import open_checkpoint
from trisplit.models.metadata import read_config
from trisplit.models.model import open_model
from trisplit.models.promises import broken, promises

Tiny = Callable[[str], Path]
Tensors = dict[str, np.ndarray]


def rewritten(folder: Path, variant: str, change: Callable[[Tensors], object]) -> Path:
    """A tiny model with its tensors changed."""
    path = build_variant(variant, folder / "model")
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")
    return path


@pytest.mark.parametrize("variant", [*VARIANTS, *UNEVEN])
def test_a_file_holds_what_is_promised_and_no_more(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    paths = [tiny(variant)]
    if variant in (*GGUF_VARIANTS, *UNEVEN):
        paths.append(write_gguf(paths[0], tmp_path / "model.gguf"))
    for path in paths:
        checkpoint = open_checkpoint(path)
        config = read_config(checkpoint)
        promised = promises(config, checkpoint.format)
        shapes = {name: info.shape for name, info in checkpoint.tensors.items()}
        shapes.pop("rope_freqs.weight", None)  # read with the config
        assert {name: promise.shape for name, promise in promised.items()} == shapes
        assert list(broken(checkpoint, config)) == []


@pytest.mark.parametrize("variant", [*VARIANTS, *UNEVEN])
def test_every_tensor_is_missed(variant: str, tiny: Tiny) -> None:
    checkpoint = open_checkpoint(tiny(variant))
    config = read_config(checkpoint)
    for name in checkpoint.tensors:
        tensors = {other: info for other, info in checkpoint.tensors.items() if other != name}
        (problem,) = broken(replace(checkpoint, tensors=tensors), config)  # type: ignore[type-var]
        assert problem.what == f"tensors are missing: {name}"


DOWN = "model.layers.3.mlp.down_proj.weight"


@pytest.mark.parametrize(
    ("variant", "change", "said"),
    [
        ("llama", lambda t: t.pop(DOWN), f"tensors are missing: {DOWN}"),
        (
            "llama",
            lambda t: t.update({DOWN: t[DOWN].T.copy()}),
            r"\[96, 64\], the config promises \[64, 96\]",
        ),
        ("llama", lambda t: t.update({DOWN: t[DOWN].astype(np.int8)}), "stored as I8, which we do not read"),
        ("qwen2", lambda t: t.pop("model.layers.2.self_attn.k_proj.bias"), "2.self_attn.k_proj.bias"),
        ("qwen2", lambda t: [t.pop(n) for n in list(t) if n.endswith("bias")], "proj.bias.* and 8 more"),
        ("qwen3-biases", lambda t: t.pop("model.layers.3.self_attn.o_proj.bias"), "3.self_attn.o_proj.bias"),
        ("gemma3-biases", lambda t: t.pop("model.layers.5.self_attn.q_proj.bias"), "5.self_attn.q_proj.bias"),
        (
            "neox",
            lambda t: t.pop("gpt_neox.final_layer_norm.bias"),
            "missing: gpt_neox.final_layer_norm.bias",
        ),
        ("neox", lambda t: t.update({"embed_out.bias": np.ones(320, np.float32)}), "uses embed_out.bias"),
    ],
)
def test_a_model_that_cannot_run_does_not_open(
    variant: str, change: Callable[[Tensors], object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointProblem, match=said):
        open_model(rewritten(tmp_path, variant, change))


@pytest.mark.parametrize(
    "name",
    [
        "lm_head.bias",
        "model.norm.bias",
        "model.layers.0.mlp.down_proj.weight_scale_inv",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "model.layers.0.self_attn.dense.bias",
    ],
)
def test_what_would_change_a_product_is_never_ignored(name: str, tmp_path: Path) -> None:
    path = rewritten(tmp_path, "llama", lambda tensors: tensors.update({name: np.ones(1, np.float32)}))
    with pytest.raises(CheckpointProblem, match=f"nothing we compute uses {name}"):
        open_model(path)


def test_the_masks_that_old_neox_files_have_are_no_biases(tmp_path: Path) -> None:
    """As transformers saved them until 2023: Pythia's files are such."""
    extra = {"attention.bias": np.ones((1, 1, 8, 8), np.bool_), "attention.masked_bias": np.float32(-1e9)}
    extra |= {"attention.rotary_emb.inv_freq": np.ones(8, np.float32)}
    named = {f"gpt_neox.layers.{layer}.{name}": np.array(extra[name]) for layer in range(4) for name in extra}
    assert open_model(rewritten(tmp_path / "4", "neox", lambda t: t.update(named))).config.layers == 4
    odd = {"gpt_neox.layers.3.attention.dense.lora.bias": np.ones(1, np.float32)}
    with pytest.raises(CheckpointProblem, match="nothing we compute uses"):
        open_model(rewritten(tmp_path / "odd", "neox", lambda t: t.update(named | odd)))


def test_more_layers_than_the_config_has_are_not_ignored(tmp_path: Path) -> None:
    path = build_variant("llama", tmp_path / "model")
    config = (path / "config.json").read_text()
    (path / "config.json").write_text(config.replace('"num_hidden_layers": 4', '"num_hidden_layers": 3'))
    with pytest.raises(CheckpointProblem, match="a layer more than the 3 of the config"):
        open_model(path)


def test_what_belongs_to_nothing_does_no_harm(tmp_path: Path) -> None:
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    path = rewritten(tmp_path, "llama", lambda tensors: tensors.update(extra))
    assert open_model(path).config.layers == 4
