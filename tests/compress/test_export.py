"""Exports: the tensors and facts that other programs expect, from every family, in every format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.tiny import GGUF_VARIANTS, UNEVEN, build_variant, write_gguf
from trisplit.compress.export import Exported, Wanted, export
from trisplit.errors import CheckpointProblem, Problem, RequestProblem, UnknownName
from trisplit.models.decoder import Decoder
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]
IDS = [1, 40, 77, 120, 13]
IN_GGUF = [v for v in (*GGUF_VARIANTS, *UNEVEN) if v not in ("qwen3-biases", "gemma3-biases")]


def made(source: Path, out: Path, format: str, type: str = "f32", **how: Any) -> Exported:
    return export(open_model(source), out, Wanted(format=format, type=type, **how))


def tensors_of(path: Path) -> dict[str, np.ndarray]:
    if path.is_dir():
        return {name: v for file in path.glob("*.safetensors") for name, v in load_file(file).items()}
    return {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}


def keys_of(path: Path) -> dict[str, Any]:
    fields = gguf.GGUFReader(path).fields.items()
    return {name: field.contents() for name, field in fields if not name.startswith("GGUF.")}


def same(here: Mapping[str, np.ndarray], there: Mapping[str, np.ndarray], atol: float = 0.0) -> None:
    assert here.keys() == there.keys()
    for name, values in here.items():
        assert values.dtype == there[name].dtype
        np.testing.assert_allclose(values, there[name], rtol=0, atol=atol, err_msg=name)


def logits(path: Path) -> np.ndarray:
    return Decoder.load(path).forward(IDS, 0).copy()


@pytest.mark.parametrize("variant", IN_GGUF)
def test_a_folder_becomes_what_llama_cpps_converter_makes_of_it(
    variant: str, tiny: Tiny, tmp_path: Path
) -> None:
    """All its tensors, in its order of rows; and all its keys that are not ours to choose."""
    done = made(tiny(variant), tmp_path / "m.gguf", "gguf")
    theirs = write_gguf(tiny(variant), tmp_path / "theirs.gguf")
    same(tensors_of(done.path), tensors_of(theirs), atol=1e-6)
    ours, chosen = keys_of(done.path), ("general.name", "general.quantization_version")
    for name, value in keys_of(theirs).items():
        if name in chosen:
            continue
        if isinstance(value, list) and isinstance(ours[name], int):
            value = value[0]  # heads of deci, the same in all layers
        assert ours[name] == pytest.approx(value) if isinstance(value, float) else ours[name] == value, name


@pytest.mark.parametrize("variant", GGUF_VARIANTS)
def test_a_gguf_becomes_the_folder_it_was_made_from(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    done = made(write_gguf(tiny(variant), tmp_path / "m.gguf"), tmp_path / "m", "safetensors")
    same(tensors_of(done.path), tensors_of(tiny(variant)), atol=1e-6)
    here, there = open_model(done.path), open_model(tiny(variant))
    theirs = there.config.family
    assert here.config.family == ("llama" if variant == "mistral-no-window" else theirs)
    assert here.tokenizer().encode("It's 1897 – naïve!") == there.tokenizer().encode("It's 1897 – naïve!")
    assert here.tokenizer().chat_template == there.tokenizer().chat_template
    assert here.tokenizer().eos_ids == there.tokenizer().eos_ids


@pytest.mark.parametrize("variant", ["llama", "llama-biases", "qwen2", "mistral-no-window"])
@pytest.mark.parametrize("source", ["folder", "gguf"])
def test_decilm_is_the_same_function(source: str, variant: str, tiny: Tiny, tmp_path: Path) -> None:
    path = write_gguf(tiny(variant), tmp_path / "m.gguf") if source == "gguf" else tiny(variant)
    done = made(path, tmp_path / "m", "deci")
    assert open_model(done.path).config.family == "deci"
    config = json.loads((done.path / "config.json").read_text())
    assert (config["architectures"], config["model_type"]) == (["DeciLMForCausalLM"], "nemotron-nas")
    assert not {"sliding_window", "max_window_layers"} & config.keys()
    for module in {name.split(".")[0] for name in config["auto_map"].values()}:
        compile((done.path / f"{module}.py").read_text(), module, "exec")
    assert logits(done.path) == pytest.approx(logits(path), abs=1e-5)


@pytest.mark.parametrize("variant", UNEVEN)
def test_layers_of_different_width_in_every_format(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    before, widths = logits(tiny(variant)), open_model(tiny(variant)).config.ffn
    for format, name in (("safetensors", "stock"), ("deci", "deci"), ("gguf", "m.gguf")):
        done = made(tiny(variant), tmp_path / name, format)
        wide = (max(widths),) * len(widths)
        assert done.widths == (wide if format == "safetensors" else widths)
        assert open_model(done.path).config.ffn == done.widths
        assert logits(done.path) == pytest.approx(before, abs=1e-5)
    stock = json.loads((tmp_path / "stock" / "config.json").read_text())
    assert stock["model_type"] == ("qwen2" if variant == "deci-biases" else "llama")
    assert not {"block_configs", "qkv_bias"} & stock.keys()


@pytest.mark.parametrize("variant", ["llama", "llama-biases", "qwen2", "deci"])
def test_zeros_are_cut_exactly(variant: str, tmp_path: Path) -> None:
    """Dead columns of down, here and there; the second layer keeps a dead one to have whole units of 32."""
    path = build_variant(variant, tmp_path / "m")
    tensors, widths = load_file(path / "model.safetensors"), open_model(path).config.ffn
    for layer, dead in ((0, range(1, 65, 2)), (1, [*range(31), 40, 41][: widths[1] - 32])):
        tensors[f"model.layers.{layer}.mlp.down_proj.weight"][:, list(dead)] = 0
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    narrower = (widths[0] - 32, widths[1] - 32, *widths[2:])
    for format, out in (("deci", tmp_path / "deci"), ("gguf", tmp_path / "m.gguf")):
        done = made(path, out, format, trim=True)
        assert (done.family, done.widths) == ("deci", narrower)
        assert logits(out) == pytest.approx(logits(path), abs=1e-5)
        assert "were cut" in done.notes[0]
    assert made(path, tmp_path / "kept", "safetensors").widths == (max(widths),) * 4


def test_a_padded_twin_gets_its_widths_back(tiny: Tiny, tmp_path: Path) -> None:
    padded = made(tiny("deci"), tmp_path / "padded", "safetensors")
    back = made(padded.path, tmp_path / "back", "deci")
    assert back.widths == open_model(tiny("deci")).config.ffn
    same(tensors_of(back.path), tensors_of(tiny("deci")))


@pytest.mark.parametrize("type", ["f16", "bf16", "q8_0", "q5_0", "q5_1", "q4_0", "q4_1"])
def test_types_of_numbers(type: str, tmp_path: Path) -> None:
    path = build_variant("llama", tmp_path / "m", layers=1, intermediate_size=80)
    done = made(path, tmp_path / "m.gguf", "gguf", type)
    kinds = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(done.path).tensors}
    wanted = type.upper()
    few = wanted[:2] in ("Q4", "Q5")
    assert kinds["blk.0.attn_q.weight"] == wanted
    assert kinds["token_embd.weight"] == kinds["output.weight"] == ("Q8_0" if few else wanted)
    assert kinds["blk.0.attn_norm.weight"] == "F32"
    odd = wanted.startswith("Q")
    assert kinds["blk.0.ffn_down.weight"] == ("F16" if odd else wanted)
    assert any("no whole blocks" in note for note in done.notes) == odd
    assert done.n_bytes == sum(tensor.n_bytes for tensor in gguf.GGUFReader(done.path).tensors)
    if not odd:
        folder = made(path, tmp_path / "out", "safetensors", type)
        assert {info.dtype for info in open_model(folder.path).checkpoint.tensors.values()} == {wanted}


def test_every_other_key_of_a_gguf_is_carried_over(tiny: Tiny, tmp_path: Path) -> None:
    from gguf.scripts.gguf_new_metadata import MetadataDetails, copy_with_new_metadata

    source = write_gguf(tiny("qwen2"), tmp_path / "plain.gguf")
    extra: dict[str, Any] = {
        "some.list": MetadataDetails(gguf.GGUFValueType.ARRAY, [1, 2], sub_type=gguf.GGUFValueType.UINT16),
        "some.text": MetadataDetails(gguf.GGUFValueType.STRING, "naïve"),
        "general.license": MetadataDetails(gguf.GGUFValueType.STRING, "apache-2.0"),
        "some.number": MetadataDetails(gguf.GGUFValueType.INT64, -(2**40)),
    }
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "qwen2")
    copy_with_new_metadata(gguf.GGUFReader(source), writer, extra, [])
    done = made(tmp_path / "m.gguf", tmp_path / "out.gguf", "gguf", "q8_0")
    before, after = (gguf.GGUFReader(path).fields for path in (tmp_path / "m.gguf", done.path))
    for name, field in before.items():
        if not name.startswith("GGUF.") and name != "general.file_type":
            assert after[name].types == field.types, name
            assert after[name].contents() == field.contents(), name
    assert after["general.file_type"].contents() == 7


# --- what cannot be had ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "format", "said"),
    [
        ("mistral", "deci", "its layers have a window"),
        ("qwen3", "deci", "a norm of each query and key head"),
        ("phi3", "deci", "fused matrices"),
        ("neox", "deci", "layer norms"),
        ("qwen2-window", "gguf", "some of its layers have a window"),
        ("qwen3-biases", "gguf", "no biases of qkv and out in a qwen3"),
        ("gemma3-biases", "gguf", "no biases of qkv and out in a gemma3"),
        ("gemma3-linear-rope", "gguf", "attention scale"),
        ("neox-tanh", "gguf", "gelu alone"),
    ],
)
def test_refused_with_the_reason(variant: str, format: str, said: str, tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(RequestProblem) as caught:
        made(tiny(variant), tmp_path / ("m.gguf" if format == "gguf" else "m"), format)
    assert said in caught.value.what
    assert "safetensors" in caught.value.fix
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("out", "format", "type", "kind", "said"),
    [
        ("full", "safetensors", "f32", RequestProblem, "is there already"),
        ("m.gguf", "safetensors", "f32", RequestProblem, "would be a folder"),
        ("m", "gguf", "f32", RequestProblem, "would be a GGUF file"),
        ("there.gguf", "gguf", "f32", RequestProblem, "is there already"),
        ("none/m", "safetensors", "f32", RequestProblem, "does not exist"),
        ("m", "onnx", "f32", UnknownName, "onnx"),
        ("m", "safetensors", "q4_0", RequestProblem, "have no q4_0"),
        ("m.gguf", "gguf", "q4_k", UnknownName, "q4_k"),
    ],
)
def test_bad_requests(
    out: str, format: str, type: str, kind: Any, said: str, tiny: Tiny, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    for there in (tmp_path / "full" / "x", tmp_path / "there.gguf"):
        there.write_text("x")
    with pytest.raises(kind) as caught:
        made(tiny("llama"), tmp_path / out, format, type)
    assert said in caught.value.what
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "there.gguf"]


def test_numbers_that_are_none_or_do_not_fit(tmp_path: Path) -> None:
    path = build_variant("llama", tmp_path / "m", layers=1)
    tensors = load_file(path / "model.safetensors")
    up = tensors["model.layers.0.mlp.up_proj.weight"]
    for value, kind, said in ((1e5, RequestProblem, "100,000"), (np.nan, CheckpointProblem, "no numbers")):
        up[3, 4] = value
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(Problem) as caught:
            made(path, tmp_path / "out", "safetensors", "f16")
        assert isinstance(caught.value, kind)
        assert said in caught.value.what
    assert [file.name for file in tmp_path.iterdir()] == ["m"]


def test_a_full_disk_is_told_before_and_while(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    monkeypatch.setattr("trisplit.compress.export.shutil.disk_usage", lambda _: SimpleNamespace(free=9))
    with pytest.raises(RequestProblem, match="free there"):
        made(tiny("llama"), tmp_path / "m.gguf", "gguf")
    monkeypatch.undo()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for out, format in (("m.gguf", "gguf"), ("m", "safetensors")):
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            with pytest.raises(RequestProblem, match="cannot be written"):
                made(tiny("llama"), tmp_path / out, format)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [*tmp_path.iterdir()] == []


def test_what_fails_its_check_is_not_there(tiny: Tiny, tmp_path: Path) -> None:
    def check(draft: Path) -> Mapping[str, Any]:
        assert draft.exists()
        raise CheckpointProblem("amiss", fix="report it")

    for name, format in (("m", "deci"), ("m.gguf", "gguf")):
        with pytest.raises(CheckpointProblem, match="amiss"):
            export(open_model(tiny("llama")), tmp_path / name, Wanted(format=format, type="f32"), check=check)
    assert [*tmp_path.iterdir()] == []
