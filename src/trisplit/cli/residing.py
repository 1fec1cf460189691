"""`trisplit resident …`: a process that stays and answers scripts over a socket."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trisplit.cli.options import AsJson
from trisplit.cli.printing import print_result
from trisplit.errors import Problem, RequestProblem

if TYPE_CHECKING:
    from trisplit.cache.store import Store

app = typer.Typer(help="A process that stays and answers scripts over a socket.", no_args_is_help=True)

START_WITHIN_S = 30.0

Idle = Annotated[float, typer.Option(metavar="SECONDS", help="End when nobody asked for so long.")]
VerifyRate = Annotated[
    float, typer.Option(min=0, max=1, help="The share of hits that are run again and compared.")
]


def add_to(root: typer.Typer) -> None:
    """Adds the commands."""
    root.add_typer(app, name="resident")


@app.command("start")
def start(idle: Idle = 900.0, verify_rate: VerifyRate = 0.01) -> None:
    """Start one in the background; it ends by itself when nobody asks."""
    from trisplit.cache.store import open_store
    from trisplit.scripts.asking import find_resident

    with open_store() as store:
        if (there := find_resident(store)) is not None:
            with there:
                raise RequestProblem(
                    f"there is a resident already, process {there.status().pid}",
                    fix="stop it first: trisplit resident stop",
                )
        words = [sys.executable, "-m", "trisplit", "resident", "serve"]
        words += ["--idle", str(idle), "--verify-rate", str(verify_rate)]
        nothing = subprocess.DEVNULL
        with subprocess.Popen(
            words, stdin=nothing, stdout=nothing, stderr=subprocess.PIPE, start_new_session=True, cwd="/"
        ) as process:
            pid = _started(store, process)
            process.returncode = 0  # it stays when we go
    print(f"resident: process {pid}")


@app.command("serve", hidden=True)
def serve(idle: Idle = 900.0, verify_rate: VerifyRate = 0.01) -> None:
    """Be one, until stopped."""
    from trisplit.cache.store import open_store
    from trisplit.cli.quick import surroundings
    from trisplit.scripts.engines.identity import find
    from trisplit.scripts.resident import reside

    own = None
    with contextlib.suppress(Problem):  # where no node is, others answer no hits either
        own = find("node"), surroundings()
    with open_store() as store:
        reside(store, idle_s=idle, verify_rate=verify_rate, own=own)


@app.command("stop")
def stop() -> None:
    """Stop it."""
    from trisplit.cache.store import open_store
    from trisplit.scripts.asking import find_resident

    with open_store() as store:
        resident = find_resident(store)
        if resident is None:
            print("no resident runs")
            return
        with resident:
            resident.stop()
    print("the resident stops")


@app.command("status")
def status(as_json: AsJson = False) -> None:
    """Say whether one runs, and what it did."""
    import msgspec

    from trisplit.cache.store import open_store
    from trisplit.scripts.asking import find_resident
    from trisplit.table import Table

    facts: dict[str, Any] = {"running": False}
    with open_store() as store:
        resident = find_resident(store)
        if resident is not None:
            with resident, contextlib.suppress(OSError):  # it may end at this very moment
                facts = {"running": True, **msgspec.structs.asdict(resident.status())}
    shown = {name: fact for name, fact in facts.items() if name != "began_s"}
    if facts["running"]:
        shown |= {"pid": str(facts["pid"]), "for_s": int(time.time()) - facts["began_s"]}
    print_result(facts if as_json else None, [Table(("what", "is"), tuple(shown.items()))])


def _started(store: Store, process: subprocess.Popen[bytes]) -> int:
    """The process that answers; RequestProblem with its own words when none does in time."""
    from trisplit.scripts.asking import find_resident

    until_s = time.monotonic() + START_WITHIN_S
    while time.monotonic() < until_s and process.poll() is None:
        if (resident := find_resident(store)) is not None:
            with resident:
                return resident.status().pid
        time.sleep(0.02)
    process.kill()
    assert process.stderr is not None
    said = process.stderr.read().decode(errors="replace").strip().splitlines()
    what = said[0].removeprefix("error: ") if said else f"it did not answer within {START_WITHIN_S:g} s"
    raise RequestProblem(f"no resident could be started: {what}", fix="try again, or do without")
