"""`trisplit station`: an empty station that waits for work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from trisplit.mesh.station import Build


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("station")(station)


def station(
    listen: str = typer.Option(
        "127.0.0.1:0",
        metavar="HOST:PORT",
        help="Where to listen; port 0 takes a free one. Beyond loopback only with a secret.",
    ),
    name: str = typer.Option("", help="What to be called; default: its process id."),
    count: int = typer.Option(
        1, min=1, max=1000, help="Stations in this process, each at a port of its own: PORT, PORT + 1, …"
    ),
    models: Path | None = typer.Option(
        None,
        metavar="FOLDER",
        help="Read weights from the coordinator's model in this folder, local or shared, if it is there.",
    ),
    secret_file: Path | None = typer.Option(
        None, metavar="FILE", help="What callers must know; default: TRISPLIT_SECRET, if it is set."
    ),
    cert: Path | None = typer.Option(None, metavar="FILE", help="Speak TLS, with this certificate (PEM)."),
    key: Path | None = typer.Option(None, metavar="FILE", help="The key to it."),
    ca: Path | None = typer.Option(
        None, metavar="FILE", help="Certificates to trust the next station by; default: the system's."
    ),
    as_json: bool = typer.Option(False, "--json", help="Announce each address as one JSON object."),
    until_stdin_closes: bool = typer.Option(False, hidden=True, help="End when standard input ends."),
    repeat: int = typer.Option(1, min=1, hidden=True, help="For benches: run every stage so often."),
    waits: str = typer.Option("", hidden=True, help="For benches: wait instead, as told in JSON."),
) -> None:
    """Start an empty station, or several: it holds nothing until a coordinator loads it."""
    if until_stdin_closes:
        _end_with_stdin()  # before anything heavy: the parent may be gone already
    import asyncio
    import json
    from functools import partial

    import uvloop

    from trisplit.mesh.address import neighbours
    from trisplit.mesh.serve import serve
    from trisplit.mesh.trust import read_trust, station_tls

    trust, tls, build = read_trust(secret_file, ca), station_tls(cert, key), _build(repeat, waits, models)

    def announce(address: str) -> None:
        print(json.dumps({"listening": address}) if as_json else f"listening on {address}", flush=True)

    async def serve_all() -> None:
        places = neighbours(listen, count)
        names = [f"{name}-{i}" if name and count > 1 else name for i in range(1, count + 1)]
        each = partial(serve, announce=announce, trust=trust, tls=tls, build=build)
        await asyncio.gather(*(each(place, name=n) for place, n in zip(places, names)))

    uvloop.run(serve_all())


def _build(repeat: int, waits: str, models: Path | None) -> Build:
    """How what is to be held is made: from weights, unless a bench asks for something else."""
    from functools import partial

    from trisplit.errors import RequestProblem
    from trisplit.mesh.loading import build

    if models is not None and not models.is_dir():
        raise RequestProblem(f"--models {models} is no folder", fix="name one that is here, or leave it out")
    if repeat == 1 and not waits:
        return partial(build, models=models)
    from trisplit.bench.builds import repeating, waiting
    from trisplit.bench.waiting import read_waits

    return waiting(read_waits(waits), repeat) if waits else repeating(repeat)


def _end_with_stdin() -> None:
    """Ends this process when the pipe to its parent breaks, whatever it is doing just then."""
    import contextlib
    import os
    import threading

    def watch() -> None:
        # Past sys.stdin's buffer, whose lock an ending process wants. No standard input at all: no parent.
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
