"""When a station is lost: who takes its groups, and what of a stream's past is news to whom; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from trisplit.errors import PlanProblem
from trisplit.mesh.flow import Flow, flows
from trisplit.mesh.plan import Plan, Share
from trisplit.table import size
from trisplit.wire.losses import Seen


def taken_over(
    plan: Plan, lost: Collection[str], spares: Sequence[str], limits: Mapping[str, int | None]
) -> Plan:
    """The plan with the groups of lost stations on others: a spare that has room, else who has most left.

    `limits` are bytes for weights and KV by station, None for no limit. PlanProblem with the numbers when
    nobody has room.
    """
    shares = {share.station: share for share in plan.shares if share.station not in lost}
    idle = [name for name in spares if name not in lost and name not in shares]
    for share in plan.shares:
        if share.station in lost:
            taker = _taker(share, shares, idle, limits)
            before = shares[taker].groups if taker in shares else ()
            groups = sorted([*before, *share.groups], key=lambda group: group.number)
            shares[taker] = Share(taker, tuple(groups))
            idle = [name for name in idle if name != taker]
    return replace(plan, shares=tuple(shares.values()), spares=tuple(idle))


def _taker(
    lost: Share, shares: Mapping[str, Share], idle: Sequence[str], limits: Mapping[str, int | None]
) -> str:
    asked = lost.weight_bytes + lost.kv_bytes
    left: dict[str, float] = {}
    for name in [*idle, *shares]:
        limit, share = limits.get(name), shares.get(name)
        used = share.weight_bytes + share.kv_bytes if share else 0
        left[name] = float("inf") if limit is None else limit - used
    for name in idle:
        if left[name] >= asked:
            return name
    # Among those that state no limit, who holds least.
    able = [name for name in shares if left[name] >= asked]
    if able:
        return min(able, key=lambda name: (-left[name], shares[name].weight_bytes))
    most = max((room for room in left.values()), default=0)
    what = f"station {lost.station} is lost, and {lost.label} need {size(asked)}"
    raise PlanProblem(
        f"{what} where others have {size(max(0, int(most)))} left",
        fix="start another station, or a spare beforehand",
    )


def moved(before: Plan, after: Plan) -> dict[str, list[int]]:
    """The groups each station holds after that it did not hold before."""
    homes = before.homes
    new = {
        share.station: [g.number for g in share.groups if homes[g.number] != share.station]
        for share in after.shares
    }
    return {name: numbers for name, numbers in new.items() if numbers}


def unseen_from(seen: Sequence[Seen], flow: Flow, epochs: Sequence[tuple[int, int]]) -> int:
    """From which position on rows of a flow are news to its target, of whom `seen` tells; for one stream.

    `epochs` are those in which rows were sent, with the position each began at, oldest first. Links keep
    order, so who has seen a row of an epoch has seen all before it. To send too much is safe, for rows that
    run again give the same bits and are followed by all that came after; so where it cannot be told it is 0.
    """
    here = [each for each in seen if (each.group, each.residual) == (flow.target, flow.residual)]
    if not here or not epochs:
        return 0
    (last,) = here
    newest, began = epochs[-1]
    if last.epoch == newest:
        return last.end
    if len(epochs) > 1 and last.epoch == epochs[-2][0]:
        return min(last.end, began)
    return 0


def flows_out_of(plan: Plan, groups: Collection[int]) -> Iterator[Flow]:
    """What these groups leave."""
    return (flow for flow in flows(plan) if flow.source in groups)
