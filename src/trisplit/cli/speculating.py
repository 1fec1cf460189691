"""`trisplit bench speculation`: what drafting ahead gives on slow links, beside what can be had."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trisplit.cli.drafting import articles, temperatures
from trisplit.cli.options import AsJson, Cut, ModelArgument
from trisplit.cli.typed import one_dtype, show_rows, some, warn_if_busy, words
from trisplit.errors import RequestProblem, UnknownName

if TYPE_CHECKING:
    from trisplit.bench.speculation import Question, Way
    from trisplit.models.model import Model


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("speculation")(speculation)


def speculation(
    model: ModelArgument,
    drafts: Annotated[
        str, typer.Option(metavar="D,…", help="ngram, twin:int8, twin:FOLDER, model:NAME, none.")
    ] = "ngram,twin:int8",
    modes: Annotated[
        str, typer.Option(metavar="M,…", help="plain, stream, rounds, auto; plain is always measured.")
    ] = "plain,stream,rounds",
    k: Annotated[str, typer.Option("--k", metavar="K,…", help="Guesses in a round.")] = "5,8",
    one_way_ms: Annotated[
        str, typer.Option(metavar="MS,…", help="Emulated links: one way of each, a mesh for each.")
    ] = "5,20,50",
    stations: Annotated[int, typer.Option(min=1, max=1000, help="Station processes of each mesh.")] = 6,
    cut: Cut = "layers",
    topology: Annotated[str, typer.Option(help="star, chain or ring.")] = "ring",
    dtype: Annotated[str, typer.Option(metavar="D", help="Weights as f32, int8 or int4.")] = "f32",
    threads: Annotated[int, typer.Option(min=1, help="Threads of each process.")] = 1,
    prompts: Annotated[str, typer.Option(metavar="K,…", help="novel, draftable.")] = "novel,draftable",
    tokens: Annotated[int, typer.Option(min=2, help="Of each answer, EOS ignored.")] = 256,
    most_s: Annotated[
        float, typer.Option(min=0.01, help="An answer is ended so long after its first token.")
    ] = 20.0,
    temperature: Annotated[str, typer.Option(metavar="T,…", help="Of the answers.")] = "0,0.8",
    seed: Annotated[int, typer.Option(min=0, help="Of sampled answers.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="Draw tokens per second against one way: .svg or .png.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tokens a second of answers drafted ahead, beside plain ones, the serial floor and the bottleneck."""
    import asyncio

    from trisplit.bench.meshes import Subject
    from trisplit.bench.plot import refuse_picture
    from trisplit.bench.speculation import Asked
    from trisplit.bench.speculation import speculation as measure
    from trisplit.bench.speculation_plot import draw_rates
    from trisplit.cli.names import find_model

    warmths, kinds, kept = (
        temperatures(temperature),
        some(words(prompts), "kind of prompts"),
        one_dtype(dtype),
    )
    asked_ways = _ways(drafts, modes, k)
    if plot is not None:
        refuse_picture(plot)
    warn_if_busy(threads)
    subject = Subject(path=str(find_model(model)))
    opened = subject.opened()
    asked = Asked(
        subject=subject,
        stations=stations,
        cut=cut,
        topology=topology,
        dtype=kept,
        threads=threads,
        one_way_ms=_lengths(one_way_ms),
        ways=asked_ways,
        places=_places(opened, asked_ways),
        questions=_questions(opened, kinds, warmths),
        tokens=tokens,
        most_s=most_s,
        seed=seed,
    )
    rows = asyncio.run(measure(asked))
    if plot is not None:
        draw_rates(rows, plot, title=f"{model} {kept} on {stations} stations, {cut}, {topology}")
    show_rows(rows, as_json=as_json)


def _ways(drafts: str, modes: str, k: str) -> list[Way]:
    """What was named, checked but for the drafts."""
    from trisplit.bench.speculation import MODES, ways

    named = some(words(modes), "mode")
    for mode in named:
        if mode not in MODES:
            raise UnknownName("mode", mode, MODES)
    for word in some(words(k), "k"):
        if not word.isdecimal() or not 1 <= int(word) <= 64:
            raise RequestProblem(f"--k {k} makes no sense", fix="write --k 5,8: from 1 to 64 guesses")
    chosen = [mode for mode in MODES if mode in named]
    return ways(some(words(drafts), "draft"), chosen, [int(word) for word in words(k)])


def _lengths(text: str) -> list[float]:
    """One ways in milliseconds; RequestProblem for what is none."""
    try:
        found = [float(word) for word in some(words(text), "one way")]
    except ValueError:
        found = [-1.0]
    if not all(0 <= ms <= 10_000 for ms in found):
        raise RequestProblem(f"--one-way-ms {text} makes no sense", fix="write --one-way-ms 5,20,50")
    return found


def _places(model: Model, chosen: Sequence[Way]) -> dict[str, str]:
    """Where the models are that drafts name; Problems of drafts that cannot be."""
    from trisplit.cli.names import find_model
    from trisplit.mesh.drafts import Target, source_named

    places: dict[str, str] = {}

    def find(name: str) -> Path:
        path = find_model(name)
        places[name] = str(path)
        return path

    for draft in dict.fromkeys(way.draft for way in chosen):
        source_named(draft, Target(model=model, dtype="f32", context=1), find=find)
    return places


def _questions(model: Model, kinds: Sequence[str], warmths: Sequence[float]) -> list[Question]:
    from trisplit.bench.prompts import read_prompts
    from trisplit.bench.speculation import Question

    tokenizer = model.tokenizer()
    return [
        Question(prompt=prompt, prompt_ids=tuple(prompt.ids(tokenizer)), temperature=warmth)
        for prompt in read_prompts(kinds, articles("wiki") if "novel" in kinds else [])
        for warmth in warmths
    ]
