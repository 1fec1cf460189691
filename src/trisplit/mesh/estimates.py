"""Estimates made on paper of a mesh like the origin's, its way and the right way, from stages as measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trisplit.mesh.formulas import accepted
from trisplit.mesh.profile import Stages
from trisplit.table import Table

CLAIMED = ((0.4, 1), (0.08, 5), (0.05, 8))
"""Acceptance and drafted tokens for which 1 + αK gives the origin's 1.4."""

LIKELY = ((0.6, 5), (0.8, 5), (0.8, 8), (0.95, 8))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A time, how it comes about, and what is to be said of it."""

    name: str
    formula: str
    ms: float
    remark: str


def estimates(stages: Stages, layers: int, ends_ms: float) -> list[Estimate]:
    """A layer, a token, the floor and a pair of overlapped layers: the origin's way, and the right one."""
    total = sum(stages.p50_ms)
    layer = total + stages.between_ms
    token = layers * layer + ends_ms
    said = [
        Estimate("stages of a layer", _sum(stages.p50_ms), total, ""),
        Estimate("layer as measured", f"{layer:,g}", layer, f"{stages.between_ms:g} ms between its stages"),
        Estimate("token", f"{layers} × {layer:g} + {ends_ms:,g}", token, _rate(token)),
    ]
    return said + _floors(stages, layers, ends_ms) + _pairs(stages, layers, token)


def _floors(stages: Stages, layers: int, ends_ms: float) -> list[Estimate]:
    """The best stage times for every layer."""
    if stages.best_ms is None:
        return []
    least, best = min(stages.best_ms), sum(stages.best_ms)
    theirs, right = layers * 3 * least + ends_ms, layers * best + ends_ms
    return [
        Estimate(
            "floor, the origin's",
            f"{layers} × 3 × {least:g} + {ends_ms:,g}",
            theirs,
            f"{_rate(theirs)}; does not hold: the best of the lightest stage stands for all three",
        ),
        Estimate(
            "floor of the stages",
            f"{layers} × ({_sum(stages.best_ms)}) + {ends_ms:,g}",
            right,
            f"{_rate(right)}; the best of each, hops inside",
        ),
    ]


def _pairs(stages: Stages, layers: int, token_ms: float) -> list[Estimate]:
    """Every second layer's attention hidden behind gate_up and down of the one before."""
    attention, gate_up, down = stages.p50_ms
    total, layer = sum(stages.p50_ms), sum(stages.p50_ms) + stages.between_ms
    hidden = min(attention, gate_up + down)
    pair, pairs = 2 * total - hidden, layers // 2
    like = "" if layer == total else f"; {2 * layer / pair:.3f} × of {2 * layer:g} is not like with like"
    paired = token_ms - pairs * hidden
    return [
        Estimate(
            "pair of layers, the origin's",
            f"2 × {total:g} - {hidden:g}",
            pair,
            f"{2 * total / pair:.3f} × of the stages of two layers, {2 * total:g}{like}",
        ),
        Estimate(
            "token of pairs",
            f"{token_ms:,g} - {pairs} × {hidden:g}",
            paired,
            f"{token_ms / paired:.3f} × with the ends; approximate, so off unless its gate passes",
        ),
    ]


def estimates_table(said: Sequence[Estimate]) -> Table:
    """A row for each estimate."""
    rows = tuple((one.name, one.formula, one.ms, one.remark) for one in said)
    return Table(("estimate", "how", "ms", "remark"), rows, title="estimates from the stages alone")


@dataclass(frozen=True, slots=True)
class Round:
    """Tokens a round of speculation yields, by the origin's formula 1 + αK and by the right one.

    The origin's counts what is accepted after a miss too, which is lost.
    """

    acceptance: float
    drafted: int
    origin: float
    right: float


def rounds() -> list[Round]:
    """Both formulas where the first gives the origin's 1.4, and where drafts are good."""
    return [Round(a, k, 1 + a * k, accepted(a, k)) for a, k in CLAIMED + LIKELY]


def rounds_table() -> Table:
    """A row for each acceptance and number of drafted tokens."""
    columns = ("acceptance", "drafted", "origin: 1 + αK", "right: (1 - α^(K+1)) / (1 - α)")
    rows = tuple((one.acceptance, one.drafted, one.origin, one.right) for one in rounds())
    return Table(columns, rows, title="tokens a round of speculation yields")


def _sum(terms: tuple[float, ...]) -> str:
    return " + ".join(f"{ms:g}" for ms in terms)


def _rate(ms: float) -> str:
    return f"{1e3 / ms:.3g} tok/s"
