"""What a model asks of the stations that hold it, told from its header, and the plan for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

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
        n_bytes, parallel = model.weight_bytes(stage, dtype), model.config.parallel
        costs.append(StageCost(layer, kind, n_bytes, kv_bytes, parallel=parallel))
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
    """The quickest of these cuts and topologies for a model; Problems as of `choose`."""
    costs, ends = stage_costs(model, dtype, context), ends_costs(model, dtype)
    return choose(costs, rooms, measured, ends=ends, cuts=cuts, topologies=topologies)
