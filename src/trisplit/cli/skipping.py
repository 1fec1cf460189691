"""`trisplit bench cache` and `bench energy`: what hits take beside runs, and what that comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trisplit.cli.bench import AsJson
from trisplit.cli.typed import show_rows, some, words
from trisplit.errors import UnknownName

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What joules and money follow from, and where the watts of a busy core are from."""

    watts: float
    source: str
    price_per_kwh: float
    pue: float


Peers = Annotated[str, typer.Option(metavar="P,…", help="Other engines beside ours: bun, deno, node.")]
PeersFolder = Annotated[Path, typer.Option(help="Where npm put them; `make peers-scripts` does.")]
OwnEnvironment = Annotated[
    bool,
    typer.Option("--own-environment", help="Give processes all variables of this shell, not just few."),
]


def add_to(bench: typer.Typer) -> None:
    """Adds the commands."""
    bench.command("cache")(cache)
    bench.command("energy")(energy)


def cache(
    commands: Annotated[str, typer.Option(metavar="C,…", help="hello.ts, fib40.js, …; default: all.")] = "",
    peers: Peers = "",
    peers_folder: PeersFolder = Path(".peers"),
    runs: Annotated[int, typer.Option(min=3, help="Turns each way takes.")] = 40,
    most_s: Annotated[float, typer.Option(min=0.0, help="Seconds all turns of one way may take.")] = 10.0,
    own_environment: OwnEnvironment = False,
    as_json: AsJson = False,
) -> None:
    """What a hit takes beside a run: small scripts by every way, cold and warm, beside bun, deno and node."""
    from trisplit.bench.cache import COMMANDS
    from trisplit.bench.cache import cache as measure
    from trisplit.bench.script_peers import find_peers

    asked = some(words(commands) or COMMANDS, "script")
    for each in asked:
        if each not in COMMANDS:
            raise UnknownName("script of this bench", each, COMMANDS)
    found, missing = find_peers(words(peers), peers_folder)
    node = next(iter(find_peers(["node"], peers_folder)[0]), None)
    rows, spread, left_out = measure(asked, found, node, runs=runs, most_s=most_s, own=own_environment)
    show_rows(rows, as_json=as_json, also={"spread": spread, "left_out": [*missing, *left_out]})


def energy(
    operations: Annotated[int, typer.Option(min=1, help="Runs to say the energy of.")] = 93_000,
    command: Annotated[str, typer.Option(metavar="C", help="hello.js, hello.ts, fib40.js, …")] = "hello.js",
    samples: Annotated[int, typer.Option(min=1, help="Of those, how many each way runs.")] = 100,
    peers: Peers = "",
    peers_folder: PeersFolder = Path(".peers"),
    watts: Annotated[
        float | None, typer.Option(help="Power of one busy core; default: measured by RAPL, or assumed 15.")
    ] = None,
    price: Annotated[float, typer.Option(help="Price of a kilowatt hour.")] = 0.27,
    pue: Annotated[float, typer.Option(help="Energy of the building per energy of the machine.")] = 1.0,
    ops_per_day: Annotated[float, typer.Option(help="Also a year of a fleet: runs a day and machine.")] = 0.0,
    nodes: Annotated[int, typer.Option(help="Machines of that fleet.")] = 1,
    own_environment: OwnEnvironment = False,
    as_json: AsJson = False,
) -> None:
    """The processor time, energy and money of very many runs: hits beside bun, deno and node."""
    from trisplit.bench.cache import COMMANDS
    from trisplit.bench.energy import Asked, measure_energy
    from trisplit.bench.script_peers import LeftOut, find_peers
    from trisplit.cache import power
    from trisplit.cache.ledger import Rates
    from trisplit.cli.caching import refuse_nonsense

    if command not in COMMANDS:
        raise UnknownName("script of this bench", command, COMMANDS)
    given = {"--watts": watts or 0.0, "--price": price, "--pue": pue}
    refuse_nonsense(given | {"--ops-per-day": ops_per_day, "--nodes": nodes})
    core = power.watts_of_a_core(watts)
    rates = Rates(watts=core.watts, price_per_kwh=price, pue=pue)
    asked = Asked(operations=operations, samples=samples, ops_per_day=ops_per_day, nodes=nodes)
    found, missing = find_peers(words(peers), peers_folder)
    node = next(iter(find_peers(["node"], peers_folder)[0]), None)
    rows, left_out = measure_energy(command, found, node, asked, rates, own=own_environment)
    if isinstance(why := power.energy(), str):
        left_out.append(LeftOut(what="rapl_joules", why=why))
    assumed = Assumptions(watts=core.watts, source=core.source, price_per_kwh=price, pue=pue)
    also: dict[str, Sequence[DataclassInstance]] = {
        "assumptions": [assumed],
        "left_out": [*missing, *left_out],
    }
    show_rows(rows, as_json=as_json, also=also)
