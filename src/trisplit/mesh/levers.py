"""What each lever would give, alone and together: of the whole token, and of the part it touches."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod
from typing import Final

from trisplit.mesh.choose import Choice, Option
from trisplit.mesh.formulas import bottleneck_ms, hidden_ms, in_rounds_ms, in_stream_ms
from trisplit.mesh.predict import KINDS, Measured
from trisplit.mesh.profile import Speculation
from trisplit.table import Cell, Table

TOPOLOGY: Final = "topology"  # stations send to each other
RECUT: Final = "recut"  # down lies with the next attention
WHOLE: Final = "whole layers"
OVERLAP: Final = "overlap"  # attention starts on an early residual
ROUNDS: Final = "rounds"  # drafted tokens are verified together
STREAM: Final = "stream"  # drafted tokens follow each other

SINGLES: Final = ((TOPOLOGY,), (RECUT,), (WHOLE,), (OVERLAP,), (ROUNDS,), (STREAM,))
TOGETHER: Final = (
    (TOPOLOGY, RECUT),
    (TOPOLOGY, RECUT, OVERLAP),
    (TOPOLOGY, RECUT, STREAM),
    (TOPOLOGY, WHOLE),
    (TOPOLOGY, WHOLE, ROUNDS),
    (TOPOLOGY, WHOLE, STREAM),
)

Levers = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A way to be quicker, or several at once, against the mesh as it ran.

    It works on `touched_ms` of the token, of which `left_ms` are left; the rest stays (Amdahl). `product`
    is that of the gains alone, for several at once. Not `is_exact`: it changes tokens, and stays off
    unless its gate passes.
    """

    name: str
    legs: int
    ms: float
    gain: float
    touches: str
    touched_ms: float
    left_ms: float
    product: float | None = None
    is_exact: bool = True

    @property
    def gain_there(self) -> float | None:
        """The gain on what it touches; None where nothing is left of that, or nothing was there."""
        return self.touched_ms / self.left_ms if self.touched_ms and self.left_ms else None


@dataclass(frozen=True, slots=True)
class Ladder:
    """The mesh as it ran, and every lever on it."""

    base: Option
    levers: tuple[Lever, ...]
    speculation: Speculation
    remark: str = ""

    def table(self) -> Table:
        """A row for each lever."""
        columns = (
            *("lever", "tokens", "legs", "ms per token", "gain", "product of gains"),
            *("works on", "ms of it", "gain there"),
        )
        ran: tuple[Cell, ...] = ("as it ran", "same", self.base.prediction.legs, self.base.prediction.ms, 1.0)
        rows = ((*ran, None, None, None, None), *map(_row, self.levers))
        return Table(columns, rows, title=f"what each lever would give, from {self.base.name}{self.remark}")


def ladder(
    choice: Choice,
    measured: Measured,
    *,
    cut: str,
    topology: str,
    speculation: Speculation,
    ahead: Collection[int] | None = None,
    remark: str = "",
) -> Ladder:
    """Every lever against the mesh as it ran, in this cut and topology or the slowest that fits.

    OVERLAP is of these layers, or of all but the first.
    """
    options = {(option.plan.cut, option.plan.topology): option for option in choice.options}
    base = options.get((cut, topology), choice.options[-1])
    bench = _Bench(options, base, measured, speculation, ahead)
    return Ladder(base, tuple(bench.levers()), speculation, remark)


@dataclass(frozen=True, slots=True)
class _Bench:
    """Where levers are tried on the mesh as it ran."""

    options: dict[tuple[str, str], Option]
    base: Option
    measured: Measured
    speculation: Speculation
    ahead: Collection[int] | None

    def levers(self) -> Iterator[Lever]:
        """Each alone, then together, but for those that change nothing or do not fit."""
        gains: dict[str, float] = {}
        for levers in (*SINGLES, *TOGETHER):
            option = self._option(levers)
            if option is None or (len(levers) > 1 and not gains.keys() >= set(levers)):
                continue
            lever = self._pull(levers, option, prod(gains.get(one, 1.0) for one in levers))
            if len(levers) == 1:
                gains[levers[0]] = lever.gain
            yield lever

    def _option(self, levers: Levers) -> Option | None:
        """The plan under these levers; None where there is none, or a lever changes nothing."""
        was, cut = self.base.plan, self.base.plan.cut
        if RECUT in levers or WHOLE in levers:
            cut = "recut" if RECUT in levers else "layers"
            if cut == was.cut or was.cut == "layers":
                return None
        if TOPOLOGY not in levers:
            return self.options.get((cut, was.topology))
        others = [o for (c, t), o in self.options.items() if c == cut and t != was.topology]
        quickest = min(others, key=lambda option: option.prediction.ms, default=None)
        return None if was.topology == "ring" else quickest

    def _pull(self, levers: Levers, option: Option, product: float) -> Lever:
        before, after = self.base.prediction, option.prediction
        hidden = hidden_ms(option.plan, self.measured, self.ahead) if OVERLAP in levers else 0.0
        traversal = ms = after.ms - hidden
        if ROUNDS in levers:
            ms = in_rounds_ms(traversal, self.speculation)
        elif STREAM in levers:
            ms = in_stream_ms(traversal, bottleneck_ms(option.plan, self.measured), self.speculation)
        touches, touched, left = "", 0.0, 0.0
        if ROUNDS in levers or STREAM in levers:
            touches, touched, left = "the token", before.ms, ms
        else:
            if set(levers) & {TOPOLOGY, RECUT, WHOLE}:
                touches, touched = "legs", before.wire_ms + before.late_ms
                left = after.wire_ms + after.late_ms
            if OVERLAP in levers:
                attention = self._attention_ms(self.base), self._attention_ms(option) - hidden
                touches = " and ".join(filter(None, (touches, "attention")))
                touched, left = touched + attention[0], left + attention[1]
        return Lever(
            name=" + ".join(levers),
            legs=after.legs,
            ms=ms,
            gain=before.ms / ms if ms else float("inf"),
            touches=touches,
            touched_ms=touched,
            left_ms=left,
            product=product if len(levers) > 1 else None,
            is_exact=OVERLAP not in levers,
        )

    def _attention_ms(self, option: Option) -> float:
        column = KINDS.index("attention")
        return sum(
            self.measured.stage_ms[self.measured.index(share.station)][column]
            for share in option.plan.shares
            for stage in share.stages
            if stage.kind == "attention"
        )


def _row(lever: Lever) -> tuple[Cell, ...]:
    tokens = "same" if lever.is_exact else "others"
    sums = (lever.name, tokens, lever.legs, lever.ms, lever.gain, lever.product)
    return (*sums, lever.touches, lever.touched_ms, lever.gain_there)
