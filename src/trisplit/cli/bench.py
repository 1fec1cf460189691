"""`trisplit bench …`: measures, and says beside what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trisplit.cli.typed import TEXTS, counts, dtypes_named, one_dtype, show_rows, some, warn_if_busy, words
from trisplit.errors import UnknownName

app = typer.Typer(help="Measure: every figure beside what it is compared with.", no_args_is_help=True)

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A folder, a .gguf file, a `trisplit fetch` name, or a hub id.")
]
Dtypes = Annotated[str, typer.Option(metavar="D,…", help="Weights as f32, int8, int4.")]
OneDtype = Annotated[str, typer.Option("--dtype", metavar="D", help="Weights as f32, int8 or int4.")]
Rounds = Annotated[int, typer.Option(min=1, help="How often each takes its turn.")]
Tokens = Annotated[int, typer.Option(min=1, help="Tokens each turn, after a warm-up.")]
Stations = Annotated[int, typer.Option(min=1, max=1000, help="Station processes to start.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")]


@app.command()
def decode(
    model: ModelArgument,
    dtypes: Dtypes = "f32,int8,int4",
    threads: Annotated[str, typer.Option(metavar="N,…", help="Threads of each process.")] = "1,2",
    tokens: Tokens = 64,
    rounds: Rounds = 5,
    peers: Annotated[
        str, typer.Option(metavar="P,…", help="Other engines beside ours: transformers, llama.cpp.")
    ] = "",
    peers_python: Annotated[Path, typer.Option(help="The Python they run in; `make peers` makes it.")] = Path(
        ".venv-peers/bin/python"
    ),
    as_json: AsJson = False,
) -> None:
    """How fast one process decodes, beside a plain read, numpy's sgemv, and other engines."""
    import asyncio

    from trisplit.bench.decode import decode as measure
    from trisplit.cli.names import find_model

    kinds, all_threads = dtypes_named(dtypes), counts(threads)
    warn_if_busy(max(all_threads))
    rows = measure(
        find_model(model),
        dtypes=kinds,
        threads=all_threads,
        tokens=tokens,
        rounds=rounds,
        peers=words(peers),
        peers_python=peers_python,
    )
    show_rows(asyncio.run(rows), as_json=as_json)


@app.command()
def dtypes(
    model: ModelArgument,
    text: Annotated[str, typer.Option(help="What is read: `wiki` or `brown`, its held-out half.")] = "wiki",
    windows: Annotated[int, typer.Option(min=1, help="Passages, each from another article.")] = 4,
    window_tokens: Annotated[int, typer.Option(min=2, help="Tokens of each that are scored.")] = 512,
    dtypes: Dtypes = "int8,int4",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; default: the free cores.")] = None,
    as_json: AsJson = False,
) -> None:
    """What fewer bits cost: how far each dtype's predictions are from those of f32, on text it is given."""
    from trisplit.assets import held_out, read_articles
    from trisplit.bench.dtypes import dtypes as measure
    from trisplit.cli.names import fetched, find_model
    from trisplit.machine import free_cores

    kinds = dtypes_named(dtypes)
    if text not in TEXTS:
        raise UnknownName("text", text, TEXTS)
    rows = measure(
        find_model(model),
        [article.text for article in held_out(read_articles(fetched(text)))],
        windows=windows,
        window_tokens=window_tokens,
        dtypes=kinds,
        threads=threads or free_cores(),
    )
    show_rows(rows, as_json=as_json)


@app.command()
def memory(
    model: ModelArgument,
    stations: Stations = 4,
    cut: Annotated[str, typer.Option(help="layers, thirds or recut.")] = "layers",
    dtype: Annotated[str, typer.Option("--dtype", metavar="D,…", help="Weights as f32, int8, int4.")] = "f32",
    as_json: AsJson = False,
) -> None:
    """What loading takes, on stations and in one process, the first time and the second."""
    import asyncio

    from trisplit.bench.memory import memory as measure
    from trisplit.cli.names import find_model

    kinds = dtypes_named(dtype)
    rows = measure(find_model(model), stations=stations, cut=cut, dtypes=kinds)
    show_rows(asyncio.run(rows), as_json=as_json)


@app.command()
def wire(
    iterations: Annotated[int, typer.Option(min=1, help="Of everything, over all rounds.")] = 50_000,
    rounds: Rounds = 10,
    as_json: AsJson = False,
) -> None:
    """What is on the wire and how fast: route words, frames alone and batched, a leg beside bare TCP."""
    import asyncio

    from trisplit.bench.wire import wire as measure

    show_rows([asyncio.run(measure(iterations=iterations, rounds=rounds))], as_json=as_json)


@app.command()
def failover(
    model: ModelArgument,
    stations: Stations = 3,
    cut: Annotated[str, typer.Option(help="layers, thirds or recut.")] = "layers",
    topology: Annotated[str, typer.Option(help="star, chain or ring.")] = "ring",
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of the answer under which one is lost.")] = 32,
    how: Annotated[str, typer.Option(metavar="H,…", help="kill, stop, cut.")] = "kill,stop,cut",
    dtype: OneDtype = "f32",
    threads: Annotated[int, typer.Option(min=1, help="Threads of each process.")] = 1,
    as_json: AsJson = False,
) -> None:
    """What a lost station costs: each in turn, at the first, a middle and the last token, with a spare."""
    import uvloop

    from trisplit.bench.failover import HOWS
    from trisplit.bench.failover import failover as measure
    from trisplit.cli.names import find_model

    hows = some(words(how), "way to lose a station")
    for each in hows:
        if each not in HOWS:
            raise UnknownName("way to lose a station", each, HOWS)
    rows = measure(
        find_model(model),
        stations=stations,
        cut=cut,
        topology=topology,
        tokens=tokens,
        dtype=one_dtype(dtype),
        threads=threads,
        hows=hows,
    )
    show_rows(uvloop.run(rows), as_json=as_json)
