"""Estimates on paper: the origin's figures, and where its arithmetic does not hold."""

from __future__ import annotations

import pytest

from trisplit.mesh.estimates import estimates, rounds
from trisplit.mesh.profile import Stages

ORIGIN = Stages(p50_ms=(187, 148, 207), best_ms=(183, 138, 192), layer_ms=549, hops_inside=True)


def test_the_origins_figures() -> None:
    said = {one.name: one for one in estimates(ORIGIN, 60, 2170)}
    assert said["token"].ms == 60 * 549 + 2170 == 35_110
    assert said["token"].remark == "0.0285 tok/s"
    assert said["floor, the origin's"].ms == 27_010
    assert said["pair of layers, the origin's"].ms == 897
    assert "does not hold" in said["floor, the origin's"].remark
    assert said["floor of the stages"].ms == 60 * (183 + 138 + 192) + 2170


def test_an_odd_layer_has_no_pair() -> None:
    said = {one.name: one.ms for one in estimates(Stages(p50_ms=(2, 3, 4)), 5, 10)}
    assert said["token of pairs"] == 5 * 9 + 10 - 2 * 2
    assert "floor of the stages" not in said


def test_only_as_much_is_hidden_as_there_is_to_hide_behind() -> None:
    said = {one.name: one.ms for one in estimates(Stages(p50_ms=(9, 3, 4)), 4, 0)}
    assert said["pair of layers, the origin's"] == 2 * 16 - 7


def test_one_and_alpha_k_is_never_too_low_and_right_for_one() -> None:
    for one in rounds():
        assert one.origin == pytest.approx(1 + one.acceptance * one.drafted)
        assert one.right <= one.origin + 1e-12
        assert (one.drafted == 1) == (one.right == pytest.approx(one.origin))
