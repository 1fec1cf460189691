"""The trial a node stands: once, and what does not pass is run as ever."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.scripts.worlds import NODE, needs_node
from trisplit.cache.store import Store, open_store
from trisplit.scripts.engines import trial, world
from trisplit.scripts.engines.identity import identify
from trisplit.scripts.engines.trial import KNOWN, passes_trial


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "results") as store:
        yield store


@needs_node
def test_it_is_stood_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert NODE is not None
    node = identify(NODE, store)
    if node.version.split(".")[0] not in KNOWN:
        pytest.skip(f"node {node.version} is not one the world is tested with")
    assert passes_trial(node, store) == ""
    monkeypatch.setattr(trial, "_tried", None)
    assert passes_trial(node, store) == ""


@needs_node
def test_one_that_prints_something_else_fails(store: Store, tmp_path: Path) -> None:
    assert NODE is not None
    node = identify(NODE, store)
    chatty = tmp_path / "node"
    chatty.write_text(f'#!/bin/sh\necho hello\nexec {NODE} "$@"\n')
    chatty.chmod(0o755)
    other = replace(node, command=str(chatty), version="20.0.0", facts=("chatty",))
    assert "other things" in passes_trial(other, store)


@needs_node
def test_a_trial_that_was_cut_short_is_stood_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert NODE is not None
    node = identify(NODE, store)
    monkeypatch.setattr(trial, "KNOWN", (node.version.split(".")[0],))
    with monkeypatch.context() as crowded:
        crowded.setattr(world, "MOST_MEMORY_KB", 1)
        assert "took much memory" in passes_trial(node, store)
    assert passes_trial(node, store) == ""


@needs_node
def test_releases_nobody_tried_are_not_trusted(store: Store) -> None:
    assert NODE is not None
    node = identify(NODE, store)
    for version in ("18.20.8", "26.12.1", ""):
        assert "is tested with" in passes_trial(replace(node, version=version), store)
