"""Which attentions may start ahead: what that saves, what it may cost, and the largest set that passes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Final, Literal

from trisplit.table import Cell, Table

Seed = Literal["x", "x+attn"]
Kv = Literal["canonical", "stale"]
Measure = Literal["residual", "kl", "ppl_ratio"]

SEEDS: Final[tuple[Seed, ...]] = ("x", "x+attn")
KVS: Final[tuple[Kv, ...]] = ("canonical", "stale")


@dataclass(frozen=True, slots=True)
class Early:
    """How an attention starts ahead.

    `seed`: on the input x of the layer before, or on x + attn, what that layer's attention left.
    `kv`: canonical keys and values are rewritten from the true residual once it is there, so that only the
    token at hand sees stale ones, its own; stale ones stay.
    """

    seed: Seed = "x+attn"
    kv: Kv = "canonical"


@dataclass(frozen=True, slots=True)
class Ahead:
    """The layers whose attentions start ahead, and how they do."""

    layers: tuple[int, ...]
    early: Early


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What starting ahead changes.

    `residual`: the largest change of a value of the residual after any of the layers that started ahead.
    `logit`: the largest change of a logit. `kl`: mean KL(true ‖ early) of the next token, in nats.
    `ppl_ratio`: perplexity of the text, over that of the true path.
    """

    residual: float
    logit: float
    kl: float
    ppl_ratio: float


NONE: Final = Damage(residual=0.0, logit=0.0, kl=0.0, ppl_ratio=1.0)


@dataclass(frozen=True, slots=True)
class Limit:
    """How much damage a person allows, by one measure."""

    measure: Measure = "residual"
    at_most: float = 1e-4

    def allows(self, damage: Damage) -> bool:
        return self._of(damage) <= self.at_most

    def said(self, damage: Damage) -> str:
        """The figure beside the limit."""
        name = {"residual": "the residual moves by", "kl": "KL is", "ppl_ratio": "perplexity is ×"}
        beside = "within" if self.allows(damage) else "over"
        return f"{name[self.measure]} {self._of(damage):.4g}, {beside} {self.at_most:g}"

    def order(self, singles: Mapping[int, Damage]) -> list[int]:
        """Layers that pass alone, the harmless ones first."""
        passing = [layer for layer, damage in singles.items() if self.allows(damage)]
        return sorted(passing, key=lambda layer: self._of(singles[layer]))

    def _of(self, damage: Damage) -> float:
        value: float = getattr(damage, self.measure)
        return value


# --- time -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Milliseconds a row takes through the thirds of a layer."""

    attention_ms: float
    gate_up_ms: float
    down_ms: float

    @property
    def parallel_overlap_ms(self) -> float:
        """From the start of gate_up to the end of attention, where both read the layer's input."""
        return self.attention_ms

    @property
    def parallel_saves_ms(self) -> float:
        return min(self.attention_ms, self.gate_up_ms)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a row's attentions start and its layers end, with every third on cores of its own."""

    starts_ms: tuple[float, ...]
    ends_ms: tuple[float, ...]

    @classmethod
    def of(cls, times: Sequence[LayerTimes], ahead: Collection[int], seed: Seed) -> Schedule:
        """A row's way if the attentions of the layers `ahead` start as soon as their seed is there."""
        starts, ends = [], []
        x_before = r_before = x = 0.0
        for layer, third in enumerate(times):
            start = x if layer not in ahead else x_before if seed == "x" else r_before
            r = max(start + third.attention_ms, x)
            x_before, r_before, x = x, r, r + third.gate_up_ms + third.down_ms
            starts.append(start)
            ends.append(x)
        return cls(tuple(starts), tuple(ends))

    def overlap_ms(self, layer: int) -> float:
        """End of the down before less the start of this attention: positive where they overlap."""
        return self.ends_ms[layer - 1] - self.starts_ms[layer]


# --- verdicts -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerVerdict:
    """One layer whose attention would start ahead: alone its damage and its gain, and whether it may."""

    layer: int
    residual: float
    logit: float
    kl: float
    ppl_ratio: float
    overlap_ms: float
    saves_ms: float
    verdict: Literal["ON", "OFF"]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapVerdict:
    """Every layer that was asked about, and the set of them that may start ahead together.

    `together` is the damage of that set, `tried` how many sets were measured; `saves_ms` of `token_ms`
    is what the set takes off a row's way through all layers.
    """

    rows: tuple[LayerVerdict, ...]
    together: Damage
    tried: int
    saves_ms: float
    token_ms: float
    exact: bool = False

    @property
    def on(self) -> tuple[int, ...]:
        return tuple(row.layer for row in self.rows if row.verdict == "ON")

    def table(self) -> Table:
        columns = tuple(LayerVerdict.__dataclass_fields__)
        return Table(columns, tuple(self._cells(row) for row in self.rows))

    @staticmethod
    def _cells(row: LayerVerdict) -> tuple[Cell, ...]:
        facts = asdict(row) | {"ppl_ratio": f"{row.ppl_ratio:.4f}"}
        return tuple(facts.values())

    def notes(self) -> Iterator[str]:
        """Lines under the table."""
        gain = f"saves {self.saves_ms:.3g} of {self.token_ms:.3g} ms of compute a token"
        if self.exact:
            yield f"ON in every layer, exactly: {gain}, and a leg a layer where thirds lie apart"
        elif self.on:
            yield f"ON together: layers {spans(self.on)}: {gain}"
            changes = asdict(self.together)
            yield "their damage: " + ", ".join(f"{name} {value:.4g}" for name, value in changes.items())
        else:
            yield "OFF: no layer passes; on a model like this starting ahead is an approximation"

    def as_json(self) -> dict[str, Any]:
        return {
            "rows": [asdict(row) for row in self.rows],
            "exact": self.exact,
            "on": list(self.on),
            "together": asdict(self.together),
            "tried_sets": self.tried,
            "saves_ms": self.saves_ms,
            "token_ms": self.token_ms,
        }


def judge(
    singles: Mapping[int, Damage],
    times: Sequence[LayerTimes],
    *,
    early: Early,
    limit: Limit,
    measure: Callable[[Sequence[int]], Damage],
) -> OverlapVerdict:
    """The verdict on each layer and on all of them together, which is not the sum of the single ones.

    `singles` is the damage of each layer alone, `measure` that of a set. Layers that pass alone are kept
    from the most harmless on, as many as pass together.
    """
    damages: dict[tuple[int, ...], Damage] = {}

    def passes(layers: Sequence[int]) -> bool:
        chosen = tuple(sorted(layers))
        damages[chosen] = singles[chosen[0]] if len(chosen) == 1 else measure(chosen)
        return limit.allows(damages[chosen])

    on = tuple(sorted(largest(limit.order(singles), passes)))
    plain = Schedule.of(times, (), early.seed)
    rows = tuple(
        _verdict(layer, damage, layer in on, Schedule.of(times, (layer,), early.seed), plain, limit)
        for layer, damage in sorted(singles.items())
    )
    return OverlapVerdict(
        rows=rows,
        together=damages[on] if on else NONE,
        tried=len(damages),
        saves_ms=plain.ends_ms[-1] - Schedule.of(times, on, early.seed).ends_ms[-1],
        token_ms=plain.ends_ms[-1],
    )


def _verdict(
    layer: int, damage: Damage, is_on: bool, alone: Schedule, plain: Schedule, limit: Limit
) -> LayerVerdict:
    reason = limit.said(damage)
    if limit.allows(damage) and not is_on:
        reason += ", but not in a set that passes"
    return LayerVerdict(
        layer=layer,
        **asdict(damage),
        overlap_ms=alone.overlap_ms(layer),
        saves_ms=plain.ends_ms[-1] - alone.ends_ms[-1],
        verdict="ON" if is_on else "OFF",
        reason=reason,
    )


def exact(times: Sequence[LayerTimes]) -> OverlapVerdict:
    """The verdict on parallel blocks: attention and FFN both read the layer's input, and nothing changes."""
    rows = tuple(
        LayerVerdict(
            layer=layer,
            **asdict(NONE),
            overlap_ms=third.parallel_overlap_ms,
            saves_ms=third.parallel_saves_ms,
            verdict="ON",
            reason="exact: attention and FFN both read the layer's input",
        )
        for layer, third in enumerate(times)
    )
    return OverlapVerdict(
        rows=rows,
        together=NONE,
        tried=0,
        saves_ms=sum(row.saves_ms for row in rows),
        token_ms=Schedule.of(times, (), "x").ends_ms[-1],
        exact=True,
    )


def largest(order: Sequence[int], passes: Callable[[Sequence[int]], bool]) -> Sequence[int]:
    """A beginning of `order` that passes: all of it, or the longest that halving finds.

    What passes need not be monotonic; what is returned has passed, or is empty.
    """
    if not order or passes(order):
        return order
    good, bad = 0, len(order)
    while bad - good > 1:
        middle = (good + bad) // 2
        if passes(order[:middle]):
            good = middle
        else:
            bad = middle
    return order[:good]


def spans(layers: Sequence[int]) -> str:
    """`1-4, 9` of sorted layers."""
    runs = [
        [layer for _, layer in run]
        for _, run in groupby(enumerate(layers), key=lambda place: place[1] - place[0])
    ]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
