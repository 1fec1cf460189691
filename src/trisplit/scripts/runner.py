"""The spine of `trisplit run`: a script's entry, or a try in the closed world, or a run as ever."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trisplit.cache.entry import STDERR, STDOUT, Entry, Frame
from trisplit.cache.key import Impure, Key, key_of
from trisplit.cache.recall import Stopwatch, put_down, put_down_extra, recall, remember
from trisplit.cache.store import Store
from trisplit.errors import RequestProblem
from trisplit.scripts.closure import Part, closure
from trisplit.scripts.engines.identity import Node, identify, runs_typescript
from trisplit.scripts.engines.reference import Ran, run_reference
from trisplit.scripts.engines.trial import passes_trial
from trisplit.scripts.engines.world import Heard, Outcome, Waiting, hear, run_closed, world_digest
from trisplit.scripts.purity import Surroundings, impure_at_sight, place_matters
from trisplit.scripts.script import Script

SURFACE = "script"
DIFFERS = "what was kept and what a run printed differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is to be shown and how to end; without frames the reference engine has shown it already."""

    exit_code: int
    frames: tuple[Frame, ...] = ()
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a script printed in the closed world, not kept yet: that can wait until it is shown."""

    script: Script
    arguments: tuple[str, ...]
    key: Key
    heard: Heard

    @property
    def answer(self) -> Answer:
        """What is to be shown."""
        return Answer(exit_code=0, frames=self.heard.outcome.frames, said=f"miss: now kept as {self.key}")

    def keep(self, store: Store) -> None:
        """Ends the process and keeps what it printed."""
        entry = _entry(self.script, self.heard.settled())
        remember(store, self.key, entry, words_of(self.script, self.arguments))


def run(script: Script, arguments: Sequence[str], command: str, store: Store, around: Surroundings) -> Answer:
    """The script's output: from the store; from the closed world, and kept; or straight from the engine."""
    watch = Stopwatch()
    found = name_of(script, arguments, command, store, around)
    if isinstance(found, str):
        return _as_ever(script, arguments, command, store, f"impure: {found}")
    key, node, parts = found
    entry = recall(store, key, watch)
    if entry is not None:
        return Answer(exit_code=entry.exit_code, frames=entry.frames, said=f"hit: {key}")
    known = store.read(key)
    if known is not None:
        return _as_ever(script, arguments, command, store, f"impure, as is known: {known.impure}", key)
    heard = hear(node, script, parts, around)
    if heard.outcome.impure:
        outcome = heard.settled()
        _remember_impure(store, key, script, outcome)
        said = f"impure: {outcome.impure}"
        return _as_ever(script, arguments, command, store, said, key, outcome.cpu_us)
    found_out = Tried(script=script, arguments=tuple(arguments), key=key, heard=heard)
    found_out.keep(store)
    return found_out.answer


def tried(
    script: Script,
    arguments: Sequence[str],
    command: str,
    store: Store,
    around: Surroundings,
    take: Callable[[Node], Waiting | None],
) -> Tried | None:
    """As `run`, where the closed world does for it; else None, and nobody has seen that it was tried.

    `take` gives a node that was started ahead, or None. The caller is to `keep` what comes.
    """
    found = name_of(script, arguments, command, store, around)
    if isinstance(found, str):
        return None
    key, node, parts = found
    if store.read(key) is not None:
        return None
    heard = hear(node, script, parts, around, take(node))
    if heard.outcome.impure:
        outcome = heard.settled()
        _remember_impure(store, key, script, outcome)
        put_down_extra(store, key, "charge", _entry(script, outcome))
        return None
    return Tried(script=script, arguments=tuple(arguments), key=key, heard=heard)


def recalled(
    script: Script,
    arguments: Sequence[str],
    command: str,
    store: Store,
    around: Surroundings,
    watch: Stopwatch | None = None,
) -> Answer | None:
    """A hit, which took what `watch` says, or None; nothing is run but, once, a trial of the engine."""
    watch = watch or Stopwatch()
    found = name_of(script, arguments, command, store, around)
    entry = None if isinstance(found, str) else recall(store, found[0], watch)
    return None if entry is None else Answer(exit_code=entry.exit_code, frames=entry.frames, said="hit")


def verify(
    script: Script, arguments: Sequence[str], command: str, store: Store, around: Surroundings
) -> Answer:
    """As `run`, but what has a name is also run by the engine and compared.

    Where they differ the entry goes, the script counts as impure, and RequestProblem says so after the
    engine's own output was shown.
    """
    found = name_of(script, arguments, command, store, around)
    if isinstance(found, str):
        return _as_ever(script, arguments, command, store, f"impure: {found}")
    key, node, parts = found
    entry = store.read(key)
    if entry is not None and entry.impure:
        return _as_ever(script, arguments, command, store, f"impure, as is known: {entry.impure}", key)
    if entry is None:
        outcome = run_closed(node, script, parts, around)
        if outcome.impure:
            _remember_impure(store, key, script, outcome)
            said = f"impure: {outcome.impure}"
            return _as_ever(script, arguments, command, store, said, key, outcome.cpu_us)
        entry = _entry(script, outcome)
    ran = run_reference(command, script.named, arguments, captured=True)
    put_down(store, _cost(script, ran), key)
    shown = tuple(frame for frame in (Frame(STDOUT, ran.stdout), Frame(STDERR, ran.stderr)) if frame.data)
    if (entry.exit_code, entry.output(), entry.output(STDERR)) == (ran.exit_code, ran.stdout, ran.stderr):
        store.put(key, entry)
        return Answer(exit_code=0, frames=entry.frames, said=f"verified: {key}")
    refuse(store, key, script, Entry(surface=SURFACE))
    return Answer(
        exit_code=ran.exit_code or 1, frames=shown, said=f"MISMATCH: {DIFFERS}; {key} counts as impure now"
    )


def refuse(store: Store, key: Key, script: Script, cost: Entry) -> None:
    """What was kept under `key` is false: it goes, counts as impure from now on, and the ledger shows it."""
    store.put(key, Entry(surface=SURFACE, label=script.named, impure=DIFFERS))
    put_down_extra(store, key, "mismatch", cost)


def without_store(script: Script, arguments: Sequence[str], command: str, why: str) -> Answer:
    """Runs the script as ever."""
    return _as_ever(script, arguments, command, None, why)


def name_of(
    script: Script, arguments: Sequence[str], command: str, store: Store, around: Surroundings
) -> tuple[Key, Node, tuple[Part, ...]] | str:
    """What the run would be kept under, which node runs it, and its files; or why it has no name."""
    parts = closure(script)
    if why := impure_at_sight(script, parts, around):
        return why
    node = identify(command, store)
    if unsure := node.unsure or passes_trial(node, store):
        return unsure
    if script.language == "typescript" and not runs_typescript(node, store):
        raise RequestProblem(
            f"node {node.version} does not run TypeScript",
            fix="use node 22.18 or newer, or name another program with --engine",
        )
    key = key_of(
        SURFACE,
        engine=node.digest,
        world=world_digest(),
        language=script.language,
        kind=script.kind,
        parts=[(part.source, part.is_json, part.names) for part in parts],
        paths=[str(part.path) for part in parts] if place_matters(parts) else None,
        arguments=tuple(arguments),
        terminals=(around.stdout_is_terminal, around.stderr_is_terminal),
    )
    return key.why if isinstance(key, Impure) else (key, node, parts)


def words_of(script: Script, arguments: Sequence[str]) -> tuple[str, ...]:
    """What the ledger says was asked for; nothing where that is no text."""
    words = (str(script.path), *arguments)
    try:
        "".join(words).encode()
    except UnicodeEncodeError:
        return ()
    return words


def _as_ever(
    script: Script,
    arguments: Sequence[str],
    command: str,
    store: Store | None,
    said: str,
    key: Key | None = None,
    tried_cpu_us: int = 0,
) -> Answer:
    ran = run_reference(command, script.named, arguments)
    if store is not None:
        cost = _cost(script, ran)
        cost = replace(cost, impure=said, cpu_us=cost.cpu_us + tried_cpu_us)
        put_down(store, cost, key, words_of(script, arguments))
    return Answer(exit_code=ran.exit_code, said=said)


def _entry(script: Script, outcome: Outcome) -> Entry:
    return Entry(
        frames=outcome.frames,
        surface=SURFACE,
        label=script.named,
        cpu_us=outcome.cpu_us,
        wall_us=outcome.wall_us,
    )


def _remember_impure(store: Store, key: Key, script: Script, outcome: Outcome) -> None:
    """Not to be tried again, unless another try might end otherwise."""
    if outcome.lasting:
        store.put(key, Entry(surface=SURFACE, label=script.named, impure=outcome.impure))


def _cost(script: Script, ran: Ran) -> Entry:
    return Entry(surface=SURFACE, label=script.named, cpu_us=ran.cpu_us, wall_us=ran.wall_us)
