"""What flows between groups: each gets all it takes, once, whatever the cut and the blocks."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.mesh.stations import rooms, stages
from trisplit.mesh.cuts import CUTS
from trisplit.mesh.flow import Flow, flows
from trisplit.mesh.plan import plan
from trisplit.mesh.topology import TOPOLOGIES


def test_a_residual_goes_past_gate_up() -> None:
    drawn = plan(stages(2), rooms(3), cut="thirds")
    residuals = [Flow(0, 2, residual=True), Flow(3, 5, residual=True)]
    assert set(flows(drawn)) == {*(Flow(n, n + 1) for n in range(6)), *residuals}


def test_in_parallel_blocks_attention_and_gate_up_get_the_same() -> None:
    """Only the first attention hands its x on: nobody before it could have sent it to both."""
    drawn = plan(stages(2, parallel=True), rooms(3), cut="thirds")
    assert flows(drawn) == (
        Flow(0, 1),
        Flow(0, 2, residual=True),
        Flow(1, 2),
        Flow(2, 3),
        Flow(2, 4),
        Flow(3, 5, residual=True),
        Flow(4, 5),
        Flow(5, 6),
    )


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
@pytest.mark.parametrize("cut", sorted(CUTS))
def test_every_group_gets_what_it_takes_once(cut: str, topology: str, parallel: bool) -> None:
    drawn = plan(stages(5, parallel=parallel), rooms(7), cut=cut, topology=topology)
    came = Counter((flow.target, flow.residual) for flow in flows(drawn))
    fed = 0 if topology == "ring" else 1  # the first group, by the coordinator
    for group in drawn.groups:
        assert came[group.number, False] == (1 if group.number else 1 - fed)
        assert came[group.number, True] == (group.stages[0].kind == "down")
    assert came[len(drawn.groups), False] == 1
    assert came.total() == sum(1 + (g.stages[0].kind == "down") for g in drawn.groups) + 1 - fed
