"""An onnxruntime session of a run of stages, and the sequences that pass through it."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from trisplit.errors import OwnProblem, RequestProblem
from trisplit.models.binding import Bound, Buffers, bind
from trisplit.models.config import ModelConfig
from trisplit.models.pages import Floats, floats, pages_for, rounded_up, seen_often
from trisplit.models.stage_file import StageFile
from trisplit.models.stages import build, leaves, rotary_tables, takes

__all__ = ["Floats", "Row", "StageSession", "Tracks"]

# Rows tried when a session shows that its products give each row the same bits alone and in company.
_ROW_COUNTS: Final = (2, 3, 8, 16)
MOST_ABREAST: Final = 8  # rows of one sequence in one pass (docs/decisions/0011)
_MOST_PLACES: Final = 16  # slots whose keys and values are mapped for that at a time


class StageSession:
    """Neighbouring stages loaded as one session.

    `context` is the longest sequence it takes; rotary tables and key/value buffers are made for `room`
    positions, so many more that those of each sequence are whole pages.
    `spin` keeps the threads of a session awake between its operators: faster where the cores are
    its own, ruinous where several processes share them.
    """

    def __init__(
        self,
        config: ModelConfig,
        files: Sequence[StageFile],
        *,
        context: int,
        threads: int,
        spin: bool = True,
    ) -> None:
        self.config, self.context = config, context
        self.room = rounded_up(context, config.kv_heads * config.head_dim)
        self.stages = tuple(file.stage for file in files)
        self.attentions = tuple(s.layer for s in self.stages if s.kind == "attention")
        self.weight_bytes = sum(
            {(f.folder, t.file, t.offset): t.n_bytes for f in files for t in f.tensors.values()}.values()
        )
        _share_one_arena()
        options = ort.SessionOptions()
        options.add_session_config_entry("session.use_env_allocators", "1")
        # With more threads than heads the engine parts the keys of a long sequence among them, and adds up in
        # another order than it does for rows in company.
        options.intra_op_num_threads = min(threads, config.heads) if self.attentions else threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(files[0].folder)
        )
        model = self._graph(files)
        try:
            self.ort = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime's own classes, and MemoryError
            raise RequestProblem(
                f"the engine cannot load {self.stages[0]} to {self.stages[-1]}: {error}",
                fix="if memory is short use a smaller dtype or more stations; else report this",
            ) from error
        self.takes = takes(config, self.stages)
        self.leaves = leaves(config, files[-1].stage)
        self.inputs = frozenset(given.name for given in self.ort.get_inputs())
        # Bound by address only: they must live as long as any track of this session.
        self.rotary = rotary_tables(config, self.room) if self.attentions else {}

    def _graph(self, files: Sequence[StageFile]) -> bytes:
        return build(self.config, files, self.room)

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values one sequence holds here."""
        return len(self.attentions) * self.config.kv_bytes(self.context)

    def rows_equal(self, sessions: int = 1) -> bool:
        """Whether a row gets the very bits it gets alone when others pass with it.

        Where there is attention, rows of as many sequences; elsewhere of one sequence, too.
        """
        random = np.random.default_rng(0)
        for n in [n for n in _ROW_COUNTS if n <= sessions or not self.attentions]:
            alone, company = Tracks(self, n), Tracks(self, n)
            inputs = {name: _values(random, name, n, width) for name, width in self.takes.items()}
            rows = [Row(i, {name: v[i : i + 1] for name, v in inputs.items()}, 0) for i in range(n)]
            expected = np.concatenate([alone.run(row.inputs, 0, row.slot).copy() for row in rows])
            if not np.array_equal(np.concatenate(company.together(rows)), expected):
                return False
            if not self.attentions and not np.array_equal(company.run(inputs, 0), expected[-self._left(n) :]):
                return False
        return True

    @cached_property
    def abreast_equal(self) -> bool:
        """Whether rows of one sequence get abreast the very bits they get one after the other.

        Shown when such rows first come: it takes as long as a dozen tokens, and not all meshes need it.
        """
        random, n_rows = np.random.default_rng(0), min(MOST_ABREAST, self.context)
        inputs = {name: _values(random, name, n_rows, width) for name, width in self.takes.items()}
        expected = Tracks(self).step(inputs, 0, batch=False)
        company = Tracks(self)
        return company.can_go_abreast(0) and all(
            np.array_equal(company.abreast({name: v[:n] for name, v in inputs.items()}, 0, 0), expected[:n])
            for n in _ROW_COUNTS
            if n <= n_rows
        )

    def _left(self, rows: int) -> int:
        return 1 if self.leaves[0] == "logits" else rows


def _values(random: np.random.Generator, name: str, rows: int, width: int) -> NDArray[Any]:
    if name == "ids":
        return np.arange(rows, dtype=np.int64)
    return random.standard_normal((rows, width), dtype=np.float32)


@cache
def _share_one_arena() -> None:
    """Lets all sessions of this process take their working memory from one arena.

    A station of thirds holds a session a layer and runs one at a time: 30 arenas of SmolLM2's
    gate_up keep 90 MB after a prompt, one keeps 19.
    """
    cpu = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(cpu, None)


class Row(NamedTuple):
    """One row of the sequence in a slot: its inputs, [1, width] or one id, and its position."""

    slot: int
    inputs: Mapping[str, NDArray[Any]]
    position: int


@dataclass(frozen=True, slots=True)
class _Abreast:
    """The keys and values of one slot as if they were those of many, and what was bound to them, by rows."""

    kv: Mapping[str, Floats]
    bound: dict[int, Bound]


class Tracks:
    """Sequences in one session, a slot each: preallocated keys and values, and how many positions are true.

    Rewinding is running at an earlier position: what lay behind it is overwritten before it is read.
    Slots lie side by side, so that neighbours can pass as one batch: GroupQueryAttention gives each entry
    the bits it gets alone (seen for 2 to 16 entries of different lengths).
    """

    def __init__(self, session: StageSession, slots: int = 1) -> None:
        c = session.config
        self.session = session
        self.lengths = [0] * slots
        shape = (slots, c.kv_heads, session.room, c.head_dim)
        self._pages = {f"{part}_{layer}": pages_for(shape) for layer in session.attentions for part in "kv"}
        self._kv = {name: floats(pages, shape) for name, pages in self._pages.items()}
        self._single: dict[tuple[int, int], Bound] = {}
        self._abreast: dict[int, _Abreast | None] = {}
        self._buffers: Buffers | None = None

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values that the sequences fill."""
        return len(self.session.attentions) * self.session.config.kv_bytes(sum(self.lengths))

    def run(self, inputs: Mapping[str, NDArray[Any]], position: int, slot: int = 0) -> Floats:
        """Runs rows [rows, width], or ids [rows], from `position` on; returns what the last stage leaves.

        A single row's result [1, width] is a view that the next single row overwrites. Several rows pass the
        attention operator together, as a chunk of a prompt does.
        """
        rows = len(next(iter(inputs.values())))
        if rows == 1:
            return self.together([Row(slot, inputs, position)])[0]
        if self.session.attentions:
            self._move_to(slot, position, rows)
        bound = self._bind(slot, 1, rows)
        for name, values in inputs.items():
            np.copyto(bound.inputs[name][0], values)
        bound.last[0], bound.total[0] = position + rows - 1, position + rows
        out: Floats = bound.run()[0]
        return out

    def step(
        self, inputs: Mapping[str, NDArray[Any]], position: int, slot: int = 0, *, batch: bool
    ) -> Floats:
        """Rows one after the other, as far as attention can tell; products are batched where `batch` allows.

        What the last stage leaves for each row: [rows, width], or the logits of each, [rows, vocab].
        """
        rows = len(next(iter(inputs.values())))
        per_row = self.session.leaves[0] == "logits"
        if rows == 1 or (batch and not self.session.attentions and not per_row):
            return self.run(inputs, position, slot)
        if self.session.attentions:
            self._move_to(slot, position, rows)
        abreast = batch and self.can_go_abreast(slot) and self.session.abreast_equal
        most = MOST_ABREAST if abreast else 1
        cuts = [rows * i // -(-rows // most) for i in range(-(-rows // most) + 1)]
        out = np.empty((rows, self.session.leaves[1]), np.float32)
        for first, past in pairwise(cuts):
            some = {name: values[first:past] for name, values in inputs.items()}
            run = self.run if past - first == 1 else self.abreast
            out[first:past] = run(some, position + first, slot)
        return out

    def abreast(self, inputs: Mapping[str, NDArray[Any]], position: int, slot: int) -> Floats:
        """Rows of one sequence as a batch whose entries have the same keys and values; a view, as of run.

        The last row stands first: an engine that read keys before all were written would show at once.
        """
        rows = len(next(iter(inputs.values())))
        if self.session.attentions:
            self._move_to(slot, position, rows)
        bound = self._bound_abreast(slot, rows)
        for name, values in inputs.items():
            bound.inputs[name][:, 0] = values[::-1]
        bound.last[:] = range(position + rows - 1, position - 1, -1)
        bound.total[0] = position + rows
        out: Floats = bound.run()[::-1, 0]
        return out

    def can_go_abreast(self, slot: int) -> bool:
        """Whether rows of the sequence in this slot can be such a batch."""
        return not self.session.attentions or self._seen_often(slot) is not None

    def together(self, rows: Sequence[Row]) -> list[Floats]:
        """One row of each of several sequences, all in one pass; results [1, width] in the order given.

        They are views that the next single rows overwrite.
        """
        if not self.session.attentions:
            return self._pass([(place, row) for place, row in enumerate(rows)], 0, len(rows))
        for row in rows:
            self._move_to(row.slot, row.position, 1)
        if len(rows) == 1:  # as nearly always: what follows would take 8 µs to find that out
            return self._pass([(0, rows[0])], rows[0].slot, 1)
        results: dict[int, Floats] = {}
        for span in self._spans(sorted(rows)):
            first, last = span[0].slot, span[-1].slot
            placed = [(row.slot - first, row) for row in span]
            outs = self._pass(placed, first, last - first + 1)
            results |= {row.slot: out for row, out in zip(span, outs)}
        return [results[row.slot] for row in rows]

    def free(self, slot: int) -> None:
        """Gives back the memory of a slot."""
        self.lengths[slot] = 0
        for name, pages in self._pages.items():
            n_bytes = self._kv[name][slot].nbytes
            first = -(-slot * n_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
            past = (slot + 1) * n_bytes // mmap.PAGESIZE * mmap.PAGESIZE
            if past > first and hasattr(mmap, "MADV_REMOVE"):
                pages.madvise(mmap.MADV_REMOVE, first, past - first)

    def _spans(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """Runs of slots worth passing together: what lies between two of them passes too, for nothing.

        A slot between that is full cannot: even what is not wanted is written somewhere.
        """
        span = [rows[0]]
        for row in rows[1:]:
            between = range(span[-1].slot + 1, row.slot)
            full = any(self.lengths[slot] == self.session.context for slot in between)
            if full or row.slot - span[0].slot >= 2 * (len(span) + 1):
                yield span
                span = []
            span.append(row)
        yield span

    def _pass(self, placed: Sequence[tuple[int, Row]], first: int, batch: int) -> list[Floats]:
        """Rows at their places in a batch; at the other places zeros pass, and are overwritten later."""
        key = first, batch
        if key not in self._single:
            self._single[key] = self._bind(first, batch, 1)
        bound = self._single[key]
        if len(placed) < batch:
            for values in bound.inputs.values():
                values[:] = 0
        if self.session.attentions:
            bound.last[:] = self.lengths[first : first + batch]
        for place, row in placed:
            for name, values in row.inputs.items():
                bound.inputs[name][place] = values
            bound.last[place] = row.position
        bound.total[0] = 1 + (bound.last.max() if batch > 1 else placed[0][1].position)
        out = bound.run()
        return [out[place] for place, _ in placed]

    def _move_to(self, slot: int, position: int, rows: int) -> None:
        length, context = self.lengths[slot], self.session.context
        if position > length or position + rows > context:
            raise OwnProblem(
                f"rows {position} to {position + rows - 1} do not follow {length} within {context}",
                fix="feed positions in order and within the context",
            )
        self.lengths[slot] = position + rows

    def _bind(self, first: int, batch: int, rows: int) -> Bound:
        """Buffers for slots from `first` on."""
        s, kv = self.session, {name: array[first : first + batch] for name, array in self._kv.items()}
        return bind(s.ort, s.inputs, Buffers.of(s.takes, s.leaves, batch, rows), kv, s.rotary)

    def _bound_abreast(self, slot: int, rows: int) -> Bound:
        """Buffers for rows of one sequence, the same ones whichever it is and however many they are."""
        s, place = self.session, self._seen_often(slot if self.session.attentions else 0)
        if place is None:
            raise OwnProblem(f"the keys of slot {slot} are mapped once", fix="report this to trisplit")
        if rows not in place.bound:
            if self._buffers is None:
                self._buffers = Buffers.of(s.takes, s.leaves, MOST_ABREAST, 1)
            kv = {name: often[:rows] for name, often in place.kv.items()}
            place.bound[rows] = bind(s.ort, s.inputs, self._buffers.first(rows), kv, s.rotary)
        return place.bound[rows]

    def _seen_often(self, slot: int) -> _Abreast | None:
        """Keys and values of a slot, mapped as those of many; None where that cannot be done."""
        if slot not in self._abreast:
            while len(self._abreast) >= _MOST_PLACES:  # a system maps some ten thousand places a process
                del self._abreast[next(iter(self._abreast))]
            kv = {name: seen_often(array[slot], MOST_ABREAST) for name, array in self._kv.items()}
            found = {name: often for name, often in kv.items() if often is not None}
            self._abreast[slot] = _Abreast(found, {}) if len(found) == len(kv) else None
        return self._abreast[slot]
