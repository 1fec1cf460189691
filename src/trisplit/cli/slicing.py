"""`trisplit bench ffn` and `bench stack`: how much faster a narrower FFN is, alone and in a whole model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trisplit.cli.options import AsJson, ModelArgument
from trisplit.cli.typed import counts, dtypes_named, show_rows, some, warn_if_busy, words

if TYPE_CHECKING:
    from trisplit.models.config import ModelConfig

Rounds = Annotated[int, typer.Option(min=1, help="How often each takes its turn.")]


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("ffn")(ffn)
    app.command("stack")(stack)


def ffn(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL…",
            help="smollm2, qwen-0.5b, phi-3-mini, HIDDENxNEURONSxLAYERS, or as for `decode`.",
        ),
    ],
    batch: Annotated[str, typer.Option(metavar="N,…", help="Rows that pass together.")] = "1,8",
    dtypes: Annotated[str, typer.Option(metavar="D,…", help="Weights as f32, int8, int4.")] = "f32,int8",
    rounds: Rounds = 40,
    threads: Annotated[int, typer.Option(min=1, help="Threads to compute with.")] = 1,
    as_json: AsJson = False,
) -> None:
    """What an FFN takes: gate and up as two products or one, whole, skipped at run time, sliced."""
    from trisplit.bench.ffn import ffn as measure

    kinds, batches = dtypes_named(dtypes), counts(batch, "--batch", "rows")
    configs = [_config(name) for name in models]
    warn_if_busy(threads)
    rows = [
        row
        for config in configs
        for row in measure(config, batches=batches, dtypes=kinds, rounds=rounds, threads=threads)
    ]
    show_rows(rows, as_json=as_json)


def _config(name: str) -> ModelConfig:
    """Of a shape by its name or its numbers; else of a model, whose weights are not read."""
    from trisplit.bench.ffn import shape_named
    from trisplit.cli.names import find_model
    from trisplit.models.model import open_model

    return shape_named(name) or open_model(find_model(name)).config


def stack(
    model: ModelArgument,
    steps: Annotated[
        str, typer.Option(metavar="S,…", help="In this order: fused, slicedNN, int8, int4, threadsN.")
    ] = "fused,sliced50,int8,threads2",
    tokens: Annotated[int, typer.Option(min=1, help="Tokens each turn, after a warm-up.")] = 48,
    rounds: Rounds = 5,
    as_json: AsJson = False,
) -> None:
    """What each step of a recipe gains in a whole model, alone and on top of the others; random weights."""
    import asyncio

    from trisplit.bench.stack import most_threads
    from trisplit.bench.stack import stack as measure
    from trisplit.cli.names import find_model

    wanted = some(words(steps), "step")
    warn_if_busy(most_threads(wanted))
    rows = measure(find_model(model), wanted, tokens=tokens, rounds=rounds)
    show_rows(asyncio.run(rows), as_json=as_json)
