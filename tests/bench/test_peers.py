"""The child's half: what a stretch feeds and counts, and a script that needs nothing of ours."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

from trisplit.bench import peers
from trisplit.bench.peers import stretch


def test_each_token_is_fed_where_it_stands_and_the_warm_ones_do_not_count() -> None:
    fed = []

    async def step(ids: list[int], position: int) -> int:
        fed.append((ids, position))
        return 100 + position

    answer = asyncio.run(stretch(step, {"prompt_ids": [7, 8, 9], "warm": 2, "tokens": 3}))
    assert fed == [
        ([7, 8, 9], 0),
        ([100], 3),
        ([103], 4),
        ([104], 5),
        ([105], 6),
        ([106], 7),
    ]
    assert answer["token_ids"] == [100, 103, 104, 105, 106, 107]
    assert len(answer["ms"]) == 3


def test_the_times_that_count_are_those_of_the_last_tokens() -> None:
    async def step(_: list[int], position: int) -> int:
        if position in (1, 2):  # the warm ones
            await asyncio.sleep(0.05)
        return 0

    answer = asyncio.run(stretch(step, {"prompt_ids": [7], "warm": 2, "tokens": 5}))
    assert max(answer["ms"]) < 50


def test_the_script_needs_the_standard_library_alone_and_says_which_peer_is_missing() -> None:
    for peer, package in (("transformers", "torch"), ("llama.cpp", "llama_cpp")):
        bare = (sys.executable, "-I", "-S", peers.__file__, peer, "model.gguf", "1", "64")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(bare, **pipes) as child:
            assert child.stdout
            assert child.stderr
            said = json.loads(child.stdout.read())
            assert child.stderr.read() == b""
        assert said["fix"] == "make peers"
        assert package in said["problem"], said
        assert child.returncode == 1


def test_what_an_engine_prints_does_not_stand_between_the_answers() -> None:
    code = (
        "import asyncio, os\n"
        "from trisplit.bench.peers import Line\n"
        "line = Line()\n"
        "print('from python'); os.write(1, b'from a library')\n"
        "async def answer(order):\n"
        "    print('noise', flush=True)\n"
        "    return {'twice': 2 * order['n']}\n"
        "asyncio.run(line.serve({'ready': True}, answer))\n"
    )
    child = subprocess.Popen(
        (sys.executable, "-c", code),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdin
    assert child.stdout
    assert json.loads(child.stdout.readline()) == {"ready": True}
    child.stdin.write('{"n": 4}\n{"n": 5}\n')
    child.stdin.flush()
    assert [json.loads(child.stdout.readline()) for _ in range(2)] == [{"twice": 8}, {"twice": 10}]
    out, noise = child.communicate(timeout=120)
    assert (out, child.returncode) == ("", 0)
    assert "from a library" in noise
