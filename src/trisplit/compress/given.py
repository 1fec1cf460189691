"""What the matrices of each layer are given while a text is read: second moments and means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from trisplit.compress.calibrate import Moments, Stream
from trisplit.compress.spectra import Doubles
from trisplit.models.config import layer_stages
from trisplit.models.model import Model
from trisplit.models.stages import given


@dataclass(frozen=True, slots=True)
class Given:
    """E[xxᵀ] [n, n] and E[x] [n] of what a matrix of n columns multiplies."""

    gram: Doubles
    mean: Doubles


# What the matrices of a layer were given, by our names for them (qkv, out, gate_up, down); layer after layer.
Calibration = Callable[[int], Mapping[str, Given]]


@contextmanager
def calibrated(model: Model, passages: Sequence[Sequence[int]], *, threads: int) -> Iterator[Calibration]:
    """A calibration on these passages, to be asked for every layer in order; one is in memory at a time."""
    with Stream(model, passages, threads=threads) as stream:

        def of(layer: int) -> Mapping[str, Given]:
            stages = layer_stages(range(layer, layer + 1))
            widths = given(model.config, stages)
            moments = {name: Moments(width) for name, width in widths.items()}
            sums = {name: np.zeros(width) for name, width in widths.items()}
            for shown in stream.through(layer, list(model.files(stages, "f32"))):
                for name, rows in shown.items():
                    moments[name].add(rows)
                    sums[name] += rows.sum(axis=0, dtype=np.float64)
            return {
                name.partition(".")[2]: Given(seen.mean(), sums[name] / max(seen.rows, 1))
                for name, seen in moments.items()
            }

        yield of
