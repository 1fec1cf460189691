"""A model that waits: its rows count the stages they pass, and take as long as they were told."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from trisplit.bench.waiting import VOCAB, WaitingEnds, WaitingSession, WaitingTracks, Waits, read_waits, wait
from trisplit.errors import OwnProblem, RequestProblem
from trisplit.models.config import EMBED, HEAD, Stage
from trisplit.models.description import pack, unpack

NONE = Waits(layers=2, attention_ms=0, gate_up_ms=0, down_ms=0, ends_ms=0, width=64)
SLOW = Waits(layers=2, attention_ms=3, gate_up_ms=1, down_ms=2, ends_ms=5, width=64)


def tracks(*stages: Stage, waits: Waits = NONE) -> WaitingTracks:
    return WaitingTracks(WaitingSession(NONE.model().config, stages, 32), waits)


def test_it_can_be_described_and_planned_for() -> None:
    model = NONE.model()
    assert unpack(pack(model.config)) == model.config
    assert all(model.weight_bytes(stage, "f32") > 0 for stage in model.stages)


def test_a_token_counts_the_stages_it_has_passed() -> None:
    ids = np.array([7, 11], dtype=np.int64)
    x = tracks(EMBED).run({"ids": ids}, 0)
    for layer in range(2):
        r = tracks(Stage(layer, "attention")).run({"x": x}, 0)
        h = tracks(Stage(layer, "gate_up")).run({"r": r}, 0)
        assert h.shape == (2, 256)
        x = tracks(Stage(layer, "down")).run({"h": h, "r": r}, 0)
    logits = tracks(HEAD).run({"x": x}, 0)
    assert logits.shape == (1, VOCAB)
    assert logits.argmax() == NONE.after(11) == 17
    ends = WaitingEnds(NONE.model().config, NONE)
    np.testing.assert_array_equal(ends.embed([7, 11])[:, 0], [7, 11])
    assert [row.argmax() for row in ends.logits([x, x[:1]])] == [17, 13]


def test_whole_layers_count_as_their_thirds_do() -> None:
    layers = [Stage(layer, kind) for layer in range(2) for kind in ("attention", "gate_up", "down")]
    out = tracks(EMBED, *layers, HEAD).run({"ids": np.array([VOCAB - 1])}, 0)
    assert out.argmax() == NONE.after(VOCAB - 1) == 5


def test_a_step_leaves_logits_of_every_row() -> None:
    out = tracks(EMBED, *[Stage(0, kind) for kind in ("attention", "gate_up", "down")], HEAD).step(
        {"ids": np.array([7, 11, 2])}, 0, batch=True
    )
    assert [row.argmax() for row in out] == [10, 14, 5]


def test_rows_that_meet_the_residual_of_others_are_noticed() -> None:
    down = tracks(Stage(0, "down"))
    h, r = np.full((1, 256), 9, np.float32), np.full((1, 64), 7, np.float32)
    with pytest.raises(OwnProblem, match="residual of others"):
        down.run({"h": h, "r": r}, 0)
    assert down.step({"h": h, "r": r + 1}, 0, batch=True)[0, 0] == 10


def test_stages_take_as_long_as_they_were_told_and_not_less() -> None:
    began_s = time.perf_counter()
    tracks(Stage(0, "down"), Stage(1, "attention"), waits=SLOW).run(
        {"h": np.zeros((1, 256), np.float32), "r": np.full((1, 64), -1, np.float32)}, 0
    )
    assert time.perf_counter() - began_s >= 5e-3
    wait(2.0, since_s=began_s)
    assert SLOW.token_ms == 2 * (3 + 1 + 2) + 5
    assert SLOW.times(2).token_ms == 2 * SLOW.token_ms


def test_what_a_station_is_told_is_understood() -> None:
    option, said = SLOW.options()
    assert option == "--waits"
    assert read_waits(said) == SLOW
    for nonsense in ("", "{}", json.dumps({**json.loads(said), "layers": "two"})):
        with pytest.raises(RequestProblem, match="--waits"):
            read_waits(nonsense)


def test_nothing_can_be_read_of_it() -> None:
    checkpoint = NONE.model().checkpoint
    for read in (checkpoint.read, checkpoint.blocks, lambda name: checkpoint.slabs(name, 1)):
        with pytest.raises(OwnProblem, match="only waits"):
            read("a tensor")
