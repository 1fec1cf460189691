"""`trisplit bench compress`: ways of making FFNs narrower beside one another."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from trisplit.cli.options import AsJson, ModelArgument
from trisplit.cli.typed import TEXTS, show_rows, some, warn_if_busy, words
from trisplit.cli.unfold import unfolded
from trisplit.errors import RequestProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import DataclassInstance

    from trisplit.compress.evaluate import Exam
    from trisplit.models.tokenizer import Tokenizer


def add_to(bench: typer.Typer) -> None:
    """Adds the command."""
    bench.command("compress")(unfolded(compress))


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What is read for pruning, and what for judging."""

    calibrate: Annotated[
        str, typer.Option(metavar="wiki|brown|FILE", help="Calibrate on this; of wiki and brown, half.")
    ] = "wiki"
    tokens: Annotated[int, typer.Option(min=2, help="Of that text, to read.")] = 131_072
    held_out: Annotated[
        str, typer.Option(metavar="T,…", help="Judge on these: wiki, brown (their other half), or files.")
    ] = ",".join(TEXTS)
    held_out_tokens: Annotated[int, typer.Option(min=1, help="Of each of those.")] = 32_768
    passage_tokens: Annotated[int, typer.Option(min=1, help="Of each passage.")] = 512
    seed: Annotated[int, typer.Option(help="Which passages.")] = 0


def compress(
    model: ModelArgument,
    read: Read,
    keep: Annotated[str, typer.Option(metavar="S,…", help="Shares of all FFN neurons to keep.")] = "0.75,0.5",
    methods: Annotated[
        str,
        typer.Option(metavar="M,…", help="dense, ours, ours-uniform, flap, flap-global, wanda, magnitude."),
    ] = "dense,ours,ours-uniform,flap,wanda,magnitude",
    ablation: Annotated[
        bool, typer.Option("--ablation", help="Also ours with one thing done another way, at each share.")
    ] = False,
    timed: Annotated[
        bool, typer.Option("--timed/--untimed", help="Whether tokens a second are taken.")
    ] = True,
    threads: Annotated[int, typer.Option(min=1, help="Threads to read and decode with.")] = 1,
    as_json: AsJson = False,
) -> None:
    """What narrower FFNs cost, ours and others', on text none was calibrated on; what was judged is kept."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(threads))  # read once, when numpy is first imported
    from trisplit.bench.compress import CompressBench
    from trisplit.bench.compress import rows as measure
    from trisplit.cli.names import find_model
    from trisplit.cli.progress import bars
    from trisplit.cli.texts import calibration_of
    from trisplit.compress.anatomy import dissect
    from trisplit.compress.contenders import ABLATIONS

    named, shares = some(words(methods), "method"), _shares(keep)
    warn_if_busy(threads)
    anatomy = dissect(find_model(model))
    tokenizer = anatomy.decoder().tokenizer()
    calibration = calibration_of(tokenizer, [read.calibrate], read.tokens)
    with bars() as show:
        bench = CompressBench(
            *(anatomy, calibration, _exam(tokenizer, read)), threads=threads, report=show.advance
        )
        found = list(measure(bench, named, shares, timed=timed))
        tried = [bench.ablation(what, share) for share in shares for what in ABLATIONS] if ablation else []
        also: dict[str, Sequence[DataclassInstance]] = {"calibration": [bench.calibration()]}
        also["ablation"] = tried
    show_rows(found, as_json=as_json, also=also)


def _shares(text: str) -> list[float]:
    try:
        shares = [float(word) for word in some(words(text), "share")]
    except ValueError:
        raise RequestProblem(f"--keep {text} is no list of shares", fix="write 0.75,0.5") from None
    if not all(0 < share <= 1 for share in shares):
        raise RequestProblem(f"--keep {text} has what is no share", fix="write numbers above 0, up to 1")
    return shares


def _exam(tokenizer: Tokenizer, read: Read) -> Exam:
    from trisplit.cli.texts import exam_texts
    from trisplit.compress.evaluate import Exam

    return Exam(
        texts=exam_texts(
            *(tokenizer, some(words(read.held_out), "text")),
            count=max(read.held_out_tokens // read.passage_tokens, 1),
            n_tokens=read.passage_tokens,
            seed=read.seed,
        )
    )
