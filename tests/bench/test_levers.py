"""Levers by their names, and names by their levers."""

from __future__ import annotations

import pytest

from trisplit.bench.levers import Levers, levers_named
from trisplit.errors import UnknownName


@pytest.mark.parametrize(
    ("words", "levers", "name"),
    [
        ("none", Levers(), "none"),
        ("batched", Levers(batched=True), "batched"),
        ("routed", Levers(routed=True), "routed"),
        ("routed + batched", Levers(batched=True, routed=True), "batched+routed"),
        ("overlap", Levers(overlap=True), "overlap"),
        ("overlap+routed", Levers(routed=True, overlap=True), "routed+overlap"),
    ],
)
def test_names_are_levers(words: str, levers: Levers, name: str) -> None:
    assert levers_named(words) == levers
    assert levers.name == name


def test_an_unknown_one_is_named() -> None:
    with pytest.raises(UnknownName, match="lever"):
        levers_named("batched+ahead")
