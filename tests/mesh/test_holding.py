"""What a station holds, without sockets: joins in any order, closed streams, frames that make no sense."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from trisplit.errors import PeerProblem
from trisplit.mesh.flow import Flow
from trisplit.mesh.group import LoadedGroup
from trisplit.mesh.holding import Held
from trisplit.mesh.runner import Runner
from trisplit.models.config import Stage, layer_stages
from trisplit.models.model import Model, open_model
from trisplit.models.session import Row, StageSession, Tracks
from trisplit.wire.frame import ROW_BY_ROW, Activation

Tiny = Callable[[str], Path]
CONTEXT = 32
STREAM = 7


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    from tests.tiny import build_variant

    return open_model(build_variant("llama", tmp_path_factory.mktemp("holding") / "model"))


def held(model: Model) -> Held:
    """One layer cut in thirds, all on this station, and the rest of the model as a fourth group."""
    cut = [[stage] for stage in layer_stages(range(1))] + [list(layer_stages(range(1, 4)))]
    here = holding(model, cut)
    here.flows = {n: (Flow(n, n + 1),) for n in here.groups}
    here.flows[0] += (Flow(0, 2, residual=True),)
    return here


def holding(model: Model, cut: Sequence[Sequence[Stage]]) -> Held:
    """A station that holds these groups, with one stream open."""
    groups = {}
    for number, stages in enumerate(cut):
        files = list(model.files(stages, "f32"))
        session = StageSession(model.config, files, context=CONTEXT, threads=1)
        groups[number] = LoadedGroup(number, Tracks(session, 2))
    here = Held(groups, rows_equal=True, kv_bytes_per_token=0, sessions=2, end=len(groups))
    here.open(STREAM)
    return here


def run(here: Held, said: Activation) -> list[Activation]:
    """What leaves when a frame has come and all that is ready has run."""
    here.take(said)
    left = []
    while works := here.next():
        left += [owned(on) for on in here.run(works)]
    return left


def frame(x: np.ndarray, position: int = 0, **facts: int) -> Activation:
    said = Activation(STREAM, position, 0, 0, len(x), x.tobytes())
    return msgspec.structs.replace(said, **facts)


def owned(said: Activation) -> Activation:
    """As it would arrive: payloads are views until they are sent."""
    return msgspec.structs.replace(said, payload=bytes(said.payload))


def rows(model: Model, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, model.config.hidden), dtype=np.float32)


def truth(track: Tracks, x: np.ndarray, position: int) -> np.ndarray:
    return track.run({"x": x}, position).copy()


def whole(model: Model) -> Tracks:
    files = list(model.files(layer_stages(range(model.config.layers)), "f32"))
    return Tracks(StageSession(model.config, files, context=CONTEXT, threads=1))


def test_both_halves_of_a_parallel_block_get_what_the_layer_before_leaves(tiny: Tiny) -> None:
    """Its rows go to attention and gate_up at once; attention's residual and what gate_up leaves meet."""
    parallel = open_model(tiny("neox"))
    here = holding(parallel, [layer_stages(range(1)), *([stage] for stage in layer_stages(range(1, 2)))])
    here.flows = {0: (Flow(0, 1), Flow(0, 2)), 1: (Flow(1, 3, residual=True),), 2: (Flow(2, 3),)}
    here.flows[3] = (Flow(3, 4),)
    files = list(parallel.files(layer_stages(range(2)), "f32"))
    track = Tracks(StageSession(parallel.config, files, context=CONTEXT, threads=1))
    for position, n in ((0, 5), (5, 1)):
        x = rows(parallel, n, seed=position)
        to_attention, to_gate_up = run(here, frame(x, position))
        assert (to_attention.group, to_gate_up.group) == (1, 2)
        assert to_attention.payload == to_gate_up.payload
        (wide,), (past,) = run(here, to_gate_up), run(here, to_attention)
        assert [(on.group, on.residual) for on in (wide, past)] == [(3, False), (3, True)]
        assert run(here, wide) == []
        (back,) = run(here, past)
        np.testing.assert_array_equal(np.frombuffer(back.payload, np.float32), truth(track, x, position)[-1])


@pytest.mark.parametrize("residual_first", [False, True])
def test_halves_are_joined_in_whichever_order_they_come(model: Model, residual_first: bool) -> None:
    here, track = held(model), whole(model)
    for position, n in ((0, 5), (5, 1), (6, 1), (3, 2)):  # the last one is a rewind
        x = rows(model, n, seed=position)
        to_gate_up, past = map(owned, run(here, frame(x, position)))
        assert (to_gate_up.group, to_gate_up.residual) == (1, False)
        assert (past.group, past.residual) == (2, True)
        assert to_gate_up.payload == past.payload
        if residual_first:
            assert run(here, past) == []
        (to_down,) = map(owned, run(here, to_gate_up))
        if not residual_first:
            assert run(here, to_down) == []
            to_down = past
        (to_rest,) = map(owned, run(here, to_down))
        (back,) = run(here, to_rest)
        assert (back.group, back.position, back.rows) == (4, position + n - 1, 1)
        np.testing.assert_array_equal(np.frombuffer(back.payload, np.float32), truth(track, x, position)[-1])


def test_rows_marked_so_pass_attention_one_by_one(model: Model) -> None:
    here, track = held(model), whole(model)
    x = rows(model, 4)
    singles = np.concatenate([truth(track, x[i : i + 1], i) for i in range(4)])
    waiting, back = [frame(x, flags=ROW_BY_ROW)], []
    while waiting:
        for on in map(owned, run(here, waiting.pop(0))):
            (back if on.group == 4 else waiting).append(on)
    np.testing.assert_array_equal(np.frombuffer(back[0].payload, np.float32), singles.reshape(-1))
    assert (back[0].position, back[0].rows) == (0, 4), "all of them, for whoever samples"


def test_nothing_is_batched_where_rows_are_not_equal(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that rounds rows differently in company gets them one by one, marked or not."""
    here = replace(held(model), rows_equal=False)
    seen: list[int] = []
    honest = Tracks.together

    def watched(tracks: Tracks, given: Sequence[Row]) -> list[np.ndarray]:
        seen.append(len(given))
        return honest(tracks, given)

    monkeypatch.setattr(Tracks, "together", watched)
    up, _ = map(owned, run(here, frame(rows(model, 4), flags=ROW_BY_ROW)))
    run(here, up)
    assert seen == [1] * 8


def test_frames_of_a_closed_stream_are_dropped(model: Model) -> None:
    here = held(model)
    here.close(STREAM)
    assert run(here, frame(rows(model, 1))) == []
    here.close(STREAM)


def test_what_runs_while_its_stream_is_closed_touches_no_other(model: Model) -> None:
    """The run may be in a thread: it goes on with the slot it began with."""
    here, x = held(model), rows(model, 12)
    here.open(8)
    run(here, frame(x[:3]))
    run(here, frame(x[:10], stream=8))
    here.take(frame(x[3:4], position=3))
    works = here.next()
    here.close(STREAM)
    with pytest.raises(PeerProblem, match="do not follow 0"):  # nobody minds: it is void
        here.run(works)
    assert works[0].is_void
    left = run(here, frame(x[10:11], position=10, stream=8))
    alone = held(model)
    run(alone, frame(x[:10]))
    expected = run(alone, frame(x[10:11], position=10))
    assert [on.payload for on in left] == [on.payload for on in expected]


@pytest.mark.parametrize("others", [False, True])
def test_what_could_not_run_of_a_closed_stream_is_no_failure(model: Model, others: bool) -> None:
    here, x, sent, failed = held(model), rows(model, 8), list[Activation](), list[Exception]()

    async def close_under_a_run() -> None:
        go_on = threading.Event()
        with ThreadPoolExecutor(1) as worker:
            runner = Runner(here, worker, sent.append, lambda _: None, lambda error, _: failed.append(error))
            worker.submit(go_on.wait)
            here._ms_a_row.update(
                dict.fromkeys(((0, False), (0, True)), 1e6)
            )  # so long that it takes a thread
            for position, stream in [(3, STREAM), *([(3, 8)] if others else [])]:
                runner.take(frame(x[3:4], position=position, stream=stream))
            await asyncio.sleep(0)  # the run is under way by now
            here.close(STREAM)
            go_on.set()
            while runner.is_running:
                await asyncio.sleep(0.001)

    run(here, frame(x[:3]))
    if others:
        here.open(8)
        run(here, frame(x[:3], stream=8))
    asyncio.run(close_under_a_run())
    assert failed == []
    assert {said.stream for said in sent} == ({8} if others else set())


def test_what_streams_have_filled_is_free_when_they_are_closed(model: Model) -> None:
    here, a_token = held(model), model.config.kv_bytes(1)
    assert (len(here.streams), here.kv_bytes) == (1, 0)
    here.open(8)
    for stream, n in ((STREAM, 3), (8, 2)):
        for on in run(here, frame(rows(model, n), stream=stream)):  # attention 0, which has one layer's
            run(here, on)
    assert (len(here.streams), here.kv_bytes) == (2, 5 * a_token)
    here.close(STREAM)
    assert (len(here.streams), here.kv_bytes) == (1, 2 * a_token)
    here.close(8)
    assert (len(here.streams), here.kv_bytes) == (0, 0)


def test_two_streams_do_not_meet(model: Model) -> None:
    here = held(model)
    here.open(8)
    x, y = rows(model, 3, seed=1), rows(model, 3, seed=2)
    alone = [bytes(on.payload) for on in run(here, frame(x))]
    other = held(model)
    other.open(8)
    run(other, frame(y, stream=8))
    assert [bytes(on.payload) for on in run(other, frame(x))] == alone


def test_what_was_sent_before_a_rewind_is_void(model: Model) -> None:
    here = held(model)
    first, second = rows(model, 1, seed=1), rows(model, 1, seed=2)
    old_up, old_past = map(owned, run(here, frame(first)))
    (old_down,) = map(owned, run(here, old_up))
    assert run(here, old_past) == []  # its other half is still on its way
    up, past = map(owned, run(here, frame(second, epoch=1)))
    assert run(here, past) == []
    assert run(here, old_down) == []  # too late
    (down,) = map(owned, run(here, up))
    (to_rest,) = run(here, down)
    assert to_rest.epoch == 1
    files = list(model.files(layer_stages(range(1)), "f32"))
    track = Tracks(StageSession(model.config, files, context=8, threads=1))
    np.testing.assert_array_equal(
        np.frombuffer(to_rest.payload, np.float32), truth(track, second, 0).reshape(-1)
    )


def test_halves_of_different_sizes_are_refused(model: Model) -> None:
    here = held(model)
    _, past = map(owned, run(here, frame(rows(model, 3))))
    run(here, past)
    up, _ = map(owned, run(here, frame(rows(model, 2))))
    (down,) = map(owned, run(here, up))
    with pytest.raises(PeerProblem, match="halves of 3 and 2 rows meet at position 0"):
        run(here, down)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"group": 9}, "a frame for group 9, which is not here"),
        ({"position": 3}, "rows 3 to 4 do not follow 0"),
        ({"position": 31}, "rows up to position 33 where there is room for 32"),
        ({"rows": 1}, "512 bytes in 1 rows, which group 0 cannot take as x"),
        ({"residual": True}, "group 0 cannot take as r"),
        ({"group": 2}, "group 2 cannot take as h"),
        ({"group": 1, "residual": True}, "group 1 cannot take as r"),
    ],
)
def test_frames_that_make_no_sense_are_named(model: Model, facts: dict[str, int], said: str) -> None:
    with pytest.raises(PeerProblem, match=said):
        run(held(model), frame(rows(model, 2), **facts))
