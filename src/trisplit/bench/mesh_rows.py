"""One rung of a ladder, from what its mesh, the decoder and the single stages answered; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from trisplit.bench.levers import NONE, Levers
from trisplit.bench.measure import Spread
from trisplit.bench.meshes import MeshFacts
from trisplit.bench.peers import Answer
from trisplit.bench.seen import LegTimes, Seen, StageTimes, leg_times, spans, stage_times, tokens_seen
from trisplit.bench.trip import bytes_per_token, floor_ms
from trisplit.bench.waterfall import LEG, Span
from trisplit.mesh.flow import flows
from trisplit.mesh.plan import Plan
from trisplit.mesh.predict import predict
from trisplit.models.config import Kind, ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshRow:
    """One rung; times are from one token to the next at the coordinator, over all rounds.

    `one_way_ms` is None where links differ: see `legs`. `floor_ms`: nominal time of the legs, and
    `one_process_ms`, the median of the decoder in one process with as many threads in the same rounds.
    `predicted_ms`: from nominal links, and stages run one by one in the same rounds. Beyond the floor are
    `legs_beyond_ms`, what legs took longer than nominal; `waits_ms`, when rows were ready and not run; and
    `stages_beyond_ms`, what stages took longer than one process: medians of all tokens. `tokens_equal`:
    whether every round chose the decoder's own tokens; with `overlap` others are a finding and no fault, and
    what attentions take beside other stages may bring a token below the floor.
    """

    cut: str
    topology: str
    stations: int
    levers: str
    one_way_ms: float | None
    jitter_ms: float
    mbit: float | None
    legs_per_token: int
    dtype: str
    threads: int
    floor_ms: float
    p50_ms: float
    best_ms: float
    p95_ms: float
    ratio_to_floor: float
    one_process_ms: float
    predicted_ms: float
    legs_beyond_ms: float
    waits_ms: float
    stages_beyond_ms: float
    bytes_per_token: int
    tokens_equal: bool
    legs: tuple[LegTimes, ...]
    stages: tuple[StageTimes, ...]

    @property
    def name(self) -> str:
        """`thirds, ring`, `thirds, ring, batched`."""
        return ", ".join((self.cut, self.topology, *([self.levers] if self.levers != NONE else [])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A mesh with its levers, and what it answered in every round; tokens fed at `first` to `last` count."""

    facts: MeshFacts
    plan: Plan
    config: ModelConfig
    levers: Levers
    answers: Sequence[Answer]
    first: int
    last: int

    def row(self, one: Sequence[Answer], stage_ms: Mapping[Kind, float]) -> MeshRow:
        """Beside the decoder's answers in the same rounds, and what stages took one by one."""
        facts, plan, wires = self.facts, self.plan, self.facts.wires
        times, alone = Spread.of(self.ms(self.answers)), Spread.of(self.ms(one))
        tokens, seen = self.tokens(), self._seen()
        floor = floor_ms(plan, self.config, wires, alone.p50_ms)
        return MeshRow(
            cut=plan.cut,
            topology=plan.topology,
            stations=len(plan.shares),
            levers=self.levers.name,
            one_way_ms=wires.even_ms,
            jitter_ms=wires.jitter_ms,
            mbit=wires.mbit,
            legs_per_token=plan.legs_per_token,
            dtype=facts.ground.dtype,
            threads=facts.ground.threads,
            floor_ms=floor,
            p50_ms=times.p50_ms,
            best_ms=times.best_ms,
            p95_ms=times.p95_ms,
            ratio_to_floor=times.p50_ms / floor,
            one_process_ms=alone.p50_ms,
            predicted_ms=predict(plan, facts.measured(stage_ms)).ms,
            legs_beyond_ms=median(self._late_ms(token) for token in tokens),
            waits_ms=median(each.waits_ms for each in seen),
            stages_beyond_ms=median(sum(s.ms for s in token if s.is_work) for token in tokens) - alone.p50_ms,
            bytes_per_token=bytes_per_token(plan, self.config),
            tokens_equal=all(a["token_ids"] == o["token_ids"] for a, o in zip(self.answers, one)),
            legs=tuple(leg_times(tokens, wires)),
            stages=tuple(stage_times(tokens)),
        )

    def ms(self, answers: Sequence[Answer]) -> list[float]:
        """Times of the tokens that count, over all rounds."""
        n = self.last - self.first + 1
        return [ms for answer in answers for ms in answer["ms"][:n]]

    def tokens(self) -> list[list[Span]]:
        """What was seen of every token that counts."""
        return [spans(self.plan, self.facts.wires, seen) for seen in self._seen()]

    def typical(self) -> list[Span]:
        """A token that took about as long as the median."""
        ms = self.ms(self.answers)
        p50_ms = median(ms)
        return min(zip(ms, self.tokens()), key=lambda pair: abs(pair[0] - p50_ms))[1]

    def _seen(self) -> list[Seen]:
        ahead = {flow.target for flow in flows(self.plan) if flow.early}
        return [seen for answer in self.answers for seen in tokens_seen(answer, self.first, self.last, ahead)]

    def _late_ms(self, token: Sequence[Span]) -> float:
        wires = self.facts.wires
        return sum(s.ms - wires.delay(s.who, s.to).mean_ms for s in token if s.what == LEG)
