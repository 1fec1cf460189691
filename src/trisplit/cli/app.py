"""The `trisplit` command: its subcommands, and what a person sees when something goes wrong.

Subcommands import what they need when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import time
from typing import NoReturn

import typer

from trisplit import __version__
from trisplit.cli import (
    answer,
    atlas,
    batching,
    bench,
    caching,
    calibrating,
    charging,
    claims,
    compressing,
    diagnosing,
    drafting,
    evaluating,
    exporting,
    gate,
    ladder,
    plan,
    pruned,
    residing,
    scripts,
    show,
    skipping,
    slicing,
    speculating,
    station,
    up,
)
from trisplit.errors import Problem, RequestProblem

app = typer.Typer(
    name="trisplit",
    help="Run a decoder language model split over several machines, exactly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (
    answer,
    plan,
    show,
    station,
    up,
    claims,
    evaluating,
    atlas,
    compressing,
    caching,
    scripts,
    residing,
):
    module.add_to(app)
charging.add_to(caching.app)
diagnosing.add_to(app)
exporting.add_to(app)
ladder.add_to(bench.app)
drafting.add_to(bench.app)
speculating.add_to(bench.app)
skipping.add_to(bench.app)
slicing.add_to(bench.app)
calibrating.add_to(app, bench.app)
pruned.add_to(bench.app)
app.add_typer(bench.app, name="bench")
batching.add_to(gate.app)
app.add_typer(gate.app, name="gate")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Options that stand before a command."""


class _CtrlC:
    """Ctrl-C at once, also while a model loads: asyncio's own handler waits for the next await.

    Pressed again within a second it is ignored: what is being ended then has deadlines of its own.
    """

    def __init__(self) -> None:
        self.pressed_s: float | None = None

    def __call__(self, *_: object) -> None:
        now_s = time.monotonic()
        if self.pressed_s is None or now_s - self.pressed_s > 1:
            self.pressed_s = now_s
            raise KeyboardInterrupt


def _fill_standard_streams() -> None:
    """Opens /dev/null where standard input, output or error is closed.

    Else the next thing opened takes the free number: a socket that receives what we print, or the event
    loop's own, and libuv aborts when it is to close one of the first three.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    sys.stdin = sys.stdin or open(0, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")  # noqa: SIM115


def main() -> None:
    """Runs the command line; a Problem becomes two lines on stderr and its exit code."""
    _fill_standard_streams()
    sys.argv[0] = sys.argv[0].removesuffix("-py")  # `trisplit` is what was asked for: it handed over
    ctrl_c = _CtrlC()
    signal.signal(signal.SIGINT, ctrl_c)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal of few letters shows the rest as it can
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except BaseException as error:
        # A callback of the socket library may take the interrupt for its own and end a link instead.
        if ctrl_c.pressed_s is not None:
            sys.exit(130)
        if not isinstance(error, (Problem, OSError)):
            raise
        end_with(error)


def end_with(error: Problem | OSError) -> NoReturn:
    """Two lines on standard error, after whatever of the answer there was, and the exit code."""
    if isinstance(error, OSError):  # what we print cannot be written
        what = f"cannot write the answer: {error.strerror or error}"
        error = RequestProblem(what, fix="make room for it")
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    print(f"error: {error.what}\n  fix: {error.fix}", file=sys.stderr)
    sys.exit(error.exit_code)
