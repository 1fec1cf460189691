"""`trisplit gate batch`: whether frames should leave in batches on a mesh, judged on that mesh."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated

import typer

from trisplit.cli.options import AsJson, Running, Trusting
from trisplit.cli.typed import show_rows
from trisplit.cli.unfold import unfolded
from trisplit.errors import RequestProblem

if TYPE_CHECKING:
    from trisplit.mesh.batching import BatchVerdict


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("batch")(unfolded(batch))


def batch(
    running: Running,
    trusting: Trusting,
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="As for `generate`; left out with --mesh, which has one.")
    ] = "",
    mesh: Annotated[
        str,
        typer.Option(
            metavar="[wss://]HOST:PORT",
            help="Judge the mesh that `trisplit up` holds up there, and set it by the verdict.",
        ),
    ] = "",
    sessions: Annotated[
        int | None, typer.Option(min=1, help="How many at once; default: 1, with --mesh all it has.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=2, help="Of each session in each turn.")] = 24,
    rounds: Annotated[
        int, typer.Option(min=1, max=1000, help="Turns with batches, and as many without.")
    ] = 5,
    as_json: AsJson = False,
) -> None:
    """Judge whether frames of one turn of the loop should leave together: ON at 0.965 of the time or less."""
    import uvloop

    if mesh:
        from trisplit.cli import remote

        _refuse_what_a_mesh_has(model, running)
        judging = remote.judge_batches(
            mesh, trusting.trust(), sessions=sessions, tokens=tokens, rounds=rounds
        )
        verdict = uvloop.run(judging)
    else:
        verdict = _on_a_mesh_of_its_own(model, running, trusting, sessions or 1, tokens, rounds)
    show_rows([verdict], as_json=as_json)
    if not as_json:
        left = f"; the mesh at {mesh} sends {'batched' if verdict.on else 'unbatched'} now" if mesh else ""
        print(f"{verdict.reason}{left}")


def _refuse_what_a_mesh_has(model: str, running: Running) -> None:
    given = [f"--{field.name}" for field in fields(running) if getattr(running, field.name) != field.default]
    if model:
        given.insert(0, model)
    if given:
        what = f"{', '.join(given)} cannot be chosen with --mesh: it was brought up with its own"
        raise RequestProblem(what, fix="leave it out, or --mesh")


def _on_a_mesh_of_its_own(
    model: str, running: Running, trusting: Trusting, sessions: int, tokens: int, rounds: int
) -> BatchVerdict:
    """Brings a mesh up for the verdict alone; nothing is changed anywhere."""
    import uvloop

    from trisplit.bench.batching import judge_batches
    from trisplit.bench.meshes import Ground, MeshFacts, Subject
    from trisplit.bench.wires import wires_between
    from trisplit.cli.names import find_model
    from trisplit.cli.overlap import ahead_typed

    if not model:
        raise RequestProblem(
            "there is neither a model nor a mesh to judge", fix="name a model, or give --mesh"
        )
    how = running.settings(trusting)
    if not (how.addresses or how.processes):
        raise RequestProblem("--stations 0 is no mesh", fix="give a number of processes, or addresses")
    ground = Ground(
        subject=Subject(path=str(find_model(model))),
        wires=wires_between(how.names, 0.0),
        dtype=how.dtype,
        threads=how.threads or 1,
    )
    opened = ground.subject.opened()
    facts = MeshFacts(
        ground=ground,
        cut=how.cut,
        topology=how.topology,
        sessions=sessions,
        context=0,
        ahead=ahead_typed(how.overlap, opened.config.layers, opened, how.dtype),
    )
    judging = judge_batches(facts, how.addresses or None, how.trust, tokens=tokens, rounds=rounds)
    return uvloop.run(judging)
