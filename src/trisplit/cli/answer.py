"""`trisplit generate` and `trisplit chat`: a prompt in, text out as it comes, then what it took."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Annotated

import typer

from trisplit.cli.options import AsJson, Choosing, ModelArgument, Running, Trusting
from trisplit.cli.unfold import unfolded
from trisplit.errors import RequestProblem


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("generate")(unfolded(generate))
    app.command("chat")(unfolded(chat))


def generate(
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="As for `inspect`; left out with --mesh, which has one.")
    ],
    running: Running,
    choosing: Choosing,
    trusting: Trusting,
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="The text to continue; - reads standard input.")
    ] = None,
    mesh: Annotated[
        str, typer.Option(metavar="[wss://]HOST:PORT", help="Ask the mesh that `trisplit up` holds up there.")
    ] = "",
    as_chat: Annotated[bool, typer.Option("--chat", help="Ask as a chat message.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 128,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be given again.")] = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on past the model's own end.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Also run in one process and compare.")] = False,
    cached: Annotated[
        bool | None,
        typer.Option(
            "--cache/--no-cache", help="Replay the answer if it was given before; default: in one process."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Continue a prompt: in this process, split over stations, or by a mesh that is up."""
    import uvloop

    from trisplit.models.wish import Wish

    asked = _prompt_for_mesh(model, prompt, running, check, cached) if mesh else prompt
    if asked is None:
        raise RequestProblem("no prompt was given", fix="write it after the model")
    wish = Wish(
        prompt=sys.stdin.read() if asked == "-" else asked,
        as_chat=as_chat,
        sampling=choosing.sampling(),
        max_tokens=max_tokens,
        stop=tuple(stop or ()),
        ignore_eos=ignore_eos,
    )
    if mesh:
        from trisplit.cli import remote

        uvloop.run(remote.ask(mesh, wish, trusting.trust(), as_json=as_json))
        return
    from trisplit.cli import asking

    where = running.settings(trusting)
    answered = uvloop.run(asking.ask(model, wish, where, check=check, as_json=as_json, cached=cached))
    if answered.identical_to_one_machine is False and not answered.identity_withheld:
        raise typer.Exit(1)


def _prompt_for_mesh(
    first: str, second: str | None, running: Running, check: bool, cached: bool | None
) -> str:
    """The one argument there is with --mesh. RequestProblem for what only makes sense without."""
    if second is not None:
        what = "a model was given, and a mesh has its own"
        raise RequestProblem(what, fix="leave the model out, or --mesh")
    given = [f"--{field.name}" for field in fields(running) if getattr(running, field.name) != field.default]
    given += [word for word, is_given in (("--check", check), ("--cache", bool(cached))) if is_given]
    if given:
        what = f"{', '.join(given)} cannot be chosen with --mesh: it was brought up with its own"
        raise RequestProblem(what, fix="leave it out, or bring up another mesh")
    return first


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
