"""`trisplit run` as a process: streams, exit codes, options, and what it says when asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.running import problem_of
from tests.scripts.worlds import needs_node
from trisplit.cache import ledger
from trisplit.errors import RequestProblem, UnknownName
from trisplit.scripts.spawned import Spawner


def trisplit(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    (folder / "cache").mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NODE_")}
    return subprocess.run(
        [sys.executable, "-m", "trisplit", "run", *words],
        cwd=folder,
        env={**environment, "TRISPLIT_CACHE": str(folder / "cache"), **more},
        input=b"given\n",
        capture_output=True,
        timeout=120,
    )


@needs_node
def test_hits_are_runs(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("console.log('out'); console.error('err')")
    for word in (b"miss", b"hit"):
        ran = trisplit(tmp_path, "--explain", "a.js")
        assert (ran.returncode, ran.stdout) == (0, b"out\n")
        assert ran.stderr.startswith(b"err\ntrisplit: " + word)
    assert trisplit(tmp_path, "a.js").stderr == b"err\n"
    assert trisplit(tmp_path, "--verify", "--explain", "a.js").stderr.startswith(b"err\ntrisplit: verified")
    assert b"--no-cache" in trisplit(tmp_path, "--no-cache", "--explain", "a.js").stderr


@needs_node
def test_what_reads_its_surroundings_gets_them(tmp_path: Path) -> None:
    told = "console.log(process.argv.slice(2), `${d}`)"
    (tmp_path / "a.js").write_text(f"process.stdin.on('data', (d) => {{ {told}; process.exitCode = 4 }})")
    ran = trisplit(tmp_path, "--explain", "a.js", "--explain", "-x", "y")
    assert (ran.returncode, ran.stdout) == (4, b"[ '--explain', '-x', 'y' ] given\n\n")
    assert ran.stderr == b"trisplit: impure: uses process, at line 1\n"


@needs_node
def test_hits_load_little_and_need_no_listener(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("console.log('out'); console.error('err')")
    trisplit(tmp_path, "a.js")
    around = {name: value for name, value in os.environ.items() if not name.startswith("NODE_")}
    around["TRISPLIT_CACHE"] = str(tmp_path / "cache")
    command = [sys.executable, "-X", "importtime", "-m", "trisplit", "run", "a.js"]
    ran = subprocess.run(command, cwd=tmp_path, env=around, capture_output=True, timeout=120)
    assert ran.stdout == b"out\n"
    assert b"typer" not in ran.stderr
    if Path("/dev/full").exists():
        shell = f"{sys.executable} -m trisplit run a.js > /dev/full; echo $? >&2"
        full = subprocess.run(shell, shell=True, cwd=tmp_path, env=around, capture_output=True, timeout=120)
        assert full.stderr == b"err\n0\n"  # as node does
    for closed, left in ((">&-", b"err\n"), ("2>&-", b"")):
        shell = f"{sys.executable} -m trisplit run a.js {closed}"
        shut = subprocess.run(shell, shell=True, cwd=tmp_path, env=around, capture_output=True, timeout=120)
        assert (shut.returncode, shut.stderr) == (0, left)


@needs_node
def test_a_hit_costs_its_whole_process(tmp_path: Path) -> None:
    """Most of one by Python is the start of Python, and the ledger has it."""
    (tmp_path / "a.js").write_text("console.log('out')")
    trisplit(tmp_path, "a.js")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NODE_")}
    environment["TRISPLIT_CACHE"] = str(tmp_path / "cache")
    with Spawner() as spawner:
        words = (sys.executable, "-m", "trisplit", "run", str(tmp_path / "a.js"))
        spawned = spawner.run(words, environment)
    assert spawned.stdout == b"out\n"
    records, _ = ledger.read(tmp_path / "cache" / "results" / ledger.FILE)
    assert isinstance(records[-1], ledger.Record)
    assert records[-1].outcome == "hit"
    assert spawned.cpu_ms / 2 < records[-1].spent_cpu_us / 1e3 < spawned.cpu_ms


@needs_node
def test_limits_of_the_shell_are_obeyed(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("console.log('out')")
    limited = ["/bin/sh", "-c", 'ulimit -S -t 1000; exec "$@"', "sh", sys.executable, "-m", "trisplit", "run"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NODE_")}
    ran = subprocess.run(
        [*limited, "--explain", "a.js"], cwd=tmp_path, env=environment, capture_output=True, timeout=120
    )
    assert (ran.returncode, ran.stdout) == (0, b"out\n")
    assert ran.stderr == b"trisplit: impure: a limit is set on processor time: the engine might meet it\n"


def test_python_runs_as_ever(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import sys; print(sys.argv[1:], input()); sys.exit(5)")
    ran = trisplit(tmp_path, "--engine", sys.executable, "--explain", "a.py", "x")
    assert (ran.returncode, ran.stdout) == (5, b"['x'] given\n")
    assert b"impure: Python" in ran.stderr
    (tmp_path / "b.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert trisplit(tmp_path, "--engine", sys.executable, "b.py").returncode == -signal.SIGTERM


def test_what_node_does_not_run_is_for_another_engine(tmp_path: Path) -> None:
    (tmp_path / "a.tsx").write_text("console.log(<b>hi</b>)")
    problem = problem_of("run", tmp_path / "a.tsx")
    assert isinstance(problem, RequestProblem)
    assert "--engine" in problem.fix
    ran = trisplit(tmp_path, "--engine", "cat", "--explain", "a.tsx")
    assert (ran.returncode, ran.stdout) == (0, b"console.log(<b>hi</b>)")
    assert ran.stderr == b"trisplit: impure: node runs no .tsx\n"


def test_a_cache_that_cannot_be_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('ran')")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "results").mkdir(mode=0o755)
    (tmp_path / "cache" / "results").chmod(0o755)
    ran = trisplit(tmp_path, "--engine", sys.executable, "--explain", "a.py")
    assert (ran.returncode, ran.stdout) == (0, b"ran\n")
    assert b"open to other users" in ran.stderr


def test_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    assert isinstance(problem_of("run", tmp_path / "a.rb"), UnknownName)
    for words in (
        (tmp_path / "none.js",),
        ("--engine", "no-such-program", tmp_path / "a.py"),
        ("--verify", "--no-cache", tmp_path / "a.py"),
    ):
        problem = problem_of("run", *words)
        assert isinstance(problem, RequestProblem)
        assert problem.fix
