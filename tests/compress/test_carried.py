"""Fitted on the narrower stream: whole layers stay whole, and what is behind becomes less."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trisplit.compress.anatomy import dissect
from trisplit.compress.carried import carried
from trisplit.compress.reading import Body
from trisplit.compress.study import Study, down_of, study
from trisplit.compress.trial import Narrowed, trial
from trisplit.models.model import Model, open_model

Tiny = Callable[[str], Path]


def texts(count: int, seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [[1, *random.integers(3, 320, 80).tolist()] for _ in range(count)]


def studied(path: Path, patch: pytest.MonkeyPatch, cache: Path) -> Study:
    patch.setenv("TRISPLIT_CACHE", str(cache))
    return study(dissect(path), texts(30, 0), threads=2)


def left(model: Model) -> np.ndarray:
    body = Body(model, "f32", context=96, threads=1)
    return np.concatenate([body.read(ids)[1:] for ids in texts(3, 1)])


@pytest.mark.parametrize("variant", ["llama", "neox", "phi3"])
def test_nothing_pruned_is_the_model_itself(
    variant: str, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = studied(tiny(variant), monkeypatch, tmp_path)
    widths = [int(path.widths[0]) for path in found.paths]
    for layer, one in enumerate(carried(found, widths, texts(10, 2), threads=2)):
        down = down_of(found.anatomy, layer)
        assert one.down == pytest.approx(down, abs=1e-2 * np.abs(down).max())


@pytest.mark.parametrize("variant", ["llama", "neox"])
def test_less_is_lost_than_by_refits_on_the_dense_stream(
    variant: str, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, model = studied(tiny(variant), monkeypatch, tmp_path), open_model(tiny(variant))
    widths = [64] * len(found.paths)
    ways = {
        "dense": [found.refit(layer, 64) for layer in range(len(widths))],
        "carried": list(carried(found, widths, texts(30, 0), threads=2)),
    }
    exact, lost = left(model), {}
    for name, refits in ways.items():
        (tmp_path / name).mkdir()
        tried = trial(model, [Narrowed(one.kept, one.down) for one in refits], tmp_path / name)
        lost[name] = float(((left(tried) - exact) ** 2).sum())
    assert lost["carried"] < lost["dense"]


def test_threads_change_no_bit_and_one_passage_is_enough(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = studied(tiny("llama"), monkeypatch, tmp_path)
    widths = [64] * len(found.paths)
    runs = [list(carried(found, widths, texts(1, 3), threads=1))]
    (kept,) = found.moments.folder.glob("carried-*")
    kept.write_bytes(kept.read_bytes()[:-100])  # torn: made again
    runs.append(list(carried(found, widths, texts(1, 3), threads=3)))
    for one, other in zip(*runs):
        assert np.isfinite(one.down).all()
        assert np.array_equal(one.down, other.down)


def test_what_was_made_is_kept(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = studied(tiny("llama"), monkeypatch, tmp_path)
    layers = list[int]()

    def report(_: str, done: int, __: int) -> None:
        layers.append(done)

    for _ in range(2):
        first = list(carried(found, [64] * len(found.paths), texts(2, 3), threads=1, report=report))
    assert len(layers) == len(found.paths)
    list(carried(found, [64] * len(found.paths), texts(2, 4), threads=1, report=report))
    assert len(layers) == 2 * len(found.paths)
    assert [one.down.dtype for one in first] == [np.float64] * len(first)
