"""`trisplit bench …`: one JSON object or a table of the same rows, and words that make no sense."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from trisplit.cli import names
from trisplit.cli.app import app
from trisplit.errors import Problem, RequestProblem, UnknownName
from trisplit.machine import this_machine

Tiny = Callable[[str], Path]

DECODE_COLUMNS = (
    "engine dtype threads ms_per_token best_ms p95_ms tok_per_s bytes_per_token sgemv_fraction read_fraction"
    " ratio_to_llamacpp detail"
)
MESH_COLUMNS = (
    "cut topology stations levers one_way_ms jitter_ms mbit legs_per_token dtype threads floor_ms p50_ms"
    " best_ms p95_ms ratio_to_floor one_process_ms predicted_ms legs_beyond_ms waits_ms stages_beyond_ms"
    " bytes_per_token tokens_equal legs stages"
)
LEGS_COLUMNS = "source target trips nominal_ms p50_ms best_ms p95_ms"
STAGES_COLUMNS = "kind runs p50_ms best_ms p95_ms"
SESSIONS_COLUMNS = (
    "cut topology stations levers one_way_ms legs_per_token dtype threads sessions tok_per_s gain p50_ms"
    " tokens_equal"
)
PREFILL_COLUMNS = (
    "cut topology stations one_way_ms dtype threads prompt_tokens chunks streamed_ms apart_ms ratio"
    " one_process_ms token_equal"
)
DTYPES_COLUMNS = "dtype tokens kl top1 ppl ppl_f32 weight_bytes"
MEMORY_COLUMNS = (
    "dtype load process stages weight_bytes rss_bytes allowed_bytes peak_bytes allowed_peak_bytes within"
)
WIRE_COLUMNS = (
    "packed_payload_bytes json_payload_bytes json_payload decode_guard encode_per_s decode_per_s"
    " batched_encode_per_s batched_decode_per_s frame_bytes frames_per_s frames_per_s_batched leg_us tcp_us"
    " leg_over_tcp"
)

SHORT = ("--tokens", "2", "--rounds", "1")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


def said_by(*arguments: str | Path) -> dict[str, Any]:
    """What a bench says with --json; nothing may stand beside the object."""
    result = run(*arguments, "--json")
    assert result.exception is None, result.exception
    assert result.stdout.count("\n") == 1
    said: dict[str, Any] = json.loads(result.stdout)
    return said


def rows_of(*arguments: str | Path, also: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The rows of a bench, and that it says nothing beside them but `also`, the machine and the command."""
    said = said_by(*arguments)
    assert list(said) == ["rows", *also, "machine", "command"]
    assert said["machine"]["cpu"] == this_machine().cpu
    assert said["command"].startswith("trisplit ")
    rows: list[dict[str, Any]] = said["rows"]
    return rows


def problem_of(*arguments: str | Path) -> Problem:
    result = run(*arguments)
    assert result.stdout == ""
    assert isinstance(result.exception, Problem), result.exception
    return result.exception


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Articles in the place of what would be fetched; the even ones are not for us to see."""
    path = tmp_path / "articles.jsonl"
    lines = [{"title": str(n), "text": "seen" if n % 2 == 0 else "the tide comes in " * 40} for n in range(8)]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    monkeypatch.setattr(names, "fetched", lambda _: path)


def test_decode(tiny: Tiny) -> None:
    rows = rows_of("decode", tiny("llama"), "--dtypes", "int8", "--threads", "1", *SHORT)
    assert [" ".join(row) for row in rows] == [DECODE_COLUMNS] * 3
    assert [row["engine"] for row in rows] == ["trisplit", "numpy sgemv", "numpy read"]


def test_mesh(tiny: Tiny) -> None:
    asked = ("--stations", "2", "--cuts", "recut", "--topologies", "chain", "--dtype", "int4")
    asked += ("--tokens", "4", "--warm", "3-4", "--rounds", "1")
    (row,) = rows_of("mesh", tiny("llama"), *asked, also=["gains", "relays", "left_out"])
    assert " ".join(row) == MESH_COLUMNS
    assert (row["cut"], row["dtype"], row["tokens_equal"]) == ("recut", "int4", True)
    assert {" ".join(leg) for leg in row["legs"]} == {LEGS_COLUMNS}
    assert {" ".join(stage) for stage in row["stages"]} == {STAGES_COLUMNS}


WAITING = ("--layers", "2", "--width", "64", "--stage-ms", "20,10,30", "--ends-ms", "40")


def test_mesh_of_stations_that_wait_at_another_pace(tmp_path: Path) -> None:
    links, plot = tmp_path / "links", tmp_path / "ladder.svg"
    links.write_text("0 10 30\n10 0 30\n30 30 0\n")
    asked = ("--stations", "2", "--one-way-ms", str(links), "--slow", "s2=2", "--time-scale", "0.1")
    asked += ("--cuts", "recut", "--topologies", "star,ring", "--tokens", "3", "--rounds", "1")
    said = said_by("mesh", *WAITING, *asked, "--plot", plot)
    star, ring = said["rows"]
    assert [row["one_process_ms"] for row in said["rows"]] == [pytest.approx(160)] * 2
    assert [row["one_way_ms"] for row in said["rows"]] == [None, None]
    assert star["legs_per_token"] == 10
    assert ring["floor_ms"] == pytest.approx(160 + 4 * 30)
    assert ring["predicted_ms"] > ring["floor_ms"]  # one of them is slow
    assert ring["p50_ms"] > ring["predicted_ms"]
    assert [gain["topology"] for gain in said["gains"]] == ["ring"]
    assert [row["links"] for row in said["relays"]] == ["probe", "recut, star", "recut, ring"]
    assert "recut, ring" in plot.read_text()
    assert "gate_up" in plot.with_stem("ladder-token").read_text()


@pytest.mark.slow
def test_mesh_with_layers_that_start_ahead() -> None:
    asked = ("--stations", "3", "--cuts", "thirds,recut", "--topologies", "ring", "--levers", "none,overlap")
    said = said_by("mesh", *WAITING, *asked, "--tokens", "3", "--rounds", "1", "--time-scale", "0.1")
    assert [(row["cut"], row["levers"], row["tokens_equal"]) for row in said["rows"]] == [
        ("thirds", "none", True),
        ("thirds", "overlap", True),
        ("recut", "none", True),
    ]
    plain, early, _ = said["rows"]
    assert early["predicted_ms"] == pytest.approx(plain["predicted_ms"] - 20)
    assert [(no["cut"], no["levers"]) for no in said["left_out"]] == [("recut", "overlap")]
    assert [gain["levers"] for gain in said["gains"]] == ["overlap", "none"]


def test_sessions() -> None:
    asked = ("--stations", "2", "--sessions", "3", "--one-way-ms", "1", "--tokens", "3", "--rounds", "1")
    rows = rows_of("sessions", *WAITING, *asked)
    assert [" ".join(row) for row in rows] == [SESSIONS_COLUMNS] * 2
    assert [(row["sessions"], row["tokens_equal"]) for row in rows] == [(1, True), (3, True)]


def test_prefill(tiny: Tiny) -> None:
    asked = ("--prompt", "70", "--stations", "2", "--one-way-ms", "1", "--rounds", "1")
    (row,) = rows_of("prefill", tiny("llama"), *asked)
    assert " ".join(row) == PREFILL_COLUMNS
    assert (row["chunks"], row["token_equal"]) == (2, True)


@pytest.mark.usefixtures("texts")
def test_dtypes_read_the_held_out_half(tiny: Tiny) -> None:
    asked = ("--dtypes", "int8", "--windows", "4", "--window-tokens", "24", "--threads", "1")
    (row,) = rows_of("dtypes", tiny("llama"), *asked)
    assert " ".join(row) == DTYPES_COLUMNS
    assert (row["dtype"], row["tokens"]) == ("int8", 96)


@pytest.mark.usefixtures("texts")
def test_the_table_has_the_same_columns_and_rows(tiny: Tiny) -> None:
    result = run("dtypes", tiny("llama"), "--windows", "1", "--window-tokens", "24", "--threads", "1")
    head, _, *lines = result.stdout.splitlines()
    assert " ".join(head.split()) == DTYPES_COLUMNS
    assert [line.split()[0] for line in lines] == ["int8", "int4"]


@pytest.mark.slow
def test_memory(tiny: Tiny) -> None:
    rows = rows_of("memory", tiny("llama"), "--stations", "1")
    assert {" ".join(row) for row in rows} == {MEMORY_COLUMNS}
    assert [row["process"] for row in rows] == ["one process"] * 2 + ["s1", "coordinator"] * 2


def test_wire() -> None:
    (row,) = rows_of("wire", "--iterations", "200", "--rounds", "1")
    assert " ".join(row) == WIRE_COLUMNS
    assert (row["packed_payload_bytes"], row["decode_guard"]) == (3, True)
    assert row["leg_over_tcp"] == pytest.approx(row["leg_us"] / row["tcp_us"])


# --- words that make no sense ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (("decode", "--dtypes", "f32,int5"), UnknownName, "int5"),
        (("decode", "--dtypes", ","), RequestProblem, "no dtype"),
        (("decode", "--threads", "1,many"), RequestProblem, "'many'"),
        (("decode", "--threads", "0"), RequestProblem, "'0'"),
        (("decode", "--threads", ""), RequestProblem, "no number of threads"),
        (("decode", "--peers", "vllm"), UnknownName, "vllm"),
        (("decode", "--peers", "llama.cpp", "--peers-python", "nowhere"), RequestProblem, "nowhere"),
        (("mesh", "--dtype", "f32,int8"), RequestProblem, "one dtype"),
        (("mesh", "--cuts", ""), RequestProblem, "no cut"),
        (("mesh", "--cuts", "halves"), UnknownName, "halves"),
        (("mesh", "--topologies", ""), RequestProblem, "no topology"),
        (("mesh", "--levers", "pulled"), UnknownName, "pulled"),
        (("mesh", "--warm", "1-4"), RequestProblem, "1-4"),
        (("mesh", "--slow", "s2=0.5"), RequestProblem, "s2"),
        (("mesh", "--slow", "s9=2"), UnknownName, "s9"),
        (("mesh", "--far", "s9=2"), UnknownName, "s9"),
        (("mesh", "--one-way-ms", "nowhere"), RequestProblem, "nowhere"),
        (("mesh", "--time-scale", "0.5"), RequestProblem, "takes the time it takes"),
        (("mesh", "--stage-ms", "1,2,3"), RequestProblem, "either a model runs, or stages wait"),
        (("mesh", "--plot", "picture.txt"), RequestProblem, "picture.txt"),
        (("mesh", "--levers", "overlap", "--overlap", "9"), RequestProblem, "'9' are no layers"),
        (("mesh", "--levers", "overlap", "--overlap", "nowhere"), RequestProblem, "nowhere is neither"),
        (("sessions", "--levers", "none,overlap"), RequestProblem, "no attention stands alone"),
        (("dtypes", "--text", "smollm2"), UnknownName, "smollm2"),
        (("memory", "--dtype", "fp8"), UnknownName, "fp8"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refused(arguments: Sequence[str], kind: type[Problem], said: str, tiny: Tiny) -> None:
    problem = problem_of(arguments[0], tiny("llama"), *arguments[1:])
    assert isinstance(problem, kind)
    assert said in problem.what


def test_neither_a_model_nor_stages_that_wait() -> None:
    assert "either a model runs" in problem_of("mesh").what
    assert "--width 100" in problem_of("mesh", "--stage-ms", "1,2,3", "--width", "100").what


def test_a_model_nobody_has() -> None:
    assert isinstance(problem_of("memory", "smolm2"), UnknownName)


def test_ctrl_c_ends_everything(tiny: Tiny) -> None:
    command = ("bench", "mesh", str(tiny("llama")), "--stations", "2", "--cuts", "layers", "--rounds", "9999")
    bench = subprocess.Popen(
        (sys.executable, "-m", "trisplit", *command),
        stdout=subprocess.PIPE,
        text=True,
    )
    children = _children(bench.pid, at_least=2)  # one process, and a coordinator with its stations
    assert all("trisplit.bench.worker" in Path(f"/proc/{pid}/cmdline").read_text() for pid in children)
    bench.send_signal(signal.SIGINT)
    out, _ = bench.communicate(timeout=120)
    assert (bench.returncode, out) == (130, "")
    deadline = time.monotonic() + 60  # one that has only just begun ends once it reads that we are gone
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def _children(parent: int, *, at_least: int) -> list[int]:
    """The processes that `parent` has started, once there are as many."""
    deadline = time.monotonic() + 60
    found: list[int] = []
    while len(found) < at_least and time.monotonic() < deadline:
        time.sleep(0.1)
        stats = {int(pid): _parent(int(pid)) for pid in os.listdir("/proc") if pid.isdecimal()}
        found = [pid for pid, its_parent in stats.items() if its_parent == parent]
    return found


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1
