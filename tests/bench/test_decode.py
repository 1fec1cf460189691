"""Rows of `bench decode`: every engine beside its references, ratios of medians, and refusals."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import write_gguf
from trisplit.bench import rounds
from trisplit.bench.decode import DecodeRow, decode
from trisplit.bench.weights import bytes_per_token, file_bytes_per_token, weight_bytes
from trisplit.errors import PeerProblem, Problem, RequestProblem, UnknownName
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]
MISSING = Path("nowhere/bin/python")

# llama: 4 layers, 64 wide, 4 + 2 × 2 heads of 16, 96 neurons, 320 tokens, a head of its own.
LAYER = (64 + 2 * 32) * 64 + 64 * 64 + 2 * 96 * 64 + 64 * 96
NORMS = 4 * 2 * 64 + 64
PER_TOKEN = 4 * (4 * LAYER + NORMS + 320 * 64)

# Stands for a Python with peers in it: 5 ms a token, and it says how it was called.
FAKE_PYTHON = """#!{python}
import asyncio, sys
from trisplit.bench.peers import Line, stretch
async def step(ids, position):
    await asyncio.sleep(0.005)
    return 0
line = Line()
ready = {{"detail": "\\n".join(sys.argv[1:]), "dtype": "Q4_1"}}
asyncio.run(line.serve(ready, lambda order: stretch(step, order)))
"""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "SETTLE_S", 0.0)


@pytest.fixture
def fake_python(tmp_path: Path) -> Path:
    python = tmp_path / "python"
    python.write_text(FAKE_PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    return python


@pytest.fixture
def gguf(tiny: Tiny, tmp_path: Path) -> Path:
    return write_gguf(tiny("llama"), tmp_path / "llama.gguf", types="Q4_1")


def rows_of(path: Path, **how: Any) -> list[DecodeRow]:
    given = {"dtypes": ["f32"], "threads": [1], "tokens": 3, "rounds": 2, "peers_python": MISSING}
    return asyncio.run(decode(path, **{**given, **how}))


def problem_of(path: Path, **how: Any) -> Problem:
    with pytest.raises(Problem) as caught:
        rows_of(path, **how)
    return caught.value


def test_a_row_for_every_engine_and_for_what_it_is_held_against(tiny: Tiny) -> None:
    rows = rows_of(tiny("llama"), dtypes=["f32", "int4"], threads=[1, 2])
    ours = [(r.dtype, r.threads, r.bytes_per_token) for r in rows if r.engine == "trisplit"]
    int4 = bytes_per_token(open_model(tiny("llama")), "int4")
    assert ours == [(dtype, n, size) for n in (1, 2) for dtype, size in (("f32", PER_TOKEN), ("int4", int4))]
    held = [(r.engine, r.threads, r.bytes_per_token) for r in rows if r.engine != "trisplit"]
    engines = ("numpy sgemv", "numpy read")
    assert held == [(e, n, size) for n in (1, 2) for e in engines for size in (PER_TOKEN, int4)]
    assert all(r.ratio_to_llamacpp is None for r in rows)
    assert all(0 < r.best_ms <= r.ms_per_token <= r.p95_ms for r in rows)
    assert all(r.tok_per_s == pytest.approx(1e3 / r.ms_per_token) for r in rows)
    assert all(r.detail for r in rows)


def test_fractions_are_of_the_references_of_the_same_bytes_and_threads(tiny: Tiny) -> None:
    rows = rows_of(tiny("llama"), dtypes=["f32", "int8"])
    ms = {(r.engine, r.bytes_per_token): r.ms_per_token for r in rows}
    for row in rows:
        sgemv, read = (ms[engine, row.bytes_per_token] for engine in ("numpy sgemv", "numpy read"))
        assert row.sgemv_fraction == pytest.approx(sgemv / row.ms_per_token)
        assert row.read_fraction == pytest.approx(read / row.ms_per_token)
    assert [r.sgemv_fraction for r in rows if r.engine == "numpy sgemv"] == [1.0, 1.0]
    assert [r.read_fraction for r in rows if r.engine == "numpy read"] == [1.0, 1.0]


def test_peers_run_the_same_file_in_their_own_python(gguf: Path, fake_python: Path) -> None:
    rows = rows_of(gguf, peers=["transformers", "llama.cpp"], peers_python=fake_python, threads=[2])
    by_engine = {row.engine: row for row in rows}
    llama = by_engine["llama.cpp"]
    assert llama.dtype == "Q4_1"
    assert llama.bytes_per_token == file_bytes_per_token(open_model(gguf))
    assert by_engine["transformers"].bytes_per_token == PER_TOKEN
    alone, script, peer, model, threads, context = llama.detail.split("\n")
    assert (alone, Path(script).name, peer, model) == ("-P", "peers.py", "llama.cpp", str(gguf))
    assert (threads, int(context)) == ("2", 16 + 4 + 3)
    for row in rows:
        assert row.ratio_to_llamacpp == pytest.approx(llama.ms_per_token / row.ms_per_token)
    assert llama.ratio_to_llamacpp == 1.0
    assert llama.best_ms >= 5


def test_bytes_of_a_token_leave_out_an_embedding_of_its_own(tiny: Tiny, gguf: Path) -> None:
    untied, tied = open_model(tiny("llama")), open_model(tiny("qwen2"))
    assert weight_bytes(untied, "f32") == bytes_per_token(untied, "f32") + 4 * 320 * 64
    assert weight_bytes(tied, "f32") == bytes_per_token(tied, "f32")
    everything = sum(tensor.n_bytes for tensor in open_model(gguf).checkpoint.tensors.values())
    embedding = open_model(gguf).checkpoint.tensors["token_embd.weight"].n_bytes
    assert file_bytes_per_token(open_model(gguf)) == everything - embedding


# --- refusals -------------------------------------------------------------------------------------


def test_a_peer_nobody_knows(tiny: Tiny) -> None:
    problem = problem_of(tiny("llama"), peers=["llamacpp"])
    assert isinstance(problem, UnknownName)
    assert "llama.cpp" in problem.fix


def test_peers_that_were_not_made(gguf: Path) -> None:
    problem = problem_of(gguf, peers=["transformers", "llama.cpp"])
    assert isinstance(problem, RequestProblem)
    assert (str(MISSING) in problem.what, problem.fix) == (True, "make peers")


def test_a_python_without_the_peer(gguf: Path) -> None:
    problem = problem_of(gguf, peers=["llama.cpp"], peers_python=Path(sys.executable))
    assert isinstance(problem, PeerProblem)
    assert ("llama_cpp" in problem.what, problem.fix) == (True, "make peers")


def test_a_folder_for_llama_cpp(tiny: Tiny, fake_python: Path) -> None:
    problem = problem_of(tiny("llama"), peers=["llama.cpp"], peers_python=fake_python)
    assert isinstance(problem, RequestProblem)
    assert "GGUF" in problem.what


def test_more_tokens_than_the_model_has_room_for(tiny: Tiny) -> None:
    problem = problem_of(tiny("llama"), tokens=500)
    assert isinstance(problem, RequestProblem)
    assert "520" in problem.what
    assert "512" in problem.what


def test_rows_can_be_written_down(tiny: Tiny) -> None:
    from dataclasses import asdict

    assert json.loads(json.dumps([asdict(row) for row in rows_of(tiny("llama"))]))
