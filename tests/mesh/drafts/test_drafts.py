"""Drafts by name: what each word opens, and words that make no sense."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import build_variant
from trisplit.assets import fetch
from trisplit.errors import CheckpointProblem, RequestProblem, UnknownName
from trisplit.mesh.drafts import DRAFTS, Target, draft_named, source_named
from trisplit.mesh.drafts.reading import Reading
from trisplit.models.model import open_model
from trisplit.models.rounding import Fitted
from trisplit.models.sampling import Sampling
from trisplit.models.stages import given
from trisplit.models.statistics import About, writing
from trisplit.models.twins import kept_statistics

Tiny = Callable[[str], Path]

IDS = [1, 20, 30, 40, 20, 30]


@pytest.fixture
def target(tiny: Tiny) -> Target:
    return Target(model=open_model(tiny("llama")), dtype="f32", context=64)


def text_of(kind: str, path: Path) -> str:
    return {"twin": "twin:int8", "model": f"model:{path}"}.get(kind, kind)


@pytest.mark.parametrize("kind", DRAFTS)
def test_every_draft_guesses_an_id_or_none_and_closes(kind: str, target: Target, tiny: Tiny) -> None:
    text = text_of(kind, tiny("llama"))
    source = source_named(text, target)
    assert len([*source.load()]) == source.steps
    assert (source.weight_bytes > 0) == (source.kv_bytes > 0) == (kind in ("auto", "twin", "model"))
    draft = source.draft(Sampling())
    assert draft.name == source.name == text
    guess = draft.guess(IDS)
    assert (guess is None) == (kind == "none")
    assert draft.guess(IDS) == guess
    draft.close()


def test_a_name_is_found_by_whoever_asks(target: Target, tiny: Tiny) -> None:
    source = source_named("model:nice-one@int4", target, find={"nice-one": tiny("llama")}.__getitem__)
    assert isinstance(source, Reading)
    assert (source.dtype, source.model.checkpoint.path) == ("int4", tiny("llama"))


@pytest.mark.parametrize(("behind", "dtype"), [("", "int8"), ("@int4", "int4"), ("@f32", "f32")])
def test_a_twin_in_a_folder_runs_at_the_target_s_dtype_or_the_one_named(
    behind: str, dtype: str, tiny: Tiny
) -> None:
    target = Target(model=open_model(tiny("llama")), dtype="int8", context=64)
    source = source_named(f"twin:{tiny('llama')}{behind}", target)
    assert isinstance(source, Reading)
    assert source.dtype == dtype


def test_an_int4_twin_is_fitted_by_statistics_that_are_named_or_in_the_cache(
    target: Target, tmp_path: Path
) -> None:
    model = target.model
    for path in (tmp_path / "some.npz", kept_statistics(model)):
        with writing(path, About(model=model.content_digest(), text="t", tokens=40)) as add:
            for name, width in given(model.config, model.stages).items():
                add(name, np.eye(width))
    try:
        for text in (f"twin:int4@{tmp_path / 'some.npz'}", "twin:int4"):
            source = source_named(text, target)
            assert isinstance(source, Reading)
            assert (source.name, source.dtype) == (text, "int4")
            assert isinstance(source.model.rounding, Fitted)
            assert source.draft(Sampling()).guess(IDS) is not None
    finally:
        kept_statistics(model).unlink()
    plain = source_named("twin:int4", target)
    assert isinstance(plain, Reading)
    assert plain.model.rounding is None


@pytest.mark.parametrize(
    ("text", "kind", "said", "fix"),
    [
        ("", UnknownName, "no draft is named ''", "ngram"),
        ("ngrams", UnknownName, "ngrams", "did you mean 'ngram'?"),
        ("auto:fast", RequestProblem, "auto:fast makes no sense", "auto alone"),
        ("none:x", RequestProblem, "none:x makes no sense", "none alone"),
        ("ngram:3", RequestProblem, "ngram:3 makes no sense", "ngram alone"),
        ("twin", RequestProblem, "which twin", "twin:int8"),
        ("twin:int5", UnknownName, "no twin is named 'int5'", "int"),
        ("twin:int4@nowhere.npz", RequestProblem, "nowhere.npz", "trisplit calibrate"),
        ("twin:nowhere@int8", UnknownName, "nowhere", "known: f32, int4, int8"),
        ("model", RequestProblem, "which model", "model:NAME"),
        ("model:nowhere", CheckpointProblem, "nowhere", ""),
    ],
)
def test_words_that_make_no_sense(
    text: str, kind: type[Exception], said: str, fix: str, target: Target
) -> None:
    with pytest.raises(kind) as caught:
        draft_named(text, target, Sampling())
    assert said in caught.value.what  # type: ignore[attr-defined]
    assert fix in caught.value.fix  # type: ignore[attr-defined]


def test_another_vocabulary_is_refused_with_the_first_difference(target: Target, tmp_path: Path) -> None:
    """One piece spelled otherwise is enough."""
    folder = build_variant("llama", tmp_path / "other")
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    vocab = content["model"]["vocab"]
    spelled = next(piece for piece, id_ in vocab.items() if id_ == 300)
    vocab["Zebra"] = vocab.pop(spelled)
    content["model"]["merges"] = [m for m in content["model"]["merges"] if "".join(m) != spelled]
    file.write_text(json.dumps(content))
    with pytest.raises(
        RequestProblem, match=f"token 300 is 'Zebra' to the draft and '{spelled}' to the model"
    ):
        source_named(f"model:{folder}", target)


@pytest.mark.real
@pytest.mark.slow
def test_qwen_drafts_for_qwen_and_smollm2_does_not() -> None:
    target = Target(model=open_model(fetch("qwen2.5-coder-1.5b")), dtype="int4", context=64)
    assert source_named("model:qwen2.5-coder-0.5b", target, find=fetch).weight_bytes < 1e9
    with pytest.raises(
        RequestProblem, match=r"token 0 is '<\|endoftext\|>' to the draft and '!' to the model"
    ):
        source_named("model:smollm2", target, find=fetch)
