"""What to cut, by name: how much of all FFNs stays, and whether each layer keeps the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from trisplit.errors import RequestProblem, UnknownName


@dataclass(frozen=True, slots=True)
class Recipe:
    """`keep`: the share of all neurons that stays. `allocated`: split over layers by what errors cost."""

    name: str
    keep: float
    allocated: bool
    what: str


RECIPES: Final[Mapping[str, Recipe]] = {
    recipe.name: recipe
    for recipe in (
        Recipe("conservative", 0.75, False, "three quarters of every FFN; the origin's variant A"),
        Recipe("balanced", 0.5, False, "half of every FFN; the origin's variant B"),
        Recipe("allocated", 0.5, True, "half of all neurons, or --keep; each layer what serves best"),
    )
}
ALIASES: Final[Mapping[str, str]] = {"variant-a": "conservative", "variant-b": "balanced"}


def recipe_named(name: str, keep: float | None = None) -> Recipe:
    """The recipe of this name, with another share if one is given. UnknownName, or RequestProblem."""
    known = RECIPES.get(ALIASES.get(name, name))
    if known is None:
        raise UnknownName("recipe", name, [*RECIPES, *ALIASES])
    if keep is None:
        return known
    if not 0 < keep <= 1:
        raise RequestProblem(f"--keep {keep} is no share", fix="write a number above 0, up to 1")
    return replace(known, keep=keep)
