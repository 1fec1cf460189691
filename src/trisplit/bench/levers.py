"""Levers that a mesh can pull while it runs, by their names; pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from trisplit.errors import UnknownName

NONE: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Levers:
    """What is on.

    `batched`: frames of one turn of the loop leave together; `routed`: frames carry the way they take;
    `overlap`: layers start ahead, which changes tokens.
    """

    batched: bool = False
    routed: bool = False
    overlap: bool = False

    @property
    def name(self) -> str:
        """`none`, `batched`, `batched+routed`."""
        return "+".join(name for name, is_on in asdict(self).items() if is_on) or NONE


def levers_named(words: str) -> Levers:
    """Levers by `none`, or names joined by `+`; UnknownName for a word that is none."""
    known = (NONE, *asdict(Levers()))
    names = [word.strip() for word in words.split("+")]
    for name in names:
        if name not in known:
            raise UnknownName("lever", name, known)
    return Levers(**{name: True for name in names if name != NONE})
