"""A process of a bench that holds one engine and nothing else: `python -m trisplit.bench.worker FACTS`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
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

    from trisplit.bench.measure import peak_bytes
    from trisplit.machine import rss_bytes
    from trisplit.models.decoder import Decoder

    decoder = Decoder.load(
        Path(facts["model"]), facts["dtype"], threads=facts["threads"], context=facts["context"]
    )

    async def step(ids: list[int], position: int) -> int:
        return int(decoder.forward(ids, position).argmax())

    async def answer(order: Order) -> Answer:
        run = await stretch(step, order)
        own = {"name": "one process", "stages": "all", "weight_bytes": decoder.session.weight_bytes}
        return run | {"processes": [own | {"rss_bytes": rss_bytes(), "peak_bytes": peak_bytes()}]}

    asyncio.run(line.serve({"detail": f"onnxruntime {onnxruntime.__version__}"}, answer))


def _chain(line: Line, facts: Facts) -> None:
    """A coordinator in this process, its stations in theirs; on the event loop `trisplit generate` uses."""
    import uvloop

    uvloop.run(_coordinate(line, facts))


async def _coordinate(line: Line, facts: Facts) -> None:
    from trisplit.bench.mesh import planned
    from trisplit.machine import rss_bytes
    from trisplit.mesh.coordinator import Coordinator
    from trisplit.mesh.fleet import local_stations
    from trisplit.models.ends import Ends
    from trisplit.models.model import open_model

    model, dtype, threads = open_model(Path(facts["model"])), facts["dtype"], facts["threads"]
    drawn = planned(model, facts["cut"], facts["stations"], dtype=dtype, context=facts["context"])
    ends = Ends(model.config, *model.files(model.ends, dtype), threads=threads)
    names = [share.station for share in drawn.shares]
    async with local_stations(names) as addresses, Coordinator(model, ends, drawn, addresses) as mesh:
        async for _ in mesh.load(dtype, context=facts["context"], threads=threads):
            pass
        stream = await mesh.open()

        async def step(ids: list[int], position: int) -> int:
            return int((await mesh.forward(stream, ids, position)).argmax())

        async def answer(order: Order) -> Answer:
            run = await stretch(step, order)
            own = {"name": "coordinator", "stages": "embed, head", "weight_bytes": ends.weight_bytes}
            processes = [*map(asdict, await mesh.facts()), own | {"rss_bytes": rss_bytes()}]
            return run | {"processes": processes}

        await line.serve({"detail": drawn.table().title}, answer)


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
    "chain": _chain,
    "reference": _reference,
    "far end": _far_end,
    "near end": _near_end,
}

if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
