"""Down matrices fitted on what the narrower layers before them leave, so that a layer makes good what it can.

Two streams of the same passages side by side, the dense model and the narrower one as it grows, layer by
layer. On the narrower stream a layer is asked for what the dense one gave and for what the residual is
behind by then. Few tokens pass so, and alone they would be learnt by heart: the dense stream, on which all
calibration text was read and where nothing is behind, counts `weight` times as much.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from trisplit.compress.altered import arrays_of
from trisplit.compress.calibrate import drafted
from trisplit.compress.methods.ffn import Fit, Neurons, Refit, refit, same_stream
from trisplit.compress.moments import UNREADABLE, held_out
from trisplit.compress.reading import Report, silent, told
from trisplit.compress.rows import Rows, abreast
from trisplit.compress.spectra import Doubles
from trisplit.compress.study import Study, down_of
from trisplit.models.config import layer_stages
from trisplit.models.model import Model
from trisplit.models.session import Floats, StageSession, Tracks
from trisplit.models.watching import Watched

WEIGHTS: Final = (0.3, 1.0, 3.0, 10.0, 100.0)
"""Of the dense stream beside the narrower one; which, is chosen by what is missed on passages held out."""

_VERSION: Final = 1
_RIDGE: Final = 1e-5
_TOKENS: Final = 65_536
# Positions at the start of a passage that are left out: some layers make them a thousandfold.
_LOUD: Final = 1


def few(passages: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Some of them, from all over, with so many tokens as both streams are fitted on."""
    step = -(-sum(map(len, passages)) // _TOKENS)
    return list(passages[::step])


@dataclass(slots=True)
class _Sums:
    """Sums over rows of the narrower stream: of hhᵀ, of (wanted)hᵀ, and of ‖wanted‖²."""

    gram: Doubles
    target: Doubles
    energy: float = 0.0
    rows: int = 0

    @classmethod
    def nothing(cls, hidden: int, neurons: int) -> _Sums:
        return cls(np.zeros((neurons, neurons)), np.zeros((hidden, neurons)))

    def add(self, h: Floats, wanted: Floats) -> None:
        self.gram += h.T @ h
        self.target += wanted.T @ h
        self.energy += float((wanted.astype(np.float64) ** 2).sum())
        self.rows += len(h)

    def fit(self) -> Fit:
        rows = max(self.rows, 1)
        return Fit(self.gram / rows, self.target / rows, self.energy / rows)


def carried(
    found: Study,
    widths: Sequence[int],
    passages: Sequence[Sequence[int]],
    *,
    threads: int,
    report: Report = silent,
) -> Iterator[Refit]:
    """The downs of all layers at these widths, in order; those that were kept, or all made now.

    In memory are a layer, its sums and a few passages. Problems as of loading the model. Not for families
    with a norm after the FFN.
    """
    kept = [path.kept(width) for path, width in zip(found.paths, widths)]
    file = found.moments.folder / f"carried-{_whose(kept, passages)}.npz"
    downs = _read(file, len(kept))
    if downs is None:
        downs = list(_made(found, kept, passages, threads, report))
        with drafted(file) as stream:
            np.savez(stream, **{str(layer): down for layer, down in enumerate(downs)})  # type: ignore[arg-type]
    for own, down in zip(kept, downs):
        yield Refit(own, down.astype(np.float64), _RIDGE)


def _whose(kept: Sequence[Neurons], passages: Sequence[Sequence[int]]) -> str:
    digest = hashlib.sha256(f"{_VERSION} {_RIDGE} {_LOUD} {WEIGHTS}".encode())
    for ids in (*kept, *passages):
        digest.update(np.array([len(ids), *ids], "<i8").tobytes())
    return digest.hexdigest()[:16]


def _read(file: Path, layers: int) -> list[Floats] | None:
    """None for what is not there, or not whole."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return [arrays[str(layer)] for layer in range(layers)]
    except UNREADABLE:
        return None


def _made(
    found: Study,
    kept: Sequence[Neurons],
    passages: Sequence[Sequence[int]],
    threads: int,
    report: Report,
) -> Iterator[Floats]:
    """The downs, [hidden, kept] in f32."""
    apart = held_out(len(passages))
    with closing(_Streams(found.anatomy.decoder(), passages, threads)) as streams:
        for layer, own in told(enumerate(kept), "refitting layers", len(kept), report):
            down = down_of(found.anatomy, layer)
            train, held = (_Sums.nothing(len(down), len(own)) for _ in range(2))
            for number, (h, wanted) in enumerate(streams.through(layer, own)):
                (held if number in apart else train).add(h[_LOUD:], wanted[_LOUD:])
            dense = same_stream(down, found.moments.of(layer).train)
            best = _pooled(train.fit(), (held if held.rows else train).fit(), dense.of(own))
            streams.leave(best.down)
            yield best.down.astype(np.float32)


def _pooled(own: Fit, judge: Fit, dense: Fit) -> Refit:
    """The refit on both streams, over the neurons kept, that misses least of what was held out."""
    every = np.arange(own.neurons)
    found = [refit(own.with_more(dense, weight), every, ridge=_RIDGE) for weight in WEIGHTS]
    return min(found, key=lambda one: judge.error(one.down, every))


class _Streams:
    """The residuals of the passages before a layer, of the dense model and of the narrower one, in files."""

    def __init__(self, model: Model, passages: Sequence[Sequence[int]], threads: int) -> None:
        self._model, self._threads = model, threads
        self._lengths = [len(ids) for ids in passages]
        self._dense, self._narrow = (Rows(self._lengths, model.config.hidden) for _ in range(2))
        self._given: Rows | None = None
        files = list(model.files(model.stages[:1], "f32"))
        embed = Tracks(StageSession(model.config, files, context=1, threads=1))
        for number, ids in enumerate(passages):
            x = embed.run({"ids": np.array(ids)}, 0)
            self._dense.write(number, x)
            self._narrow.write(number, x)

    def through(self, layer: int, kept: Neurons) -> Iterator[tuple[Floats, Floats]]:
        """Of every passage what the kept neurons give on the narrower stream, and what is wanted of down.

        Afterwards `leave` says what down became.
        """
        config, stages = self._model.config, layer_stages(range(layer, layer + 1))
        whole, attention, gate_up = (
            Watched(config, list(self._model.files(some, "f32")), longest=max(self._lengths), threads=1)
            for some in (stages, stages[:1], stages[1:2])
        )
        (down,) = self._model.files(stages[2:], "f32")
        bias = arrays_of(down).get("down.bias", np.zeros(config.hidden, np.float32))

        def run(both: tuple[Floats, Floats]) -> tuple[Floats, Floats, Floats]:
            dense, narrow = both
            after, _ = whole.run({"x": dense})
            left, _ = attention.run({"x": narrow})
            h, _ = gate_up.run({"x": narrow} if config.parallel else {"r": left})
            return after, left[:, -config.hidden :] + bias, np.ascontiguousarray(h[:, kept])

        self._given = Rows(self._lengths, len(kept))
        residuals = ((self._dense.read(n), self._narrow.read(n)) for n in range(len(self._lengths)))
        for number, (after, before, h) in enumerate(abreast(run, residuals, self._threads)):
            self._dense.write(number, after)
            self._narrow.write(number, before)
            self._given.write(number, h)
            yield h, after - before

    def leave(self, down: Doubles) -> None:
        """Ends the layer: its new down, [hidden, kept], adds to the narrower stream."""
        assert self._given is not None  # `through` was taken to its end
        matrix = down.T.astype(np.float32)
        for number in range(len(self._lengths)):
            self._narrow.write(number, self._narrow.read(number) + self._given.read(number) @ matrix)
        self._given.close()

    def close(self) -> None:
        """Gives the disk back."""
        self._dense.close()
        self._narrow.close()
