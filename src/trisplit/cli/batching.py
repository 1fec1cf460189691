"""`trisplit gate batch`: whether frames should leave in batches on a mesh, judged on that mesh."""

from __future__ import annotations

from typing import Annotated

import typer

from trisplit.cli.options import AsJson, ModelArgument, Running, Trusting
from trisplit.cli.typed import show_rows
from trisplit.cli.unfold import unfolded
from trisplit.errors import RequestProblem


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("batch")(unfolded(batch))


def batch(
    model: ModelArgument,
    running: Running,
    trusting: Trusting,
    sessions: Annotated[int, typer.Option(min=1, help="How many at once.")] = 1,
    tokens: Annotated[int, typer.Option(min=2, help="Of each session in each turn.")] = 24,
    rounds: Annotated[int, typer.Option(min=1, help="Turns with batches, and as many without.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Judge whether frames of one turn of the loop should leave together: ON at 0.965 of the time or less."""
    import uvloop

    from trisplit.bench.batching import judge_batches
    from trisplit.bench.meshes import Ground, MeshFacts, Subject
    from trisplit.bench.wires import wires_between
    from trisplit.cli.names import find_model

    how = running.settings(trusting)
    if not (how.addresses or how.processes):
        raise RequestProblem("--stations 0 is no mesh", fix="give a number of processes, or addresses")
    ground = Ground(
        subject=Subject(path=str(find_model(model))),
        wires=wires_between(how.names, 0.0),
        dtype=how.dtype,
        threads=how.threads or 1,
    )
    facts = MeshFacts(ground=ground, cut=how.cut, topology=how.topology, sessions=sessions, context=0)
    judging = judge_batches(facts, how.addresses or None, how.trust, tokens=tokens, rounds=rounds)
    verdict = uvloop.run(judging)
    show_rows([verdict], as_json=as_json)
    if not as_json:
        print(verdict.reason)
