"""Contenders: each keeps what it was asked to, and what they have in common is done alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trisplit.compress.anatomy import dissect
from trisplit.compress.contenders import ABLATIONS, OTHERS, Means, contender
from trisplit.compress.study import down_of, probed, study, weights
from trisplit.errors import RequestProblem, UnknownName

Tiny = Callable[[str], Path]
PASSAGES = [list(range(n, n + 60)) for n in range(3, 25)]


@pytest.fixture(scope="module")
def means(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Means:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRISPLIT_CACHE", str(tmp_path_factory.mktemp("kept")))
        found = study(dissect(tiny("llama")), PASSAGES, threads=1)
        return Means(found, weights(found, probed(PASSAGES), threads=1), PASSAGES)


def test_every_contender_keeps_its_share(means: Means) -> None:
    total = sum(int(path.widths[0]) for path in means.found.paths)
    for name in ("ours", "ours-uniform", *OTHERS):
        layers = list(contender(name)(means, 2 / 3))
        widths = [len(layer.kept) for layer in layers]
        assert sum(widths) == 2 * total / 3, name
        if name not in ("ours", "flap-global"):
            assert set(widths) == {64}
        for number, layer in enumerate(layers):
            plain = np.array_equal(layer.down, down_of(means.found.anatomy, number)[:, layer.kept])
            assert plain == (name in OTHERS)
            assert (layer.bias is not None) == name.startswith("flap")


def test_a_bias_of_flap_is_what_went_gave_on_average(means: Means) -> None:
    (first, *_) = contender("flap")(means, 2 / 3)
    gone = np.setdiff1d(np.arange(96), first.kept)
    mean = means.found.moments.of(0).mean
    assert first.bias == pytest.approx(down_of(means.found.anatomy, 0)[:, gone] @ mean[gone])


def test_ours_and_what_it_is_without_a_part(means: Means) -> None:
    layers = {what: list(way(means, 2 / 3)) for what, way in ABLATIONS.items()}
    widths = {what: [len(layer.kept) for layer in each] for what, each in layers.items()}
    assert {sum(each) for each in widths.values()} == {sum(widths["ours"])}
    assert widths["that, down not refitted"] == widths["that, neurons by wanda"] == widths["ours"]
    assert set(widths["that, every layer alike"]) == {64}
    for number, layer in enumerate(layers["target: dense stream alone"]):
        fit = means.found.fit(number, "held")
        plain = down_of(means.found.anatomy, number)[:, layer.kept]
        assert fit.error(layer.down, layer.kept) <= fit.error(plain, layer.kept) + 1e-12


def test_errors_are_priced_on_what_nothing_was_fitted_to() -> None:
    assert probed(PASSAGES) == [PASSAGES[9], PASSAGES[19]]
    assert probed(PASSAGES[:1]) == PASSAGES[:1]
    many = [[n] * 600 for n in range(200)]
    assert [passage[0] % 10 for passage in probed(many)] == [9] * 4
    assert {len(passage) for passage in probed(many)} == {257}


def test_refused(means: Means) -> None:
    with pytest.raises(UnknownName):
        contender("slimgpt")
    for name in ("ours-uniform", "wanda"):
        with pytest.raises(RequestProblem, match="0 neurons"):
            list(contender(name)(means, 0.01))
