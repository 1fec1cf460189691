"""`trisplit evaluate`: what a model makes of texts and questions, and whether that passes gates."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trisplit.cli.options import AsJson, DtypeOption, ModelArgument
from trisplit.cli.unfold import unfolded
from trisplit.errors import RequestProblem

if TYPE_CHECKING:
    from trisplit.assets.questions import Question
    from trisplit.compress.evaluate import Evaluation, Exam, QuestionScore, Weight
    from trisplit.compress.gates import Gate, Verdict
    from trisplit.compress.questions import Scoring
    from trisplit.models.convert import Dtype
    from trisplit.models.model import Model
    from trisplit.table import Table

FAILED = 2
"""Exit code when a gate that was asked for does not pass."""


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("evaluate")(unfolded(evaluate))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is read, and how much of it."""

    text: Annotated[
        list[str] | None,
        typer.Option(
            metavar="wiki|brown|FILE", help="May be given several times; of wiki and brown the held-out half."
        ),
    ] = None
    passages: Annotated[int, typer.Option(min=1, help="Of each text.")] = 16
    passage_tokens: Annotated[int, typer.Option(min=1, help="Of each passage.")] = 512
    seed: Annotated[int, typer.Option(help="Which passages.")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Questioning:
    """What is asked, and how."""

    questions: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="radio-questions, or MMLU as .csv or .jsonl."),
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Ask that many of them, evenly chosen.")] = None
    shots: Annotated[int, typer.Option(min=0, help="Show the first that many with their answers.")] = 0
    scoring: Annotated[str, typer.Option(help="letter, answer, or both.")] = "letter,answer"


def evaluate(
    model: ModelArgument,
    reading: Reading,
    questioning: Questioning,
    against: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The dense model: adds KL, agreement and gates.")
    ] = None,
    dtype: DtypeOption = "f32",
    against_dtype: Annotated[str, typer.Option(help="Of the dense model.")] = "f32",
    gate: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=LIMIT,…", help="ppl, kl, top1, accuracy or `default`; exit 2 if one fails."
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads to compute with.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Measure a model on texts and questions, alone or beside the model it was made from."""
    from trisplit.cli.names import find_model
    from trisplit.cli.typed import one_dtype
    from trisplit.compress.gates import DEFAULT, judge, limits
    from trisplit.models.model import open_model

    wanted = DEFAULT if gate is None else limits(gate)
    if gate is not None and against is None:
        raise RequestProblem("gates compare with the dense model", fix="name it with --against")
    chosen, chosen_dense = one_dtype(dtype), one_dtype(against_dtype)
    opened = open_model(find_model(model))
    dense = None if against is None else (open_model(find_model(against)), chosen_dense)
    exam = _exam(opened, reading, questioning)
    measured = _measure(exam, (opened, chosen), dense, threads)
    verdict = judge(measured, wanted) if dense else None
    asked: dict[str, Any] = {"model": model, "dtype": dtype, "against": against, "threads": threads}
    asked |= asdict(reading) | asdict(questioning) | {"text": list(exam.texts)}
    _show(asked, measured, verdict, as_json=as_json)
    if gate is not None and verdict is not None and not verdict.passed:
        raise typer.Exit(FAILED)


# --- what a person typed --------------------------------------------------------------------------


def _exam(model: Model, reading: Reading, questioning: Questioning) -> Exam:
    from trisplit.cli.texts import exam_texts
    from trisplit.compress.evaluate import Exam

    scorings = scorings_of(questioning.scoring)
    return Exam(
        texts=exam_texts(
            *(model.tokenizer(), reading.text or ([] if questioning.questions else ["wiki"])),
            count=reading.passages,
            n_tokens=reading.passage_tokens,
            seed=reading.seed,
        ),
        questions=questions_of(questioning),
        shots=questioning.shots,
        scorings=scorings,
    )


def scorings_of(text: str) -> list[Scoring]:
    """Ways of scoring, as typed."""
    from trisplit.cli.typed import some, words
    from trisplit.compress.questions import SCORINGS
    from trisplit.errors import UnknownName

    known: dict[str, Scoring] = {scoring: scoring for scoring in SCORINGS}
    chosen = list(dict.fromkeys(some(words(text), "way of scoring")))
    for word in chosen:
        if word not in known:
            raise UnknownName("way of scoring", word, known)
    return [known[word] for word in chosen]


def questions_of(questioning: Questioning) -> list[Question]:
    """The shots, then those that are asked."""
    from trisplit.assets import ASSETS
    from trisplit.cli.names import fetched
    from trisplit.compress.questions import read_questions

    if questioning.questions is None:
        return []
    name = questioning.questions
    every = read_questions(fetched(name) if name in ASSETS else Path(name))
    shown, rest = every[: questioning.shots], every[questioning.shots :]
    wanted = min(questioning.limit or len(rest), len(rest))
    if not wanted:
        what = f"{name} has {len(every)} questions, of which {questioning.shots} are shown"
        raise RequestProblem(what, fix="show fewer with --shots")
    return [*shown, *(rest[i * len(rest) // wanted] for i in range(wanted))]


# --- measuring ------------------------------------------------------------------------------------


def _measure(
    exam: Exam, mine: tuple[Model, Dtype], dense: tuple[Model, Dtype] | None, threads: int
) -> Evaluation:
    from dataclasses import replace

    from trisplit.cli.progress import bars
    from trisplit.compress.evaluate import compare, see, weigh

    with bars() as show:
        before = see(*dense, exam, threads=threads, report=show.advance) if dense else None
        same = dense is not None and _which(*dense) == _which(*mine)
        seen = before if before and same else see(*mine, exam, threads=threads, report=show.advance)
        measured = compare(exam, seen, before, report=show.advance)
    weight = weigh(*mine, threads=threads)
    heavier = weight if same else weigh(*dense, threads=threads) if dense else None
    return replace(measured, weight=weight, dense=heavier)


def _which(model: Model, dtype: Dtype) -> tuple[str, Dtype]:
    return model.checkpoint.digest, dtype


# --- what it shows --------------------------------------------------------------------------------


def _show(asked: dict[str, Any], measured: Evaluation, verdict: Verdict | None, *, as_json: bool) -> None:
    from trisplit.cli.printing import print_result
    from trisplit.machine import this_machine

    if as_json:
        facts = asked | {
            "texts": [asdict(text) for text in measured.texts],
            "scores": [_score_facts(score) for score in measured.questions],
            "weight": measured.weight and asdict(measured.weight),
            "dense": measured.dense and asdict(measured.dense),
            "gates": [asdict(gate) for gate in verdict.gates] if verdict else [],
            "passed": verdict.passed if verdict else None,
            "notes": list(verdict.notes) if verdict else [],
            "machine": asdict(this_machine()),
            "command": shlex.join(["trisplit", *sys.argv[1:]]),
        }
        print(json.dumps(facts))
        return
    lines = [] if verdict is None else [*verdict.notes, _ending(verdict)]
    print_result(None, list(_tables(measured, verdict)), lines)


def _ending(verdict: Verdict) -> str:
    if not verdict.gates:
        return "no gate was judged"
    return "passed" if verdict.passed else "failed"


def _score_facts(score: QuestionScore) -> dict[str, Any]:
    facts: dict[str, Any] = {"scoring": score.scoring, "questions": score.accuracy.n}
    facts |= {"accuracy": score.accuracy.share, "standard_error": score.accuracy.standard_error}
    if score.dense and score.against:
        facts |= {"accuracy_dense": score.dense.share, "difference": score.against.difference}
        facts |= {"difference_error": score.against.standard_error, "p_value": score.against.p_value}
        facts |= {"gained": score.against.gained, "lost": score.against.lost}
    return facts


def _tables(measured: Evaluation, verdict: Verdict | None) -> Iterator[Table]:
    weights = [("model", measured.weight), ("dense", measured.dense)]
    if measured.texts:
        yield texts_table(measured)
    if measured.questions:
        yield scores_table(measured)
    if any(weight for _, weight in weights):
        yield _table([_weight_facts(name, weight) for name, weight in weights if weight])
    if verdict and verdict.gates:
        yield gates_table(verdict)


def texts_table(measured: Evaluation) -> Table:
    """A row for each text."""
    return _table([asdict(text) for text in measured.texts])


def scores_table(measured: Evaluation) -> Table:
    """A row for each way of scoring."""
    return _table([_score_facts(score) for score in measured.questions])


def gates_table(verdict: Verdict) -> Table:
    """A row for each gate."""
    return _table([_gate_facts(gate) for gate in verdict.gates])


def _table(rows: list[dict[str, Any]]) -> Table:
    """The columns in which some row has something."""
    from trisplit.table import Table

    columns = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    return Table(tuple(columns), tuple(tuple(row[name] for name in columns) for row in rows))


def _weight_facts(name: str, weight: Weight) -> dict[str, Any]:
    return {"": name, **asdict(weight)}


def _gate_facts(gate: Gate) -> dict[str, Any]:
    return {"gate": gate.metric, **{name: value for name, value in asdict(gate).items() if name != "metric"}}
