"""The shelf: a file lies under the digest of its content, once, whole; what is left over is swept."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trisplit.errors import CheckpointProblem, RequestProblem
from trisplit.models.config import HEAD, Stage
from trisplit.models.convert import stage_file
from trisplit.models.model import open_model
from trisplit.models.shelf import contents, drafted, file_of, put, recorded, shelf, stage_on_shelf

Tiny = Callable[[str], Path]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path))
    return tmp_path


def test_a_file_s_name_is_the_digest_of_its_content(tiny: Tiny, cache: Path) -> None:
    model = open_model(tiny("llama"))
    made = stage_file(model.checkpoint, model.config, Stage(0, "down"), "int8")
    (name,) = made.files
    digest = hashlib.sha256((cache / "engine" / name).read_bytes()).hexdigest()
    assert name == f"{digest}.safetensors"
    (record,) = cache.rglob("down-000.sha256")
    assert record.read_text() == f"{digest}  ../{name}\n", "not what sha256sum --check reads"
    assert recorded(record) == digest


def test_copies_of_a_model_share_their_files(tiny: Tiny, cache: Path) -> None:
    """Two copies differ in mtime and place, and their digest as checkpoints with it."""
    first = open_model(tiny("qwen2"))
    copy = Path(shutil.copytree(tiny("qwen2"), cache / "copy"))
    os.utime(copy / "model.safetensors", (1, 1))
    second = open_model(copy)
    assert first.checkpoint.digest != second.checkpoint.digest
    one, two = (list(m.files(m.stages, "int4")) for m in (first, second))
    assert [file.files for file in one] == [file.files for file in two]
    assert one == two


def test_a_tied_head_lies_in_two_files(tiny: Tiny) -> None:
    model = open_model(tiny("qwen2"))
    embed, *_, head = model.files(model.stages, "f32")
    assert head.stage == HEAD
    assert head.files == (head.tensors["final_norm"].file, *embed.files)


def test_a_file_cut_short_is_none(tiny: Tiny, cache: Path) -> None:
    model = open_model(tiny("llama"))
    made = stage_file(model.checkpoint, model.config, Stage(0, "down"), "f32")
    path = cache / "engine" / made.files[0]
    assert contents(path.stem) == dict(made.tensors)
    path.write_bytes(path.read_bytes()[:-1])
    assert contents(path.stem) is None


def test_a_draft_that_is_not_put_is_gone() -> None:
    with drafted() as draft:
        draft.write_bytes(b"half")
    assert list(shelf().iterdir()) == []
    with drafted() as draft:
        draft.write_bytes(b"whole")
        digest = put(draft)
    assert [path.name for path in shelf().iterdir()] == [file_of(digest)]
    assert digest == hashlib.sha256(b"whole").hexdigest()


def test_what_killed_processes_left_is_swept_in_time() -> None:
    day_s = 86_400
    ages_s = {".1.ab": 2 * 3600, ".2.cd": 60, "a.part": 8 * day_s, "b.part": 6 * day_s, "c": 99 * day_s}
    for name, age_s in ages_s.items():
        (shelf() / name).touch()
        os.utime(shelf() / name, (time.time() - age_s,) * 2)
    with drafted():
        assert {path.name for path in shelf().iterdir()} == {".2.cd", "b.part", "c"}


def test_a_shelf_that_cannot_be_is_told(cache: Path) -> None:
    (cache / "engine").write_text("in the way")
    with pytest.raises(RequestProblem, match=r"the cache directory .*engine cannot be written: File exists"):
        shelf()


@pytest.mark.parametrize("variant", ["qwen2", "llama", "gemma3"])
def test_a_stage_is_had_from_its_digests_alone(variant: str, tiny: Tiny) -> None:
    model = open_model(tiny(variant))
    for made in model.files(model.stages, "int8"):
        digests = [Path(name).stem for name in made.files]
        assert stage_on_shelf(model.config, made.stage, digests) == made
        (shelf() / made.files[-1]).unlink()
        assert stage_on_shelf(model.config, made.stage, digests) is None
        list(model.files(model.stages, "int8"))


def test_files_that_are_no_stage_are_refused(tiny: Tiny) -> None:
    model = open_model(tiny("qwen2"))
    embed, *_, head = model.files(model.stages, "f32")
    (table,), both = [Path(n).stem for n in embed.files], [Path(n).stem for n in head.files]
    for digests, why in (
        (both[:1], "it has 1 files"),
        ([*both, table], "it has 3 files"),
        (both[::-1], "the weights of head are not those of the model described: head has 0 rows"),
    ):
        with pytest.raises(CheckpointProblem, match=why):
            stage_on_shelf(model.config, HEAD, digests)
    with pytest.raises(CheckpointProblem, match=r"the weights of down 0 .* down has 0 rows of 96 where 64"):
        stage_on_shelf(model.config, Stage(0, "down"), [table])
