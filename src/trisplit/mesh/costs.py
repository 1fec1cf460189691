"""What a model asks of the stations that hold it, told from its header, and the plan for it."""

from __future__ import annotations

from collections.abc import Sequence

from trisplit.errors import PlanProblem
from trisplit.mesh.cuts import StageCost
from trisplit.mesh.plan import Plan, plan
from trisplit.mesh.room import Room
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


def plan_model(
    model: Model, rooms: Sequence[Room], *, cut: str, topology: str = "chain", dtype: Dtype, context: int
) -> Plan:
    """Which of these stations holds which stages of a model; Problems as of `plan`."""
    if model.config.parallel and cut != "layers":
        what = f"cut {cut} does not know yet that both halves of a parallel block read its input"
        raise PlanProblem(what, fix="use --cut layers")
    costs, ends = stage_costs(model, dtype, context), ends_costs(model, dtype)
    return plan(costs, rooms, cut=cut, topology=topology, ends=ends)
