"""What fewer bits cost: every dtype reads the same text as f32 does, and their predictions are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trisplit.bench.progress import shown
from trisplit.bench.weights import weight_bytes
from trisplit.errors import RequestProblem
from trisplit.models.convert import Dtype
from trisplit.models.decoder import chunks
from trisplit.models.model import Model, context_for, open_model
from trisplit.models.predictions import Doubles, scores
from trisplit.models.session import Floats, StageSession, Tracks
from trisplit.models.tokenizer import Tokenizer

# Rows whose logits are held at once: a large vocabulary takes a megabyte a row.
HEAD_ROWS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DtypeRow:
    """One dtype on `tokens` predictions.

    `kl`: mean Kullback-Leibler divergence of its predictions from those of f32, KL(f32 ‖ dtype), in nats a
    token. `top1`: share of tokens for which both find the same one likeliest. `ppl`, `ppl_f32`: perplexity of
    the text itself. `weight_bytes`: of all weights, a tied head counted once.
    """

    dtype: str
    tokens: int
    kl: float
    top1: float
    ppl: float
    ppl_f32: float
    weight_bytes: int


def dtypes(
    path: Path,
    texts: Sequence[str],
    *,
    windows: int,
    window_tokens: int,
    dtypes: Sequence[Dtype],
    threads: int,
) -> list[DtypeRow]:
    """Compares every dtype with f32 on the same windows of `texts`; RequestProblem if those are too short.

    One body of layers is in memory at a time: of f32 the last residuals are kept, a row of the hidden size
    for each token, and its head makes their logits again beside each twin's.
    """
    model = open_model(path)
    context_for(model.config, window_tokens)
    passages = windows_of(model.tokenizer(), texts, windows, window_tokens)
    truth = _residuals(model, "f32", passages, threads)
    exact_head = _head(model, "f32", threads)
    rows = []
    for dtype in dtypes:
        residuals = _residuals(model, dtype, passages, threads)
        head = _head(model, dtype, threads)
        measured = [
            scores(_logits(exact_head, x), _logits(head, y), next_ids)
            for x, y, next_ids in shown(_pieces(truth, residuals, passages), f"{dtype} beside f32")
        ]
        rows.append(_row(model, dtype, np.concatenate(measured)))
    return rows


def windows_of(tokenizer: Tokenizer, texts: Sequence[str], windows: int, n_tokens: int) -> list[list[int]]:
    """The ids of the beginnings of texts, chosen evenly from those that are long enough: n_tokens + 1 each.

    The last id of each is only predicted. BOS stands first where the model wants it.
    """
    begun = (tokenizer.encode(text)[: n_tokens + 1] for text in texts)
    long_enough = [ids for ids in begun if len(ids) > n_tokens]
    if len(long_enough) < windows:
        raise RequestProblem(
            f"{windows} texts of more than {n_tokens} tokens are wanted, and there are {len(long_enough)}",
            fix="ask for fewer or shorter windows",
        )
    return [long_enough[i * len(long_enough) // windows] for i in range(windows)]


def _residuals(model: Model, dtype: Dtype, passages: Sequence[Sequence[int]], threads: int) -> list[Floats]:
    """What the last layer leaves for each token that is followed by another: [tokens, hidden] a passage."""
    files = list(model.files(model.stages[:-1], dtype))
    context = max(map(len, passages)) - 1
    track = Tracks(StageSession(model.config, files, context=context, threads=threads))
    return [
        np.concatenate(
            [track.run({"ids": np.array(ids)}, position).copy() for ids, position in chunks(passage[:-1], 0)]
        )
        for passage in shown(passages, f"{dtype} reads")
    ]


def _head(model: Model, dtype: Dtype, threads: int) -> Tracks:
    files = list(model.files(model.stages[-1:], dtype))
    return Tracks(StageSession(model.config, files, context=1, threads=threads))


def _logits(head: Tracks, residuals: Floats) -> Floats:
    """[rows, vocab]; a head looks at the last row it is given, so it is given one at a time."""
    return np.concatenate([head.run({"x": row[None]}, 0).copy() for row in residuals])


def _pieces(
    truth: Sequence[Floats], residuals: Sequence[Floats], passages: Sequence[Sequence[int]]
) -> list[tuple[Floats, Floats, NDArray[np.int64]]]:
    """Residuals of f32, those of the twin, and the ids that followed, a few rows at a time."""
    return [
        (x[i : i + HEAD_ROWS], y[i : i + HEAD_ROWS], np.array(ids[1:][i : i + HEAD_ROWS], dtype=np.int64))
        for x, y, ids in zip(truth, residuals, passages)
        for i in range(0, len(x), HEAD_ROWS)
    ]


def _row(model: Model, dtype: Dtype, measured: Doubles) -> DtypeRow:
    kl, top1, surprise, surprise_f32 = measured.mean(axis=0).tolist()
    return DtypeRow(
        dtype=dtype,
        tokens=len(measured),
        kl=kl,
        top1=top1,
        ppl=math.exp(surprise),
        ppl_f32=math.exp(surprise_f32),
        weight_bytes=weight_bytes(model, dtype),
    )
