"""`trisplit bench …`: measures, and says beside what."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trisplit.errors import RequestProblem, UnknownName

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from trisplit.models.convert import Dtype

app = typer.Typer(help="Measure: every figure beside what it is compared with.", no_args_is_help=True)

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A folder, a .gguf file, a `trisplit fetch` name, or a hub id.")
]
Dtypes = Annotated[str, typer.Option(metavar="D,…", help="Weights as f32, int8, int4.")]
OneDtype = Annotated[str, typer.Option("--dtype", metavar="D", help="Weights as f32, int8 or int4.")]
Rounds = Annotated[int, typer.Option(min=1, help="How often each takes its turn.")]
Tokens = Annotated[int, typer.Option(min=1, help="Tokens each turn, after a warm-up.")]
Stations = Annotated[int, typer.Option(min=1, help="Station processes to start.")]
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

    kinds, counts = _dtypes(dtypes), _counts(threads)
    _warn_if_busy(max(counts))
    rows = measure(
        find_model(model),
        dtypes=kinds,
        threads=counts,
        tokens=tokens,
        rounds=rounds,
        peers=_words(peers),
        peers_python=peers_python,
    )
    _show(asyncio.run(rows), as_json=as_json)


@app.command()
def mesh(
    model: ModelArgument,
    stations: Stations = 4,
    cuts: Annotated[str, typer.Option(metavar="C,…", help="layers, thirds, recut.")] = "layers,thirds,recut",
    tokens: Tokens = 32,
    dtype: OneDtype = "f32",
    threads: Annotated[int, typer.Option(min=1, help="Threads of each process.")] = 1,
    rounds: Rounds = 5,
    as_json: AsJson = False,
) -> None:
    """What splitting costs: station processes on this machine, beside the decoder in one process."""
    import asyncio

    from trisplit.bench.mesh import mesh as measure
    from trisplit.cli.names import find_model

    kinds, groups = _dtypes(dtype), _some(_words(cuts), "cut")
    if len(kinds) > 1:
        raise RequestProblem(f"{dtype} is more than one dtype", fix="run the bench once for each")
    _warn_if_busy(threads)
    rows = measure(
        find_model(model),
        stations=stations,
        cuts=groups,
        tokens=tokens,
        dtype=kinds[0],
        threads=threads,
        rounds=rounds,
    )
    _show(asyncio.run(rows), as_json=as_json)


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

    kinds = _dtypes(dtypes)
    if text not in _TEXTS:
        raise UnknownName("text", text, _TEXTS)
    rows = measure(
        find_model(model),
        [article.text for article in held_out(read_articles(fetched(text)))],
        windows=windows,
        window_tokens=window_tokens,
        dtypes=kinds,
        threads=threads or free_cores(),
    )
    _show(rows, as_json=as_json)


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

    kinds = _dtypes(dtype)
    rows = measure(find_model(model), stations=stations, cut=cut, dtypes=kinds)
    _show(asyncio.run(rows), as_json=as_json)


@app.command()
def wire(
    iterations: Annotated[int, typer.Option(min=1, help="Of everything, over all rounds.")] = 50_000,
    rounds: Rounds = 10,
    as_json: AsJson = False,
) -> None:
    """What is on the wire and how fast: route words, frames alone and batched, a leg beside bare TCP."""
    import asyncio

    from trisplit.bench.wire import wire as measure

    _show([asyncio.run(measure(iterations=iterations, rounds=rounds))], as_json=as_json)


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

    kinds, hows = _dtypes(dtype), _some(_words(how), "way to lose a station")
    for each in hows:
        if each not in HOWS:
            raise UnknownName("way to lose a station", each, HOWS)
    rows = measure(
        find_model(model),
        stations=stations,
        cut=cut,
        topology=topology,
        tokens=tokens,
        dtype=kinds[0],
        threads=threads,
        hows=hows,
    )
    _show(uvloop.run(rows), as_json=as_json)


# --- what a person typed --------------------------------------------------------------------------

_TEXTS = ("wiki", "brown")


def _words(text: str) -> list[str]:
    return [word for word in (part.strip() for part in text.split(",")) if word]


def _dtypes(text: str) -> list[Dtype]:
    from trisplit.models.convert import DTYPES

    known: dict[str, Dtype] = {dtype: dtype for dtype in DTYPES}
    words = _words(text)
    for word in words:
        if word not in known:
            raise UnknownName("dtype", word, known)
    return [known[word] for word in _some(words, "dtype")]


def _counts(text: str) -> list[int]:
    for word in _some(_words(text), "number of threads"):
        if not word.isdecimal() or not 1 <= int(word) <= 1024:
            raise RequestProblem(f"{word!r} is no number of threads", fix="write --threads 1,2")
    return [int(word) for word in _words(text)]


def _some(words: Sequence[str], what: str) -> Sequence[str]:
    if not words:
        raise RequestProblem(f"no {what} was named", fix="name at least one")
    return words


def _warn_if_busy(threads: int) -> None:
    """More threads than free cores halve the speed of any engine."""
    from trisplit.machine import free_cores

    if threads > free_cores():
        print(f"{threads} threads, and {free_cores()} free cores: expect poor figures", file=sys.stderr)


def _show(rows: Iterable[DataclassInstance], *, as_json: bool) -> None:
    from trisplit.bench.report import Report
    from trisplit.machine import this_machine

    command = shlex.join(["trisplit", *sys.argv[1:]])
    report = Report(rows=list(rows), machine=this_machine(), command=command)
    print(report.json() if as_json else report.table())
