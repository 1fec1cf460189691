"""What waits on a station is bounded, whatever its peers send: rows in a queue, and without their half."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
import pytest

from tests.mesh.test_holding import CONTEXT, STREAM, held
from trisplit.errors import PeerProblem
from trisplit.mesh.holding import Held
from trisplit.models.model import Model, open_model
from trisplit.wire.frame import Activation


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    from tests.tiny import build_variant

    return open_model(build_variant("llama", tmp_path_factory.mktemp("hoarding") / "model"))


def rows(model: Model, position: int, n: int, group: int, **facts: int) -> Activation:
    payload = np.zeros((n, model.config.hidden), np.float32).data.cast("B")
    return msgspec.structs.replace(Activation(STREAM, position, 0, group, n, payload), **facts)


def taken(here: Held, frames: Iterable[Activation]) -> PeerProblem | None:
    """Why one of the frames was refused."""
    try:
        for said in frames:
            here.take(said)
    except PeerProblem as problem:
        return problem
    return None


def waiting(here: Held) -> int:
    """Rows that wait, of all streams."""
    groups, streams = here.groups, here.streams.items()
    return sum(s.halves_for(g) + here.turns.rows(number, g) for number, s in streams for g in groups)


def test_halves_that_never_meet(model: Model) -> None:
    """Each at a position of its own, and long: they would add up to the square of the context."""
    here = held(model)
    refused = taken(here, (rows(model, at, CONTEXT - at, 2, residual=True) for at in range(CONTEXT)))
    assert refused is not None
    assert "rows of stream 7 wait for group 2" in refused.what
    assert waiting(here) <= 2 * CONTEXT
    here.take(rows(model, 0, 1, 2, residual=True, epoch=1))
    assert waiting(here) == 1, "what a fence has voided waits no longer"


@pytest.mark.parametrize("n", [1, 5])
def test_rows_that_come_faster_than_they_run(model: Model, n: int) -> None:
    here = held(model)
    refused = taken(here, (rows(model, 0, n, 3) for _ in range(10_000)))
    assert refused is not None
    assert "rows of stream 7 wait for group 3" in refused.what
    assert refused.fix == "send no row twice, and less before an answer comes"
    assert 2 * CONTEXT - n < waiting(here) <= 2 * CONTEXT


def test_what_is_void_does_not_wait_for_its_turn(model: Model) -> None:
    here = held(model)
    for _ in range(50):
        for epoch in range(5):
            assert taken(here, (rows(model, 0, 1, 3, epoch=epoch) for _ in range(CONTEXT))) is None
            assert waiting(here) == CONTEXT
        here.fence(STREAM, 5)
        assert waiting(here) == 0
        here.take(rows(model, 0, 1, 3, epoch=5))
        here.close(STREAM)
        assert waiting(here) == 0
        here.open(STREAM)


def test_a_whole_context_may_wait_twice(model: Model) -> None:
    """All of it, and all of it again: as when what a station had is played to another."""
    here = held(model)
    for _ in range(2):
        assert taken(here, (rows(model, at, 1, 3) for at in range(CONTEXT))) is None
    assert waiting(here) == 2 * CONTEXT
