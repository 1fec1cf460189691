"""Files of second moments: what was put in comes out, and what is no such file is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trisplit.errors import RequestProblem
from trisplit.models.config import Stage
from trisplit.models.layout import Matrix, Rows
from trisplit.models.statistics import About, open_statistics, writing

ABOUT = About(model="m" * 64, text="t" * 64, tokens=12)
DOWN, STAGE = Matrix("down", (Rows("down", 8),), 64), Stage(3, "down")


def symmetric(n: int) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((2 * n, n))
    return x.T @ x / (2 * n)


def write(path: Path) -> Path:
    with writing(path, ABOUT) as add:
        add("down-003.down", symmetric(64))
    return path


def test_what_was_put_in_comes_out(tmp_path: Path) -> None:
    kept = open_statistics(write(tmp_path / "there" / "some.npz"))
    assert kept.about == ABOUT
    np.testing.assert_allclose(kept.gram(STAGE, DOWN), symmetric(64), rtol=1e-6, atol=1e-7)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["some.npz"]


def test_the_digest_is_that_of_what_it_says(tmp_path: Path) -> None:
    first, second = (open_statistics(write(tmp_path / name)).digest for name in ("a.npz", "b.npz"))
    with writing(tmp_path / "c.npz", ABOUT) as add:
        add("down-003.down", 2 * symmetric(64))
    assert first == second != open_statistics(tmp_path / "c.npz").digest


def test_a_matrix_that_is_not_there_or_of_another_size_is_refused(tmp_path: Path) -> None:
    kept = open_statistics(write(tmp_path / "some.npz"))
    with pytest.raises(RequestProblem, match=r"down-004\.down"):
        kept.gram(Stage(4, "down"), DOWN)
    with pytest.raises(RequestProblem, match="not of 96 columns"):
        kept.gram(STAGE, Matrix("down", (Rows("down", 8),), 96))


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 torn"])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "some.npz").write_bytes(content)
    with pytest.raises(RequestProblem, match="trisplit calibrate"):
        open_statistics(tmp_path / "some.npz")


def test_a_missing_file_and_an_array_of_numbers_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.ones(3))
    np.savez(tmp_path / "other.npz", ones=np.ones(3))
    for name in ("array.npy", "other.npz", "missing.npz"):
        with pytest.raises(RequestProblem, match="no statistics of ours"):
            open_statistics(tmp_path / name)


def test_nothing_is_left_of_a_file_that_was_never_finished(tmp_path: Path) -> None:
    def fail() -> None:
        with writing(tmp_path / "some.npz", ABOUT) as add:
            add("down-003.down", symmetric(64))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not list(tmp_path.iterdir())


def test_where_it_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RequestProblem, match="cannot be written"):
        write(tmp_path / "file" / "x")
