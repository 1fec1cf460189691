"""Long prompts: both ways end in the decoder's own token, and a stream is the quicker one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from trisplit.bench import rounds
from trisplit.bench.meshes import Ground, Subject
from trisplit.bench.prefill import prefill
from trisplit.bench.waiting import Waits
from trisplit.bench.wires import names_of, wires_between
from trisplit.models.decoder import PREFILL_CHUNK


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "SETTLE_S", 0.0)


def ground(subject: Subject, one_way_ms: float) -> Ground:
    return Ground(subject=subject, wires=wires_between(names_of(2), one_way_ms), dtype="f32", threads=1)


def test_both_ways_end_in_the_same_token(tiny: Callable[[str], Path]) -> None:
    here = ground(Subject(path=str(tiny("llama"))), 1.0)
    row = asyncio.run(prefill(here, "layers", prompt_tokens=2 * PREFILL_CHUNK + 9, rounds=1))
    assert (row.stations, row.prompt_tokens, row.chunks) == (2, 2 * PREFILL_CHUNK + 9, 3)
    assert row.token_equal
    assert row.ratio == pytest.approx(row.streamed_ms / row.apart_ms)
    assert row.apart_ms >= 3 * 3 * 1.0


def test_a_stream_waits_for_its_longest_stage_and_not_for_each_trip() -> None:
    waits = Waits(layers=2, attention_ms=4.0, gate_up_ms=4.0, down_ms=4.0, ends_ms=1.0, width=64)
    row = asyncio.run(prefill(ground(Subject(waits=waits), 20.0), "layers", prompt_tokens=512, rounds=1))
    assert row.chunks == 8
    assert row.token_equal
    assert row.apart_ms >= 8 * (3 * 20.0 + 24.0) + 1.0
    assert row.streamed_ms >= 3 * 20.0 + 24.0 + 7 * 12.0 + 1.0
    assert row.ratio < 1
