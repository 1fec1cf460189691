"""Split a model over three station processes: python examples/split_over_stations.py MODEL [PROMPT]."""

import asyncio
import sys
from pathlib import Path

from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.fleet import local_stations
from trisplit.mesh.room import Room
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation, Request
from trisplit.models.model import open_model
from trisplit.models.sampling import Sampling

CONTEXT = 256


async def main(path: Path, prompt: str) -> None:
    model = open_model(path)
    tokenizer = model.tokenizer()
    ends = Ends(model.config, *model.files(model.ends, "f32"), threads=1)
    rooms = [Room(name, None) for name in ("s1", "s2", "s3")]
    drawn = plan_model(model, rooms, cut="recut", dtype="f32", context=CONTEXT)
    print(drawn.table())
    request = Request(prompt_ids=tuple(tokenizer.encode(prompt)), sampling=Sampling(), max_tokens=24)
    answer = Generation(request, tokenizer.detokenizer(), CONTEXT)
    used = [share.station for share in drawn.shares]
    async with local_stations(used) as addresses, Coordinator(model, ends, drawn, addresses) as mesh:
        async for _ in mesh.load("f32", context=CONTEXT, threads=1):
            pass
        stream = await mesh.open()
        async for piece in mesh.generate(stream, answer):
            print(piece.text, end="", flush=True)
    print()


asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "The capital of France is"))
