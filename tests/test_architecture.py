"""House rules that no linter knows: what every module and function keeps to."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "src" / "trisplit").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 350, 50
BANNED_ROOMS = {"utils", "util", "helpers", "common", "misc", "manager", "base", "core"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [p for p in MODULES + TESTS if p.read_text().strip()], ids=name)
def test_the_first_line_says_what_lives_here(path: Path) -> None:
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    first = doc.split("\n\n")[0]
    assert first, "no docstring"
    assert first[-1] in ".:…", "not a sentence"
    assert "\n" not in first, "longer than a line"


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_modules_and_functions_are_short(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= MOST_LINES
    for function in functions(source):
        lines = (function.end_lineno or 0) - function.body[0].lineno + 1
        assert lines <= MOST_LINES_OF_A_FUNCTION, function.name


def functions(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def test_no_room_hides_a_missing_word() -> None:
    assert not [name(p) for p in MODULES if p.stem in BANNED_ROOMS or p.parent.name in BANNED_ROOMS]


@pytest.mark.parametrize(
    "module", ["trisplit.wire.session", "trisplit.cli", "trisplit.errors", "trisplit.table"]
)
def test_light_rooms_import_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "onnxruntime", "onnx", "picows", "uvloop", "tokenizers"} & set(loaded)


def test_tests_mirror_the_tree() -> None:
    sources = {p.relative_to(ROOT / "src" / "trisplit").with_suffix("") for p in MODULES}
    folders = {p.parent for p in sources}
    for path in TESTS:
        relative = path.relative_to(ROOT / "tests")
        if path.stem.startswith("test_") and relative.parts[0] not in ("flows", "oracle"):
            assert relative.parent in folders, f"{name(path)} mirrors no folder"
