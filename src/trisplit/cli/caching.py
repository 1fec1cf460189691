"""`trisplit cache …` and `trisplit ledger`: what is kept, what it saved, and making room."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trisplit.cli.options import AsJson
from trisplit.cli.printing import print_result
from trisplit.errors import RequestProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trisplit.cache.entry import Entry
    from trisplit.cache.key import Key
    from trisplit.cache.store import Kept

app = typer.Typer(help="Look at kept results, check them, make room.", no_args_is_help=True)

_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_SPANS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_to(root: typer.Typer) -> None:
    """Adds the commands."""
    root.add_typer(app, name="cache")
    root.command("ledger")(ledger)


@app.command("stats")
def stats(as_json: AsJson = False) -> None:
    """Say how much is kept, and how often it was of use."""
    from trisplit.cache import ledger as records
    from trisplit.cache.store import open_store
    from trisplit.table import Table, size

    with open_store() as store:
        entries = store.entries()
        found, torn = records.read(store.folder / records.FILE)
        *_, everything = records.sums(found)
        facts: dict[str, Any] = {
            "folder": str(store.folder),
            "entries": len(entries),
            "n_bytes": sum(one.n_bytes for one in entries),
            "max_bytes": store.max_bytes,
            "hits": everything.hits,
            "misses": everything.misses,
            "impure": everything.impure,
            "percent_c": everything.percent_c,
            "verified": everything.verified,
            "mismatches": everything.mismatches,
            "torn_records": torn,
        }
    shown = {**facts, "n_bytes": size(facts["n_bytes"]), "max_bytes": size(facts["max_bytes"])}
    print_result(facts if as_json else None, [Table(("what", "is"), tuple(shown.items()))])


@app.command("list")
def list_entries(as_json: AsJson = False) -> None:
    """List what is kept, the most used first."""
    from trisplit.cache.store import open_store
    from trisplit.table import Table, size

    with open_store() as store:
        rows = [_facts(kept, entry) for kept, entry in store.walk()]
    columns = ("key", "surface", "label", "size", "uses", "cpu_ms")
    lines = [
        (r["key"][:12], r["surface"], r["label"], size(r["n_bytes"]), r["uses"], r["cpu_ms"]) for r in rows
    ]
    print_result({"rows": rows} if as_json else None, [Table(columns, tuple(lines))])


@app.command("show")
def show(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key of `cache list`, or how it begins.")],
    as_json: AsJson = False,
) -> None:
    """Show one entry and what it would print."""
    from trisplit.cache.store import open_store
    from trisplit.table import Table

    with open_store() as store:
        (full,) = _keys(key, [one.key for one in store.entries()])
        kept = next(one for one in store.entries() if one.key == full)
        entry = store.read(full)
    if entry is None:
        raise RequestProblem(f"{full} was damaged and is gone", fix="run what it was the result of again")
    frames = [
        {"fd": frame.fd, "text": frame.data.decode(errors="backslashreplace")} for frame in entry.frames
    ]
    facts = _facts(kept, entry) | {"exit_code": entry.exit_code, "frames": frames}
    table = Table(("what", "is"), tuple((name, facts[name]) for name in facts if name != "frames"))
    print_result(facts if as_json else None, [table], [str(frame["text"]).rstrip("\n") for frame in frames])


@app.command("verify")
def verify(as_json: AsJson = False) -> None:
    """Read every entry again; remove those that are damaged."""
    from trisplit.cache.store import open_store

    with open_store() as store:
        whole, gone = store.verify()
        swept = store.sweep()
    facts = {"whole": whole, "damaged": gone, "swept": swept}
    line = f"{whole} entries are whole, {len(gone)} were damaged and are gone, {swept} stray files swept"
    print_result(facts if as_json else None, [], [line])


@app.command("prune")
def prune(
    max_size: Annotated[str, typer.Option(metavar="SIZE", help="What may stay, as 500MB.")],
    as_json: AsJson = False,
) -> None:
    """Remove the least used entries until the rest fits."""
    from trisplit.cache.store import open_store
    from trisplit.table import size

    with open_store() as store:
        gone = store.prune(_bytes_of(max_size))
        left = store.entries()
    facts = {"removed": gone, "entries": len(left), "n_bytes": sum(one.n_bytes for one in left)}
    line = f"{len(gone)} entries removed, {len(left)} left: {size(sum(one.n_bytes for one in left))}"
    print_result(facts if as_json else None, [], [line])


@app.command("clear")
def clear(as_json: AsJson = False) -> None:
    """Forget all results; the ledger stays."""
    from trisplit.cache.store import open_store

    with open_store() as store:
        n = store.clear()
    print_result({"removed": n} if as_json else None, [], [f"{n} entries removed"])


def ledger(
    since: Annotated[str, typer.Option(metavar="SPAN", help="Only the last 30m, 12h, 7d, …")] = "",
    watts: Annotated[
        float | None, typer.Option(help="Power of one busy core; default: measured by RAPL, or assumed 15.")
    ] = None,
    price: Annotated[float, typer.Option(help="Price of a kilowatt hour.")] = 0.27,
    pue: Annotated[float, typer.Option(help="Energy of the building per energy of the machine.")] = 1.0,
    ops_per_day: Annotated[
        float,
        typer.Option(help="Also a year of a fleet: requests a day and machine."),
    ] = 0.0,
    nodes: Annotated[int, typer.Option(help="Machines of that fleet.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Show compute spent and compute skipped, in seconds, joules and money."""
    from dataclasses import asdict

    from trisplit.cache import fleet
    from trisplit.cache import ledger as records
    from trisplit.cache.power import watts_of_a_core
    from trisplit.cache.store import open_store

    given = {"--watts": watts or 0.0, "--price": price, "--pue": pue}
    refuse_nonsense(given | {"--ops-per-day": ops_per_day, "--nodes": nodes})
    core = watts_of_a_core(watts)
    rates = records.Rates(watts=core.watts, price_per_kwh=price, pue=pue)
    since_s = records.now_s() - seconds_of(since) if since else 0
    with open_store() as store:
        found, torn = records.read(store.folder / records.FILE, since_s=since_s)
    rows = records.sums(found)
    years = fleet.year(rows[-1], rates, ops_per_day=ops_per_day, nodes=nodes) if ops_per_day and nodes else []
    facts = {
        "rows": [
            asdict(row)
            | {"requests": row.requests, "percent_c": row.percent_c, "demand_cpu_us": row.demand_cpu_us}
            | {"spent_joules": rates.joules(row.spent_cpu_us), "spent_money": rates.money(row.spent_cpu_us)}
            | {"skipped_joules": rates.joules(row.skipped_cpu_us)}
            | {"skipped_money": rates.money(row.skipped_cpu_us)}
            for row in rows
        ],
        "fleet": [asdict(one) for one in years],
        "assumptions": asdict(rates)
        | {"watts_source": core.source, "ops_per_day": ops_per_day, "nodes": nodes},
        "torn_records": torn,
    }
    lines = [
        f"{core.watts:g} W a busy core ({core.source}), {price:g} a kWh, PUE {pue:g}",
        "percent_c: requests answered without computing; a miss or an impure run counts 0",
        "demand: what there would have been to compute; spent and skipped together",
    ]
    tables = [records.table(rows, rates)]
    if years:
        tables.append(fleet.table(years))
        lines += [
            f"fleet: {nodes:,} machines with {ops_per_day:,.0f} requests a day each, as those above",
            f"times_landauer: energy of a request by that of erasing a bit, {fleet.LANDAUER_J_PER_BIT:.3g} J",
        ]
    print_result(facts if as_json else None, tables, lines)


def refuse_nonsense(given: Mapping[str, float]) -> None:
    """RequestProblem for a number that is none, or below 0."""
    for name, value in given.items():
        if not 0 <= value < 1e15:
            raise RequestProblem(f"{name} {value} makes no sense", fix="give a number of 0 or more")


def _facts(kept: Kept, entry: Entry) -> dict[str, Any]:
    return {
        "key": kept.key,
        "surface": entry.surface,
        "label": entry.label,
        "n_bytes": kept.n_bytes,
        "uses": kept.uses,
        "cpu_ms": entry.cpu_us / 1000,
        "impure": entry.impure,
    }


def _keys(prefix: str, keys: list[Key]) -> list[Key]:
    """The one key that begins like this; RequestProblem for none and for several."""
    found = [key for key in keys if key.startswith(prefix)]
    if len(found) != 1 or not prefix:
        what = f"{len(found) if prefix else len(keys)} keys begin with {prefix!r}"
        raise RequestProblem(what, fix="see them with: trisplit cache list --json")
    return found


def _bytes_of(text: str) -> int:
    """A size as a person writes it; RequestProblem otherwise."""
    parts = re.fullmatch(r"([0-9]{1,12})(?:\.([0-9]{1,3}))? ?(B|kB|MB|GB|)", text)
    if parts is None:
        raise RequestProblem(f"{text!r} is no size", fix="write --max-size 500MB")
    return int(float(f"{parts[1]}.{parts[2] or 0}") * _UNITS[parts[3]])


def seconds_of(text: str) -> int:
    """A span as a person writes it; RequestProblem otherwise."""
    parts = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if parts is None:
        raise RequestProblem(f"{text!r} is no span of time", fix="write --since 7d, or 12h, 30m, 90s")
    return int(parts[1]) * _SPANS_S[parts[2]]
