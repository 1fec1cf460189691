"""What `trisplit inspect` tells of a model: its shapes, where its parameters are, whether we can run it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trisplit.errors import CheckpointProblem
from trisplit.models.checkpoint import READABLE, Checkpoint, TensorInfo, open_checkpoint, some
from trisplit.models.config import ModelConfig
from trisplit.models.convert import DTYPES
from trisplit.models.metadata import read_config
from trisplit.models.model import Model
from trisplit.models.promises import Promise, broken, promises, unreadable_among
from trisplit.table import Cell, Table, size

# Not of a stage, yet used: the divisors of Llama 3's rope scaling are read with the config.
_READ_WITH_CONFIG = "rope_freqs.weight"


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding as it is computed; None for what its frequencies do not tell.

    Waves are slowed by `slowed_short` where they are short and by `slowed_long` where they are long: 1 and
    1 without scaling, the factor twice with linear scaling, 1 and the factor with Llama 3's.
    """

    dimensions: int
    base: float | None = None
    slowed_short: float | None = None
    slowed_long: float | None = None

    def __str__(self) -> str:
        if self.base is None:
            return f"{self.dimensions} dimensions, scaled"
        text = f"base {self.base:,.0f}, {self.dimensions} dimensions"
        if self.slowed_short == self.slowed_long == 1:
            return text
        if self.slowed_short == self.slowed_long:
            return f"{text}, slowed {self.slowed_long:g} times"
        return f"{text}, short waves slowed {self.slowed_short:g} times, long ones {self.slowed_long:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """The sizes of a decoder; `ffn` and `windows` have a number for each layer, 0 is full attention."""

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: tuple[int, ...]
    vocab: int
    context: int
    windows: tuple[int, ...]
    rope: Rope
    local_rope: Rope | None
    tied_head: bool
    parallel: bool

    def rows(self) -> Iterator[tuple[Cell, ...]]:
        """Fact and value, for people."""
        windows = [window for window in self.windows if window]
        yield "family", self.family
        yield "layers", self.layers
        yield "hidden size", self.hidden
        yield "heads", f"{self.heads} for queries, {self.kv_heads} for keys and values, {self.head_dim} wide"
        yield "FFN width", " to ".join(f"{width:,}" for width in sorted({min(self.ffn), max(self.ffn)}))
        yield "vocabulary", self.vocab
        yield "context", self.context
        yield (
            "windows",
            f"{max(windows):,} tokens in {len(windows)} of {self.layers} layers" if windows else "none",
        )
        yield "rope", str(self.rope)
        if self.local_rope:
            yield "rope of windows", str(self.local_rope)
        yield "head", "tied: counted once, under embed" if self.tied_head else "its own"
        if self.parallel:
            yield "blocks", "parallel: attention and FFN both read the layer's input"


@dataclass(frozen=True, slots=True)
class Share:
    """What all stages of one kind hold; `n_bytes` as `stored` in the file and as each dtype of ours."""

    kind: str
    parameters: int
    n_bytes: Mapping[str, int]

    def row(self) -> tuple[Cell, ...]:
        """The share for people."""
        return self.kind, self.parameters, *map(size, self.n_bytes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredType:
    """All tensors of the file stored as one type; `readable`: we can compute with them."""

    type: str
    tensors: int
    parameters: int
    n_bytes: int
    readable: bool


@dataclass(frozen=True, slots=True)
class Reason:
    """Why we cannot run a model, and what would help."""

    what: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A model seen from its headers; without `shapes`, `shares` and `unused` if its config is not for us."""

    model: str
    path: str
    format: str
    architecture: str
    stored: tuple[StoredType, ...]
    shapes: Shapes | None = None
    shares: tuple[Share, ...] = ()
    unused: tuple[TensorInfo, ...] = ()
    unsupported: tuple[Reason, ...] = ()

    @property
    def total(self) -> Share:
        """All stages together, or all of the file where stages are not known."""
        parts = self.shares or tuple(Share(t.type, t.parameters, {"stored": t.n_bytes}) for t in self.stored)
        n_bytes = {form: sum(part.n_bytes[form] for part in parts) for form in parts[0].n_bytes}
        return Share("total", sum(part.parameters for part in parts), n_bytes)

    def as_json(self) -> dict[str, Any]:
        """The same facts as the tables."""
        shares = (*self.shares, self.total)
        return {
            "model": self.model,
            "path": self.path,
            "format": self.format,
            "architecture": self.architecture,
            "family": self.shapes.family if self.shapes else None,
            "shapes": self.shapes and asdict(self.shapes),
            "parameters": {share.kind: share.parameters for share in shares},
            "bytes": {f: {share.kind: share.n_bytes[f] for share in shares} for f in self.total.n_bytes},
            "stored": [asdict(stored) for stored in self.stored],
            "unused": [asdict(tensor) for tensor in self.unused],
            "unsupported": [asdict(reason) for reason in self.unsupported],
        }

    def tables(self) -> Iterator[Table]:
        """Shapes, then kinds of stage, then stored types."""
        facts: Iterable[tuple[Cell, ...]] = [("architecture", self.architecture)]
        yield Table(("fact", "value"), tuple(self.shapes.rows() if self.shapes else facts), self.model)
        if self.shares:
            rows = tuple(share.row() for share in (*self.shares, self.total))
            yield Table(("kind of stage", "parameters", *self.total.n_bytes), rows)
        types = tuple((t.type, t.tensors, t.parameters, size(t.n_bytes), t.readable) for t in self.stored)
        yield Table(("stored as", "tensors", "parameters", "bytes", "readable"), types)

    def notes(self) -> Iterator[str]:
        """Lines under the tables."""
        if self.unused:
            n_bytes = sum(tensor.n_bytes for tensor in self.unused)
            yield f"no stage uses {size(n_bytes)} of tensors: {some(t.name for t in self.unused)}"
        for reason in self.unsupported:
            yield f"unsupported: {reason.what}\n  fix: {reason.fix}"


def inspect(name: str, path: Path) -> Inspection:
    """Reads the headers of the model at `path`, called `name`; CheckpointProblem if that cannot be done.

    What it says of itself may still be nothing we run: that is told in `unsupported`.
    """
    checkpoint = open_checkpoint(path)
    facts = Inspection(
        model=name,
        path=str(checkpoint.path),
        format=checkpoint.format,
        architecture=_architecture(checkpoint),
        stored=_stored(checkpoint),
    )
    try:
        config = read_config(checkpoint)
    except CheckpointProblem as problem:
        problems = problem, *unreadable_among(checkpoint, checkpoint.tensors)
        return replace(facts, unsupported=_reasons(problems))
    promised = promises(config, checkpoint.format)
    used = promised.keys() | {_READ_WITH_CONFIG}
    return replace(
        facts,
        shapes=_shapes(config),
        shares=_shares(Model(checkpoint, config), promised),
        unused=tuple(info for tensor, info in checkpoint.tensors.items() if tensor not in used),
        unsupported=_reasons(broken(checkpoint, config)),
    )


def _reasons(problems: Iterable[CheckpointProblem]) -> tuple[Reason, ...]:
    return tuple(Reason(problem.what, problem.fix) for problem in problems)


def _architecture(checkpoint: Checkpoint) -> str:
    """The file's own word for what it is."""
    key = "general.architecture" if checkpoint.format == "gguf" else "model_type"
    return str(checkpoint.metadata.get(key) or checkpoint.metadata.get("architectures") or "not named")


def _stored(checkpoint: Checkpoint) -> tuple[StoredType, ...]:
    by_type: dict[str, list[TensorInfo]] = defaultdict(list)
    for info in checkpoint.tensors.values():
        by_type[info.dtype].append(info)
    return tuple(
        StoredType(
            type=dtype,
            tensors=len(infos),
            parameters=sum(math.prod(info.shape) for info in infos),
            n_bytes=sum(info.n_bytes for info in infos),
            readable=dtype in READABLE[checkpoint.format],
        )
        for dtype, infos in sorted(by_type.items())
    )


def _shares(model: Model, promised: Mapping[str, Promise]) -> tuple[Share, ...]:
    """The kinds of stage in the order a token meets them; a tied head's matrix counts under embed."""
    kinds = list(dict.fromkeys(stage.kind for stage in model.stages))
    parameters = dict.fromkeys(kinds, 0)
    n_bytes = {kind: dict.fromkeys(("stored", *DTYPES), 0) for kind in kinds}
    for tensor, promise in promised.items():
        parameters[promise.kind] += math.prod(promise.shape)
        if info := model.checkpoint.tensors.get(tensor):
            n_bytes[promise.kind]["stored"] += info.n_bytes
    for dtype in DTYPES:
        for stage in model.stages:
            n_bytes[stage.kind][dtype] += model.weight_bytes(stage, dtype)
        if model.config.tied_head:
            n_bytes["head"][dtype] -= n_bytes["embed"][dtype]
    return tuple(Share(kind, parameters[kind], n_bytes[kind]) for kind in kinds)


# --- shapes ---------------------------------------------------------------------------------------


def _shapes(config: ModelConfig) -> Shapes:
    return Shapes(
        family=config.family,
        layers=config.layers,
        hidden=config.hidden,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        ffn=config.ffn,
        vocab=config.vocab,
        context=config.context,
        windows=config.windows,
        rope=_rope(config.inv_freq),
        local_rope=_rope(config.local_inv_freq) if config.local_inv_freq else None,
        tied_head=config.tied_head,
        parallel=config.parallel,
    )


def _rope(frequencies: Sequence[float]) -> Rope:
    """Base and scaling, told from the frequencies (radians per position): base^(-i/n) unless scaled.

    Every scaling we know treats the first three alike, unless the model is tiny: then they tell nothing.
    """
    frequencies = [frequency for frequency in frequencies if frequency]  # of pairs that do turn
    n = len(frequencies)
    if n < 3 or not all(0 < frequency < math.inf for frequency in frequencies):
        return Rope(2 * n)
    first, second, third, last = *frequencies[:3], frequencies[-1]
    if not math.isclose(first / second, second / third, rel_tol=1e-5):
        return Rope(2 * n)
    base = float(f"{(first / third) ** (n / 2):.5g}")  # float32 frequencies tell no more digits
    slowed_long = base ** ((1 - n) / n) / last
    return Rope(2 * n, base, *(float(f"{slowed:.4g}") for slowed in (1 / first, slowed_long)))
