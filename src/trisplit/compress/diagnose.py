"""SPINE: where a smaller copy of a model loses what it loses, layer by layer, and how that grows in depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from trisplit.compress.apart import Depth, Own, Sums
from trisplit.compress.blame import Shares, shares
from trisplit.compress.evaluate import Evaluation, TextScore, exp_of
from trisplit.compress.gates import DEFAULT, Gate, Metric, Verdict, judge, lost
from trisplit.compress.lanes import Lanes, Span, embedded
from trisplit.compress.passages import Passage
from trisplit.compress.reading import HEAD_ROWS, Head, Report, silent, told
from trisplit.compress.spectra import Doubles
from trisplit.errors import RequestProblem
from trisplit.models.config import Stage, layer_stages
from trisplit.models.convert import Dtype
from trisplit.models.model import Model
from trisplit.models.predictions import scores

_MOST: Final = 0.5  # of what is lost: so much the layers carry that are named
_DENSE, _TWIN, _OTHERS = 0, 1, 2  # lanes: of each model as it is, then two for each layer


@dataclass(frozen=True, slots=True)
class Loss:
    """What predictions lost beside the dense model's: `kl` in nats, `ppl_ratio`, agreement `top1`."""

    kl: float
    ppl_ratio: float
    top1: float

    def lost(self, metric: Metric) -> float:
        """As an amount that adds up; of predictions, which have no accuracy."""
        return lost(metric, {"kl": self.kl, "ppl": self.ppl_ratio, "top1": self.top1}[metric])


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDamage:
    """One layer. `alone`: nothing else is edited; `spared`: all else is. `share` of the whole KL."""

    layer: int
    own: Own
    alone: Loss
    spared: Loss
    share: float
    depth: Depth


@dataclass(frozen=True, slots=True)
class Blame:
    """A gate that failed, and the fewest layers that carry half of what it measures or more.

    `share` is theirs together; `rescuers`: layers any of which, left dense alone, would make this gate pass.
    """

    gate: Gate
    layers: tuple[int, ...]
    share: float
    rescuers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All of it. `carriers` carry `carried` of the KL; with these left dense `whole` would be `mended`.

    `explained`: the blame of all layers before it was scaled to 1, over the KL.
    """

    texts: tuple[TextScore, ...]
    verdict: Verdict
    whole: Loss
    layers: tuple[LayerDamage, ...]
    carriers: tuple[int, ...]
    carried: float
    explained: float
    mended: Loss
    blames: tuple[Blame, ...]

    def ranked(self) -> list[LayerDamage]:
        """The layers, the most to blame first."""
        return sorted(self.layers, key=lambda damage: -damage.share)


def diagnose(
    dense: Model,
    twin: Model,
    texts: Mapping[str, Sequence[Passage]],
    *,
    gates: Mapping[Metric, float] = DEFAULT,
    dtype: Dtype = "f32",
    threads: int = 1,
    report: Report = silent,
) -> Diagnosis:
    """Holds a twin, at `dtype`, beside the dense model on these texts, as a whole and each layer alone.

    A layer of each model is in memory at a time; 2 + 2 · layers residuals of every token lie in a file.
    RequestProblem for models that are not alike, and for texts that give nothing to read.
    """
    _refuse_odd(dense, twin, texts)
    passages = [passage for of_text in texts.values() for passage in of_text]
    both = _Both(dense, twin, dtype, passages, threads)
    with Lanes(dense.config.hidden, passages, _OTHERS + 2 * dense.config.layers) as lanes:
        both.begin(lanes)
        found = [_layer(both, lanes, layer, report) for layer in range(dense.config.layers)]
        marks = _Marks.on(texts, _marked(both, lanes, range(_OTHERS + 2 * dense.config.layers), report))
        blamed = marks.shares("kl")
        carriers = blamed.carrying(_MOST)
        mended = _mend(both, lanes, carriers, report)
    verdict = judge(Evaluation(texts=marks.texts(_TWIN)), gates)
    return Diagnosis(
        texts=marks.texts(_TWIN),
        verdict=verdict,
        whole=marks.loss(_TWIN),
        layers=tuple(
            LayerDamage(
                layer=layer,
                own=own,
                alone=marks.loss(_alone(layer)),
                spared=marks.loss(_spared(layer)),
                share=float(blamed.of[layer]),
                depth=depth,
            )
            for layer, (own, depth) in enumerate(found)
        ),
        carriers=carriers,
        carried=blamed.held_by(carriers),
        explained=blamed.explained,
        mended=mended,
        blames=tuple(marks.blame(gate) for gate in verdict.gates if not gate.passed),
    )


def _refuse_odd(dense: Model, twin: Model, texts: Mapping[str, Sequence[Passage]]) -> None:
    if not texts or any(len(passage) < 2 for of_text in texts.values() for passage in of_text or [[]]):
        raise RequestProblem("there is nothing to read", fix="give a text to judge on")
    for what in ("layers", "hidden", "vocab"):
        mine, other = getattr(dense.config, what), getattr(twin.config, what)
        if mine != other:
            said = f"the models are not alike: {what} {mine:,} and {other:,}"
            raise RequestProblem(said, fix="name a twin that was made from this model")


def _alone(layer: int) -> int:
    return _OTHERS + 2 * layer


def _spared(layer: int) -> int:
    return _OTHERS + 2 * layer + 1


# --- through the layers ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Both:
    """The two models, and what they read."""

    dense: Model
    twin: Model
    dtype: Dtype
    passages: Sequence[Passage]
    threads: int

    def span(self, stages: Sequence[Stage], *, edited: bool) -> Span:
        model, dtype = self._which(edited)
        longest = max(map(len, self.passages)) - 1
        return Span(model, stages, dtype, longest=longest, threads=self.threads)

    def begin(self, lanes: Lanes) -> None:
        """Both models' embeddings in their lanes."""
        for lane in (_DENSE, _TWIN):
            self.embed(lanes, lane, edited=lane == _TWIN)

    def embed(self, lanes: Lanes, lane: int, *, edited: bool) -> None:
        model, dtype = self._which(edited)
        for n, x in enumerate(embedded(model, self.passages, dtype, threads=self.threads)):
            lanes.write(lane, n, x)

    def head(self, *, edited: bool) -> Head:
        model, dtype = self._which(edited)
        return Head(model, dtype, threads=self.threads)

    def _which(self, edited: bool) -> tuple[Model, Dtype]:
        return (self.twin, self.dtype) if edited else (self.dense, "f32")


def _layer(both: _Both, lanes: Lanes, layer: int, report: Report) -> tuple[Own, Depth]:
    """Takes every lane through a layer, or begins the two that part here."""
    stages = layer_stages(range(layer, layer + 1))
    dense, twin = both.span(stages, edited=False), both.span(stages, edited=True)
    attention = both.span(stages[:1], edited=False)
    sums = Sums()
    for n in range(len(lanes)):
        x, other = lanes.read(_DENSE, n), lanes.read(_TWIN, n)
        left, left_twin, alone = dense.run(x), twin.run(other), twin.run(x)
        sums.add(left, left_twin, alone, left - attention.run(x))
        for lane, rows in (
            (_DENSE, left),
            (_TWIN, left_twin),
            (_alone(layer), alone),
            (_spared(layer), dense.run(other)),
        ):
            lanes.write(lane, n, rows)
        for before in range(layer):
            lanes.write(_alone(before), n, dense.run(lanes.read(_alone(before), n)))
            lanes.write(_spared(before), n, twin.run(lanes.read(_spared(before), n)))
        _tell(both, layer, n, report)
    return sums.own(), sums.depth()


def _tell(both: _Both, layer: int, passage: int, report: Report) -> None:
    """Later layers take more lanes through, and count for more."""
    layers, passages = both.dense.config.layers, len(both.passages)
    done = passages * layer * (layer + 1) // 2 + (passage + 1) * (layer + 1)
    report("passing layers", done, passages * layers * (layers + 1) // 2)


# --- what that costs ------------------------------------------------------------------------------


def _marked(both: _Both, lanes: Lanes, wanted: Sequence[int], report: Report) -> Doubles:
    """[wanted lanes, tokens, 4] as of `scores`, each beside the dense lane."""
    exact, twin = both.head(edited=False), both.head(edited=True)
    marks, tokens = list[Doubles](), sum(len(passage) - 1 for passage in both.passages)
    for n, passage in enumerate(both.passages):
        for at in range(0, len(passage) - 1, HEAD_ROWS):
            rows = slice(at, at + HEAD_ROWS)
            (right,) = exact.logits(lanes.read(_DENSE, n, rows))
            next_ids = np.array(passage[at + 1 : at + 1 + len(right)])
            of_lanes = list[Doubles]()
            for lane in wanted:
                # A layer edited alone is followed by the dense model's head; what ends edited has its own.
                head = twin if lane % 2 == _TWIN else exact
                (other,) = head.logits(lanes.read(lane, n, rows))
                of_lanes.append(scores(right, other, next_ids))
            marks.append(np.stack(of_lanes))
            report("predicting", sum(part.shape[1] for part in marks), tokens)
    return np.concatenate(marks, axis=1)


def _mend(both: _Both, lanes: Lanes, carriers: Sequence[int], report: Report) -> Loss:
    """What is lost when these layers are left dense together."""
    lane = _TWIN  # it has been marked, and is free
    both.embed(lanes, lane, edited=True)
    layers = both.dense.config.layers
    for layer in told(range(layers), "mending", layers, report):
        span = both.span(layer_stages(range(layer, layer + 1)), edited=layer not in carriers)
        for n in range(len(lanes)):
            lanes.write(lane, n, span.run(lanes.read(lane, n)))
    return _loss(_marked(both, lanes, [lane], silent)[0])


@dataclass(frozen=True, slots=True)
class _Marks:
    """Marks of every lane [lanes, tokens, 4], and which tokens are whose."""

    names: Mapping[str, slice]
    of: Doubles

    @classmethod
    def on(cls, texts: Mapping[str, Sequence[Passage]], of: Doubles) -> _Marks:
        lengths = [sum(len(passage) - 1 for passage in of_text) for of_text in texts.values()]
        first = [0, *accumulate(lengths)]
        return cls({name: slice(*pair) for name, pair in zip(texts, pairwise(first))}, of)

    def loss(self, lane: int, tokens: slice = slice(None)) -> Loss:
        return _loss(self.of[lane, tokens])

    def texts(self, lane: int) -> tuple[TextScore, ...]:
        """The twin's scores, or those of a mixture, as an exam has them."""
        scored = []
        for name, tokens in self.names.items():
            marks, loss = self.of[lane, tokens], self.loss(lane, tokens)
            dense = float(marks[:, 3].mean())
            scored.append(
                TextScore(
                    text=name,
                    tokens=len(marks),
                    ppl=exp_of(float(marks[:, 2].mean())),
                    ppl_dense=exp_of(dense),
                    **asdict(loss),
                )
            )
        return tuple(scored)

    def shares(self, metric: Metric, tokens: slice = slice(None)) -> Shares:
        """Each layer's share of what is lost on these tokens."""
        layers = range((len(self.of) - _OTHERS) // 2)
        return shares(
            [self.loss(_alone(layer), tokens).lost(metric) for layer in layers],
            [self.loss(_spared(layer), tokens).lost(metric) for layer in layers],
            self.loss(_TWIN, tokens).lost(metric),
        )

    def blame(self, gate: Gate) -> Blame:
        """Whose a gate's failing is."""
        tokens = self.names[gate.on]
        found = self.shares(gate.metric, tokens)
        carriers = found.carrying(_MOST)
        rescuers = []
        for layer in range(len(found.of)):
            verdict = judge(Evaluation(texts=self.texts(_spared(layer))), {gate.metric: gate.limit})
            if any(again.passed for again in verdict.gates if again.on == gate.on):
                rescuers.append(layer)
        return Blame(gate, carriers, found.held_by(carriers), tuple(rescuers))


def _loss(marks: Doubles) -> Loss:
    kl, top1, surprise, surprise_dense = marks.mean(axis=0).tolist()
    return Loss(kl, exp_of(surprise - surprise_dense), top1)
