"""`trisplit generate` and `trisplit chat`: a prompt in, text out as it comes, then what it took."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A folder, a .gguf file, a `trisplit fetch` name, or a hub id.")
]
Stations = Annotated[
    str,
    typer.Option(
        metavar="N|[wss://]HOST:PORT,…",
        help="Split over N local station processes, or over stations already running (wss:// for TLS).",
    ),
]
Cut = Annotated[str, typer.Option(help="How layers become stage groups: layers, thirds or recut.")]
WeightsOption = Annotated[
    str,
    typer.Option(
        "--weights",
        help="push: stations are sent their weights; path: they read MODEL where it lies; auto: if it does.",
    ),
]
DtypeOption = Annotated[str, typer.Option("--dtype", help="Weights as f32, int8 or int4.")]
MaxTokens = Annotated[int, typer.Option(help="Longest answer, in tokens.")]
Temperature = Annotated[float, typer.Option(help="0 takes the likeliest token; higher is more varied.")]
TopK = Annotated[int, typer.Option(help="Sample from the k likeliest tokens; 0 is off.")]
TopP = Annotated[float, typer.Option(help="Sample from the likeliest tokens that hold this share.")]
MinP = Annotated[float, typer.Option(help="Drop tokens below this share of the likeliest.")]
Penalty = Annotated[float, typer.Option(help="Over 1 makes tokens already there less likely.")]
Seed = Annotated[int, typer.Option(help="Same seed, same prompt, same answer.")]
Stop = Annotated[list[str] | None, typer.Option(help="End before this text; may be given again.")]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on past the model's own end.")]
Threads = Annotated[
    int | None, typer.Option(help="Threads per process; default: the free cores, one per station.")
]
Context = Annotated[
    int | None, typer.Option(help="Tokens to make room for; default: the model's own, at most 4096.")
]
SecretFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="What stations ask for; default: TRISPLIT_SECRET, if it is set."),
]
Ca = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Certificates to trust wss:// stations by; default: the system's."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")]


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("generate")(generate)
    app.command("chat")(chat)


def generate(
    model: ModelArgument,
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="The text to continue; - reads it from standard input.")
    ],
    stations: Stations = "0",
    cut: Cut = "layers",
    dtype: DtypeOption = "f32",
    weights: WeightsOption = "auto",
    as_chat: Annotated[bool, typer.Option("--chat", help="Ask as a chat message.")] = False,
    max_tokens: MaxTokens = 128,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    repetition_penalty: Penalty = 1.0,
    seed: Seed = 0,
    stop: Stop = None,
    ignore_eos: IgnoreEos = False,
    threads: Threads = None,
    context: Context = None,
    secret_file: SecretFile = None,
    ca: Ca = None,
    check: Annotated[bool, typer.Option("--check", help="Also run in one process and compare.")] = False,
    as_json: AsJson = False,
) -> None:
    """Continue a prompt, in this process or split over stations."""
    import uvloop

    from trisplit.cli import asking, engines
    from trisplit.models.sampling import Sampling

    where = engines.settings(
        stations=stations,
        cut=cut,
        dtype=dtype,
        weights=weights,
        threads=threads,
        context=context,
        secret_file=secret_file,
        ca=ca,
    )
    how = Sampling(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
    )
    wish = asking.Wish(
        prompt=sys.stdin.read() if prompt == "-" else prompt,
        as_chat=as_chat,
        sampling=how,
        max_tokens=max_tokens,
        stop=tuple(stop or ()),
        ignore_eos=ignore_eos,
    )
    answered = uvloop.run(asking.ask(model, wish, where, check=check, as_json=as_json))
    if answered.identical_to_one_machine is False:
        raise typer.Exit(1)


def chat(
    model: ModelArgument,
    stations: Stations = "0",
    cut: Cut = "layers",
    dtype: DtypeOption = "f32",
    weights: WeightsOption = "auto",
    system: Annotated[str, typer.Option(help="What the model is told first.")] = "",
    max_tokens: MaxTokens = 512,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    repetition_penalty: Penalty = 1.0,
    seed: Seed = 0,
    threads: Threads = None,
    context: Context = None,
    secret_file: SecretFile = None,
    ca: Ca = None,
) -> None:
    """Talk with a model; /reset forgets, /exit ends."""
    import uvloop

    from trisplit.cli import engines, talking
    from trisplit.models.sampling import Sampling

    where = engines.settings(
        stations=stations,
        cut=cut,
        dtype=dtype,
        weights=weights,
        threads=threads,
        context=context,
        secret_file=secret_file,
        ca=ca,
    )
    how = Sampling(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
    )
    uvloop.run(talking.talk(model, where, how, system=system, max_tokens=max_tokens))
