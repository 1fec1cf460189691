"""Which plans let attentions start ahead, and how a station joins an early row and its input."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.mesh.stations import rooms, stages
from tests.mesh.test_holding import STREAM, Tiny, holding, owned, rows
from trisplit.errors import PeerProblem, RequestProblem
from trisplit.mesh.ahead import starting_ahead
from trisplit.mesh.flow import Flow, flows
from trisplit.mesh.holding import Held
from trisplit.mesh.overlap import Ahead, Early, Kv, Seed
from trisplit.mesh.plan import Plan, plan
from trisplit.models.config import Stage
from trisplit.models.model import Model, open_model
from trisplit.models.session import Tracks
from trisplit.wire.frame import DECODED, Activation
from trisplit.wire.messages import Join, Way


def drawn(cut: str = "thirds", *, parallel: bool = False) -> Plan:
    return plan(stages(4, parallel=parallel), rooms(3), cut=cut)


@pytest.mark.parametrize(("seed", "sources"), [("x+attn", (3, 6)), ("x", (2, 5))])
def test_early_rows_come_from_where_the_seed_is(seed: Seed, sources: tuple[int, ...]) -> None:
    """From attention of the layer before, or from the down that left what that attention took."""
    ahead = starting_ahead(drawn(), (3, 2, 3), Early(seed))
    assert ahead.ahead == Ahead((2, 3), Early(seed))
    early = [Flow(source, target, early=True) for source, target in zip(sources, (6, 9))]
    assert flows(ahead) == (*flows(drawn()), *early)
    assert ahead.table().title == f"{drawn().table().title}, attention 2-3 ahead"


def test_none_ahead_is_the_plan_as_it_was() -> None:
    assert starting_ahead(drawn("layers"), (), Early()) == drawn("layers")


@pytest.mark.parametrize(
    ("made", "layers", "seed", "why"),
    [
        (drawn("recut"), [1], "x+attn", "in the cut recut no attention stands alone"),
        (drawn(parallel=True), [1], "x+attn", "overlap exactly already"),
        (drawn(), [2, 0], "x+attn", "layer 0 cannot start ahead on x"),
        (drawn(), [1], "x", "layer 1 cannot start ahead on x"),
        (drawn(), [1, 4], "x+attn", "layer 4 cannot start ahead"),
    ],
)
def test_what_cannot_start_ahead_is_refused(made: Plan, layers: list[int], seed: Seed, why: str) -> None:
    with pytest.raises(RequestProblem, match=why):
        starting_ahead(made, layers, Early(seed))


# --- on a station ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    from tests.tiny import build_variant

    return open_model(build_variant("llama", tmp_path_factory.mktemp("ahead") / "model"))


def attention(model: Model, kv: Kv = "canonical") -> Held:
    """One attention that starts ahead, on a station of its own."""
    here = holding(model, [[Stage(1, "attention")]])
    here.join(Join((Way(0, 1, False, ""),), 9, "s", (), (0,), kv == "canonical", False, ()))
    return here


def alone(model: Model) -> Tracks:
    return holding(model, [[Stage(1, "attention")]]).groups[0].tracks


def token(x: np.ndarray, position: int, *, early: bool = False, epoch: int = 0) -> Activation:
    return Activation(STREAM, position, epoch, 0, 1, x.tobytes(), flags=DECODED, early=early)


def all_of(here: Held) -> list[Activation]:
    left = []
    while works := here.next():
        left += [owned(on) for on in here.run(works)]
    return left


@pytest.mark.parametrize("kv", ["canonical", "stale"])
@pytest.mark.parametrize("input_first", [False, True])
def test_an_early_row_is_corrected_whichever_comes_first(kv: Kv, input_first: bool, model: Model) -> None:
    here, track = attention(model, kv), alone(model)
    for position in range(4):
        x, seed = rows(model, 1, seed=position), rows(model, 1, seed=100 + position)
        both = [token(seed, position, early=True), token(x, position)]
        came = list[Activation]()
        for said in reversed(both) if input_first else both:
            assert came == []
            here.take(said)
            came = all_of(here)
        (on,) = came
        expected = track.run({"x": seed}, position) + (x - seed)
        if kv == "canonical":
            track.run({"x": x}, position)
        assert (on.group, on.position, on.early, on.flags) == (1, position, False, DECODED)
        np.testing.assert_array_equal(np.frombuffer(on.payload, np.float32), expected[0])


def test_keys_are_rewritten_when_nobody_waits_and_before_the_next_row(model: Model) -> None:
    here = attention(model)
    x = rows(model, 3)
    for said in (token(x[:1], 0, early=True), token(x[1:2], 0)):
        here.take(said)
    assert [len(here.run(here.next())) for _ in "ej"] == [0, 1]
    here.take(token(x[2:], 1, early=True))
    steps = []
    while works := here.next():
        steps += [(work.step, work.said.position) for work in works]
        here.run(works)
    assert steps == [("rewrite", 0), ("early", 1)]


def test_others_go_before_a_rewrite(model: Model) -> None:
    here = attention(model)
    here.open(STREAM + 1)
    x = rows(model, 1)
    for said in (token(x, 0, early=True), token(x, 0)):
        here.take(said)
    here.run(here.next())
    here.run(here.next())
    here.take(msgspec.structs.replace(token(x, 0, early=True), stream=STREAM + 1))
    (first,), (then,) = here.next(), here.next()
    assert [(work.step, work.said.stream) for work in (first, then)] == [
        ("early", STREAM + 1),
        ("rewrite", STREAM),
    ]


def test_who_keeps_company_overtakes_nothing_of_its_own(model: Model) -> None:
    """An input that joins never takes one along whose early row is still to run."""
    here = attention(model)
    here.open(STREAM + 1)
    x = rows(model, 1)
    first = token(x, 0, early=True), token(x, 0)
    second = [msgspec.structs.replace(said, stream=STREAM + 1) for said in first]
    here.take(first[0])
    here.run(here.next())
    for said in (first[1], *second):
        here.take(said)
    steps = []
    while works := here.next():
        steps += [[(work.step, work.said.stream - STREAM) for work in works]]
        here.run(works)
    assert steps == [[("join", 0)], [("early", 1)], [("join", 1)], [("rewrite", 0)], [("rewrite", 1)]]


def test_a_rewind_voids_early_rows_but_no_rewrite(model: Model) -> None:
    """What is canonical before the rewind must be so after it; halves of two epochs never meet."""
    here, track = attention(model), alone(model)
    x, y, z = (rows(model, 1, seed=n) for n in range(3))
    for said in (token(y, 0, early=True), token(x, 0)):
        here.take(said)
    assert [len(here.run(here.next())) for _ in "ej"] == [0, 1]  # its rewrite waits
    here.take(token(z, 1))
    here.take(token(y, 1, early=True, epoch=1))
    assert all_of(here) == []
    here.take(token(x, 1, epoch=1))
    (on,) = all_of(here)
    track.run({"x": x}, 0)
    expected = track.run({"x": y}, 1) + (x - y)
    np.testing.assert_array_equal(np.frombuffer(on.payload, np.float32), expected[0])


def test_a_prompt_and_who_does_not_start_ahead_wait_for_nothing(model: Model) -> None:
    here, track = attention(model), alone(model)
    x = rows(model, 1)
    here.take(msgspec.structs.replace(token(x, 0), flags=0))
    (on,) = all_of(here)
    np.testing.assert_array_equal(np.frombuffer(on.payload, np.float32), track.run({"x": x}, 0)[0])
    here.ahead = frozenset()
    here.take(token(x, 1))
    assert len(all_of(here)) == 1


@pytest.mark.parametrize("change", [{"flags": 0}, {"group": 1}])
def test_an_early_row_nobody_waits_for_is_refused(change: dict[str, int], model: Model) -> None:
    here = holding(model, [[Stage(1, "attention")], [Stage(2, "attention")]])
    here.join(Join((), 9, "s", (), (0,), True, False, ()))
    with pytest.raises(PeerProblem, match="does not start ahead"):
        here.take(msgspec.structs.replace(token(rows(model, 1), 0, early=True), **change))


def test_closing_a_stream_forgets_its_rewrite(model: Model) -> None:
    here = attention(model)
    x = rows(model, 1)
    for said in (token(x, 0, early=True), token(x, 0)):
        here.take(said)
    here.run(here.next())
    here.run(here.next())
    here.close(STREAM)
    assert here.next() == []


def test_only_attention_by_itself_starts_ahead(model: Model, tiny: Tiny) -> None:
    neox: Path = tiny("neox")
    for here in (
        holding(model, [[Stage(0, "gate_up")]]),
        holding(model, [[Stage(-1, "embed"), Stage(0, "attention")]]),
        holding(open_model(neox), [[Stage(0, "attention")]]),
    ):
        with pytest.raises(PeerProblem, match="no attention that could start ahead"):
            here.join(Join((), 9, "s", (), (0,), True, False, ()))
