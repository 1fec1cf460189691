"""What to do to a model, by name: recipes, each a few steps that are taken one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from trisplit.compress.steps.lowrank import LowRank
from trisplit.compress.steps.prune import Prune, PruneByCliff, PruneByZone
from trisplit.compress.steps.quantize import Quantize
from trisplit.compress.steps.step import Step
from trisplit.errors import RequestProblem, UnknownName

STEPS: Final[Mapping[str, type[Step]]] = {
    step.method: step for step in (Prune, PruneByCliff, PruneByZone, LowRank, Quantize)
}
"""The kinds of step, in the order in which they may follow one another."""

# A refitted down is of full rank and on no grid, and so is a product of two factors.
_TURN: Final = {Prune: 0, PruneByCliff: 0, PruneByZone: 0, LowRank: 1, Quantize: 2}


@dataclass(frozen=True, slots=True)
class Recipe:
    """A name, in a line what it does, and its steps; RequestProblem for an order that makes no sense."""

    name: str
    what: str
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if not self.steps:
            raise RequestProblem(f"{self.name} has no steps", fix='add one: [[steps]], method = "prune"')
        for before, after in zip(self.steps, self.steps[1:]):
            turns = _TURN[type(before)], _TURN[type(after)]
            if turns[0] > turns[1] or turns[0] == turns[1] > 0:
                what = f"{self.name}: a step {after.method} would undo the step {before.method} before it"
                raise RequestProblem(what, fix="prune first, then low-rank, then quantize, these two once")

    def facts(self) -> dict[str, Any]:
        """All of it, for a receipt."""
        steps = [{"method": step.method, **asdict(step)} for step in self.steps]  # type: ignore[call-overload]
        return {"name": self.name, "what": self.what, "steps": steps}

    def keeping(self, keep: float) -> Recipe:
        """The recipe with another share; RequestProblem when that could be said of no step, or of several."""
        places = [place for place, step in enumerate(self.steps) if hasattr(step, "keep")]
        if len(places) != 1:
            said = f"{len(places)} steps have a share" if places else "no step has a share"
            what = f"--keep {keep} says nothing to the recipe {self.name}: {said}"
            raise RequestProblem(what, fix="leave it out, or write the recipe as a file of steps")
        steps = list(self.steps)
        steps[places[0]] = replace(steps[places[0]], keep=keep)  # type: ignore[type-var]
        return replace(self, steps=tuple(steps))


RECIPES: Final[Mapping[str, Recipe]] = {
    recipe.name: recipe
    for recipe in (
        Recipe("conservative", "three quarters of every FFN; the origin's variant A", (Prune(keep=0.75),)),
        Recipe("balanced", "half of every FFN; the origin's variant B", (Prune(keep=0.5),)),
        Recipe("selective", "half of the FFNs whose cliff is 8 or more, the others whole", (PruneByCliff(),)),
        Recipe(
            "selective-inverted",
            "half of the FFNs whose cliff is under 8, the fragile ones; there to be rejected; variant C",
            (PruneByCliff(layers="failing"),),
        ),
        Recipe(
            "three-zone",
            "all of fragile layers, half of the valley, three quarters of the refinement; variant D",
            (PruneByZone(),),
        ),
        Recipe(
            "allocated",
            "half of all neurons; each layer keeps what serves the model best",
            (Prune(keep=0.5, spread="allocated"),),
        ),
        Recipe("lowrank", "matrices as two factors, where that beats pruning", (LowRank(),)),
        Recipe("quantize-int8", "weights of 8 bits", (Quantize(dtype="int8"),)),
        Recipe(
            "quantize-int4", "weights of 4 bits, fitted to the calibration text", (Quantize(dtype="int4"),)
        ),
    )
}
ALIASES: Final[Mapping[str, str]] = {
    "variant-a": "conservative",
    "variant-b": "balanced",
    "variant-c": "selective-inverted",
    "variant-d": "three-zone",
}


def recipe_named(name: str, keep: float | None = None) -> Recipe:
    """The recipe of this name, with another share if one is given. UnknownName, or RequestProblem."""
    known = RECIPES.get(ALIASES.get(name, name))
    if known is None:
        raise UnknownName("recipe", name, [*RECIPES, *ALIASES])
    return known if keep is None else known.keeping(keep)
