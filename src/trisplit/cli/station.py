"""`trisplit station`: an empty station that waits for work."""

from __future__ import annotations

import typer


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("station")(station)


def station(
    listen: str = typer.Option(
        "127.0.0.1:0", metavar="HOST:PORT", help="Where to listen; port 0 takes a free one. Loopback only."
    ),
    name: str = typer.Option("", help="What to be called in tables and errors; default: host and port."),
    as_json: bool = typer.Option(False, "--json", help="Announce the address as one JSON object."),
    until_stdin_closes: bool = typer.Option(False, hidden=True, help="End when standard input ends."),
) -> None:
    """Start an empty station: it holds nothing until a coordinator loads it."""
    import json

    import uvloop

    from trisplit.mesh.station import serve

    if until_stdin_closes:
        _end_with_stdin()

    def announce(address: str) -> None:
        print(json.dumps({"listening": address}) if as_json else f"listening on {address}", flush=True)

    uvloop.run(serve(listen, name=name, announce=announce))


def _end_with_stdin() -> None:
    """Ends this process when the pipe to its parent breaks, whatever it is doing just then."""
    import os
    import sys
    import threading

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):  # past the buffer, whose lock an ending process wants
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
