"""Logs of what was sent: chunks as they went, rewinds, and the disk behind them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from trisplit.mesh import sent as logs
from trisplit.mesh.sent import Sent
from trisplit.wire.frame import Activation
from trisplit.wire.losses import Begun


def frame(position: int, rows: int, mark: int = 0, epoch: int = 0) -> Activation:
    return Activation(1, position, epoch, 3, rows, bytes([mark]) * (4 * rows))


def log(frames: Sequence[Activation]) -> Sent:
    kept = Sent()
    for each in frames:
        kept.add(each)
    return kept


@pytest.mark.parametrize("in_memory_bytes", [0, 10, 2**20])
def test_what_went_out_comes_again_with_its_chunks(
    in_memory_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "IN_MEMORY_BYTES", in_memory_bytes)
    frames = [frame(0, 64, 1), frame(64, 9, 2), frame(73, 1, 3), frame(74, 1, 4)]
    kept = log(frames)
    assert [*kept.again(epoch=0, since=0)] == frames
    assert [*kept.again(epoch=0, since=64)] == frames[1:]
    assert [said.epoch for said in kept.again(epoch=7, since=0)] == [7, 7, 7, 7]
    assert kept.end == 75
    kept.add(frame(75, 1, 5))  # after a reading, too
    assert [said.payload[0] for said in kept.again(0, 0)] == [1, 2, 3, 4, 5]
    kept.close()


def test_a_rewind_forgets_what_began_behind_it() -> None:
    """A chunk that began before is still true in its first rows, and is overwritten again in the rest."""
    kept = log([frame(0, 64, 1), frame(64, 1, 2), frame(65, 1, 3), frame(40, 30, 4, epoch=1)])
    assert [(said.position, said.payload[0]) for said in kept.again(1, 0)] == [(0, 1), (40, 4)]
    assert kept.end == 70
    kept.add(frame(0, 2, 5, epoch=2))
    assert [(said.position, said.payload[0]) for said in kept.again(2, 0)] == [(0, 5)]
    kept.close()


def test_what_a_rewind_elsewhere_has_made_void_stays_away() -> None:
    """The rewind was fed, and had not come so far when a station was lost."""
    kept = log([frame(0, 50, 1), frame(30, 4, 2, epoch=1), frame(34, 1, 3, epoch=1)])
    begun = (Begun(0, 0), Begun(1, 30), Begun(2, 33))
    assert [(said.position, said.payload[0]) for said in kept.again(2, 0, begun)] == [(0, 1), (30, 2)]
    assert [said.position for said in kept.again(2, 0, (*begun, Begun(3, 10)))] == [0]
    kept.add(frame(33, 2, 4, epoch=2))
    assert [(said.position, said.payload[0]) for said in kept.again(2, 0, begun)] == [
        (0, 1),
        (30, 2),
        (33, 4),
    ]
    kept.close()


def test_an_empty_log_has_no_end() -> None:
    kept = Sent()
    assert (kept.end, [*kept.again(0, 0)]) == (0, [])
    kept.close()
