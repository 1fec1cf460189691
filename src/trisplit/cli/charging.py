"""`trisplit cache charge`: results made before anybody asks, where that pays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trisplit.cli.options import AsJson
from trisplit.cli.printing import print_result
from trisplit.errors import RequestProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trisplit.cache.records import Reuse
    from trisplit.scripts.charge import Charge, Costs, Wish


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("charge")(charge)


def charge(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATHS]", help="Scripts, or folders with scripts in them.")
    ] = None,
    jar: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Lines of [TIMES] SCRIPT [ARGUMENTS]; # begins a comment."),
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="All that was run before, as often.")] = False,
    since: Annotated[str, typer.Option(metavar="SPAN", help="How far back history goes.")] = "30d",
    expect: Annotated[
        int | None, typer.Option(min=0, help="How often each of PATHS will run; default: as in history.")
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="PROGRAM", help="The node to run them with; default: of PATH.")
    ] = "node",
    as_json: AsJson = False,
) -> None:
    """Fill the cache ahead for scripts that will run often enough to pay for it."""
    from trisplit.cache import ledger
    from trisplit.cache.folding import reuses_of
    from trisplit.cache.store import open_store
    from trisplit.cli.caching import seconds_of
    from trisplit.cli.progress import bars
    from trisplit.cli.quick import surroundings
    from trisplit.scripts import charge as charging
    from trisplit.scripts.engines.identity import find

    if not paths and jar is None and not history:
        raise RequestProblem("nothing to charge was named", fix="name scripts, --jar FILE, or --history")
    since_s, command = ledger.now_s() - seconds_of(since), find(engine)
    with open_store() as store:
        reuses = reuses_of(ledger.lines_of(store.folder / ledger.FILE), since_s)
        wishes = _wishes(paths or (), jar, reuses, history=history, expect=expect)
        around = surroundings()
        costs = charging.measured_costs(command, around) if wishes else None
        by_key = {reuse.key: reuse for reuse in reuses}
        with bars() as show:
            rows = [
                charging.charge(wish, command, store, around, costs, by_key)
                for wish in show.over(wishes, "charging", len(wishes))
            ]
    _show(rows, costs, as_json=as_json)


def _wishes(
    paths: Sequence[str], jar: Path | None, reuses: Sequence[Reuse], *, history: bool, expect: int | None
) -> list[Wish]:
    """What was named, each once; what is named twice is expected as often as the first says."""
    from trisplit.scripts.charge import Wish, read_jar, scripts_in

    runs = {reuse.words: reuse.runs for reuse in reuses}
    wishes = [
        Wish(named, (), runs.get((str(Path(named).resolve()),), 0) if expect is None else expect)
        for named in scripts_in(paths)
    ]
    wishes += read_jar(jar) if jar else []
    wishes += [Wish(words[0], words[1:], n) for words, n in runs.items()] if history else []
    return list({(Path(wish.script).resolve(), wish.arguments): wish for wish in reversed(wishes)}.values())[
        ::-1
    ]


def _show(rows: Sequence[Charge], costs: Costs | None, *, as_json: bool) -> None:
    import shlex
    from dataclasses import asdict

    from trisplit.table import Table

    charged = [row for row in rows if row.charged]
    facts: dict[str, Any] = {
        "rows": [asdict(row) for row in rows],
        "charged": len(charged),
        "left_out": len(rows) - len(charged),
        "costs": asdict(costs) if costs else None,
    }
    columns = (
        "script",
        "expected",
        "charge_ms",
        "run_ms",
        "hit_ms",
        "break_even",
        "charged",
        "left out since",
    )
    cells = [
        (
            *(shlex.join((r.script, *r.arguments)), r.expected, r.charge_ms, r.run_ms, r.hit_ms),
            *(r.break_even, r.charged, r.why),
        )
        for r in rows
    ]
    lines = [f"{len(charged)} charged, {len(rows) - len(charged)} left out"]
    if costs:
        lines += [
            f"times are of the processor; a hit by {costs.door} takes {costs.hit_ms:.3g} ms, measured now",
            "break_even: from so many runs on, charge ÷ (run - hit), it pays to fill ahead",
        ]
    print_result(facts if as_json else None, [Table(columns, tuple(cells))] if rows else [], lines)
