"""What narrower FFNs cost a model, ours and those of others, on text that none was calibrated on."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from trisplit.bench.measure import forget_peak, peak_bytes
from trisplit.compress.anatomy import Anatomy
from trisplit.compress.calibrate import drafted
from trisplit.compress.contenders import ABLATIONS, Means, Ours, contender
from trisplit.compress.evaluate import Exam, Seen, TextScore, compare, see
from trisplit.compress.passages import Passage
from trisplit.compress.reading import Report, silent
from trisplit.compress.study import Study, probed, study, weights
from trisplit.compress.trial import Trial, trial
from trisplit.models.decoder import Decoder
from trisplit.models.model import Model
from trisplit.paths import cache_dir, scratch

_FORMAT: Final = 1
_TURNS: Final = 5  # of the dense model and the other, one after the other
_TURN_TOKENS: Final = 24
_WARM_TOKENS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressRow:
    """One way of keeping a share of all FFN neurons, in f32; `ppl` to `top1` by the name of the text.

    `ppl_ratio`, `kl` (nats a token), `top1` (share of tokens): beside the dense model. `params`: numbers in
    the model; `bytes`: of its weights. `tok_per_s`: of one sequence, decoded in turns with the dense model,
    and `speedup_end_to_end`, over the dense model in those turns; None when nothing was timed.
    `amdahl_bound`: the most there could be if time were bytes read. `seconds`, `peak_mb`: for choosing and
    refitting, what reading the calibration text took not among them.
    """

    method: str
    keep: float
    ppl: Mapping[str, float]
    ppl_ratio: Mapping[str, float]
    kl: Mapping[str, float]
    top1: Mapping[str, float]
    params: int
    bytes: int
    tok_per_s: float | None
    speedup_end_to_end: float | None
    amdahl_bound: float
    seconds: float
    peak_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow:
    """`ours` with one thing done another way."""

    what: str
    keep: float
    ppl_ratio: Mapping[str, float]
    kl: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRow:
    """What was read: `seconds` when it was; `mb`: all that is kept of it; `peak_mb`: of this run."""

    tokens: int
    passages: int
    seconds: float
    mb: float
    peak_mb: float | None


class CompressBench:
    """One model, one calibration text, one exam. What is asked for is made once."""

    def __init__(
        self,
        anatomy: Anatomy,
        calibration: Sequence[Passage],
        exam: Exam,
        *,
        threads: int,
        report: Report = silent,
    ) -> None:
        self._model: Model = anatomy.decoder()
        self._anatomy, self._calibration = anatomy, calibration
        self._exam, self._threads, self._report = exam, threads, report

    def calibration(self) -> CalibrationRow:
        """Reads the text, unless it was read before."""
        forget_peak()
        moments, layers = self._study.moments, range(self._model.config.layers)
        return CalibrationRow(
            tokens=sum(map(len, self._calibration)),
            passages=len(self._calibration),
            seconds=sum(moments.of(layer).took_s for layer in layers),
            mb=sum(file.stat().st_size for file in moments.folder.iterdir()) / 1e6,
            peak_mb=peak_bytes() / 1e6 or None,
        )

    def row(self, method: str, keep: float, *, timed: bool) -> CompressRow:
        """A row; UnknownName for a method, RequestProblem for a share that it cannot keep."""
        if method == "dense":
            return self._row("dense", 1.0, self._model, self._dense_scores(), (0.0, None), timed=timed)
        with scratch() as folder:
            tried, took = self._tried(contender(method), keep, folder)
            scores = self._scores(tried, folder)
            return self._row(method, keep, tried, scores, took, timed=timed)

    def ablation(self, what: str, keep: float) -> AblationRow:
        """`ours` but for one thing; UnknownName as of ABLATIONS."""
        with scratch() as folder:
            tried, _ = self._tried(ABLATIONS[what], keep, folder)
            scores = self._scores(tried, folder)
        return AblationRow(what=what, keep=keep, ppl_ratio=_by(scores, "ppl_ratio"), kl=_by(scores, "kl"))

    # --- making ---

    def _tried(self, way: Ours, keep: float, folder: Path) -> tuple[Trial, tuple[float, float | None]]:
        """The trial, the seconds it took and the most bytes there were."""
        means = Means(self._study, self._prices, self._calibration, self._threads, self._report)
        forget_peak()
        began_s = time.perf_counter()
        tried = trial(self._model, way(means, keep), folder)
        return tried, (time.perf_counter() - began_s, peak_bytes() or None)

    @cached_property
    def _study(self) -> Study:
        return study(self._anatomy, self._calibration, threads=self._threads, report=self._report)

    @cached_property
    def _prices(self) -> list[float]:
        return weights(self._study, probed(self._calibration), threads=self._threads, report=self._report)

    # --- judging ---

    @cached_property
    def _dense(self) -> Seen:
        return see(self._model, "f32", self._exam, threads=self._threads, report=self._report)

    def _dense_scores(self) -> Sequence[TextScore]:
        return self._judged("dense", lambda: self._dense)

    def _scores(self, tried: Trial, folder: Path) -> Sequence[TextScore]:
        digest = hashlib.sha256()
        for stage in sorted(tried.cut, key=str):
            digest.update((folder / tried.cut[stage].files[0]).read_bytes())
        return self._judged(
            digest.hexdigest(),
            lambda: see(tried, "f32", self._exam, threads=self._threads, report=self._report),
        )

    def _judged(self, weights: str, read: Callable[[], Seen]) -> Sequence[TextScore]:
        """What an exam found of these very weights, kept: to time the same models again takes no exam."""
        whose = hashlib.sha256(f"{_FORMAT} {self._model.content_digest()} {weights}".encode())
        for name, passages in self._exam.texts.items():
            whose.update(name.encode())
            whose.update(np.array([*chain.from_iterable(passages)], "<i8").tobytes())
        folder = cache_dir() / "judged"
        folder.mkdir(exist_ok=True)
        path = folder / f"{whose.hexdigest()[:32]}.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=list[TextScore])
        except (OSError, msgspec.MsgspecError):
            scores = compare(self._exam, read(), self._dense, report=self._report).texts
        with drafted(path) as stream:
            stream.write(msgspec.json.encode(scores))
        return scores

    def _row(
        self,
        method: str,
        keep: float,
        model: Model,
        scores: Sequence[TextScore],
        took: tuple[float, float | None],
        *,
        timed: bool,
    ) -> CompressRow:
        tok_per_s, dense_tok_per_s = _speeds(model, self._model, self._threads) if timed else (None, None)
        n_bytes = _read_bytes(model)
        return CompressRow(
            method=method,
            keep=keep,
            ppl=_by(scores, "ppl"),
            ppl_ratio=_by(scores, "ppl_ratio"),
            kl=_by(scores, "kl"),
            top1=_by(scores, "top1"),
            params=n_bytes // 4,
            bytes=n_bytes,
            tok_per_s=tok_per_s,
            speedup_end_to_end=tok_per_s / dense_tok_per_s if tok_per_s and dense_tok_per_s else None,
            amdahl_bound=_read_bytes(self._model) / n_bytes,
            seconds=took[0],
            peak_mb=(took[1] or 0) / 1e6,
        )


def _by(scores: Sequence[TextScore], name: str) -> dict[str, float]:
    return {score.text: getattr(score, name) for score in scores}


def _read_bytes(model: Model) -> int:
    """Of all weights that a token is multiplied with; an embedding that is the head counts once."""
    stages = model.stages[1:] if model.config.tied_head else model.stages
    return sum(model.weight_bytes(stage, "f32") for stage in stages)


def _speeds(model: Model, dense: Model, threads: int) -> tuple[float, float]:
    """Tokens a second of both, as medians over turns that they take one after the other."""
    context = _WARM_TOKENS + _TURNS * _TURN_TOKENS
    decoders = [
        Decoder(each.config, list(each.files(each.stages, "f32")), context=context, threads=threads)
        for each in (model, dense)
    ]
    took_s: list[list[float]] = [[], []]
    for decoder in decoders:
        for position in range(_WARM_TOKENS):
            decoder.forward([0], position)
    for turn in range(_TURNS):
        for decoder, own_s in zip(decoders, took_s):
            for position in range(
                _WARM_TOKENS + turn * _TURN_TOKENS, _WARM_TOKENS + (turn + 1) * _TURN_TOKENS
            ):
                began_s = time.perf_counter()
                decoder.forward([0], position)
                own_s.append(time.perf_counter() - began_s)
    own, others = (1 / float(np.median(own_s)) for own_s in took_s)
    return own, others


def rows(
    bench: CompressBench, methods: Sequence[str], keeps: Sequence[float], *, timed: bool
) -> Iterator[CompressRow]:
    """The dense model once if it is among the methods, and each of the others at every share."""
    for method in methods:
        for keep in keeps if method != "dense" else (1.0,):
            yield bench.row(method, keep, timed=timed)
