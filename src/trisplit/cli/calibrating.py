"""`trisplit calibrate`, `trisplit bench int4`: what matrices see of a text, and what fitting to it gains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trisplit.cli.options import AsJson, ModelArgument
from trisplit.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trisplit.compress.passages import Passage
    from trisplit.models.model import Model

CalibrationText = Annotated[
    list[str] | None,
    typer.Option(
        "--text",
        metavar="wiki|brown|FILE",
        help="May be given several times; of wiki and brown the half that is not held out.",
    ),
]
CalibrationTokens = Annotated[int, typer.Option(min=1, help="Tokens to calibrate on, of all texts.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads to compute with.")]


def add_to(root: typer.Typer, bench: typer.Typer) -> None:
    """Adds the commands."""
    root.command("calibrate")(calibrate)
    bench.command("int4")(int4)


def calibrate(
    model: ModelArgument,
    text: CalibrationText = None,
    tokens: CalibrationTokens = 32768,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: in the cache, where drafts find it.")
    ] = None,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Note what a text makes every matrix see, so that int4 twins can be fitted to it."""
    from trisplit.cli.names import find_model
    from trisplit.cli.printing import print_result
    from trisplit.cli.progress import bars
    from trisplit.compress import calibrate as calibrating
    from trisplit.models.model import open_model
    from trisplit.models.statistics import open_statistics
    from trisplit.models.twins import kept_statistics

    opened = open_model(find_model(model))
    passages, path = _passages(opened, text, tokens), out or kept_statistics(opened)
    with bars() as show:
        layers = calibrating.calibrate(opened, passages, path, threads=threads)
        for _ in show.over(layers, "calibrating", opened.config.layers):
            pass
    made = open_statistics(path)
    facts = {"file": str(path), "bytes": path.stat().st_size, "tokens": made.about.tokens}
    facts |= {"passages": len(passages), "model": made.about.model, "text": made.about.text}
    lines = [str(path), f"{facts['bytes']:,} bytes, from {made.about.tokens:,} tokens"]
    draft = f"twin:int4@{path}" if out else "twin:int4"
    print_result(facts if as_json else None, (), [*lines, f"the draft {draft} is fitted by it"])


def int4(
    model: ModelArgument,
    text: CalibrationText = None,
    tokens: CalibrationTokens = 32768,
    rotate: Annotated[
        int | None, typer.Option(metavar="SEED", help="Of a copy turned so that it lies on no 4-bit grid.")
    ] = None,
    methods: Annotated[
        str, typer.Option(metavar="M,…", help="nearest, searched, diagonal, blocks, propagated, fitted.")
    ] = "nearest,searched,diagonal,blocks,propagated,fitted",
    held_out_text: Annotated[str, typer.Option(help="What they are judged on: `wiki` or `brown`.")] = "wiki",
    passages: Annotated[int, typer.Option(min=1, help="Of the held-out half.")] = 8,
    passage_tokens: Annotated[int, typer.Option(min=1, help="Of each passage.")] = 512,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """What roundings to int4 cost on held-out text, from round-to-nearest to fitted ones."""
    from trisplit.bench.int4 import METHODS
    from trisplit.bench.int4 import int4 as measure
    from trisplit.cli.names import find_model
    from trisplit.cli.progress import bars
    from trisplit.cli.texts import read_texts
    from trisplit.cli.typed import TEXTS, show_rows, some, words
    from trisplit.compress.calibrate import statistics_of
    from trisplit.compress.passages import passages as cut
    from trisplit.compress.rotate import rotated_copy
    from trisplit.models.model import open_model

    chosen = some(words(methods), "method")
    for word in chosen:
        if word not in METHODS:
            raise UnknownName("method", word, METHODS)
    if held_out_text not in TEXTS:
        raise UnknownName("text", held_out_text, TEXTS)
    opened = open_model(find_model(model))
    opened = opened if rotate is None else open_model(rotated_copy(opened, rotate))
    seen = _passages(opened, text, tokens)
    judged = read_texts(held_out_text, "held-out")
    asked = cut(opened.tokenizer(), judged, count=passages, n_tokens=passage_tokens)
    with bars() as show:
        statistics = statistics_of(opened, seen, threads=threads, report=show.advance)
        rows = measure(opened, statistics, asked, methods=chosen, threads=threads, report=show.advance)
        found = list(rows)
    show_rows(found, as_json=as_json)


def _passages(model: Model, names: Sequence[str] | None, tokens: int) -> list[Passage]:
    from trisplit.cli.texts import calibration_of

    return calibration_of(model.tokenizer(), names or ["wiki"], tokens, model.config.context)
