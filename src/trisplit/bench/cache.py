"""What a hit takes, and what a run: small scripts through every way there is, in turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Final

from trisplit.bench.progress import shown
from trisplit.bench.script_peers import HOW, LeftOut, Peer
from trisplit.bench.ways import Ground, Way
from trisplit.errors import RequestProblem
from trisplit.paths import scratch
from trisplit.scripts.spawned import Spawned

SCRIPTS: Final = ("hello", "fib20", "fib30", "fib40", "fib1000", "typed")
COMMANDS: Final = tuple(f"{script}.{kind}" for kind in ("ts", "js") for script in SCRIPTS)
FIBS: Final = ("fib20", "fib30", "fib40", "fib1000")

LEAST_RUNS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRow:
    """One script by one way. Times are of a whole process; `in-process` they are of a call in a running one.

    `warm`: the result is kept; cold is with nothing kept of this script. The ratios say how many times as
    long bun and node take, median by median; of node the first there is a row of.
    """

    command: str
    path: str
    engine_version: str
    warm: bool
    min_ms: float
    median_ms: float
    cpu_ms: float
    ratio_to_bun: float | None
    ratio_to_node: float | None
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadRow:
    """How far hits of scripts that compute little and much lie apart: slowest median over fastest."""

    path: str
    kind: str
    fastest_ms: float
    slowest_ms: float
    apart_percent: float


@dataclass(slots=True)
class _Turns:
    """A way and what it took so far."""

    way: Way
    runs: int = 1
    taken: list[Spawned] = field(default_factory=list)


def cache(
    commands: Sequence[str], peers: Sequence[Peer], node: Peer | None, *, runs: int, most_s: float, own: bool
) -> tuple[list[CacheRow], list[SpreadRow], list[LeftOut]]:
    """All ways to these commands' output: rows, how much hits differ, and what there is no row for.

    `node` is the one of PATH; what it does not run, the first of `peers` does that can. Each way takes `runs`
    turns, or as many as fit into `most_s` seconds, three at least. RequestProblem where two ways print
    different things.
    """
    rows, left_out = list[CacheRow](), list[LeftOut]()
    with scratch() as folder, Ground.laid(folder, own=own) as ground:
        for command in shown(commands, "scripts"):
            ways, why = ways_of(ground, placed(command, folder), peers, node)
            left_out += why
            rows += _rows(command, _measured(command, ways, runs, most_s))
    return rows, spreads(rows), left_out


def placed(command: str, folder: Path) -> Path:
    """One of our scripts, copied to where nothing lies beside it."""
    script = folder / command
    script.write_bytes(files("trisplit.bench").joinpath("commands", command).read_bytes())
    return script


def ways_of(
    ground: Ground, script: Path, peers: Sequence[Peer], node: Peer | None
) -> tuple[list[Way], list[LeftOut]]:
    """Ours first, with the first node that runs the script; then the peers that do, and which do not."""
    theirs, left_out = ground.theirs(script, peers), list[LeftOut]()
    named = [peer for peer in peers if peer.name == "node"]
    able = [peer for peer in ([node] if node else []) + named if peer.runs(script.name)]
    if not able:
        why = f"no node here runs it: {HOW}"
        return theirs, [LeftOut(what=f"{script.name}, ours", why=why)]
    left_out += [
        LeftOut(what=f"{script.name}, node {peer.version}", why="it runs no TypeScript")
        for peer in named
        if peer not in able
    ]
    return ground.ours(script, able[0]) + theirs, left_out


def _measured(command: str, ways: Sequence[Way], runs: int, most_s: float) -> list[_Turns]:
    """Turn by turn, so that what slows the machine down slows all alike; the first of each does not count."""
    turns, printed = [_Turns(way) for way in ways], b""
    # The first cold one fills the store, so it stands before the warm ones.
    for one in sorted(turns, key=lambda one: one.way.warm):
        one.way.before()
        first = one.way.once()
        printed = printed or first.stdout
        _refuse_others(command, one.way, first, printed)
        turn_ms = one.way.at_once * max(first.wall_ms, 1e-6)
        one.runs = max(LEAST_RUNS, min(runs, int(most_s * 1e3 / turn_ms)))
    for turn in range(max((one.runs for one in turns), default=0)):
        for one in turns:
            if turn >= one.runs:
                continue
            one.way.before()
            for _ in range(one.way.at_once):
                taken = one.way.once()
                _refuse_others(command, one.way, taken, printed)
                one.taken.append(taken)
    return turns


def _refuse_others(command: str, way: Way, taken: Spawned, printed: bytes) -> None:
    if taken.exit_code == 0 and taken.stdout == printed:
        return
    said = taken.stderr.decode(errors="replace").strip().splitlines()
    what = f"{command} by {way.path} {way.engine_version} printed other things than the first, exit code"
    raise RequestProblem(f"{what} {taken.exit_code}: {' '.join(said[-1:])}", fix="leave it out of --peers")


def _rows(command: str, turns: Sequence[_Turns]) -> list[CacheRow]:
    medians = [median(one.wall_ms for one in each.taken) for each in turns]

    def ratio(name: str, mine: float) -> float | None:
        theirs = [ms for each, ms in zip(turns, medians) if each.way.path == name]
        return theirs[0] / mine if theirs else None

    return [
        CacheRow(
            command=command,
            path=each.way.path,
            engine_version=each.way.engine_version,
            warm=each.way.warm,
            min_ms=min(one.wall_ms for one in each.taken),
            median_ms=ms,
            cpu_ms=median(one.cpu_ms for one in each.taken),
            ratio_to_bun=ratio("bun", ms),
            ratio_to_node=ratio("node", ms),
            runs=len(each.taken),
        )
        for each, ms in zip(turns, medians)
    ]


def spreads(rows: Iterable[CacheRow]) -> list[SpreadRow]:
    """For each way and kind of script what hits of the fibs take at least and at most."""
    hits: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        script, _, kind = row.command.partition(".")
        if row.warm and script in FIBS:
            hits.setdefault((row.path, kind), []).append(row.median_ms)
    return [
        SpreadRow(
            path=path,
            kind=kind,
            fastest_ms=min(ms),
            slowest_ms=max(ms),
            apart_percent=100 * (max(ms) / min(ms) - 1),
        )
        for (path, kind), ms in hits.items()
        if len(ms) > 1
    ]
