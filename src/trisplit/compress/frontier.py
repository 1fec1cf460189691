"""What size buys: the sizes that were tried of a model, and what each of them lost."""

from __future__ import annotations

from dataclasses import dataclass

from trisplit.compress.evaluate import TextScore


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A size: neurons of all FFNs, their `share` of those there were, all parameters; and what it lost.

    `strain`: how much of what the gates allow is lost, of the one strained most; it passes at 1 or less.
    `thorough`: measured on the whole exam, and not on its beginning.
    """

    neurons: int
    share: float
    parameters: int
    texts: tuple[TextScore, ...]
    strain: float
    thorough: bool

    @property
    def passed(self) -> bool:
        """Whether it passes every gate."""
        return self.strain <= 1
