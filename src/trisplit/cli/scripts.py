"""`trisplit run`: a script's output, from the store where it is proven to be the same as a run's."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trisplit.errors import Problem, RequestProblem

if TYPE_CHECKING:
    from trisplit.cache.store import Store
    from trisplit.scripts.purity import Surroundings
    from trisplit.scripts.runner import Answer

PASSED_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("run", context_settings=PASSED_ON)(run)


def run(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A .js, .mjs, .cjs, .ts or .py file.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENTS]", help="What the script is given.")
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="PROGRAM", help="The node or python3 to run it with; default: of PATH.")
    ] = "",
    explain: Annotated[
        bool, typer.Option("--explain", help="Say on standard error: hit, miss or impure, and why.")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Run it in any case, and compare.")] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Run it as ever; keep nothing.")] = False,
) -> None:
    """Run a script, or print what it printed before when it can print nothing else."""
    from trisplit.scripts.engines.identity import find
    from trisplit.scripts.engines.reference import end_as
    from trisplit.scripts.script import read_script

    if verify and no_cache:
        raise RequestProblem("--verify and --no-cache exclude each other", fix="leave one out")
    read = read_script(script)
    command = find(engine or ("python3" if read.language == "python" else "node"))
    store, why = (None, "--no-cache") if no_cache else _store()
    try:
        from trisplit.scripts import runner

        if store is None:
            answer = runner.without_store(read, arguments or (), command, f"not kept: {why}")
        else:
            answer = (runner.verify if verify else runner.run)(
                read, arguments or (), command, store, _surroundings()
            )
    finally:
        if store is not None:
            store.close()
    _show(answer)
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


def _surroundings() -> Surroundings:
    from trisplit.scripts.purity import Surroundings

    return Surroundings(
        environment=os.environ,
        limits=_limits(),
        stdout_is_terminal=os.isatty(1),
        stderr_is_terminal=os.isatty(2),
    )


def _limits() -> tuple[str, ...]:
    """What this shell gives its programs less of than node takes for granted."""
    import resource

    endless = resource.RLIM_INFINITY
    least = {
        "the stack": (resource.RLIMIT_STACK, 2 << 20),
        "memory": (resource.RLIMIT_AS, endless),
        "data": (resource.RLIMIT_DATA, endless),
        "processor time": (resource.RLIMIT_CPU, endless),
        "files": (resource.RLIMIT_FSIZE, endless),
    }
    given = {name: (resource.getrlimit(which)[0], wanted) for name, (which, wanted) in least.items()}
    return tuple(
        name
        for name, (limit, wanted) in given.items()
        if limit != endless and (wanted == endless or limit < wanted)
    )


def _show(answer: Answer) -> None:
    """The frames in their order, byte for byte."""
    for frame in answer.frames:
        left = memoryview(frame.data)
        while left:
            left = left[os.write(frame.fd, left) :]
