"""Recipes: by name and alias, with another share, and what makes no sense is refused."""

from __future__ import annotations

import json

import pytest

from trisplit.compress.recipe import ALIASES, RECIPES, Recipe, recipe_named
from trisplit.compress.steps.lowrank import LowRank
from trisplit.compress.steps.prune import Prune, PruneByCliff, PruneByZone
from trisplit.compress.steps.quantize import Quantize
from trisplit.compress.steps.step import Step
from trisplit.errors import Problem, RequestProblem, UnknownName


def test_recipes_by_name_and_alias() -> None:
    assert all(recipe_named(alias).name == name for alias, name in ALIASES.items())
    assert recipe_named("allocated", 0.75).steps == (Prune(keep=0.75, spread="allocated"),)


@pytest.mark.parametrize(
    ("name", "keep", "kind"),
    [
        ("balancd", None, UnknownName),
        ("balanced", 0.0, RequestProblem),
        ("balanced", 1.5, RequestProblem),
        ("three-zone", 0.5, RequestProblem),
        ("quantize-int8", 0.5, RequestProblem),
    ],
)
def test_what_is_no_recipe_is_refused(name: str, keep: float | None, kind: type[Problem]) -> None:
    with pytest.raises(kind):
        recipe_named(name, keep)


def test_a_share_is_of_one_step() -> None:
    twice = Recipe("twice", "", (Prune(keep=0.9), PruneByCliff(keep=0.5)))
    with pytest.raises(RequestProblem, match="2 steps have a share"):
        twice.keeping(0.5)


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (Quantize(), Prune()),
        (Quantize(), Quantize(dtype="int4")),
        (LowRank(), Prune()),
        (LowRank(), LowRank()),
    ],
    ids=str,
)
def test_an_order_that_undoes_is_refused(steps: tuple[Step, ...]) -> None:
    with pytest.raises(RequestProblem):
        Recipe("odd", "", steps)


@pytest.mark.parametrize("share", [0.0, -1.0, 1.01, float("nan")])
def test_no_share_is_refused(share: float) -> None:
    for make in (
        lambda: Prune(keep=share),
        lambda: PruneByCliff(keep=share),
        lambda: PruneByZone(valley=share),
    ):
        with pytest.raises(RequestProblem, match="no share"):
            make()


def test_facts_are_all_of_it_as_json() -> None:
    for recipe in RECIPES.values():
        facts = json.loads(json.dumps(recipe.facts()))
        assert [step["method"] for step in facts["steps"]] == [step.method for step in recipe.steps]
    assert RECIPES["selective"].facts()["steps"] == [
        {"method": "prune-by-cliff", "keep": 0.5, "cliff": 8.0, "layers": "passing"}
    ]
