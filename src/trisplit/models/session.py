"""An onnxruntime session of a run of stages, and the sequences that pass through it."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from trisplit.errors import OwnProblem, RequestProblem
from trisplit.models.config import ModelConfig
from trisplit.models.stage_file import StageFile
from trisplit.models.stages import build, leaves, rotary_tables, takes

Floats = NDArray[np.float32]

# Rows tried when a session shows that its products give each row the same bits alone and in company.
_ROW_COUNTS: Final = (2, 3, 8, 16)


class StageSession:
    """Neighbouring stages loaded as one session.

    `context` is the longest sequence the rotary tables and key/value buffers are made for.
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
        self.stages = tuple(file.stage for file in files)
        self.weight_bytes = sum(
            {(f.folder, t.file, t.offset): t.n_bytes for f in files for t in f.tensors.values()}.values()
        )
        _share_one_arena()
        options = ort.SessionOptions()
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(files[0].folder)
        )
        model = build(config, files, context)
        try:
            self.ort = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime's own classes, and MemoryError
            raise RequestProblem(
                f"the engine cannot load {self.stages[0]} to {self.stages[-1]}: {error}",
                fix="if memory is short use a smaller dtype or more stations; else report this",
            ) from error
        self.takes = takes(config, files[0].stage)
        self.leaves = leaves(config, files[-1].stage)
        self.inputs = frozenset(given.name for given in self.ort.get_inputs())
        self.attentions = tuple(s.layer for s in self.stages if s.kind == "attention")
        # Bound by address only: they must live as long as any track of this session.
        self.rotary = rotary_tables(config, context) if self.attentions else {}

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values one sequence holds here."""
        return len(self.attentions) * self.config.kv_bytes(self.context)

    def rows_equal(self) -> bool:
        """Whether products over several rows give each row the very bits it gets alone.

        True by definition for sessions with attention, which never batch rows (see Track.step).
        """
        if self.attentions:
            return True
        random, track = np.random.default_rng(0), Track(self)
        for rows in _ROW_COUNTS:
            inputs = {n: random.standard_normal((rows, w), dtype=np.float32) for n, w in self.takes.items()}
            together = track.run(inputs, 0).copy()
            for i in range(rows):
                alone = track.run({n: v[i : i + 1] for n, v in inputs.items()}, 0)
                if not np.array_equal(alone[0], together[i]):
                    return False
        return True


@cache
def _share_one_arena() -> None:
    """Lets all sessions of this process take their working memory from one arena.

    A station of thirds holds a session a layer and runs one at a time: 30 arenas of SmolLM2's
    gate_up keep 90 MB after a prompt, one keeps 19.
    """
    cpu = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(cpu, None)


@dataclass(frozen=True, slots=True)
class _Bound:
    """Buffers of one row count, bound once: a run is a copy in and a call."""

    binding: Any
    inputs: Mapping[str, NDArray[Any]]
    last: NDArray[np.int32]
    total: NDArray[np.int32]
    output: Floats


class Track:
    """One sequence in one session: preallocated keys and values, and how many positions are true.

    Rewinding is running at an earlier position: what lay behind it is overwritten before it is read.
    """

    def __init__(self, session: StageSession) -> None:
        c = session.config
        shape = (1, c.kv_heads, session.context, c.head_dim)
        self.session = session
        self.length = 0
        self._kv = {f"{part}_{layer}": room(shape) for layer in session.attentions for part in "kv"}
        self._single = self._bind(1)

    def run(self, inputs: Mapping[str, NDArray[Any]], position: int) -> Floats:
        """Runs rows [rows, width] standing at `position` …; returns what the last stage leaves.

        A single row's result [1, width] is a view that the next single row overwrites. Several rows pass the
        attention operator together, as a chunk of a prompt does.
        """
        rows = len(next(iter(inputs.values())))
        if self.session.attentions:
            self._move_to(position, rows)
        bound = self._single if rows == 1 else self._bind(rows)
        for name, values in inputs.items():
            np.copyto(bound.inputs[name][0], values)
        bound.last[0], bound.total[0] = position + rows - 1, position + rows
        self.session.ort.run_with_iobinding(bound.binding)
        return bound.output

    def _move_to(self, position: int, rows: int) -> None:
        if position > self.length or position + rows > self.session.context:
            raise OwnProblem(
                f"rows {position} to {position + rows - 1} do not follow {self.length} "
                f"within {self.session.context}",
                fix="feed positions in order and within the context",
            )
        self.length = position + rows

    def step(self, inputs: Mapping[str, NDArray[Any]], position: int, *, batch: bool) -> Floats:
        """Like run, but every row passes attention alone; products are batched where `batch` allows."""
        rows = len(next(iter(inputs.values())))
        if rows == 1 or (batch and not self.session.attentions):
            return self.run(inputs, position)
        parts = [
            self.run({n: v[i : i + 1] for n, v in inputs.items()}, position + i).copy() for i in range(rows)
        ]
        return np.concatenate(parts)

    def _bind(self, rows: int) -> _Bound:
        session, binding = self.session, self.session.ort.io_binding()
        inputs: dict[str, NDArray[Any]] = {
            name: np.zeros((1, rows), np.int64) if name == "ids" else np.zeros((1, rows, width), np.float32)
            for name, width in session.takes.items()
        }
        last, total = np.zeros(1, np.int32), np.zeros(1, np.int32)
        for name, array in inputs.items():
            _bind_input(binding, name, array)
        name, width = session.leaves
        output = np.zeros((1, 1 if name == "logits" else rows, width), np.float32)
        _bind_output(binding, f"{name}_out", output)
        if session.attentions:
            places = {"last": last, "total": total, **session.rotary}
            for name in places.keys() & session.inputs:
                _bind_input(binding, name, places[name])
        for kv_name, array in self._kv.items():
            _bind_input(binding, f"past_{kv_name}", array)
            _bind_output(binding, f"present_{kv_name}", array)
        return _Bound(binding, inputs, last, total, output[0])


def room(shape: tuple[int, ...]) -> Floats:
    """Zeros that take memory only where they are written to.

    numpy asks for 2 MB pages from 4 MB on, and gathering pages fills whatever is mapped: either way
    one token would make the keys and values of a whole context resident.
    """
    pages = mmap.mmap(-1, 4 * math.prod(shape))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, dtype=np.float32).reshape(shape)


def _bind_input(binding: Any, name: str, array: NDArray[Any]) -> None:
    binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)


def _bind_output(binding: Any, name: str, array: NDArray[Any]) -> None:
    binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
