"""The tensors that stages are made of, and what in a file stands against computing with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trisplit.errors import CheckpointProblem
from trisplit.models.checkpoint import READABLE, Checkpoint, Format, some, unreadable
from trisplit.models.config import HEAD, Kind, ModelConfig
from trisplit.models.families import FAMILIES
from trisplit.models.keys import GET_AGAIN
from trisplit.models.layout import layout


@dataclass(frozen=True, slots=True)
class Promise:
    """A tensor that a kind of stage cannot do without, and the shape it must have."""

    kind: Kind
    shape: tuple[int, ...]


def promises(config: ModelConfig, format: Format) -> dict[str, Promise]:
    """Every tensor the stages are made of, by the file's name for it; a tied head is the embedding."""
    names = FAMILIES[config.family].names_in(format)
    promised: dict[str, Promise] = {}
    for stage in config.stages:
        parts = layout(config, stage)
        shapes: dict[str, tuple[int, ...]] = {role: (width,) for role, width in parts.norms}
        for matrix in () if stage == HEAD and config.tied_head else parts.matrices:
            shapes |= {part.role: (part.n, matrix.columns) for part in matrix.parts}
            shapes |= {f"{part.role}_bias": (part.n,) for part in matrix.parts if matrix.bias}
        for role, shape in shapes.items():
            promised[names[role].format(stage.layer)] = Promise(stage.kind, shape)
    return promised


def broken(checkpoint: Checkpoint, config: ModelConfig) -> Iterator[CheckpointProblem]:
    """Why the stages cannot be computed from this file, told from its headers; nothing if they can."""
    family, held, promised = FAMILIES[config.family], checkpoint.tensors, promises(config, checkpoint.format)
    if missing := promised.keys() - held.keys():
        yield CheckpointProblem(f"tensors are missing: {some(missing)}", fix=GET_AGAIN)
    for name, promise in promised.items():
        if name in held and held[name].shape != promise.shape:
            shapes = f"has shape {list(held[name].shape)}, the config promises {list(promise.shape)}"
            yield CheckpointProblem(f"{name} {shapes}", fix=_AT_ODDS)
            break  # one tells enough
    yield from unreadable_among(checkpoint, promised)
    next_layer = family.names_in(checkpoint.format)["attn_norm"].format(config.layers)
    if next_layer in held:
        what = f"{next_layer} is of a layer more than the {config.layers} of the config"
        yield CheckpointProblem(what, fix=_AT_ODDS)
    buffers = {name.format(layer) for name in family.buffers for layer in range(config.layers)}
    if beside := _beside(held.keys() - buffers, promised.keys()):
        what = f"nothing we compute uses {some(beside)}, which belong to what we do compute"
        yield CheckpointProblem(what, fix="use the model without them, before it was quantized or adapted")


def unreadable_among(checkpoint: Checkpoint, names: Iterable[str]) -> Iterator[CheckpointProblem]:
    """A problem for each type we do not read, of the tensors that are needed."""
    by_type: dict[str, list[str]] = defaultdict(list)
    for name in names:
        info = checkpoint.tensors.get(name)
        if info and info.dtype not in READABLE[checkpoint.format]:
            by_type[info.dtype].append(name)
    for dtype, tensors in sorted(by_type.items()):
        yield unreadable(checkpoint.format, dtype, tensors)


_AT_ODDS = "get the model again: the weights and the config do not belong together"


def _beside(held: Iterable[str], promised: Iterable[str]) -> list[str]:
    """Biases, scales and the like of the very matrices and norms we use, but unknown to us.

    To leave one out would change what comes out and say nothing.
    """
    ours, modules = set(promised), {name.rpartition(".")[0] for name in promised}
    return [
        name
        for name in held
        if name not in ours and (name.endswith(".bias") or any(m in modules for m in _parents(name)))
    ]


def _parents(name: str) -> Iterator[str]:
    """What the name stands under: a, a.b and a.b.c for a.b.c.d."""
    at = name.find(".")
    while at >= 0:
        yield name[:at]
        at = name.find(".", at + 1)
