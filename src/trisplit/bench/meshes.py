"""Meshes that a bench starts: what each is to be, and the plan that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from trisplit.bench.levers import Levers
from trisplit.bench.posts import Post, Settings, ours, prompt_of
from trisplit.bench.trip import nominal
from trisplit.bench.waiting import Waits
from trisplit.bench.wires import Wires
from trisplit.errors import RequestProblem, UnknownName
from trisplit.mesh.ahead import starting_ahead
from trisplit.mesh.costs import choose_for_model, plan_model
from trisplit.mesh.overlap import Ahead
from trisplit.mesh.plan import Plan
from trisplit.mesh.predict import KINDS, Measured
from trisplit.mesh.room import Room
from trisplit.models.config import Kind
from trisplit.models.convert import Dtype
from trisplit.models.model import Model, open_model, refuse_if_short


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What runs: the model at `path`, or one that waits."""

    path: str = ""
    waits: Waits | None = None

    def opened(self) -> Model:
        """The model."""
        return self.waits.model() if self.waits else open_model(Path(self.path))

    def prompt_of(self, model: Model) -> list[int]:
        """The ids of a prompt that is always the same."""
        return [1] if self.waits else prompt_of(model)

    def refuse_copies(self, model: Model, dtype: Dtype, copies: int) -> None:
        """RequestProblem with the numbers if the weights cannot be in memory so many times."""
        if not self.waits:
            n_bytes = sum(model.weight_bytes(stage, dtype) for stage in model.stages)
            refuse_if_short(copies * n_bytes, f"the weights, {copies} times over,")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all meshes of a bench have in common. `slow`: how often a station runs each stage, if not once."""

    subject: Subject
    wires: Wires
    slow: Mapping[str, int] = field(default_factory=dict)
    dtype: Dtype
    threads: int

    def __post_init__(self) -> None:
        for name in self.slow.keys() - {*self.wires.stations}:
            raise UnknownName("station", name, self.wires.stations)

    @property
    def is_even(self) -> bool:
        """Whether all links and all stations are alike."""
        return not self.slow and self.wires.even_ms is not None

    def references(self, context: int) -> tuple[Post, Post]:
        """What a mesh is held against: the whole model in one process, and each of its stages alone."""
        if self.subject.waits:
            facts = {"kind": "nominal", "waits": asdict(self.subject.waits), "threads": self.threads}
            return (ours("nominal", facts, {}),) * 2
        path = Path(self.subject.path)
        settings = Settings(model=path, dtype=self.dtype, threads=self.threads, context=context)
        return settings.decoder(), settings.stages()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshFacts:
    """One mesh: everything its process must know, so that it draws the very plan its bench has drawn.

    `stage_ms`: what a stage of each kind takes alone, as measured beforehand; without them stations are taken
    in the order of their names. `ahead`: what starts ahead while the lever `overlap` is on.
    """

    ground: Ground
    cut: str
    topology: str
    context: int
    sessions: int = 1
    stage_ms: Mapping[Kind, float] = field(default_factory=dict)
    ahead: Ahead | None = None

    @property
    def name(self) -> str:
        """`thirds, ring`."""
        return f"{self.cut}, {self.topology}"

    @property
    def wires(self) -> Wires:
        """What lies between its processes."""
        return self.ground.wires

    def post(self, **environment: str) -> Post:
        """The process of its coordinator, which starts and ends its stations."""
        name = f"{self.name}, {self.ground.dtype}, --threads {self.ground.threads}"
        return ours(name, {"kind": "mesh", "mesh": asdict(self), "threads": self.ground.threads}, environment)

    def options(self) -> dict[str, tuple[str, ...]]:
        """What each station is started with, beside its name and address."""
        waits, slow = self.ground.subject.waits, self.ground.slow
        common = waits.options() if waits else ()
        again = {name: ("--repeat", str(times)) for name, times in slow.items()}
        return {name: (*common, *again.get(name, ())) for name in self.wires.stations}

    def measured(self, stage_ms: Mapping[Kind, float]) -> Measured:
        """Nominal links, and stages as they were measured, slow stations as many times slower."""
        once = tuple(stage_ms.get(kind, 0.0) for kind in KINDS)
        rows = (tuple(self.ground.slow.get(name, 1) * ms for ms in once) for name in self.wires.names)
        return replace(nominal(self.wires), stage_ms=tuple(rows))

    def plan(self, model: Model) -> Plan:
        """Who holds what: as `trisplit plan` would choose, once links or stations differ."""
        ground, context = self.ground, self.context
        rooms = [Room(name, None, 100 * ground.slow.get(name, 1)) for name in self.wires.stations]
        if ground.is_even:
            cut, topology = self.cut, self.topology
            return plan_model(model, rooms, cut=cut, topology=topology, dtype=ground.dtype, context=context)
        cuts, topologies = [self.cut], [self.topology]
        measured = self.measured(self.stage_ms)
        choice = choose_for_model(
            model, rooms, measured, dtype=ground.dtype, context=context, cuts=cuts, topologies=topologies
        )
        return choice.best.plan

    def pulled(self, plan: Plan, levers: Levers) -> Plan:
        """That plan under these levers; RequestProblem where none of its layers can start ahead."""
        if not levers.overlap:
            return plan
        if self.ahead is None:
            raise RequestProblem("no layer may start ahead", fix="name some with --overlap, or do without")
        return starting_ahead(plan, self.ahead.layers, self.ahead.early)
