"""Filling the cache ahead of requests: what that costs, what a hit saves, from how many runs on it pays."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trisplit.cache.entry import Entry
from trisplit.cache.key import Key
from trisplit.cache.recall import put_down_extra
from trisplit.cache.records import Reuse
from trisplit.cache.store import FOLDER, Store, open_store
from trisplit.errors import Problem, RequestProblem
from trisplit.paths import scratch
from trisplit.scripts.doors import doors
from trisplit.scripts.engines.world import run_closed
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.runner import SURFACE, name_of
from trisplit.scripts.script import EXTENSIONS, read_script
from trisplit.scripts.spawned import Spawner

_HELLO = "console.log('hello');\n"
_TIMES = 3


@dataclass(frozen=True, slots=True)
class Wish:
    """What may be asked for, and how often."""

    script: str
    arguments: tuple[str, ...] = ()
    expected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What is the same for all scripts, in milliseconds of processor time; `door` is how hits are asked for.

    `hit_ms` is of a whole process, from its start to its end; `closed_ms` is what the closed world takes more
    than a plain run (or less: it has no environment, and some variables make node slow to start).
    """

    door: str
    hit_ms: float
    closed_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What became of one wish. Times are milliseconds of processor time, None where nothing was run.

    `break_even`: from how many runs on filling ahead takes less than running each time; None: never. `costs`
    says whether they are from the ledger or measured now. `why`: why it is left out.
    """

    script: str
    arguments: tuple[str, ...]
    expected: int
    charge_ms: float | None = None
    run_ms: float | None = None
    hit_ms: float | None = None
    break_even: int | None = None
    costs: str = ""
    charged: bool = False
    why: str = ""


def break_even(charge_ms: float, run_ms: float, hit_ms: float) -> int | None:
    """Charge cost ÷ saving of a hit, rounded up; None where a hit saves nothing.

    >>> break_even(60, 50, 10), break_even(50, 40, 40)
    (2, None)
    """
    saving_ms = run_ms - hit_ms
    return math.ceil(charge_ms / saving_ms) if saving_ms > 0 else None


def read_jar(path: Path) -> list[Wish]:
    """A script and its arguments a line, as a shell would take them; # begins a comment. RequestProblem.

    A number before them says how often they are expected; equal lines add up, and a line alone is one run.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestProblem(f"the jar {path} cannot be read: {error}", fix="name a text file") from error
    found: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(lines, 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            what = f"line {number} of {path}: {error}"
            raise RequestProblem(
                what, fix="write [TIMES] SCRIPT [ARGUMENTS], quoted as in a shell"
            ) from error
        times = int(words.pop(0)) if words and words[0].isdecimal() and len(words[0]) < 16 else 1
        if words:
            found[tuple(words)] = found.get(tuple(words), 0) + times
    return [Wish(words[0], words[1:], expected) for words, expected in found.items()]


def scripts_in(paths: Iterable[str]) -> Iterator[str]:
    """These, and of folders the scripts in them and below, without those of packages."""
    for named in paths:
        if not Path(named).is_dir():
            yield named
            continue
        for path in sorted(Path(named).rglob("*")):
            if path.suffix in EXTENSIONS and "node_modules" not in path.parts and path.is_file():
                yield str(path)


def measured_costs(command: str, around: Surroundings) -> Costs | None:
    """What a hit costs by the quickest door, and the closed world beyond a plain run; each a median of three.

    None where nothing of this engine can be kept, which each script will say. It happens in a store of its
    own, so that no figure of the user's has it in.
    """
    with scratch() as folder, Spawner() as spawner:
        path = Path(folder, "hello.js")
        path.write_text(_HELLO)
        environment = {**around.environment, "TRISPLIT_CACHE": str(folder)}
        with open_store(Path(folder, FOLDER)) as store:
            found = name_of(read_script(str(path)), (), command, store, around)
            if isinstance(found, str):
                return None
            key, node, parts = found
            tries = [run_closed(node, read_script(str(path)), parts, around) for _ in range(_TIMES)]
            if why := tries[0].impure:
                raise RequestProblem(f"the closed world says of hello: {why}", fix="try again")
            store.put(key, Entry(frames=tries[0].frames, surface=SURFACE, label="hello.js"))
        door, words = next(iter(doors().items()))
        plain = [spawner.run((command, str(path)), environment) for _ in range(_TIMES)]
        hits = [spawner.run((*words, str(path)), environment) for _ in range(_TIMES)]
    closed_ms = statistics.median(one.cpu_us / 1e3 for one in tries)
    plain_ms = statistics.median(one.cpu_ms for one in plain)
    hit_ms = statistics.median(one.cpu_ms for one in hits)
    return Costs(door=door, hit_ms=hit_ms, closed_ms=closed_ms - plain_ms)


def charge(
    wish: Wish,
    command: str,
    store: Store,
    around: Surroundings,
    costs: Costs | None,
    history: Mapping[str, Reuse],
) -> Charge:
    """Keeps what the wish would print if that pays; `history` has by key what runs took.

    It runs in the closed world and so has no effects. What was run and not kept is in the ledger as well.
    """
    row = Charge(script=wish.script, arguments=wish.arguments, expected=wish.expected)
    try:
        script = read_script(wish.script)
        found = name_of(script, wish.arguments, command, store, around)
    except Problem as problem:
        return replace(row, why=problem.what)
    if isinstance(found, str):
        return replace(row, why=f"impure: {found}")
    key, node, parts = found
    if why := _settled(key, store, wish):
        return replace(row, why=why)
    assert costs is not None  # where names are to be had, costs are
    before = history.get(key)
    if before is not None and before.run_cpu_us:
        row = _priced(row, before.run_cpu_us / 1e3, costs, "ledger")
        if row.why:
            return row
    outcome = run_closed(node, script, parts, around)
    spent = Entry(surface=SURFACE, label=script.named, cpu_us=outcome.cpu_us, wall_us=outcome.wall_us)
    put_down_extra(store, key, "charge", spent)
    if outcome.impure:
        if outcome.lasting:
            store.put(key, Entry(surface=SURFACE, label=script.named, impure=outcome.impure))
        return replace(row, why=f"impure: {outcome.impure}")
    if not row.costs:
        row = _priced(row, outcome.cpu_us / 1e3, costs, "now")
    if row.why:
        return row
    if not store.put(key, replace(spent, frames=outcome.frames)):
        return replace(row, why="is too large to keep, or the disk is full")
    return replace(row, charged=True)


def _settled(key: Key, store: Store, wish: Wish) -> str:
    """Why nothing needs to be run for it."""
    known = store.read(key)
    if known is not None:
        return f"impure, as is known: {known.impure}" if known.impure else "is kept already"
    if wish.expected < 1:
        return "no run is expected"
    return ""


def _priced(row: Charge, charge_ms: float, costs: Costs, source: str) -> Charge:
    """With its costs, and why it does not pay where it does not."""
    run_ms = max(0.0, charge_ms - costs.closed_ms)
    n = break_even(charge_ms, run_ms, costs.hit_ms)
    why = ""
    if n is None:
        why = "a hit costs as much as a run"
    elif row.expected < n:
        why = f"{row.expected} runs are expected, and it pays from {n} on"
    return replace(
        row,
        charge_ms=charge_ms,
        run_ms=run_ms,
        hit_ms=costs.hit_ms,
        break_even=n,
        costs=source,
        why=why,
    )
