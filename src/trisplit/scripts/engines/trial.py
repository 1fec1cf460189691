"""Whether node says the same in its closed world as outside, tried once for each node."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from trisplit.cache.entry import STDERR, STDOUT, Entry, Frame
from trisplit.cache.key import Impure, key_of
from trisplit.cache.store import Store
from trisplit.scripts.closure import closure
from trisplit.scripts.engines.identity import ANSWER_WITHIN_S, SURFACE, Node
from trisplit.scripts.engines.world import run_closed, world_digest
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.script import Script

# Releases the whole corpus of tests has been run with. Node 26 shows proxies, of which the world is made.
KNOWN = ("20", "22", "24")

# What the world replaces, looked at in every way that does not end it.
_TRIAL = """
const seen = [
  console.log, Math.random, Date, Date.now, Date.prototype.getHours, Function, Symbol.for, Object.keys,
  Reflect.set, Uint8Array, Float64Array, ArrayBuffer, Function.prototype.toString,
  (async () => {}).constructor,
];
console.log(seen, new Date(0), new Uint8Array(2), class extends Date {});
console.log(new (class A extends Map {})([[1, seen]]));
for (const f of seen) {
  console.log(f.name, f.length, typeof f, String(f), Object.getOwnPropertyNames(f), f instanceof Function);
  try { Map.prototype.get.call(f); } catch (error) { console.log(error.message); }
}
for (const [owner, name] of [[Date, 'now'], [Math, 'random'], [Date.prototype, 'getHours'], [Object, 'keys'],
  [Date.prototype, 'constructor'], [Function.prototype, 'toString']]) {
  console.log(Object.getOwnPropertyDescriptor(owner, name));
}
for (const f of [() => null.x, () => undefinedName, () => [].reduce((a) => a), () => new Array(-1)]) {
  try { f(); } catch (error) { console.error(error.name, error.message); }
}
console.table([{ a: 1, b: 'x' }]);
console.group('g'); console.log('%s %d %j', 'x', 1.5, { a: 1 }); console.groupEnd();
Promise.resolve([1.5, -0, 1n]).then((x) => console.log(x));
queueMicrotask(() => console.log(module.exports === exports));
"""


def passes_trial(node: Node, store: Store) -> str:
    """Empty, or why nothing this node prints in the closed world may be kept."""
    if node.version.split(".")[0] not in KNOWN:
        return f"node {node.version}: the closed world is tested with node {', '.join(KNOWN)}"
    key = key_of(SURFACE, trial=_TRIAL, world=world_digest(), node=node.facts)
    assert not isinstance(key, Impure)  # texts and numbers have content
    kept = store.read(key)
    if kept is not None:
        return kept.output().decode()
    why, lasting = _tried(node)
    if lasting:
        store.put(key, Entry(frames=(Frame(STDOUT, why.encode()),), surface=SURFACE, label="node"))
    return why


def _tried(node: Node) -> tuple[str, bool]:
    """Empty, or why not; and whether another try would say the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(os.path.realpath(folder), "trial.js")
        path.write_text(_TRIAL)
        script = Script(
            named=str(path), path=path, source=_TRIAL.encode(), language="javascript", kind="commonjs"
        )
        outcome = run_closed(node, script, closure(script), Surroundings(environment={}))
        try:
            ran = subprocess.run(
                [node.command, path], capture_output=True, timeout=ANSWER_WITHIN_S, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired):
            return f"{node.command} does not run a trial", False
    if outcome.impure:
        return (
            f"node {node.version} did not come to its end in the closed world: {outcome.impure}",
            outcome.lasting,
        )
    kept = Entry(frames=outcome.frames)
    same = (ran.returncode, ran.stdout, ran.stderr) == (0, kept.output(), kept.output(STDERR))
    return "" if same else f"node {node.version} prints other things in the closed world than outside", True
