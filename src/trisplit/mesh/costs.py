"""What a model asks of the stations that hold it, told from its header, and the plan for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trisplit.errors import PlanProblem
from trisplit.mesh.choose import Choice, choose
from trisplit.mesh.cuts import CUTS, StageCost
from trisplit.mesh.plan import Plan, plan
from trisplit.mesh.predict import Measured
from trisplit.mesh.room import Room
from trisplit.mesh.topology import TOPOLOGIES
from trisplit.models.config import Stage
from trisplit.models.convert import Dtype
from trisplit.models.model import Model


def stage_costs(model: Model, dtype: Dtype, context: int) -> list[StageCost]:
    """Bytes of weights of every third, and of keys and values for `context` tokens; nothing is read."""
    costs = []
    for layer, kind in model.thirds:
        stage = Stage(layer, kind)
        kv_bytes = model.kv_bytes([stage], context)
        costs.append(StageCost(layer, kind, model.weight_bytes(stage, dtype), kv_bytes))
    return costs


def ends_costs(model: Model, dtype: Dtype) -> tuple[StageCost, StageCost]:
    """Bytes of embed and head; a tied head is the embedding, but for its norm."""
    embed, head = (model.weight_bytes(stage, dtype) for stage in model.ends)
    shared = embed if model.config.tied_head else 0
    return StageCost(-1, "embed", embed, 0), StageCost(-1, "head", head, 0, shared)


def possible_cuts(model: Model, cuts: Collection[str] = CUTS) -> list[str]:
    """Those of the cuts that a model can be run in; PlanProblem if it is none."""
    possible = [cut for cut in cuts if cut == "layers" or not model.config.parallel]
    if not possible:
        what = f"cut {next(iter(cuts))} does not know yet that both halves of a parallel block read its input"
        raise PlanProblem(what, fix="use --cut layers")
    return possible


def plan_model(
    model: Model, rooms: Sequence[Room], *, cut: str, topology: str = "chain", dtype: Dtype, context: int
) -> Plan:
    """Which of these stations holds which stages of a model; Problems as of `plan`."""
    possible_cuts(model, [cut])
    costs, ends = stage_costs(model, dtype, context), ends_costs(model, dtype)
    return plan(costs, rooms, cut=cut, topology=topology, ends=ends)


def choose_for_model(
    model: Model,
    rooms: Sequence[Room],
    measured: Measured,
    *,
    dtype: Dtype,
    context: int,
    cuts: Collection[str] = CUTS,
    topologies: Collection[str] = TOPOLOGIES,
) -> Choice:
    """The quickest of these topologies, and of these cuts that the model can be run in.

    Problems as of `choose`, and PlanProblem where it can be run in none of them.
    """
    possible = possible_cuts(model, cuts)
    costs, ends = stage_costs(model, dtype, context), ends_costs(model, dtype)
    return choose(costs, rooms, measured, ends=ends, cuts=possible, topologies=topologies)
