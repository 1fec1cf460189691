"""Watching a download must not trip over files the client moves away meanwhile."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from trisplit.assets.clients import _archive_bytes


def test_only_archives_in_the_folder_and_one_below_count(tmp_path: Path) -> None:
    (tmp_path / "pip-unpack-x").mkdir()
    (tmp_path / "build" / "tree").mkdir(parents=True)
    (tmp_path / "pip-unpack-x" / "part.whl").write_bytes(b"12345")
    (tmp_path / "small.tar.gz").write_bytes(b"12")
    (tmp_path / "said.txt").write_bytes(b"1" * 99)
    (tmp_path / "build" / "tree" / "test.tgz").write_bytes(b"1" * 99)
    assert _archive_bytes(tmp_path) == 5
    assert _archive_bytes(tmp_path / "none") == 0


def test_what_vanishes_while_we_look_is_passed_over(tmp_path: Path) -> None:
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            (tmp_path / "pip-unpack-x").mkdir()
            (tmp_path / "pip-unpack-x" / "part.whl").write_bytes(b"12345")
            shutil.rmtree(tmp_path / "pip-unpack-x")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        seen = {_archive_bytes(tmp_path) for _ in range(2_000)}
    finally:
        stop.set()
        thread.join()
    assert seen <= {0, 5}
