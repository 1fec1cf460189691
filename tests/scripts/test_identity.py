"""Engines: another file is another engine, and what is unclear is unsure."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scripts.worlds import NODE, needs_node
from trisplit.cache.store import Store, open_store
from trisplit.errors import RequestProblem
from trisplit.scripts.engines.identity import find, identify, runs_typescript


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "results") as store:
        yield store


@needs_node
def test_a_node_is_asked_once_and_is_the_same(store: Store) -> None:
    assert NODE is not None
    node = identify(NODE, store)
    asked = {one.key for one in store.entries()}
    assert node == identify(NODE, store)
    assert node.version
    assert not node.unsure
    assert {one.key for one in store.entries()} == asked
    assert runs_typescript(node, store) == runs_typescript(node, store)


@needs_node
def test_another_file_is_another_engine(store: Store, tmp_path: Path) -> None:
    assert NODE is not None
    copy = tmp_path / "node"
    shutil.copy(os.path.realpath(NODE), copy)
    first = identify(str(copy), store)
    assert first.facts != identify(NODE, store).facts
    os.utime(copy, (1, 1))
    assert identify(str(copy), store).facts != first.facts


@needs_node
def test_what_only_starts_a_node_is_asked_every_time(store: Store, tmp_path: Path) -> None:
    assert NODE is not None
    starter = tmp_path / "node"
    starter.write_text(f'#!/bin/sh\necho asked >> {tmp_path}/log\nexec {NODE} "$@"\n')
    starter.chmod(0o755)
    assert identify(str(starter), store).facts == identify(NODE, store).facts
    identify(str(starter), store)
    assert (tmp_path / "log").read_text() == "asked\nasked\n"
    starter.write_text(f'#!/bin/sh\nNODE_OPTIONS=--no-warnings exec {NODE} "$@"\n')
    assert "options of its own" in identify(str(starter), store).unsure


def test_what_is_no_node_is_unsure(store: Store) -> None:
    assert "does not say" in identify("/bin/true", store).unsure
    assert "does not say" in identify("/bin/nothing", store).unsure


def test_no_engine_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RequestProblem, match="no node is on PATH"):
        find("node")
