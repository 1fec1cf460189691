"""Fitting: a planted width is found, what is found passes, and it is said when nothing does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.tiny import build
from trisplit.compress.anatomy import dissect
from trisplit.compress.evaluate import Exam, compare, see
from trisplit.compress.fit import Fitted, fit
from trisplit.compress.gates import DEFAULT, Metric
from trisplit.compress.passages import Passage
from trisplit.compress.rehearsal import Rehearsal
from trisplit.compress.steps.prune import as_it_is
from trisplit.compress.study import study
from trisplit.compress.trial import Narrowed, trial
from trisplit.errors import RequestProblem
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]


def ids(count: int, length: int, seed: int) -> list[Passage]:
    random = np.random.default_rng(seed)
    return [[1, *random.integers(3, 320, length).tolist()] for _ in range(count)]


CALIBRATION, EXAM = ids(12, 80, 1), Exam(texts={"a": ids(2, 40, 2), "b": ids(2, 40, 3)})


def fitted(path: Path, out: Path, gates: Mapping[Metric, float], exam: Exam = EXAM) -> Fitted:
    return fit(dissect(path), CALIBRATION, exam, out, gates=gates)


def small(family: str, folder: Path) -> Path:
    return build(family, folder, layers=2)


def planted(folder: Path, widths: tuple[int, ...]) -> Path:
    """A model of 192 neurons a layer, of which those from a width on say what one before says, louder."""
    build("llama", folder, layers=len(widths), intermediate_size=192)
    tensors = load_file(folder / "model.safetensors")
    for layer, width in enumerate(widths):
        for name, gain in (("gate_proj", 1.0), ("up_proj", 1.5)):
            rows = tensors[f"model.layers.{layer}.mlp.{name}.weight"]
            for first in range(width, 192, width):
                rows[first : first + width] = gain * rows[: len(rows[first : first + width])]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_planted_widths_are_found(tmp_path: Path) -> None:
    """Those of an uneven model: nothing smaller passes, and every larger size does."""
    found = fitted(planted(tmp_path / "m", (128, 192, 160)), tmp_path / "out", {"kl": 1e-4, "ppl": 1.001})
    assert found.outcome is not None
    assert found.outcome.kept
    assert found.outcome.widths == (128, 192, 160)
    (made,) = [point for point in found.points if point.neurons == 480]
    assert (made.thorough, made.passed, made.share) == (True, True, pytest.approx(480 / 576))
    assert made.texts == found.outcome.measured.texts
    assert all(point.passed == (point.neurons >= 480) for point in found.points)
    neurons = [point.neurons for point in found.points]
    assert neurons == sorted(set(neurons))
    assert [point.parameters for point in found.points] == sorted(point.parameters for point in found.points)


def test_limits_in_the_midst_of_what_sizes_cost(tmp_path: Path) -> None:
    """What is written passes; of what is smaller nothing did that was shown the whole exam."""
    found = fitted(small("phi3", tmp_path / "m"), tmp_path / "out", {"kl": 0.5})
    assert found.outcome is not None
    assert found.outcome.verdict.passed
    assert max(text.kl or 0 for text in found.outcome.measured.texts) <= 0.5
    smaller = [point for point in found.points if point.neurons < sum(found.outcome.widths)]
    assert smaller
    assert not any(point.passed for point in smaller if point.thorough)


def test_a_rehearsal_is_what_a_model_so_narrowed_is_judged_by(tmp_path: Path) -> None:
    path = small("phi3", tmp_path / "m")
    model, found = open_model(path), study(dissect(path), CALIBRATION, threads=1)
    with Rehearsal(model, found, EXAM, threads=1) as rehearsal:
        rehearsed = rehearsal.measure((64, 96))
    refits = (found.refit(0, 64), as_it_is(found.anatomy, 1, 96))
    (tmp_path / "trial").mkdir()
    narrow = trial(model, (Narrowed(refit.kept, refit.down) for refit in refits), tmp_path / "trial")
    dense, seen = (see(each, "f32", EXAM, threads=1) for each in (model, narrow))
    for mine, other in zip(rehearsed.texts, compare(EXAM, seen, dense).texts):
        assert mine.kl == pytest.approx(other.kl, rel=1e-3)
        assert mine.ppl_ratio == pytest.approx(other.ppl_ratio, rel=1e-4)


def test_no_size_passes(tmp_path: Path) -> None:
    """Of a model in which every neuron counts."""
    found = fitted(small("llama", tmp_path / "m"), tmp_path / "out", {"kl": 1e-9})
    assert found.outcome is None
    assert found.points
    assert not any(point.passed for point in found.points)
    assert found.points[-1].thorough
    assert not (tmp_path / "out").exists()


def test_refused(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(RequestProblem, match="no gate is on texts"):
        fitted(tiny("llama"), tmp_path / "out", {"accuracy": 0.1})
    with pytest.raises(RequestProblem, match="norm after its FFN"):
        fitted(tiny("gemma3"), tmp_path / "out", DEFAULT)
    (tmp_path / "x").write_text("x")
    with pytest.raises(RequestProblem, match="not empty"):
        fitted(tiny("llama"), tmp_path, DEFAULT)
