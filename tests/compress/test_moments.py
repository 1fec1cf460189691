"""Moments are kept between runs: found again by model and text, gone on with after a kill, never torn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trisplit.compress.moments import FfnMoments, ffn_moments
from trisplit.errors import RequestProblem
from trisplit.models.model import open_model
from trisplit.models.session import StageSession, Tracks

Tiny = Callable[[str], Path]
LAYERS = 4
PASSAGES = [list(range(n, n + 40)) for n in range(3, 25)]

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.compress.test_moments import PASSAGES
from trisplit.compress.moments import ffn_moments
from trisplit.models.model import open_model

def report(name, done, total):
    if done == 2:
        os.kill(os.getpid(), signal.SIGKILL)

ffn_moments(open_model(Path(sys.argv[1])), PASSAGES, threads=1, report=report)
"""


class Told:
    """How many layers were read."""

    def __init__(self) -> None:
        self.layers = 0

    def __call__(self, name: str, *_: int) -> None:
        self.layers += name == "calibrating"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def found(path: Path, passages: list[list[int]] = PASSAGES) -> tuple[FfnMoments, int]:
    told = Told()
    return ffn_moments(open_model(path), passages, threads=1, report=told), told.layers


def same(one: FfnMoments, other: FfnMoments, layers: int = LAYERS) -> bool:
    return all(
        np.array_equal(getattr(one.of(layer), part), getattr(other.of(layer), part))
        for layer in range(layers)
        for part in ("train", "held", "mean")
    )


def test_they_are_those_of_the_rows_with_every_tenth_passage_held_out(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    given = found(tiny("llama"))[0].of(2)
    files = list(model.files(model.stages[:9], "f32"))  # up to the last gate_up
    session = StageSession(model.config, files, context=64, threads=1)
    rows = [Tracks(session).run({"ids": np.array(passage)}, 0).astype(float) for passage in PASSAGES]
    held = np.concatenate([rows[9], rows[19]])
    train = np.concatenate([row for n, row in enumerate(rows) if n not in (9, 19)])
    scale = np.abs(train).max() ** 2
    np.testing.assert_allclose(given.train, train.T @ train / len(train), atol=1e-5 * scale)
    np.testing.assert_allclose(given.held, held.T @ held / len(held), atol=1e-5 * scale)
    np.testing.assert_allclose(given.mean, train.mean(axis=0), atol=1e-5)


def test_what_was_read_is_not_read_again(tiny: Tiny) -> None:
    first, read = found(tiny("llama"))
    again, read_again = found(tiny("llama"))
    assert (read, read_again) == (LAYERS, 0)
    assert same(first, again)
    assert [file.name for file in sorted(first.folder.iterdir())] == [f"{n}.npz" for n in range(LAYERS)]


def test_another_text_or_model_has_its_own(tiny: Tiny) -> None:
    folders = {found(tiny("llama"))[0].folder}
    for path, passages in ((tiny("mistral"), PASSAGES), (tiny("llama"), PASSAGES[1:])):
        moments, read = found(path, passages)
        assert read
        folders.add(moments.folder)
    assert len(folders) == 3


def test_after_a_kill_it_goes_on_with_the_layer_it_was_at(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tiny("llama"))], env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL
    moments, read = found(tiny("llama"))
    assert read == LAYERS - 2
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path / "other"))
    whole, read = found(tiny("llama"))
    assert read == LAYERS
    assert same(moments, whole)


def test_what_a_killed_process_began_to_write_is_taken_away(tiny: Tiny) -> None:
    folder = found(tiny("llama"))[0].folder
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead, alive = folder / f".residuals-2.{gone.pid}", folder / f".residuals-2.{os.getppid()}"
    for draft in (dead, alive):
        draft.write_bytes(b"half")
    (folder / "0.npz").unlink()
    found(tiny("llama"))
    assert (dead.exists(), alive.exists()) == (False, True)


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "gone"])
def test_a_torn_file_is_a_miss(harm: str, tiny: Tiny) -> None:
    whole, _ = found(tiny("llama"))
    expected = [whole.of(layer) for layer in range(LAYERS)]
    torn = whole.folder / "1.npz"
    raw = bytearray(torn.read_bytes())
    raw[len(raw) // 2] ^= 1
    if harm == "gone":
        torn.unlink()
    else:
        torn.write_bytes({"cut": raw[: len(raw) // 2], "flip": raw, "empty": b""}[harm])
    if harm != "gone":
        with pytest.raises(RequestProblem, match="layer 1"):
            whole.of(1)
    again, read = found(tiny("llama"))
    assert read == LAYERS  # the residuals that lay before layer 1 are gone
    assert all(np.array_equal(again.of(layer).train, expected[layer].train) for layer in range(LAYERS))


def test_residuals_of_another_size_are_not_taken(tiny: Tiny) -> None:
    moments, _ = found(tiny("llama"))
    (moments.folder / "2.npz").unlink()
    (moments.folder / "residuals-2").write_bytes(b"torn")
    assert found(tiny("llama"))[1] == LAYERS


def test_one_passage_judges_itself(tiny: Tiny) -> None:
    given = found(tiny("llama"), [[5, 6, 7]])[0].of(0)
    assert np.array_equal(given.train, given.held)
