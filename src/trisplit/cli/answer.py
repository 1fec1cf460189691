"""`trisplit generate` and `trisplit chat`: a prompt in, text out as it comes, then what it took."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trisplit.cli.options import AsJson, Choosing, ModelArgument, Running, Trusting
from trisplit.cli.unfold import unfolded


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("generate")(unfolded(generate))
    app.command("chat")(unfolded(chat))


def generate(
    model: ModelArgument,
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="The text to continue; - reads it from standard input.")
    ],
    running: Running,
    choosing: Choosing,
    trusting: Trusting,
    as_chat: Annotated[bool, typer.Option("--chat", help="Ask as a chat message.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 128,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be given again.")] = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on past the model's own end.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Also run in one process and compare.")] = False,
    as_json: AsJson = False,
) -> None:
    """Continue a prompt, in this process or split over stations."""
    import uvloop

    from trisplit.cli import asking
    from trisplit.models.wish import Wish

    where = running.settings(trusting)
    wish = Wish(
        prompt=sys.stdin.read() if prompt == "-" else prompt,
        as_chat=as_chat,
        sampling=choosing.sampling(),
        max_tokens=max_tokens,
        stop=tuple(stop or ()),
        ignore_eos=ignore_eos,
    )
    answered = uvloop.run(asking.ask(model, wish, where, check=check, as_json=as_json))
    if answered.identical_to_one_machine is False:
        raise typer.Exit(1)


def chat(
    model: ModelArgument,
    running: Running,
    choosing: Choosing,
    trusting: Trusting,
    system: Annotated[str, typer.Option(help="What the model is told first.")] = "",
    max_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 512,
) -> None:
    """Talk with a model; /reset forgets, /exit ends."""
    import uvloop

    from trisplit.cli import talking

    where, how = running.settings(trusting), choosing.sampling()
    uvloop.run(talking.talk(model, where, how, system=system, max_tokens=max_tokens))
