"""`@memo`: run once per code, arguments and machine; what cannot be named runs every time."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from trisplit.cache import ledger, open_store
from trisplit.cache.memo import memo

MODULE = """
from dataclasses import dataclass
import numpy as np
from typing import Any
from trisplit.cache import memo

calls = []

@dataclass(frozen=True)
class Spectrum:
    values: tuple[float, ...]
    name: str

@memo
def spectrum(name: str, values: tuple[float, ...], *, scale: float = 1.0) -> Spectrum:
    calls.append(name)
    return Spectrum(tuple(v * scale for v in values), name)

@memo
def doubled(x: np.ndarray) -> np.ndarray:
    calls.append("doubled")
    return x * 2

@memo
def anything(x: Any) -> dict[str, int]:
    calls.append("anything")
    return {"n": 1}

@memo
def lies(x: int) -> tuple[int, ...]:
    calls.append("lies")
    return [x]

@memo
def huge(x: int) -> int:
    calls.append("huge")
    return x ** 100
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A module of its own from source, as another process would have it."""

    def loaded(source: str) -> ModuleType:
        (tmp_path / "spectra.py").write_text(source)
        spec = importlib.util.spec_from_file_location("spectra", tmp_path / "spectra.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "spectra", module)
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        spec.loader.exec_module(module)
        sys.dont_write_bytecode = before
        return module

    return loaded


def outcomes() -> list[str]:
    with open_store() as store:
        return [record.outcome for record in ledger.read(store.folder / ledger.FILE)[0]]


def test_the_second_call_is_not_run(load: Callable[[str], ModuleType]) -> None:
    first, second = load(MODULE), None
    made = first.spectrum("q", (1.0, 2.5), scale=2.0)
    second = load(MODULE)
    kept = second.spectrum("q", values=(1.0, 2.5), scale=2.0)
    assert (first.calls, second.calls) == (["q"], [])
    assert kept == second.Spectrum(made.values, made.name)
    assert outcomes() == ["miss", "hit"]


def test_other_arguments_and_other_code_are_run(load: Callable[[str], ModuleType]) -> None:
    module = load(MODULE)
    for values, scale in (((1.0,), 1.0), ((1.0, 2.0), 1.0), ((1.0,), 2.0), ((1.0,), 1.0)):
        module.spectrum("q", values, scale=scale)
    assert len(module.calls) == 3
    changed = load(MODULE.replace("v * scale", "v / scale"))
    changed.spectrum("q", (1.0,))
    assert changed.calls == ["q"]


def test_arrays_come_back_as_they_were(load: Callable[[str], ModuleType]) -> None:
    module = load(MODULE)
    for x in (np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((0, 2)), np.arange(3, dtype=">i2")):
        one, two = module.doubled(x), module.doubled(x)
        assert (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())
        two += 1  # is the caller's own
        assert module.doubled(x).tobytes() == one.tobytes()
    assert module.calls == ["doubled"] * 3


def test_what_cannot_be_named_or_kept_runs_every_time(load: Callable[[str], ModuleType]) -> None:
    module = load(MODULE)
    for call in (lambda: module.anything(object()), lambda: module.lies(1), lambda: module.huge(9)):
        before = len(module.calls)
        assert call() == call()
        assert len(module.calls) == before + 2
    assert outcomes() == ["impure"] * 6


def test_code_that_changed_under_a_running_process_is_not_kept(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    module = load(MODULE)
    (tmp_path / "spectra.py").write_text(MODULE + "\n# edited\n")
    module.spectrum("q", (1.0,))
    module.spectrum("q", (1.0,))
    assert module.calls == ["q", "q"]


@dataclass(frozen=True)
class Point:
    x: int


def bare(x):  # type: ignore[no-untyped-def]
    return x


def test_what_cannot_be_pure_is_refused_at_once() -> None:
    held = 3

    def closure(x: int) -> int:
        return x + held

    for function in (closure, lambda x: x, bare):
        refused: Any = function
        with pytest.raises(TypeError):
            memo(refused)


def test_no_store_is_no_reason_to_fail(
    load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path / "file"))
    module = load(MODULE)
    assert module.anything(1) == module.anything(1) == {"n": 1}
    assert len(module.calls) == 2
