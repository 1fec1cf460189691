"""`trisplit compress --fit`: the smallest copy that passes the gates, and what other sizes would cost."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trisplit.errors import RequestProblem

if TYPE_CHECKING:
    from trisplit.cli.exporting import Form
    from trisplit.compress.anatomy import Anatomy
    from trisplit.compress.evaluate import Exam
    from trisplit.compress.fit import Fitted
    from trisplit.compress.frontier import Point
    from trisplit.compress.gates import Metric
    from trisplit.compress.passages import Passage
    from trisplit.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """Whether the size is to be found, and where a picture of the sizes goes."""

    fit: Annotated[
        bool,
        typer.Option("--fit", help="Find the smallest copy that passes the gates."),
    ] = False
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --fit: draw size against loss, .svg or .png.")
    ] = None

    def refuse_odd(self, *, others: Sequence[str]) -> None:
        """RequestProblem when options do not go together, or the picture cannot be drawn; before any work."""
        from trisplit.bench.plot import refuse_picture

        if self.fit and others:
            fix = f"leave out {' and '.join(others)}, or --fit"
            raise RequestProblem("--fit finds the size by itself, and keeps nothing that fails", fix=fix)
        if self.plot is not None:
            if not self.fit:
                raise RequestProblem("--plot draws what --fit has tried", fix="add --fit, or leave it out")
            refuse_picture(self.plot)


def fit_and_show(
    anatomy: Anatomy,
    read: Sequence[Passage],
    exam: Exam,
    out: Path,
    fitting: Fitting,
    form: Form,
    *,
    gates: Mapping[Metric, float],
    asked: dict[str, Any],
    threads: int,
    as_json: bool,
) -> bool:
    """Finds it, writes it and shows it; whether there was one."""
    from trisplit.cli.progress import bars
    from trisplit.compress.fit import fit

    with bars() as show:
        found = fit(
            *(anatomy, read, exam, out),
            gates=gates,
            seed=asked["seed"],
            form=form.wanted(),
            threads=threads,
            report=show.advance,
        )
    if fitting.plot is not None:
        from trisplit.bench.frontier_plot import draw_frontier

        title = f"What size buys of {Path(asked['model']).name}"
        draw_frontier(found.points, gates, fitting.plot, title=title, found=found.chosen)
    _show(asked | {"written": fitting.plot and str(fitting.plot)}, found, out, as_json=as_json)
    return found.outcome is not None and found.outcome.verdict.passed


def _show(asked: dict[str, Any], found: Fitted, out: Path, *, as_json: bool) -> None:
    from trisplit.cli.compressing import edits_tables
    from trisplit.cli.evaluating import gates_table
    from trisplit.cli.printing import print_result
    from trisplit.machine import this_machine

    outcome = found.outcome
    if as_json:
        facts = asked | (dict(outcome.receipt) if outcome else {"passed": False})
        facts |= {"frontier": [asdict(point) | {"passed": point.passed} for point in found.points]}
        facts |= {"kept": str(out) if outcome and outcome.kept else None}
        facts |= {"machine": asdict(this_machine()), "command": shlex.join(["trisplit", *sys.argv[1:]])}
        print(json.dumps(facts))
        return
    tables = [*edits_tables(outcome.taken), gates_table(outcome.verdict)] if outcome else []
    drawn = [f"drawn: {asked['written']}"] if asked["written"] else []
    print_result(None, [*tables, frontier_table(found.points)], [*_lines(found, out), *drawn])


def frontier_table(points: Sequence[Point]) -> Table:
    """A row for each size, smallest first; `strain` is what is lost of what may be."""
    from trisplit.table import Table

    names = [text.text for text in points[0].texts]
    columns = [f"{metric} {name}" for name in names for metric in ("ppl", "kl", "top1")]
    rows = tuple(
        (
            f"{point.share:.1%}",
            point.parameters,
            *(value for text in point.texts for value in (text.ppl_ratio, text.kl, text.top1)),
            sum(text.tokens for text in point.texts),
            point.strain,
            "passed" if point.passed else "failed",
        )
        for point in points
    )
    return Table(("neurons", "parameters", *columns, "read", "strain", ""), rows, "What other sizes cost")


def _lines(found: Fitted, out: Path) -> Iterator[str]:
    chosen, outcome = found.chosen, found.outcome
    if outcome is None or chosen is None:
        largest = found.points[-1]
        yield f"no size passes: what keeps {largest.share:.1%} of the neurons loses too much already"
        yield f"nothing is written to {out}"
        return
    dense = outcome.measured.dense
    of = f" of {dense.parameters:,}" if dense else ""
    yield f"{chosen.share:.1%} of the neurons, {chosen.parameters:,}{of} parameters"
    yield "passed" if outcome.verdict.passed else "failed, as did one or two units more"
    yield f"written: {out}" if outcome.kept else f"not kept; the receipt is in {out}"
