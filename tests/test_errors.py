"""Problems: what happened, what to do, and a guess at what was meant."""

from __future__ import annotations

import pytest

from trisplit.errors import CheckpointProblem, Problem, UnknownName


def test_a_problem_says_what_and_what_to_do() -> None:
    problem = CheckpointProblem("the file is short", fix="get it again")
    assert (problem.what, problem.fix, problem.exit_code) == ("the file is short", "get it again", 1)
    assert str(problem) == "the file is short (get it again)"


def test_a_problem_without_a_fix_cannot_be_made() -> None:
    with pytest.raises(TypeError):
        Problem("something")  # type: ignore[call-arg]


def test_an_unknown_name_is_met_with_the_nearest() -> None:
    assert UnknownName("cut", "third", ["thirds", "layers"]).fix == "did you mean 'thirds'?"
    assert UnknownName("cut", "zzz", ["thirds", "layers"]).fix == "known: layers, thirds"
