"""`trisplit up`, `status` and `down`: a mesh that stays up for many to ask."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from trisplit.cli.options import AsJson, ModelArgument, Running, Trusting
from trisplit.cli.unfold import unfolded
from trisplit.errors import RequestProblem, UnknownName

AddressArgument = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="[wss://]HOST:PORT, as `trisplit up` has printed it.")
]


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (up, status, down):
        app.command(command.__name__)(unfolded(command))


def up(
    model: ModelArgument,
    running: Running,
    trusting: Trusting,
    spares: Annotated[
        int,
        typer.Option(min=0, help="Stations that wait for another to fail: started beside N, or the last."),
    ] = 0,
    sessions: Annotated[int, typer.Option(min=1, max=1024, help="Questions answered at once.")] = 8,
    waiting: Annotated[int, typer.Option(min=0, help="Questions that may wait for that.")] = 64,
    memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE,…",
            help="What each station offers for weights and KV, such as 2GB,2GB,1GiB, spares last; "
            "one SIZE is for all.",
        ),
    ] = "",
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="For clients; beyond loopback only with a secret.")
    ] = "127.0.0.1:0",
    cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Speak TLS with clients, by this certificate (PEM).")
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key to it.")] = None,
    order: Annotated[
        str,
        typer.Option(
            metavar="named|measured",
            help="Of --stations HOST:PORT,…: as they are named, or so that the legs they measure are short.",
        ),
    ] = "named",
    batch: Annotated[
        str,
        typer.Option(
            metavar="auto|on|off",
            help="Send frames in batches; auto measures first, as `gate batch` does, and goes by that.",
        ),
    ] = "off",
    as_json: AsJson = False,
) -> None:
    """Bring a mesh up, say its address, and answer `generate --mesh` until it is taken down."""
    import uvloop

    from trisplit.cli import serving
    from trisplit.cli.settings import ORDERS
    from trisplit.mesh.room import parse_size
    from trisplit.mesh.trust import station_tls

    if order not in ORDERS:
        raise UnknownName("order of stations", order, ORDERS)
    asked = running.settings(trusting)
    limits = tuple(parse_size(limit) for limit in memory.split(",")) if memory else ()
    where = replace(asked, sessions=sessions, spares=spares, recovers=True, memory=limits, order=order)
    if not (where.addresses or where.processes):
        raise RequestProblem("a mesh has at least one station", fix="say --stations 4, or their addresses")
    tls = station_tls(cert, key)
    mesh = serving.hold_up(model, where, listen, tls=tls, most_waiting=waiting, batch=batch, as_json=as_json)
    uvloop.run(mesh)


def status(address: AddressArgument, trusting: Trusting, as_json: AsJson = False) -> None:
    """Show the stations of a mesh that is up, and what they do."""
    import uvloop

    from trisplit.cli import remote

    uvloop.run(remote.show_status(address, trusting.trust(), as_json=as_json))


def down(address: AddressArgument, trusting: Trusting) -> None:
    """Take a mesh down: answers under way are given up, and the stations it started end."""
    import uvloop

    from trisplit.cli import remote

    uvloop.run(remote.take_down(address, trusting.trust()))
