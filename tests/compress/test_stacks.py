"""Recipes in files: what they say is what is done, and typos are told with what was meant."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path

import pytest

from trisplit.compress.recipe import RECIPES, STEPS
from trisplit.compress.stacks import open_recipe, read_stack
from trisplit.compress.steps.prune import Prune, PruneByCliff
from trisplit.compress.steps.quantize import Quantize
from trisplit.errors import Problem, RequestProblem, UnknownName

EXAMPLE = Path(__file__).parents[2] / "examples" / "stack.toml"


def test_the_example_is_a_recipe() -> None:
    recipe = open_recipe(str(EXAMPLE))
    assert recipe.name == "stack"
    assert [step.method for step in recipe.steps] == ["prune", "quantize"]
    assert recipe.what


def test_steps_as_written(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'what = "mine"\n[[steps]]\nmethod = "prune"\nkeep = 1\nspread = "allocated"\n'
        '[[steps]]\nmethod = "prune-by-cliff"\ncliff = "p90"\n[[steps]]\nmethod = "quantize"\n'
    )
    recipe = open_recipe(str(file))
    assert (recipe.name, recipe.what) == ("mine", "mine")
    assert recipe.steps == (Prune(keep=1.0, spread="allocated"), PruneByCliff(cliff="p90"), Quantize())
    with pytest.raises(RequestProblem, match="2 steps have a share"):
        open_recipe(str(file), 0.5)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_can_be_written_as_a_file(name: str, tmp_path: Path) -> None:
    lines = []
    for step in RECIPES[name].steps:
        lines += ["[[steps]]", f'method = "{step.method}"']
        given = asdict(step)  # type: ignore[call-overload]
        lines += [
            f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
            for key, value in given.items()
        ]
    (tmp_path / "same.toml").write_text("\n".join(lines))
    assert read_stack(tmp_path / "same.toml").steps == RECIPES[name].steps


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("keep = 0.5", UnknownName, "no key of bad.toml is named 'keep'"),
        ("steps = 3", RequestProblem, "`steps` a list"),
        ("steps = [3]", RequestProblem, "step 1 of bad.toml has no method"),
        ("what = 'nothing'", RequestProblem, "no steps"),
        ("[[steps]]\nkeep = 0.5", RequestProblem, "no method"),
        ("[[steps]]\nmethod = 'prun'", UnknownName, "prun"),
        ("[[steps]]\nmethod = ['prune']", UnknownName, "prune"),
        ("[[steps]]\nmethod = 'prune'\nkep = 0.5", UnknownName, "no parameter of prune is named 'kep'"),
        ("[[steps]]\nmethod = 'prune'\nkeep = 'half'", RequestProblem, "keep"),
        ("[[steps]]\nmethod = 'prune'\nkeep = 7", RequestProblem, "keep 7"),
        ("[[steps]]\nmethod = 'prune'\nspread = 'evenly'", RequestProblem, "evenly"),
        ("[[steps]]\nmethod = 'quantize'\ndtype = 'int3'", RequestProblem, "int3"),
        ("[[steps]]\nmethod = 'quantize'\n[[steps]]\nmethod = 'prune'", RequestProblem, "undo"),
        ("[[steps]", RequestProblem, "no TOML"),
    ],
)
def test_refused(text: str, kind: type[Problem], said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(kind) as raised:
        read_stack(tmp_path / "bad.toml")
    assert said in raised.value.what
    assert raised.value.fix


def test_a_typo_is_told_what_was_meant(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[[steps]]\nmethod = 'prune'\nkep = 0.5")
    with pytest.raises(UnknownName) as raised:
        read_stack(tmp_path / "bad.toml")
    assert raised.value.fix == "did you mean 'keep'?"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RequestProblem, match="cannot be read"):
        open_recipe(str(tmp_path / "none.toml"))


def test_every_kind_of_step_says_what_it_does() -> None:
    assert all(kind.what and kind.__doc__ for kind in STEPS.values())
    assert all(field.default is not None for kind in STEPS.values() for field in fields(kind))  # type: ignore[arg-type]
