"""What a gate found of layers that start ahead, as a file: for whoever runs that model later."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from trisplit.errors import RequestProblem
from trisplit.mesh.overlap import Ahead, Damage, Early, Kv, Limit, Measure, OverlapVerdict, Seed
from trisplit.models.convert import Dtype
from trisplit.models.model import Model

Layer = Annotated[int, msgspec.Meta(ge=0, lt=2**16)]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A verdict, and of what model, in what dtype, by what limit and on what text.

    `on` may start ahead together; where blocks are parallel (`exact`) all overlap anyway. `off` says of each
    other layer why not. `together` is the damage of all that are on; `measure` and `at_most` are the limit.
    """

    gate: Literal["overlap"] = "overlap"
    model: str
    fingerprint: str
    dtype: Dtype
    measure: Measure
    at_most: float
    seed: Seed
    kv: Kv
    exact: bool
    on: tuple[Layer, ...]
    off: dict[Layer, str]
    together: Damage
    text: str
    windows: int
    rounds: int
    command: str

    def ahead_in(self, model: Model, dtype: Dtype) -> Ahead:
        """What starts ahead in that model; RequestProblem if it is another than was judged."""
        if self.fingerprint != fingerprint(model):
            raise RequestProblem(
                f"the record is of {self.model}, which is another model or has changed since",
                fix="judge this one: trisplit gate overlap MODEL --out FILE",
            )
        if self.dtype != dtype:
            raise RequestProblem(
                f"the record is of {self.model} in {self.dtype}, it is to run in {dtype}",
                fix=f"use --dtype {self.dtype}, or judge it again with --dtype {dtype}",
            )
        return Ahead(self.on, Early(self.seed, self.kv))


def record_of(
    verdict: OverlapVerdict,
    model: Model,
    *,
    name: str,
    dtype: Dtype,
    limit: Limit,
    early: Early,
    text: str,
    windows: int,
    rounds: int,
    command: str,
) -> Record:
    """The verdict on a model that goes by `name`, and what it rests on."""
    return Record(
        model=name,
        fingerprint=fingerprint(model),
        dtype=dtype,
        measure=limit.measure,
        at_most=limit.at_most,
        seed=early.seed,
        kv=early.kv,
        exact=verdict.exact,
        on=verdict.on,
        off={row.layer: row.reason for row in verdict.rows if row.verdict == "OFF"},
        together=verdict.together,
        text=text,
        windows=windows,
        rounds=rounds,
        command=command,
    )


def fingerprint(model: Model) -> str:
    """A digest of what is computed and of the first rows of all tensors: the same for a copy, and cheap."""
    digest = hashlib.sha256(repr(model.config).encode())
    for name, info in sorted(model.checkpoint.tensors.items()):
        first = next(model.checkpoint.slabs(name, 1)) if len(info.shape) > 1 else model.checkpoint.read(name)
        digest.update(repr((name, info.dtype, info.shape)).encode())
        digest.update(first.tobytes())
    return digest.hexdigest()


# --- as a file ------------------------------------------------------------------------------------


def refuse_record(path: Path) -> None:
    """RequestProblem if no record can be written there: ask before measuring, not after."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise RequestProblem(
            f"no record can be written to {path}", fix="name a file in a folder that exists and is yours"
        )


def write_record(path: Path, record: Record) -> None:
    """As JSON; RequestProblem if it cannot be written."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    except OSError as error:
        what = f"the record {path} cannot be written: {error.strerror}"
        raise RequestProblem(what, fix="name another file") from None


def read_record(path: Path) -> Record:
    """RequestProblem for a file that is not there, or no record."""
    fix = "name a file that `trisplit gate overlap --out` has written"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except OSError as error:
        raise RequestProblem(f"record {path} cannot be read: {error.strerror}", fix=fix) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise RequestProblem(f"{path} is no record of a gate: {error}", fix=fix) from None
