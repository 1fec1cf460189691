"""Files a script loads: found as node finds them, part of its key, and loaded as node loads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scripts.worlds import NODE, needs_node, reference
from trisplit.cache.entry import STDERR, Entry
from trisplit.cache.store import Store, open_store
from trisplit.scripts import runner
from trisplit.scripts.closure import closure
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.script import read_script

BARE = Surroundings(environment={})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "results") as store:
        yield store


def laid(folder: Path, files: dict[str, str]) -> Path:
    """Files under a folder; the path of the script among them."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "a.js"


def run(path: Path, store: Store) -> runner.Answer:
    assert NODE is not None
    return runner.run(read_script(str(path)), (), NODE, store, BARE)


def names(path: Path) -> list[tuple[str, list[str]]]:
    parts = closure(read_script(str(path)))
    return [(part.path.name, [parts[number].path.name for _, number in part.names]) for part in parts]


@pytest.mark.parametrize(
    ("there", "word", "found"),
    [
        (("b.js",), "./b.js", "b.js"),
        (("b.js",), "./b", "b.js"),
        (("b.json", "b.js"), "./b", "b.js"),
        (("b.json",), "./b", "b.json"),
        (("b.cjs",), "./b.cjs", "b.cjs"),
        (("b.cjs",), "./b", None),
        (("b", "b.js"), "./b", None),  # a file without extension comes first
        (("b/index.js",), "./b", None),
        (("b/index.js", "b.js"), "./b", "b.js"),
        (("b.js",), "./b/", None),
        (("b.mjs",), "./b.mjs", None),
        (("b.txt",), "./b.txt", None),
        (("in/b.js",), "./in/../in/b", "b.js"),
        (("node_modules/b.js",), "./node_modules/b", None),
        ((), "./b", None),
    ],
)
def test_files_are_found_as_node_finds_them(
    there: tuple[str, ...], word: str, found: str | None, tmp_path: Path
) -> None:
    path = laid(tmp_path, {"a.js": f"require('{word}')", **dict.fromkeys(there, "1")})
    assert names(path)[0] == ("a.js", [] if found is None else [found])


def test_each_file_is_a_part_once(tmp_path: Path) -> None:
    files = {
        "a.js": "require('./b'); require( \"./c.js\" ); require('fs'); require(`./d`); require('./b.js')",
        "b.js": "require('./c'); require('./a')",
        "c.js": "",
        "d.js": "",
    }
    assert names(laid(tmp_path, files)) == [
        ("a.js", ["b.js", "c.js", "b.js"]),
        ("b.js", ["c.js", "a.js"]),
        ("c.js", []),
    ]


MODULES_HERE = {"package.json": '{"type": "module"}'}

SETS: dict[str, dict[str, str]] = {
    "one of each kind": {
        "a.js": "const b = require('./b'); console.log(b, b.f(2), require('./d.json'), require('./b') === b)",
        "b.js": "console.log('b', this === exports); exports.f = (x) => x * require('./in/c.cjs').n",
        "in/c.cjs": "module.exports = { n: 21, main: require.main === module }",
        "d.json": '\ufeff{"__proto__": 1, "x": [1, null]}',
    },
    "what throws is run again": {
        "a.js": "for (let i = 0; i < 2; i++) try { require('./b') } catch (e) { console.log(e) }",
        "b.js": "console.log('b'); exports.x = 1; throw 'thrown'",
    },
    "functions and classes": {
        "a.js": "const A = require('./b'); console.log(new (class B extends A {})().m())",
        "b.js": "module.exports = class A { m() { return 1 } }",
    },
    "what is never loaded": {"a.js": "if (false) require('./nowhere'); console.log(1)"},
    "globals are shared": {"a.js": "require('./b'); console.log(shared)", "b.js": "shared = 5"},
    "modules": {
        **MODULES_HERE,
        "a.js": "import b, { c as see } from './b.mjs'\n"
        "import * as ns from \"./in/c.js\"; import './b.mjs';\n"
        "import {\n  x,\n} from './in/c.js';\nexport * from './in/c.js';\n"
        "console.log(b, see(), ns, x, this, await Promise.resolve(3))",
        "b.mjs": "import { x } from './in/../in/c.js'\nconsole.log('b', x); export default class {}\n"
        "export function c() { return 'c' + x }",
        "in/c.js": "import { c } from '../b.mjs'\n"
        "export let x = 5; export const f = () => c(); console.log('c')",
    },
    "modules that wait for one another": {
        **MODULES_HERE,
        "a.js": "import { x } from './b.js'\nimport './c.js'\n"
        "queueMicrotask(() => console.log('a2')); console.log(x)",
        "b.js": "console.log('b1'); export const x = await Promise.resolve(1); console.log('b2')",
        "c.js": "console.log('c1'); Promise.resolve().then(() => console.log('c2'))",
    },
    "what only looks like an import": {
        **MODULES_HERE,
        "a.js": "const text = `\nimport x from './b.js'\n`; export { text as x };\nconsole.log(text)",
        "b.js": "Date.now()",
    },
    "where they lie": {"a.js": "require('./in/b')", "in/b.js": "console.log(__filename, __dirname)"},
}


@needs_node
@pytest.mark.parametrize("name", SETS)
def test_they_are_loaded_as_node_loads_them(name: str, tmp_path: Path, store: Store) -> None:
    path = laid(tmp_path, SETS[name])
    first, second = run(path, store), run(path, store)
    assert [a.said.split(":")[0] for a in (first, second)] == ["miss", "hit"]
    kept = Entry(frames=second.frames)
    assert reference(path, tmp_path, 0) == (0, kept.output(), kept.output(STDERR))


@needs_node
@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"a.js": "require('./b')", "b.js": "Date.now()"}, "reads the clock: Date.now, at line 1 of b.js"),
        ({"a.js": "require('./b')", "b.js": "\nrequire('./a').x"}, "loads in a circle"),
        ({"a.js": "require('./' + 'b')", "b.js": ""}, "loads ./b, at line 1"),
        ({"a.js": "try { require('./b') } catch { console.log(1) }"}, "loads ./b"),
        ({"a.js": "require('./b')", "b.js": "// import"}, "mentions import, at line 1"),
        ({"a.js": "require('./b')", "b.js": "export const x = 1"}, "is no CommonJS"),
        ({"a.js": "try { require('./b') } catch { console.log(1) }", "b.json": "{"}, "JSON that is none"),
        ({"a.js": "require('./b')", "b.js": "console.log(module.parent)"}, "uses module"),
        ({**MODULES_HERE, "a.js": "import './b.js'", "b.js": "\nDate.now()"}, "Date.now, at line 2 of b.js"),
        (
            {**MODULES_HERE, "a.js": "import './b.js'\nimport('./b.js')", "b.js": ""},
            "mentions import, at line 2",
        ),
        ({**MODULES_HERE, "a.js": "\nconsole.log(import.meta.url)"}, "mentions import, at line 2"),
        (
            {**MODULES_HERE, "a.js": "import './b.js'", "b.js": "/**/ import './c.js'"},
            "mentions import, at line 1",
        ),
        ({**MODULES_HERE, "a.js": "import fs from 'node:fs'\nconsole.log(1)"}, "loads node:fs"),
        ({**MODULES_HERE, "a.js": "import x from './b.cjs'\nconsole.log(x)", "b.cjs": ""}, "loads ./b.cjs"),
        (
            {**MODULES_HERE, "a.js": "import x from './%62.js'\n", "b.js": "export default 1"},
            "loads ./%62.js",
        ),
        ({**MODULES_HERE, "a.js": "import { y } from './b.js'\n", "b.js": ""}, "does not fit together"),
        ({**MODULES_HERE, "a.js": "import './b.js'\n", "b.js": "}"}, "is no module that node compiles"),
        ({**MODULES_HERE, "a.js": "import './b'\n", "b.js": ""}, "loads ./b"),
        (
            {"a.js": "require('./in/b')", "in/b.js": "1", "in/package.json": '{"type":"module"}'},
            "loads ./in/b",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_impure_with_them(files: dict[str, str], why: str, tmp_path: Path, store: Store) -> None:
    assert why in run(laid(tmp_path, files), store).said


@needs_node
def test_a_file_that_was_not_there_is_another_name(tmp_path: Path, store: Store) -> None:
    path = laid(tmp_path, {**MODULES_HERE, "a.js": "import { x } from './in/b.js'\nconsole.log(x)"})
    assert "impure: loads ./in/b.js" in run(path, store).said
    laid(tmp_path, {"in/b.js": "export const x = 1"})
    assert run(path, store).said.startswith("miss")
    (tmp_path / "in" / "package.json").write_text("{}")  # and now it is no module
    assert run(path, store).said == "impure, as is known: loads ./in/b.js"


@needs_node
def test_every_change_among_them_is_seen(tmp_path: Path, store: Store) -> None:
    path = laid(tmp_path, {"a.js": "console.log(require('./b'), require('./c'))", "b.js": "", "c.json": "1"})
    run(path, store)
    assert run(path, store).said.startswith("hit")
    changes = (("b.js", "exports.x = 1"), ("c.json", "2"), ("c.js", "module.exports = 'before c.json'"))
    for name, text in changes:
        (tmp_path / name).write_text(text)
        changed = run(path, store)
        assert changed.said.startswith("miss")
        assert reference(path, tmp_path, 0)[1] == Entry(frames=changed.frames).output()
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("a.js", "b.js", "c.js", "c.json"):
        (tmp_path / name).rename(moved / name)
    assert run(moved / "a.js", store).said.startswith("hit")
