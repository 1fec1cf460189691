"""Words for a bench: understood, or refused with what to write instead."""

from __future__ import annotations

import pytest

from trisplit.cli.typed import counts, dtypes_named, factors, one_dtype, span, words
from trisplit.errors import RequestProblem, UnknownName


def test_words_counts_and_dtypes() -> None:
    assert words(" a, b,,c ") == ["a", "b", "c"]
    assert counts("1,2") == [1, 2]
    assert dtypes_named("f32,int4") == ["f32", "int4"]
    assert one_dtype("int8") == "int8"


def test_factors_by_name() -> None:
    assert factors("", "--far") == {}
    assert factors("s2=3, coordinator=1.5", "--far") == {"s2": 3.0, "coordinator": 1.5}
    for nonsense in ("s2", "s2=", "=2", "s2=two", "s2=-1", "s2=2=3"):
        with pytest.raises(RequestProblem, match="--slow"):
            factors(nonsense, "--slow")


def test_which_tokens_count() -> None:
    assert span("", 9) == (2, 9)
    assert span("2-10", 10) == (2, 10)
    assert span("4-4", 10) == (4, 4)
    for nonsense in ("1-4", "4-3", "2-11", "2", "-", "2-x", "2-3-4"):
        with pytest.raises(RequestProblem, match=r"cannot count"):
            span(nonsense, 10)


def test_more_than_one_dtype() -> None:
    with pytest.raises(RequestProblem, match="more than one"):
        one_dtype("f32,int8")
    with pytest.raises(UnknownName, match="f64"):
        one_dtype("f64")
