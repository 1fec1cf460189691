"""A model that waits where others compute: as slow and as wide as somebody else's, and of no weight.

What its stages leave is counted up by one from the token id on, by each of them, so that a token that comes
out tells whether its rows passed every stage once and met their own residuals.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from trisplit.errors import OwnProblem, RequestProblem
from trisplit.models.checkpoint import Format, TensorInfo
from trisplit.models.config import Kind, ModelConfig, Stage
from trisplit.models.ends import Ends
from trisplit.models.model import Model
from trisplit.models.session import Floats, Row, StageSession, Tracks
from trisplit.models.stages import leaves, takes

VOCAB: Final = 9973
CONTEXT: Final = 4096
HEAD_DIM: Final = 64
SPIN_S: Final = 2e-4  # a sleep may be so much too long


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How many layers, how wide, and how long stages take, in milliseconds that really pass.

    `ends_ms` is all the head's: embedding is a look-up. Any number of rows take as long as one.
    """

    layers: int
    attention_ms: float
    gate_up_ms: float
    down_ms: float
    ends_ms: float
    width: int

    def ms(self, kind: Kind) -> float:
        """What a stage takes."""
        others = {"attention": self.attention_ms, "gate_up": self.gate_up_ms, "down": self.down_ms}
        return {"embed": 0.0, "head": self.ends_ms, **others}[kind]

    @property
    def token_ms(self) -> float:
        """What all stages take, one after the other."""
        return self.layers * (self.attention_ms + self.gate_up_ms + self.down_ms) + self.ends_ms

    def after(self, token_id: int) -> int:
        """The id that follows."""
        return (token_id + 3 * self.layers) % VOCAB

    def times(self, factor: float) -> Waits:
        """The same, so many times as long."""
        ms = {name: factor * value for name, value in asdict(self).items() if name.endswith("_ms")}
        return replace(self, **ms)

    def options(self) -> tuple[str, str]:
        """What a station is told to wait like this."""
        return "--waits", json.dumps(asdict(self))

    def model(self) -> Model:
        """A model of this shape, on no disk."""
        config = ModelConfig(
            family="llama",
            layers=self.layers,
            hidden=self.width,
            heads=self.width // HEAD_DIM,
            kv_heads=1,
            head_dim=HEAD_DIM,
            ffn=(4 * self.width,) * self.layers,
            vocab=VOCAB,
            context=CONTEXT,
            norm_eps=1e-5,
            tied_head=False,
            inv_freq=tuple(1e4 ** (-i / 32) for i in range(32)),
            local_inv_freq=(),
            windows=(0,) * self.layers,
            activation="silu",
            attn_scale=HEAD_DIM**-0.5,
        )
        return Model(NoWeights(), config)


def read_waits(text: str) -> Waits:
    """What `Waits.options` says; RequestProblem for anything else."""
    try:
        return msgspec.json.decode(text, type=Waits)
    except msgspec.DecodeError as error:
        raise RequestProblem(f"--waits {text}: {error}", fix="leave it to the benches") from None


@dataclass(frozen=True, slots=True)
class NoWeights:
    """A checkpoint of nothing."""

    path: Path = Path("nowhere")
    format: Format = "safetensors"
    digest: str = "nothing"

    @property
    def metadata(self) -> Mapping[str, Any]:
        return {}

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return {}

    def read(self, name: str) -> NDArray[np.float32]:
        raise _nothing(name)

    def slabs(self, name: str, n_rows: int) -> Iterator[NDArray[np.float32]]:
        raise _nothing(f"{n_rows} rows of {name}")

    def blocks(self, name: str) -> NDArray[np.uint8]:
        raise _nothing(name)

    @property
    def files(self) -> Sequence[Path]:
        raise _nothing("a file")

    def content_digest(self) -> str:
        raise _nothing("a digest")


def _nothing(what: str) -> OwnProblem:
    return OwnProblem(f"{what} of a model that only waits", fix="report this to trisplit")


class WaitingSession(StageSession):
    """Looks like a session of these stages, and has no engine."""

    def __init__(self, config: ModelConfig, stages: Sequence[Stage], context: int) -> None:
        self.config, self.context, self.stages = config, context, tuple(stages)
        self.takes, self.leaves = takes(config, stages), leaves(config, stages[-1])
        self.attentions, self.weight_bytes = (), 0

    def rows_equal(self, sessions: int = 1) -> bool:
        """They are: every row counts by itself."""
        return sessions > 0


class WaitingTracks(Tracks):
    """Sequences of which nothing is kept."""

    def __init__(self, session: StageSession, waits: Waits) -> None:
        self.session, self.lengths = session, []
        self._waits = waits

    def run(self, inputs: Mapping[str, NDArray[Any]], position: int, slot: int = 0) -> Floats:
        """As `Tracks.run`, counting; OwnProblem where rows meet the residual of others."""
        return self.together([Row(slot, inputs, position)])[0]

    def step(
        self, inputs: Mapping[str, NDArray[Any]], position: int, slot: int = 0, *, batch: bool
    ) -> Floats:
        """As `Tracks.step`: logits of every row, in the time of one."""
        del batch, position, slot
        return self._all([inputs], last_only=False)[0]

    def together(self, rows: Sequence[Row]) -> list[Floats]:
        """As `Tracks.together`: all wait once."""
        return self._all([row.inputs for row in rows], last_only=True)

    def _all(self, inputs: Sequence[Mapping[str, NDArray[Any]]], *, last_only: bool) -> list[Floats]:
        began_s = time.perf_counter()
        outs = [self._count(one, last_only=last_only) for one in inputs]
        wait(sum(self._waits.ms(stage.kind) for stage in self.session.stages), since_s=began_s)
        return outs

    def free(self, slot: int) -> None:
        """Nothing is kept in it."""

    def _count(self, inputs: Mapping[str, NDArray[Any]], *, last_only: bool) -> Floats:
        (_, values), *residual = inputs.items()
        counts = values.reshape(len(values), -1)[:, 0].astype(np.float32)
        if residual and not np.array_equal(counts, residual[0][1][:, 0] + 1):
            raise _nothing("rows that met the residual of others,")
        name, width = self.session.leaves
        counts += sum(stage.kind not in ("embed", "head") for stage in self.session.stages)
        if name == "logits":
            return likeliest(counts[-1:] if last_only else counts)
        return np.repeat(counts[:, None], width, axis=1)


class WaitingEnds(Ends):
    """Embed and head at a coordinator, with no engine."""

    def __init__(self, config: ModelConfig, waits: Waits) -> None:
        self._config, self._waits, self.weight_bytes = config, waits, 0

    def embed(self, ids: Sequence[int]) -> Floats:
        """Rows [rows, hidden] of the ids."""
        return np.repeat(np.asarray(ids, dtype=np.float32)[:, None], self._config.hidden, axis=1)

    def logits(self, rows: Sequence[Floats]) -> list[Floats]:
        """[vocab] from each; all wait once."""
        began_s = time.perf_counter()
        logits = [likeliest(row[-1:, 0])[0] for row in rows]
        wait(self._waits.ms("head"), since_s=began_s)
        return logits


def likeliest(counts: Floats) -> Floats:
    """Logits [rows, vocab] that choose the id a count stands for."""
    logits = np.zeros((len(counts), VOCAB), dtype=np.float32)
    logits[np.arange(len(counts)), counts.astype(np.int64) % VOCAB] = 1
    return logits


def wait(ms: float, *, since_s: float) -> None:
    """Returns so long after `since_s` of `time.perf_counter`, and hardly later."""
    until_s = since_s + 1e-3 * ms
    left_s = until_s - time.perf_counter() - SPIN_S
    if left_s > 0:
        time.sleep(left_s)
    while time.perf_counter() < until_s:
        pass
