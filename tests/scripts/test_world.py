"""The closed world: what it calls pure prints what node prints, wherever and whenever it runs."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scripts.corpus import EITHER, IMPURE, IMPURE_MODULES, MODULES, PURE
from tests.scripts.evasions import EVASIONS
from tests.scripts.worlds import NODE, needs_node, reference, surroundings_of
from trisplit.cache.entry import STDERR, Entry
from trisplit.cache.store import Store, open_store
from trisplit.scripts import runner
from trisplit.scripts.charge import Costs, Wish, charge
from trisplit.scripts.closure import closure
from trisplit.scripts.engines import world
from trisplit.scripts.engines.identity import Node, identify, runs_typescript
from trisplit.scripts.engines.trial import passes_trial
from trisplit.scripts.engines.world import MOST_MEMORY_KB, Outcome, read_said, run_closed
from trisplit.scripts.purity import Surroundings, impure_at_sight
from trisplit.scripts.script import read_script

BARE = Surroundings(environment={})
FREE = Costs(door="none", hit_ms=0.0, closed_ms=0.0)
TERMINAL = Surroundings(environment={}, stdout_is_terminal=True, stderr_is_terminal=True)

# One of each kind; `make test-all` takes all.
QUICK_PURE = ("formats", "standard error", "a date of UTC", "text of functions", "promises", "typed arrays")
QUICK_IMPURE = (
    *(
        "clock by reflection",
        "random as a callback",
        "constructor of a bound function",
        "descriptor of a stack",
    ),
    *("overflow without a trace", "everything through this", "patched then", "warnings of the engine"),
    *("time zone of an object", "much memory of a constructor", "require by arguments"),
    *("uncaught number", "descriptor of a stack"),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(tmp_path_factory.mktemp("node") / "results") as store:
        yield store


@pytest.fixture(scope="module")
def node(store: Store) -> Node:
    if NODE is None:
        pytest.skip("no node on PATH")
    node = identify(NODE, store)
    if why := passes_trial(node, store):
        pytest.skip(why)
    return node


def tried(
    source: str, folder: Path, node: Node, *, name: str = "script.js", around: Surroundings = BARE
) -> Outcome:
    path = folder / name
    path.write_text(source)
    script = read_script(str(path))
    parts = closure(script)
    why = impure_at_sight(script, parts, around)
    return Outcome(impure=why) if why else run_closed(node, script, parts, around)


def refuse_a_lie(outcome: Outcome, folder: Path, runs: int, name: str = "script.js") -> None:
    """A script that counts as pure must print the same in every run of node."""
    kept = Entry(frames=outcome.frames)
    for number in range(runs):
        assert reference(folder / name, folder, number) == (0, kept.output(), kept.output(STDERR))


@needs_node
@pytest.mark.parametrize("name", QUICK_PURE)
def test_pure_scripts_are_called_pure_and_told_true(name: str, tmp_path: Path, node: Node) -> None:
    outcome = tried(PURE[name], tmp_path, node)
    assert outcome.impure == ""
    assert outcome.cpu_us > 0
    refuse_a_lie(outcome, tmp_path, 1)


@needs_node
@pytest.mark.parametrize("name", QUICK_IMPURE)
def test_what_looks_outside_is_called_impure(name: str, tmp_path: Path, node: Node) -> None:
    outcome = tried({**IMPURE, **EITHER}[name], tmp_path, node)
    if name in EITHER and not outcome.impure:
        refuse_a_lie(outcome, tmp_path, 1)
    else:
        assert outcome.impure
        assert outcome.frames == ()


CORPUS = {
    (kind, name): source
    for kind, scripts in (("pure", PURE), ("impure", IMPURE), ("either", EITHER), ("evasive", EVASIONS))
    for name, source in scripts.items()
}


@pytest.fixture(scope="module")
def came() -> Counter[tuple[str, bool]]:
    """How many scripts of each kind were kept, and were not."""
    return Counter()


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), CORPUS)
def test_no_hit_is_false_in_any_world(
    kind: str, name: str, tmp_path: Path, store: Store, node: Node, came: Counter[tuple[str, bool]]
) -> None:
    """Kept once, then asked for in three worlds: each time it is what node prints there and then."""
    path = tmp_path / "script.js"
    path.write_text(CORPUS[kind, name])
    row = charge(Wish(str(path), expected=99), node.command, store, BARE, FREE, {})
    kept = row.charged or row.why == "is kept already"  # another of the same text was
    came[kind, kept] += 1
    for number in range(3 if kept else 0):
        around = Surroundings(environment=surroundings_of(number))
        answer = runner.recalled(read_script(str(path)), (), node.command, store, around)
        assert answer is not None
        hit = Entry(frames=answer.frames)
        told = (answer.exit_code, hit.output(), hit.output(STDERR))
        assert told == reference(path, tmp_path, number)
    if kind in ("pure", "impure"):
        assert kept == (kind == "pure"), row.why


@needs_node
@pytest.mark.slow
def test_what_the_corpus_came_to(came: Counter[tuple[str, bool]], capsys: pytest.CaptureFixture[str]) -> None:
    if came.total() < len(CORPUS):
        pytest.skip("only a part of the corpus was tried")
    kept = sum(n for (_, was_kept), n in came.items() if was_kept)
    with capsys.disabled():
        print(f"\n{came.total()} scripts: {kept} kept, and each hit true in 3 worlds")
        print(f"of {len(PURE)} plainly pure ones {came['pure', False]} were called impure")
        print(f"of {len(IMPURE)} plainly impure ones {came['impure', True]} were called pure")
    assert came.total() >= 150
    assert came["pure", False] <= len(PURE) / 10


@needs_node
@pytest.mark.parametrize("name", [*MODULES, *IMPURE_MODULES])
def test_modules(name: str, tmp_path: Path, node: Node) -> None:
    pure = name in MODULES
    outcome = tried(MODULES[name] if pure else IMPURE_MODULES[name], tmp_path, node, name="script.mjs")
    assert bool(outcome.impure) == (not pure), outcome.impure
    if pure:
        refuse_a_lie(outcome, tmp_path, 1, "script.mjs")


TYPED = """interface Named { readonly name: string; age?: number }
type Maker<T> = (of: T) => Named;
class Box<T extends object> implements Named { constructor(x: T) { this.x = x } x: T; name = 'box' as const; }
function over(a: string): void; function over(a: number): void;
function over(a: any) { console.log(typeof a, a!) }
const made: Maker<string> = (of): Named => ({ name: of } satisfies Named);
over('x'); over(2);
console.log(made('y'), new Box<{ a: number }>({ a: 1 }), over.toString(), String(Box));
"""


@needs_node
@pytest.mark.parametrize("name", ["script.ts", "script.mts", "script.cts"])
def test_types(name: str, tmp_path: Path, node: Node) -> None:
    with open_store(tmp_path / "results") as store:
        if not runs_typescript(node, store):
            pytest.skip(f"node {node.version} runs no TypeScript")
    outcome = tried(TYPED, tmp_path, node, name=name)
    assert outcome.impure == ""
    refuse_a_lie(outcome, tmp_path, 1, name)
    assert "Date.now" in tried("const now: number = Date.now()", tmp_path, node, name=name).impure
    assert "no TypeScript" in tried("enum E { A }", tmp_path, node, name=name).impure


@needs_node
def test_it_says_what_was_touched_and_where(tmp_path: Path, node: Node) -> None:
    source = "const a = 1;\n\nfunction when() {\n  return Date.now();\n}\nwhen();\n"
    assert tried(source, tmp_path, node).impure == "reads the clock: Date.now, at line 4"
    assert tried("process.exit(0)", tmp_path, node).impure == "uses process, at line 1"
    assert tried("require('node:os')", tmp_path, node).impure == "loads node:os, at line 1"


@needs_node
def test_a_try_has_no_effects(tmp_path: Path, node: Node) -> None:
    for name in ("console.log", "process", "require"):
        tried(f"{name}; require('fs').writeFileSync({str(tmp_path / 'made')!r}, 'x')", tmp_path, node)
    assert [path.name for path in tmp_path.iterdir()] == ["script.js"]


@needs_node
def test_on_a_terminal_only_text_is_sure(tmp_path: Path, node: Node) -> None:
    """Node colours everything else there."""
    outcome = tried("console.log('a', `b${1}`); console.error('c')", tmp_path, node, around=TERMINAL)
    assert [frame.data for frame in outcome.frames] == [b"a b1\n", b"c\n"]
    for call in ("log(1)", "log('a', {})", "log('%d', 1)", "table([1])", "dir('x')", "error(null)"):
        assert "terminal" in tried(f"console.{call}", tmp_path, node, around=TERMINAL).impure


@needs_node
def test_one_that_does_not_end_is_ended(tmp_path: Path, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "WITHIN_S", 1.0)
    for source in (
        "for (;;);",
        "(async () => { for (;;) await 0 })()",
        "/^(a+)+$/.test('a'.repeat(60) + 'b')",
    ):
        assert "more than 1 s" in tried(source, tmp_path, node).impure


@needs_node
def test_much_output_and_memory_are_limits(
    tmp_path: Path, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    loud = "for (let i = 0; i < 100; i++) console.log('x'.repeat(2 ** 17))"
    assert tried(loud, tmp_path, node).impure == "prints very much, at line 1"
    monkeypatch.setattr(world, "MOST_MEMORY_KB", 150_000)
    kept = "const one = () => new Uint8Array(2 ** 26).fill(1), a = one(), b = one(); console.log(a[0] + b[0])"
    assert "memory" in tried(kept, tmp_path, node).impure


@needs_node
def test_output_is_kept_byte_for_byte_and_in_order(tmp_path: Path, node: Node) -> None:
    source = "console.log('ä\\ud800\\0\\r'); console.error('1'); console.error('2'); console.log('3')"
    outcome = tried(source, tmp_path, node)
    assert [(frame.fd, frame.data) for frame in outcome.frames] == [
        (1, b"\xc3\xa4\xef\xbf\xbd\0\r\n"),
        (2, b"1\n2\n"),
        (1, b"3\n"),
    ]


@needs_node
def test_a_strange_engine_proves_nothing(tmp_path: Path, node: Node) -> None:
    for program in ("/bin/true", "/bin/cat", "/bin/nothing"):
        assert tried("console.log(1)", tmp_path, dataclasses.replace(node, binary=program)).impure


@given(st.lists(st.tuples(st.sampled_from((1, 2)), st.binary(max_size=30)), max_size=8), st.data())
def test_only_a_whole_conversation_counts(pieces: list[tuple[int, bytes]], data: st.DataObject) -> None:
    said = b"".join(b"%d %d\n%s" % (fd, len(piece), piece) for fd, piece in pieces)
    frames, why, status = read_said(said + b"E 3\na\nb")
    assert (why, status) == ("", b"a\nb")
    for fd in (1, 2):
        wanted = b"".join(piece for at, piece in pieces if at == fd)
        assert b"".join(frame.data for frame in frames if frame.fd == fd) == wanted
    cut = data.draw(st.integers(0, len(said) + 6))
    assert read_said((said + b"E 3\na\nb")[:cut])[2] is None
    assert read_said(said + b"E 3\na\nbmore")[2] is None
    assert read_said(said + b"K 3\nwhy") == ((), "why", None)


@needs_node
def test_who_starts_it_may_be_large(tmp_path: Path) -> None:
    assert NODE is not None
    program = tmp_path / "large.py"
    program.write_text(_LARGE)
    script = tmp_path / "a.js"
    script.write_text("console.log(1)")
    said = subprocess.run(
        [sys.executable, program, NODE, script, tmp_path / "results"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said == "'' [Frame(fd=1, data=b'1\\n')]\n"


# More than a world may take, before a world is started.
_LARGE = f"""
import sys
from pathlib import Path
from trisplit.cache.store import open_store
from trisplit.scripts.closure import closure
from trisplit.scripts.engines.identity import identify
from trisplit.scripts.engines.trial import passes_trial
from trisplit.scripts.engines.world import run_closed
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.script import read_script

held = b"x" * {MOST_MEMORY_KB + (64 << 10)} * 1024
script = read_script(sys.argv[2])
with open_store(Path(sys.argv[3])) as store:
    node = identify(sys.argv[1], store)
    assert passes_trial(node, store) == ""
    outcome = run_closed(node, script, closure(script), Surroundings(environment={{}}))
print(repr(outcome.impure), list(outcome.frames))
"""
