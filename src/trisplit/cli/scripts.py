"""`trisplit run`: a script's output, from the store where it is proven to be the same as a run's."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trisplit.errors import Problem, RequestProblem

if TYPE_CHECKING:
    from trisplit.cache.store import Store

PASSED_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("run", context_settings=PASSED_ON)(run)


def run(
    script: Annotated[
        str,
        typer.Argument(metavar="SCRIPT", help="A .js, .mjs, .cjs, .ts or .py file, or another for --engine."),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENTS]", help="What the script is given.")
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="PROGRAM", help="Run it with this; default: node, or python3, of PATH.")
    ] = "",
    explain: Annotated[
        bool, typer.Option("--explain", help="Say on standard error: hit, miss or impure, and why.")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Run it in any case, and compare.")] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Run it as ever; keep nothing.")] = False,
) -> None:
    """Run a script, or print what it printed before when it can print nothing else."""
    from trisplit.cli.quick import ask, keep_seals, show, surroundings
    from trisplit.scripts.engines.identity import find
    from trisplit.scripts.engines.reference import end_as
    from trisplit.scripts.script import FOR_OTHERS, read_script

    if verify and no_cache:
        raise RequestProblem("--verify and --no-cache exclude each other", fix="leave one out")
    read = read_script(script)
    if script.endswith(tuple(FOR_OTHERS)) and not engine:
        raise RequestProblem(read.unclear, fix="name a program that does: --engine bun")
    command = find(engine or ("python3" if read.language == "python" else "node"))
    store, why = (None, "--no-cache") if no_cache else _store()
    try:
        from trisplit.scripts import runner

        if store is None:
            answer = runner.without_store(read, arguments or (), command, f"not kept: {why}")
        else:
            around = surroundings()
            found = None if verify or engine else ask(store, read, arguments or (), command, around)
            answer = found or (runner.verify if verify else runner.run)(
                read, arguments or (), command, store, around
            )
        show(answer)
        if store is not None and not engine and answer.said.startswith(("hit", "miss")):
            keep_seals(store, read, command)
    finally:
        if store is not None:
            store.close()
    if explain or answer.said.startswith("MISMATCH"):
        print(f"trisplit: {answer.said}", file=sys.stderr)
    end_as(answer.exit_code)
    raise typer.Exit(answer.exit_code)


def _store() -> tuple[Store | None, str]:
    """The store, or why there is none; a script runs without one as well."""
    from trisplit.cache.store import open_store

    try:
        return open_store(), ""
    except Problem as problem:
        return None, problem.what
