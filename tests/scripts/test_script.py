"""Scripts on disk: their bytes, and what extensions and package.json files make of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trisplit.errors import RequestProblem, UnknownName
from trisplit.scripts.closure import closure
from trisplit.scripts.purity import Surroundings, impure_at_sight, place_matters
from trisplit.scripts.script import Script, read_script


def script(folder: Path, name: str = "a.js", source: bytes = b"1") -> Script:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(source)
    return read_script(str(folder / name))


@pytest.mark.parametrize(
    ("name", "language", "kind"),
    [
        ("a.js", "javascript", "commonjs"),
        ("a.cjs", "javascript", "commonjs"),
        ("a.mjs", "javascript", "module"),
        ("a.ts", "typescript", "commonjs"),
        ("a.mts", "typescript", "module"),
        ("a.cts", "typescript", "commonjs"),
        ("a.py", "python", ""),
    ],
)
def test_extensions(name: str, language: str, kind: str, tmp_path: Path) -> None:
    read = script(tmp_path, name)
    assert (read.language, read.kind, read.unclear) == (language, kind, "")


def test_the_nearest_package_decides(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"type": "module"}')
    assert script(tmp_path, "in/a.js").kind == "module"
    assert script(tmp_path, "in/a.cjs").kind == "commonjs"
    (tmp_path / "in" / "package.json").write_text('{"name": "x"}')
    assert script(tmp_path, "in/a.js").kind == "commonjs"
    assert script(tmp_path, "node_modules/a.js").kind == "commonjs"
    for damaged in ("{", "[]", "\xff", '{"type": "module", "type": "commonjs"}', '{"a": NaN}'):
        (tmp_path / "in" / "package.json").write_bytes(damaged.encode("latin-1"))
        assert "package.json" in script(tmp_path, "in/a.js").unclear


def test_links_are_followed(tmp_path: Path) -> None:
    script(tmp_path, "real/a.js")
    (tmp_path / "real" / "package.json").write_text('{"type": "module"}')
    (tmp_path / "link.js").symlink_to(tmp_path / "real" / "a.js")
    (tmp_path / "link.ts").symlink_to(tmp_path / "real" / "a.js")
    assert read_script(str(tmp_path / "link.js")).kind == "module"
    assert "another extension" in read_script(str(tmp_path / "link.ts")).unclear


def test_what_cannot_be_read_or_run(tmp_path: Path) -> None:
    with pytest.raises(RequestProblem, match="cannot be read"):
        read_script(str(tmp_path / "none.js"))
    with pytest.raises(UnknownName, match="kind of script"):
        read_script(str(tmp_path / "a.rb"))


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        (b"console.log(1)", False),
        (b"__filename", True),
        (b"console.log(__dirname)", True),
        (b"arguments[3]", True),
        (rb"__f\u0069lename", True),
    ],
)
def test_whether_a_script_can_see_where_it_lies(source: bytes, seen: bool, tmp_path: Path) -> None:
    assert place_matters(closure(script(tmp_path, source=source))) == seen


@pytest.mark.parametrize(
    ("source", "variables", "why"),
    [
        (b"1", {"PATH": "/bin", "TZ": "UTC", "NODE_ENV": "test"}, ""),
        (b"1", {"NODE_OPTIONS": ""}, "NODE_OPTIONS"),
        (b"1", {"LD_PRELOAD": "x.so"}, "LD_PRELOAD"),
        (b"1", {"FORCE_COLOR": "1"}, "FORCE_COLOR"),
        (b"1;\nimport('fs')", {}, "at line 2"),
        (b"super(); super.m(1); super . m (); superb.x = 1; 'super'", {}, ""),
        (b"\n\nsuper.x = 1", {}, "at line 3"),
        (b"super['x'] = 1", {}, "super"),
        (b"super /* */ .x = 1", {}, "super"),
        ("super\u00a0\ufeff.x".encode(), {}, "super"),
        (b"[super.x] = [1]; super.x()", {}, "super"),
    ],
)
def test_impure_at_sight(source: bytes, variables: dict[str, str], why: str, tmp_path: Path) -> None:
    read = script(tmp_path, source=source)
    said = impure_at_sight(read, closure(read), Surroundings(environment=variables))
    assert (why in said) if why else not said


def test_python_is_never_kept(tmp_path: Path) -> None:
    read = script(tmp_path, "a.py")
    assert "Python" in impure_at_sight(read, closure(read), Surroundings(environment={}))
