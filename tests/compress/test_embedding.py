"""An atlas in a model's own file: nothing else of it changes, and it still runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from tests.tiny import GGUF_VARIANTS, build, write_gguf
from trisplit.compress.anatomy import dissect
from trisplit.compress.atlas import survey
from trisplit.compress.atlas_table import KEY, AtlasTable, pack
from trisplit.compress.embedding import embed, read_table
from trisplit.errors import CheckpointProblem, RequestProblem
from trisplit.models.decoder import Decoder
from trisplit.models.gguf import read_header

Tiny = Callable[[str], Path]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[AtlasTable]:
    anatomy = dissect(build("llama", tmp_path_factory.mktemp("m") / "m", layers=3))
    return [pack(survey(anatomy, cliff=cliff)) for cliff in ("8", "1.5")]


@pytest.mark.parametrize("variant", GGUF_VARIANTS)
def test_a_gguf_keeps_all_it_had(variant: str, tiny: Tiny, tables: list[AtlasTable], tmp_path: Path) -> None:
    types = {"blk.0.*": "Q4_1", "*": "Q8_0"}
    before, after = write_gguf(tiny(variant), tmp_path / "m.gguf", types=types), tmp_path / "new.gguf"
    embed(tables[0], before, after)
    old, new = read_header(before), read_header(after)
    assert list(new.keys) == [*old.keys, KEY]
    assert all(old.keys[key] == new.keys[key] for key in old.keys)
    assert np.array_equal(read_table(after).words, tables[0].words)
    for name, place in old.member.places.items():
        other = new.member.places[name]
        assert place.info == other.info
        raw, raw_new = (p.file.path.read_bytes()[p.offset :][: p.info.n_bytes] for p in (place, other))
        assert raw == raw_new
    ids = [1, 30, 50, 7]
    logits = [Decoder.load(path).forward(ids, 0).tobytes() for path in (before, after)]
    assert logits[0] == logits[1]


def test_a_gguf_has_the_key_as_the_library_reads_it(
    tiny: Tiny, tables: list[AtlasTable], tmp_path: Path
) -> None:
    from gguf import GGUFReader

    embed(tables[0], write_gguf(tiny("llama"), tmp_path / "m.gguf"), tmp_path / "new.gguf")
    field = GGUFReader(tmp_path / "new.gguf").get_field(KEY)
    assert field is not None
    assert field.contents() == tables[0].words.tolist()


def test_safetensors_keep_all_they_had(tiny: Tiny, tables: list[AtlasTable], tmp_path: Path) -> None:
    after = tmp_path / "model.safetensors"
    embed(tables[0], tiny("llama"), after)
    with safe_open(after, "np") as file:
        assert file.metadata().keys() == {"format", KEY}
        assert file.metadata()["format"] == "pt"
    old, new = load_file(tiny("llama") / "model.safetensors"), load_file(after)
    assert old.keys() == new.keys()
    assert all(np.array_equal(old[name], new[name]) for name in old)
    assert np.array_equal(read_table(after).words, tables[0].words)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny("llama") / name).read_bytes())
    assert np.array_equal(
        Decoder.load(tmp_path).forward([1, 9], 0), Decoder.load(tiny("llama")).forward([1, 9], 0)
    )


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_a_newer_atlas_takes_the_place_of_the_old(
    kind: str, tiny: Tiny, tables: list[AtlasTable], tmp_path: Path
) -> None:
    model = tiny("llama") if kind == "safetensors" else write_gguf(tiny("llama"), tmp_path / "m.gguf")
    first, second = tmp_path / f"first.{kind}", tmp_path / f"second.{kind}"
    embed(tables[0], model, first)
    embed(tables[1], first, second)
    assert np.array_equal(read_table(second).words, tables[1].words)
    assert first.stat().st_size == second.stat().st_size


def test_refused(tiny: Tiny, tables: list[AtlasTable], tmp_path: Path) -> None:
    gguf = write_gguf(tiny("llama"), tmp_path / "m.gguf")
    sharded = build("llama", tmp_path / "sharded", shards=2)
    for model, path, said in (
        (gguf, gguf, "is the model itself"),
        (gguf, tmp_path / "m.safetensors", "would be a .gguf file"),
        (sharded, tmp_path / "m.safetensors", "has 2 safetensors files"),
        (gguf, tmp_path / "none" / "m.gguf", "cannot be written"),
    ):
        with pytest.raises(RequestProblem, match=said):
            embed(tables[0], model, path)
    assert not list(tmp_path.glob(".*"))


def test_files_without_an_atlas_say_so(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "text.json").write_text(json.dumps({"no": "atlas"}))
    (tmp_path / "short.safetensors").write_bytes(b"abc")
    for path in (
        write_gguf(tiny("llama"), tmp_path / "m.gguf"),
        tiny("llama") / "model.safetensors",
        tmp_path / "text.json",
        tmp_path / "short.safetensors",
        tmp_path / "none.atlas",
    ):
        with pytest.raises(CheckpointProblem):
            read_table(path)
