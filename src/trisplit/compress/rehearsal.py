"""A model with narrower FFNs put to an exam without being written: its neurons go while residuals pass."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import numpy as np

from trisplit.compress.evaluate import Evaluation, Exam, Seen, compare, see
from trisplit.compress.lanes import Lanes, embedded
from trisplit.compress.methods.ffn import Refit, refit
from trisplit.compress.reading import Report, silent, told
from trisplit.compress.study import Study, down_of
from trisplit.errors import RequestProblem
from trisplit.models.config import layer_stages
from trisplit.models.families import FAMILIES
from trisplit.models.model import Model
from trisplit.models.session import Floats
from trisplit.models.watching import Watched
from trisplit.paths import scratch

_NEAR: Final = 0.1  # of a layer's neurons: so near widths can share their λ


class Rehearsal:
    """An exam that the dense model has sat, for narrow ones to be held beside it.

    A layer is in memory at a time, and the last residuals of the dense model. Refits lie in files, for
    budgets that are near each other agree on most widths. Used in a `with`, at whose end the files are gone.
    """

    def __init__(
        self, model: Model, found: Study, exam: Exam, *, threads: int, report: Report = silent
    ) -> None:
        """Problems as of `see`; RequestProblem for questions, and families with a norm after the FFN."""
        if FAMILIES[model.config.family].sandwich:
            what = f"a {model.config.family} has a norm after its FFN, which a rehearsal does not know"
            raise RequestProblem(what, fix="prune all layers alike, by --recipe and --keep")
        self._model, self._found, self._threads = model, found, threads
        self._texts = exam.texts
        self._dense = see(model, "f32", Exam(texts=exam.texts), threads=threads, report=report)
        self._ridges: dict[int, dict[int, float]] = {}
        self._held = ExitStack()
        self._refits = self._held.enter_context(scratch())

    def __enter__(self) -> Rehearsal:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def measure(
        self, widths: Sequence[int], quick_passages: int = 0, *, report: Report = silent
    ) -> Evaluation:
        """What a copy of these widths makes of the exam, or of the first so many passages of each text.

        Of the latter λ is not chosen anew for a width that is near one which had it chosen.
        """
        texts = {name: of_text[: quick_passages or None] for name, of_text in self._texts.items()}
        flat = [passage for of_text in texts.values() for passage in of_text]
        with Lanes(self._model.config.hidden, flat, 1) as lanes:
            for n, x in enumerate(embedded(self._model, flat, "f32", threads=self._threads)):
                lanes.write(0, n, x)
            layers = self._model.config.layers
            for layer in told(range(layers), "rehearsing", layers, report):
                changes = self._changes(layer, widths[layer], quick=quick_passages > 0)
                self._pass(lanes, layer, changes, longest=max(map(len, flat)))
            left = iter([lanes.read(0, n) for n in range(len(flat))])
        residuals = {name: [next(left) for _ in of_text] for name, of_text in texts.items()}
        return compare(Exam(texts=texts), Seen(residuals, {}, self._dense.head), self._dense)

    def _pass(self, lanes: Lanes, layer: int, changes: Floats | None, *, longest: int) -> None:
        """Takes all passages through a layer, with that much more given by its down."""
        files = list(self._model.files(layer_stages(range(layer, layer + 1)), "f32"))
        watched = Watched(self._model.config, files, longest=longest, threads=self._threads)
        for n in range(len(lanes)):
            left, shown = watched.run({"x": lanes.read(0, n)})
            if changes is not None:
                given = next(values for name, values in shown.items() if name.endswith(".down"))
                left = left + given @ changes
            lanes.write(0, n, left)

    def _changes(self, layer: int, width: int, *, quick: bool) -> Floats | None:
        """What the narrow down gives less what the whole one does, [neurons, hidden]; None if it is whole."""
        if width == self._model.config.ffn[layer]:
            return None
        file = self._refits / f"{layer}-{width}-{quick}.npy"
        if not file.exists():
            changes = self._refit(layer, width, quick).change_of(down_of(self._found.anatomy, layer))
            np.save(file, np.ascontiguousarray(changes.T, np.float32))
        changed: Floats = np.load(file)
        return changed

    def _refit(self, layer: int, width: int, quick: bool) -> Refit:
        near = _NEAR * self._model.config.ffn[layer]
        known = self._ridges.setdefault(layer, {})
        at = min(known, key=lambda other: abs(other - width), default=None)
        if not quick or at is None or abs(at - width) > near:
            best = self._found.refit(layer, width)
            known[width] = best.ridge
            return best
        fit = self._found.fit(layer)
        return refit(fit, self._found.paths[layer].kept(width), ridge=known[at] / fit.ridge(1.0))
