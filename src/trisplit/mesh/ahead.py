"""Letting attentions of a plan start before their input is there; refused where they cannot."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from trisplit.errors import RequestProblem
from trisplit.mesh.overlap import Ahead, Early
from trisplit.mesh.plan import Plan


def overlapping(plan: Plan, wanted: Ahead | None) -> Plan:
    """The plan whose layers start ahead as wanted; in thirds parallel blocks do better by themselves.

    RequestProblem as of `starting_ahead`.
    """
    parallel = any(stage.parallel for group in plan.groups for stage in group.stages)
    if wanted is None or (parallel and plan.cut == "thirds"):
        return plan
    return starting_ahead(plan, wanted.layers, wanted.early)


def refuse_with_failover(plan: Plan, *, recovers: bool) -> None:
    """RequestProblem when layers start ahead in a mesh that is to go on when a station is lost."""
    if recovers and plan.ahead is not None:
        raise RequestProblem(
            "what layers left that started ahead cannot be played again when a station is lost",
            fix="do without one of both: layers that start ahead, or failover (as of `trisplit up`)",
        )


def refuse_with_drafts(plan: Plan) -> None:
    """RequestProblem when layers start ahead in a mesh whose answers are to be drafted."""
    if plan.ahead is not None:
        raise RequestProblem(
            "layers that start ahead and drafts do not go together",
            fix="do without one of both: layers that start ahead (--overlap), or drafts (--speculate)",
        )


def starting_ahead(plan: Plan, layers: Collection[int], early: Early) -> Plan:
    """The plan whose attentions of these layers start ahead for decoded tokens; none of them: as it was.

    It computes another function than the model's, the one that `trisplit.mesh.shadow` judges. Raises
    RequestProblem for another cut than thirds, parallel blocks, and layers that have no row to start on.
    """
    if not layers:
        return replace(plan, ahead=None)
    if plan.cut != "thirds":
        raise RequestProblem(
            f"in the cut {plan.cut} no attention stands alone, so none can start ahead",
            fix="cut it in thirds (--cut thirds), or let none start ahead",
        )
    stages = [stage for group in plan.groups for stage in group.stages]
    if any(stage.parallel for stage in stages):
        raise RequestProblem(
            "blocks that are parallel overlap exactly already", fix="let none of their layers start ahead"
        )
    first, last = (2 if early.seed == "x" else 1), max(stage.layer for stage in stages)
    unable = sorted(layer for layer in layers if not first <= layer <= last)
    if unable:
        raise RequestProblem(
            f"layer {unable[0]} cannot start ahead on {early.seed}", fix=f"choose of layers {first} to {last}"
        )
    return replace(plan, ahead=Ahead(tuple(sorted(set(layers))), early))
