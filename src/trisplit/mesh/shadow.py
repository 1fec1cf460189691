"""Early residuals in the shadow of the true path: what comes out if some attentions start ahead.

Nothing here is ever shown to anybody: passages of text are read token by token as a mesh decodes them,
once exactly and then with any set of layers early, and the two are compared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np

from trisplit.mesh.overlap import Damage, Early, Kv, LayerTimes
from trisplit.models.config import LAYER_KINDS, LayerKind, Stage
from trisplit.models.convert import Dtype
from trisplit.models.decoder import PREFILL_CHUNK
from trisplit.models.model import Model, context_for
from trisplit.models.predictions import scores
from trisplit.models.session import Floats, Row, StageSession, Tracks

PROMPT_TOKENS: Final = PREFILL_CHUNK
_HEAD_ROWS: Final = 16  # whose logits are held at once: a large vocabulary takes a megabyte a row


class Shadow:
    """A model in its thirds that has read passages by the true path.

    The first PROMPT_TOKENS of a passage are a prompt, which passes as one chunk and exactly: nothing starts
    ahead while a prompt is read. Then come `rounds` tokens one by one; the last id is only predicted.
    Residuals of those rounds are kept: before each layer, and between its attention and its FFN.
    """

    def __init__(
        self, model: Model, passages: Sequence[Sequence[int]], *, rounds: int, dtype: Dtype, threads: int
    ) -> None:
        """Each passage has PROMPT_TOKENS + rounds + 1 ids; Problems as of loading a model."""
        context = context_for(model.config, PROMPT_TOKENS + rounds)
        model.refuse_if_short(model.stages, dtype, context * len(passages))

        def session(stage: Stage) -> StageSession:
            files = list(model.files([stage], dtype))
            return StageSession(model.config, files, context=context, threads=threads, spin=False)

        embed, self._head = (Tracks(session(stage)) for stage in model.ends)
        self._layers = [
            _Layer([session(Stage(layer, kind)) for kind in LAYER_KINDS], len(passages))
            for layer in range(model.config.layers)
        ]
        ids = np.array(passages, dtype=np.int64)
        self._next_ids = ids[:, PROMPT_TOKENS + 1 :].reshape(-1)
        x = np.stack([embed.run({"ids": passage}, 0).copy() for passage in ids[:, :-1]])
        prompts, x = x[:, :PROMPT_TOKENS], x[:, PROMPT_TOKENS:]
        self._x, self._r = [x], list[Floats]()
        for layer in self._layers:
            prompts = layer.read(prompts)
            r, x = layer.decode(x)
            self._r.append(r)
            self._x.append(x)

    @property
    def times(self) -> list[LayerTimes]:
        """Medians of what a row takes through the thirds of each layer, seen while the true path was read."""
        return [layer.times() for layer in self._layers]

    def damage(self, layers: Collection[int], early: Early) -> Damage:
        """What it changes if the attentions of these layers start ahead; any layers but the first."""
        first, residual = min(layers), 0.0
        x_before, r_before, x = self._x[first - 1], self._r[first - 1], self._x[first]
        for number, layer in enumerate(self._layers[first:], first):
            if number in layers:
                r = layer.ahead(x_before if early.seed == "x" else r_before, x, early.kv)
            else:
                r = layer.attend(x)
            x_before, r_before, x = x, r, layer.ffn(x, r)
            if number in layers:
                residual = max(residual, float(np.abs(x - self._x[number + 1]).max()))
        return self._judged(x, residual)

    def _judged(self, x: Floats, residual: float) -> Damage:
        measured, logit = [], 0.0
        for true, early, next_ids in self._logits(x):
            logit = max(logit, float(np.abs(early - true).max()))
            measured.append(scores(true, early, next_ids))
        kl, _, surprise, true_surprise = np.concatenate(measured).mean(axis=0).tolist()
        return Damage(residual=residual, logit=logit, kl=kl, ppl_ratio=math.exp(surprise - true_surprise))

    def _logits(self, x: Floats) -> Iterator[tuple[Floats, Floats, np.ndarray]]:
        """True and early logits and the ids that followed, some rows at a time."""
        hidden = x.shape[-1]
        both = [rows.reshape(-1, hidden) for rows in (self._x[-1], x)]
        for i in range(0, len(self._next_ids), _HEAD_ROWS):
            part = slice(i, i + _HEAD_ROWS)
            true, early = (self._head_of(rows[part]) for rows in both)
            yield true, early, self._next_ids[part]

    def _head_of(self, rows: Floats) -> Floats:
        asked = [Row(i, {"x": row[None]}, 0) for i, row in enumerate(rows)]
        return np.concatenate(self._head.together(asked))


class _Layer:
    """The thirds of one layer, with a slot for each passage; rows are [passages, rounds, hidden]."""

    def __init__(self, thirds: Sequence[StageSession], passages: int) -> None:
        attention, gate_up, down = thirds
        self._attention = Tracks(attention, passages)
        self._gate_up, self._down = Tracks(gate_up), Tracks(down)
        self._ms: dict[LayerKind, list[float]] = {kind: [] for kind in LAYER_KINDS}

    def read(self, prompts: Floats) -> Floats:
        """Prompts, each as one chunk."""
        r = [self._r_of(self._attention.run({"x": x}, 0, slot)).copy() for slot, x in enumerate(prompts)]
        return self.ffn(prompts, np.stack(r))

    def decode(self, x: Floats) -> tuple[Floats, Floats]:
        """What attention and the whole layer leave of rows that come one by one; each is timed."""
        r, after = np.empty_like(x), np.empty_like(x)
        for slot, i in np.ndindex(x.shape[:2]):
            one = x[slot, i : i + 1]
            began = time.perf_counter()
            r[slot, i] = self._r_of(self._attention.run({"x": one}, PROMPT_TOKENS + i, slot))
            attended = time.perf_counter()
            h = self._gate_up.run(self._wide(one, r[slot, i : i + 1]), 0)
            widened = time.perf_counter()
            after[slot, i] = self._down.run({"h": h, "r": r[slot, i : i + 1]}, 0)
            stops = (began, attended, widened, time.perf_counter())
            for kind, start, stop in zip(LAYER_KINDS, stops, stops[1:]):
                self._ms[kind].append(1e3 * (stop - start))
        return r, after

    def times(self) -> LayerTimes:
        return LayerTimes(*(float(np.median(self._ms[kind])) for kind in LAYER_KINDS))

    def attend(self, x: Floats) -> Floats:
        """x plus attention, token by token, all passages side by side."""
        r = np.empty_like(x)
        for i in range(x.shape[1]):
            r[:, i] = self._pass(x, i)
        return r

    def ahead(self, seeds: Floats, x: Floats, kv: Kv) -> Floats:
        """x plus what attention said of a seed; what x has beyond the seed is added when it comes."""
        left = np.empty_like(x)
        for i in range(x.shape[1]):
            left[:, i] = self._pass(seeds, i)
            if kv == "canonical":
                self._pass(x, i)
        rows: Floats = left + (x - seeds)
        return rows

    def _pass(self, x: Floats, i: int) -> Floats:
        """The i-th token of every passage through attention: [passages, hidden]."""
        rows = [Row(slot, {"x": x[slot, i : i + 1]}, PROMPT_TOKENS + i) for slot in range(len(x))]
        return self._r_of(np.concatenate(self._attention.together(rows)))

    def ffn(self, x: Floats, r: Floats) -> Floats:
        """The residual after the layer; rows pass together, which gives each the bits it gets alone."""
        return np.stack([self._ffn(*rows) for rows in zip(x, r)])

    def _ffn(self, x: Floats, r: Floats) -> Floats:
        h = self._gate_up.run(self._wide(x, r), 0)
        return self._down.run({"h": h, "r": r}, 0).copy()

    def _r_of(self, left: Floats) -> Floats:
        """x plus attention, of what attention leaves; in parallel blocks x itself lies before it."""
        return left[:, -self._attention.session.config.hidden :]

    def _wide(self, x: Floats, r: Floats) -> dict[str, Floats]:
        return {"x": x} if "x" in self._gate_up.session.takes else {"r": r}
