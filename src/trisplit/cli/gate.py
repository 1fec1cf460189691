"""`trisplit gate …`: measures a lever in the shadow of the true path, and says ON, or OFF and why."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trisplit.cli.options import AsJson, DtypeOption, ModelArgument
from trisplit.errors import RequestProblem, UnknownName

if TYPE_CHECKING:
    from trisplit.cli.settings import Settings
    from trisplit.mesh.overlap import Early, Limit, OverlapVerdict
    from trisplit.mesh.shadow import Shadow
    from trisplit.models.model import Model

app = typer.Typer(
    help="Judge a lever: ON, or OFF and why. Nothing is changed but by --mesh.", no_args_is_help=True
)

_TEXTS = ("wiki", "brown")


@app.callback()
def _gates() -> None:
    """Keeps a command that is the only one a command of its own."""


@app.command()
def overlap(
    model: ModelArgument,
    rounds: Annotated[int, typer.Option(min=1, help="Tokens of each passage, read one by one.")] = 20,
    limit: Annotated[
        float | None, typer.Option(metavar="X", help="Largest change of the residual; default 1e-4.")
    ] = None,
    kl: Annotated[float | None, typer.Option(metavar="X", help="Instead: largest mean KL, in nats.")] = None,
    ppl_ratio: Annotated[
        float | None, typer.Option(metavar="X", help="Instead: largest perplexity, over the true one.")
    ] = None,
    layers: Annotated[str, typer.Option(metavar="SET", help="Such as 2-9,12; default: all but 0.")] = "",
    seed: Annotated[str, typer.Option(help="What attention starts on: x or x+attn.")] = "x+attn",
    kv: Annotated[str, typer.Option(help="Keys and values afterwards: canonical or stale.")] = "canonical",
    text: Annotated[str, typer.Option(help="What is read: `wiki` or `brown`, its held-out half.")] = "wiki",
    windows: Annotated[int, typer.Option(min=1, help="Passages, each from another article.")] = 4,
    dtype: DtypeOption = "f32",
    threads: Annotated[int, typer.Option(min=1, help="Threads, as many as a station has.")] = 1,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record the verdict, for `generate --overlap FILE`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judge whether a layer's attention may start before the layer before it is done."""
    from trisplit.cli.names import find_model
    from trisplit.cli.overlap import layers_typed
    from trisplit.cli.printing import print_result
    from trisplit.cli.settings import settings
    from trisplit.mesh.record import record_of, refuse_record, write_record
    from trisplit.models.model import open_model

    early, bound = _early(seed, kv), _limit(limit, kl, ppl_ratio)
    if text not in _TEXTS:
        raise UnknownName("text", text, _TEXTS)
    how = settings(stations="0", cut="layers", dtype=dtype, threads=threads, context=None)
    opened = open_model(find_model(model))
    wanted = layers_typed(layers, opened.config.layers, "--layers")
    if out is not None:
        refuse_record(out)
    shadow = _shadow(opened, text, windows, rounds, how)
    verdict = _verdict(shadow, wanted, early, bound, is_parallel=opened.config.parallel)
    read: dict[str, Any] = {"text": text, "windows": windows, "rounds": rounds}
    asked = {"model": model, "dtype": dtype, "seed": seed, "kv": kv} | read
    asked |= {"limit": {bound.measure: bound.at_most}}
    where = _where()
    if out is not None:
        judged = {"name": model, "dtype": how.dtype, "limit": bound, "early": early, **read}
        write_record(out, record_of(verdict, opened, command=where["command"], **judged))
    lines = [*verdict.notes(), *([f"recorded in {out}"] if out is not None else [])]
    print_result(verdict.as_json() | asked | where if as_json else None, [verdict.table()], lines)


# --- what a person typed --------------------------------------------------------------------------


def _early(seed: str, kv: str) -> Early:
    from trisplit.mesh.overlap import KVS, SEEDS, Early

    known_seed = next((known for known in SEEDS if known == seed), None)
    if known_seed is None:
        raise UnknownName("seed", seed, SEEDS)
    known_kv = next((known for known in KVS if known == kv), None)
    if known_kv is None:
        raise UnknownName("kind of keys and values", kv, KVS)
    return Early(known_seed, known_kv)


def _limit(residual: float | None, kl: float | None, ppl_ratio: float | None) -> Limit:
    """The one limit that was given, else 1e-4 on the residual."""
    from trisplit.mesh.overlap import Limit, Measure

    asked: dict[Measure, float | None] = {"residual": residual, "kl": kl, "ppl_ratio": ppl_ratio}
    given = [Limit(measure, bound) for measure, bound in asked.items() if bound is not None]
    if len(given) > 1:
        raise RequestProblem("more than one limit was given", fix="give one of --limit, --kl, --ppl-ratio")
    if given and not 0 <= given[0].at_most < math.inf:
        raise RequestProblem(
            f"a limit of {given[0].at_most} makes no sense", fix="give a number of 0 or more"
        )
    return given[0] if given else Limit()


# --- measuring ------------------------------------------------------------------------------------


def _shadow(model: Model, text: str, windows: int, rounds: int, how: Settings) -> Shadow:
    """The model after it has read the beginnings of held-out articles."""
    from trisplit.assets import held_out, read_articles
    from trisplit.bench.dtypes import windows_of
    from trisplit.cli.names import fetched
    from trisplit.mesh.shadow import PROMPT_TOKENS, Shadow

    articles = [article.text for article in held_out(read_articles(fetched(text)))]
    passages = windows_of(model.tokenizer(), articles, windows, PROMPT_TOKENS + rounds)
    return Shadow(model, passages, rounds=rounds, dtype=how.dtype, threads=how.threads or 1)


def _verdict(
    shadow: Shadow, layers: list[int], early: Early, limit: Limit, *, is_parallel: bool
) -> OverlapVerdict:
    from trisplit.cli.progress import bars
    from trisplit.mesh import overlap

    if is_parallel:
        return overlap.exact(shadow.times)
    with bars() as show:
        alone = show.over(([layer] for layer in layers), "layers alone", len(layers))
        singles = {layer: shadow.damage([layer], early) for (layer,) in alone}
    return overlap.judge(
        singles,
        shadow.times,
        early=early,
        limit=limit,
        measure=lambda together: shadow.damage(together, early),
    )


def _where() -> dict[str, Any]:
    """The machine this ran on, and the command."""
    import shlex
    import sys
    from dataclasses import asdict

    from trisplit.machine import this_machine

    return {"machine": asdict(this_machine()), "command": shlex.join(["trisplit", *sys.argv[1:]])}
