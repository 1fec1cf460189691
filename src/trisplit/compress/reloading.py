"""An exported model read anew in a process of its own, and held against the model it comes from."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from trisplit.compress.export import Check, Wanted, translate
from trisplit.compress.gguf_keys import ROPE_TENSOR
from trisplit.compress.gguf_writing import qtypes_of
from trisplit.compress.kinds import KINDS, Kind, rounded
from trisplit.compress.translate import Translation
from trisplit.compress.translated import translated
from trisplit.errors import CheckpointProblem
from trisplit.models.config import ModelConfig, layer_stages
from trisplit.models.model import Model, open_model
from trisplit.models.promises import promises
from trisplit.models.session import Floats, Row, StageSession, Tracks
from trisplit.models.shelf import shelf
from trisplit.paths import scratch

MOST_DELTA: Final = 1e-3
"""Of a logit, between the model and its copy with the same numbers."""

_ROWS: Final = 24
_TEXT: Final = "The tide goes out twice a day; in 1897 it left 3 boats lying on the sand – as naïve as ever: "
_AT_ODDS: Final = "this is a defect of trisplit: please report it, with the model's name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What came of it; `of_file` is the largest change of a logit that the file's type makes."""

    parameters: int
    tensors: int
    rows: int
    delta: float
    of_file: float
    same_likeliest: float


def in_fresh_process(source: Path, wanted: Wanted) -> Check:
    """A check for `export`: `compare` in a new process, with a cache of its own that is gone afterwards."""

    def check(draft: Path) -> Mapping[str, Any]:
        order = {"source": str(source.absolute()), "written": str(draft.absolute()), **asdict(wanted)}
        with scratch() as cache:
            ran = subprocess.run(
                [sys.executable, "-m", __name__, json.dumps(order)],
                env={**os.environ, "TRISPLIT_CACHE": str(cache)},
                capture_output=True,
                text=True,
            )
        lines = ran.stdout.splitlines()
        if ran.returncode == 0 and lines:
            facts: Mapping[str, Any] = json.loads(lines[-1])
            return facts
        why = (lines or ran.stderr.splitlines() or ["it said nothing"])[-1]
        raise CheckpointProblem(f"what was written is not what was meant: {why}", fix=_AT_ODDS)

    return check


def compare(source: Path, written: Path, wanted: Wanted) -> Reloaded:
    """Reads both and compares them: names, shapes, facts, every number, tokens, logits.

    Numbers must be those of the source, rounded to the type of the file, bit for bit. With the same numbers
    logits may differ by MOST_DELTA. CheckpointProblem for the first thing that is amiss.
    """
    model, copy, kind = open_model(source), open_model(written), KINDS[wanted.type]
    translation = translate(model, wanted)
    _same_facts(copy.config, translation.target)
    held = {name: info.shape for name, info in copy.checkpoint.tensors.items() if name != ROPE_TENSOR}
    promised = {name: p.shape for name, p in promises(translation.target, translation.format).items()}
    if odd := sorted(held.keys() ^ promised.keys()):
        raise _amiss(f"{odd[0]} is {'unexpected' if odd[0] in held else 'missing'}")
    for name, values in _numbers(translation, kind):
        if not np.array_equal(copy.checkpoint.read(name), values):
            raise _amiss(f"{name} has other numbers")
    ids = _ids(model, copy)
    before, after = logits(model, ids), logits(copy, ids)
    same = after if wanted.type == "f32" else logits(translated(translation), ids)
    delta = float(np.abs(same - before).max())
    if not delta <= MOST_DELTA:
        raise _amiss(f"logits differ by {delta:.1e}")
    return Reloaded(
        parameters=sum(math.prod(shape) for shape in held.values()),
        tensors=len(held),
        rows=len(ids),
        delta=delta,
        of_file=float(np.abs(after - before).max()),
        same_likeliest=float((after.argmax(axis=-1) == before.argmax(axis=-1)).mean()),
    )


def _same_facts(got: ModelConfig, meant: ModelConfig) -> None:
    for name in ModelConfig.__dataclass_fields__:
        here, there = getattr(got, name), getattr(meant, name)
        if here == there or (name == "family" and {here, there} <= {"llama", "mistral"}):
            continue
        floats = isinstance(here, float) or (isinstance(here, tuple) and len(here) == len(there))
        if not (floats and np.allclose(here, there, rtol=1e-5)):
            raise _amiss(f"{name} is {here}, not {there}")


def _numbers(translation: Translation, kind: Kind) -> Iterator[tuple[str, Floats]]:
    """Every tensor as the file must give it back."""
    types = qtypes_of(translation, kind)
    for stage in translation.target.stages:
        for name, values in translation.stage(stage):
            if translation.format == "gguf":
                yield name, rounded(values, types[name][0])
            else:
                yield name, values.astype(np.dtype(kind.dtype)).astype(np.float32)


def _ids(model: Model, copy: Model) -> Sequence[int]:
    """A text as tokens, which must be the same for both."""
    ids = model.tokenizer().encode(_TEXT)
    if copy.tokenizer().encode(_TEXT) != ids:
        raise _amiss("a text becomes other tokens")
    return ids[: min(_ROWS, model.config.context)]


def logits(model: Model, ids: Sequence[int]) -> Floats:
    """[ids, vocab] in f32; a layer is in memory at a time, and nothing is left on the shelf of this cache."""
    ends, x = model.ends, np.array(ids)
    for stages in ([ends[0]], *(layer_stages(range(n, n + 1)) for n in range(model.config.layers))):
        track = Tracks(_session(model, stages, len(ids)))
        x = track.run({"ids" if stages[0] == ends[0] else "x": x}, 0).copy()
        _clear()
    head = Tracks(_session(model, [ends[1]], 1))
    rows = [head.together([Row(0, {"x": row[None]}, 0)])[0].copy() for row in x]
    _clear()
    return np.concatenate(rows)


def _session(model: Model, stages: Sequence[Any], context: int) -> StageSession:
    files = list(model.files(stages, "f32"))
    return StageSession(model.config, files, context=context, threads=1, spin=False)


def _clear() -> None:
    shutil.rmtree(shelf())


def _amiss(what: str) -> CheckpointProblem:
    return CheckpointProblem(what, fix=_AT_ODDS)


def main(order: str) -> None:
    """Compares as ordered (JSON); prints what came of it, or what is amiss and ends with 1."""
    asked = json.loads(order)
    places = Path(asked.pop("source")), Path(asked.pop("written"))
    try:
        print(json.dumps(asdict(compare(*places, Wanted(**asked)))))
    except CheckpointProblem as problem:
        print(problem.what)
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
