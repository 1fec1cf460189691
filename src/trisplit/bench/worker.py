"""A process of a bench that holds one engine and nothing else: `python -m trisplit.bench.worker FACTS`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trisplit.bench.peers import Answer, Line, Order, stretch
from trisplit.errors import Problem

Facts = Mapping[str, Any]


def main(facts: Facts) -> None:
    """Builds what `facts` ask for and serves it until standard input ends, or says the Problem and ends."""
    line = Line()
    try:
        _RUNNERS[facts["kind"]](line, facts)
    except Problem as problem:
        line.refuse(problem.what, problem.fix)


def _decoder(line: Line, facts: Facts) -> None:
    """The whole model in this process; answers tell its memory too."""
    import onnxruntime

    from trisplit.bench.answers import answered_alone
    from trisplit.bench.measure import peak_bytes
    from trisplit.machine import rss_bytes
    from trisplit.models.decoder import Decoder

    decoder = Decoder.load(
        Path(facts["model"]), facts["dtype"], threads=facts["threads"], context=facts["context"]
    )

    async def step(ids: list[int], position: int) -> int:
        return int(decoder.forward(ids, position).argmax())

    async def answer(order: Order) -> Answer:
        if order.get("what") == "answer":
            return answered_alone(decoder, order)
        run = await stretch(step, order)
        own = {"name": "one process", "stages": "all", "weight_bytes": decoder.session.weight_bytes}
        return run | {"processes": [own | {"rss_bytes": rss_bytes(), "peak_bytes": peak_bytes()}]}

    asyncio.run(line.serve({"detail": f"onnxruntime {onnxruntime.__version__}"}, answer))


def _recipe(line: Line, facts: Facts) -> None:
    """A model with random weights, run as a recipe says."""
    from trisplit.bench.stack import Recipe, decoder

    model, n_bytes = decoder(Path(facts["model"]), Recipe(**facts["recipe"]), facts["context"])

    async def step(ids: list[int], position: int) -> int:
        return int(model.forward(ids, position).argmax())

    async def answer(order: Order) -> Answer:
        return await stretch(step, order)

    asyncio.run(line.serve({"bytes_per_token": n_bytes}, answer))


def _mesh(line: Line, facts: Facts) -> None:
    """A coordinator in this process, its stations in theirs; on the event loop `trisplit generate` uses."""
    import uvloop

    uvloop.run(_drive(line, facts))


async def _drive(line: Line, facts: Facts) -> None:
    import msgspec

    from trisplit.bench.answers import Answers
    from trisplit.bench.driven import driven
    from trisplit.bench.meshes import MeshFacts

    async with driven(msgspec.convert(facts["mesh"], MeshFacts)) as mesh:
        answers = Answers(mesh)

        async def answer(order: Order) -> Answer:
            match order.get("what"):
                case "lateness":
                    return await mesh.lateness()
                case "sessions":
                    return await mesh.sessions(order)
                case "answer":
                    return await answers.give(order)
                case "prompt":
                    return await mesh.prompt(order)
                case _:
                    return await mesh.stretch(order)

        await line.serve({"detail": mesh.plan.table().title}, answer)


def _stages(line: Line, facts: Facts) -> None:
    """Every stage of the model alone, one after the other in this process."""
    from trisplit.bench.alone import Alone

    alone = Alone(Path(facts["model"]), facts["dtype"], threads=facts["threads"], context=facts["context"])

    async def answer(order: Order) -> Answer:
        return {"stage_ms": alone.stretch(order["warm"], order["tokens"])}

    asyncio.run(line.serve({}, answer))


def _nominal(line: Line, facts: Facts) -> None:
    """A model that waits, in one process and its stages alone: nothing needs to be run to know."""
    import msgspec

    from trisplit.bench.waiting import Waits
    from trisplit.mesh.predict import KINDS
    from trisplit.models.decoder import chunks

    waits = msgspec.convert(facts["waits"], Waits)

    async def answer(order: Order) -> Answer:
        token_ids = [waits.after(order["prompt_ids"][-1])]
        for _ in range(order["warm"] + order["tokens"]):
            token_ids.append(waits.after(token_ids[-1]))
        return {
            "token_ids": token_ids,
            "first_ms": waits.token_ms * len([*chunks(order["prompt_ids"], 0)]),
            "ms": [waits.token_ms] * order["tokens"],
            "stage_ms": {kind: [waits.ms(kind)] for kind in KINDS},
        }

    asyncio.run(line.serve({}, answer))


def _reference(line: Line, facts: Facts) -> None:
    """numpy; the parent has limited its BLAS to as many threads before this process began."""
    from trisplit.bench.references import Reference

    reference = Reference(facts["reference"], facts["n_bytes"], facts["threads"])

    async def answer(order: Order) -> Answer:
        call = reference.call(order["n_bytes"])

        async def step(*_: object) -> int:
            call()
            return 0

        return await stretch(step, order)

    asyncio.run(line.serve({"detail": reference.detail}, answer))


def _far_end(line: Line, _: Facts) -> None:
    import uvloop

    from trisplit.bench import wire_ends

    uvloop.run(wire_ends.far(line))


def _near_end(line: Line, facts: Facts) -> None:
    import uvloop

    from trisplit.bench import wire_ends

    uvloop.run(wire_ends.near(line, facts))


_RUNNERS: Mapping[str, Callable[[Line, Facts], None]] = {
    "decoder": _decoder,
    "recipe": _recipe,
    "mesh": _mesh,
    "stages": _stages,
    "nominal": _nominal,
    "reference": _reference,
    "far end": _far_end,
    "near end": _near_end,
}

if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
