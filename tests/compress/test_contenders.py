"""Contenders: each keeps what it was asked to, and what they have in common is done alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trisplit.compress.anatomy import dissect
from trisplit.compress.contenders import ABLATIONS, OTHERS, contender, ours
from trisplit.compress.study import Study, down_of, probed, study, weights
from trisplit.errors import RequestProblem, UnknownName

Tiny = Callable[[str], Path]
PASSAGES = [list(range(n, n + 60)) for n in range(3, 25)]


@pytest.fixture(scope="module")
def found(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Study:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRISPLIT_CACHE", str(tmp_path_factory.mktemp("kept")))
        return study(dissect(tiny("llama")), PASSAGES, threads=1)


def test_every_contender_keeps_its_share(found: Study) -> None:
    total = sum(int(path.widths[0]) for path in found.paths)
    for name in OTHERS:
        layers = list(contender(name)(found, 2 / 3))
        widths = [len(layer.kept) for layer in layers]
        assert sum(widths) == 2 * total / 3, name
        if name != "flap-global":
            assert set(widths) == {64}
        for number, layer in enumerate(layers):
            plain = np.array_equal(layer.down, down_of(found.anatomy, number)[:, layer.kept])
            assert plain == (name != "ours-uniform")
            assert (layer.bias is not None) == name.startswith("flap")


def test_a_bias_of_flap_is_what_went_gave_on_average(found: Study) -> None:
    (first, *_) = contender("flap")(found, 2 / 3)
    gone = np.setdiff1d(np.arange(96), first.kept)
    mean = found.moments.of(0).mean
    assert first.bias == pytest.approx(down_of(found.anatomy, 0)[:, gone] @ mean[gone])


def test_ours_and_what_it_is_without_a_part(found: Study) -> None:
    prices = weights(found, probed(PASSAGES), threads=1)
    widths = {what: [len(n.kept) for n in way(found, 2 / 3, prices)] for what, way in ABLATIONS.items()}
    assert {sum(each) for each in widths.values()} == {sum(widths["ours"])}
    assert widths["refit: none"] == widths["selection: wanda, refitted"] == widths["lambda: 1e-2"]
    assert set(widths["allocation: uniform"]) == {64}
    for layer, narrowed in enumerate(ours(found, 2 / 3, prices)):
        fit = found.fit(layer, "held")
        plain = down_of(found.anatomy, layer)[:, narrowed.kept]
        assert fit.error(narrowed.down, narrowed.kept) <= fit.error(plain, narrowed.kept) + 1e-12


def test_errors_are_priced_on_what_nothing_was_fitted_to() -> None:
    assert probed(PASSAGES) == [PASSAGES[9], PASSAGES[19]]
    assert probed(PASSAGES[:1]) == PASSAGES[:1]
    many = [[n] * 600 for n in range(200)]
    assert [passage[0] % 10 for passage in probed(many)] == [9] * 4
    assert {len(passage) for passage in probed(many)} == {257}


def test_refused(found: Study) -> None:
    with pytest.raises(UnknownName):
        contender("slimgpt")
    for name in ("ours-uniform", "wanda"):
        with pytest.raises(RequestProblem, match="0 neurons"):
            list(contender(name)(found, 0.01))
