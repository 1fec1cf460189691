"""SPINE: a model → what it becomes → its tensors, one by one → a file or folder → reloaded, compared."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from trisplit.compress.describing import restated
from trisplit.compress.gguf_writing import qtypes_of, write_gguf
from trisplit.compress.kinds import Kind, Qtype, kind_named, n_bytes
from trisplit.compress.reading import Report, silent, told
from trisplit.compress.targets import may_differ, target_of
from trisplit.compress.translate import Translation
from trisplit.compress.writing import FolderWriter
from trisplit.compress.zeros import live
from trisplit.errors import RequestProblem
from trisplit.models.config import EMBED, HEAD, layer_stages
from trisplit.models.model import Model
from trisplit.table import size

# Code that transformers and vLLM run a folder of DeciLM by, kept as text: it needs their packages, not ours.
_CODE: Final = Path(__file__).parent / "decilm"
_AUTO_MAP: Final = {
    "AutoConfig": "configuration_decilm.DeciLMConfig",
    "AutoModelForCausalLM": "modeling_decilm.DeciLMForCausalLM",
}
_KEYS_BYTES: Final = 1 << 24  # of a header, and of the files beside the weights, at most

Check = Callable[[Path], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How a model is to be written: a format of `targets.FORMATS`, a type of `kinds.KINDS`.

    `trim`: neurons that give nothing are cut; of `deci` they always are.
    """

    format: str
    type: str
    trim: bool = False


STOCK: Final = Wanted(format="safetensors", type="f32")
"""What copies are written as while they are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written: `parameters` and `stored` (type → tensors) of the file, and what there is to say.

    `check` is what came of reading it anew, None if it was not.
    """

    path: Path
    family: str
    widths: tuple[int, ...]
    parameters: int
    n_bytes: int
    stored: Mapping[str, int]
    notes: tuple[str, ...]
    check: Mapping[str, Any] | None


def export(
    model: Model, out: Path, wanted: Wanted, *, check: Check | None = None, report: Report = silent
) -> Exported:
    """Writes the model to `out`, which appears whole or not at all; `check` looks at it before it does.

    A file for GGUF, else a folder; a layer is in memory at a time. Problems: RequestProblem and UnknownName
    for what cannot be written so, or not there; CheckpointProblem as of reading; those of `check`.
    """
    is_file = wanted.format == "gguf"
    kind = kind_named(wanted.type, blocks=is_file)
    _refuse_place(out, is_file)
    translation = translate(model, wanted, report=report)
    types = qtypes_of(translation, kind)
    n_all = sum(n_bytes(qtype, shape) for qtype, shape in types.values()) if is_file else 0
    parameters = sum(prod(shape) for _, shape in types.values())
    n_all = n_all or parameters * np.dtype(kind.dtype).itemsize
    _refuse_room(out, n_all)
    with _drafted(out) as draft:
        if is_file:
            write_gguf(translation, kind, draft, report)
        else:
            _write_folder(translation, kind, draft, report)
        checked = check(draft) if check else None
        _put(draft, out)
    return Exported(
        path=out,
        family=translation.target.family,
        widths=translation.target.ffn,
        parameters=parameters,
        n_bytes=n_all,
        stored=Counter(qtype.name if is_file else wanted.type.upper() for qtype, _ in types.values()),
        notes=tuple(_notes(translation, kind, wanted)),
        check=checked,
    )


def refuse_impossible(model: Model, wanted: Wanted) -> None:
    """Before anything is read: RequestProblem and UnknownName for what can never be written so."""
    kind_named(wanted.type, blocks=wanted.format == "gguf")
    target_of(model, wanted.format, model.config.ffn)


def translate(model: Model, wanted: Wanted, *, report: Report = silent) -> Translation:
    """What is to be written, by the target's names. Problems as of `target_of` and reading."""
    refuse_impossible(model, wanted)
    widths, kept = model.config.ffn, {}
    if wanted.trim or wanted.format == "deci":
        layers = told(range(len(widths)), "looking for zeros", len(widths), report)
        alive = {layer: live(model, layer) for layer in layers}
        kept = {layer: neurons for layer, neurons in alive.items() if len(neurons) < widths[layer]}
        widths = tuple(len(neurons) for neurons in alive.values())
    if wanted.format == "gguf" and not may_differ(model.config):
        widths = (max(widths),) * len(widths)
    format: Any = "gguf" if wanted.format == "gguf" else "safetensors"
    return Translation(model, target_of(model, wanted.format, widths), format, kept)


def _notes(translation: Translation, kind: Kind, wanted: Wanted) -> Iterator[str]:
    before, after = translation.model.config, translation.target
    if cut := sum(before.ffn) - sum(len(n) for n in _staying(translation)):
        yield f"{cut:,} neurons of {sum(before.ffn):,} give nothing and were cut"
    if filled := sum(after.ffn) - sum(len(n) for n in _staying(translation)):
        yield f"narrower layers were filled up with {filled:,} neurons of zeros, for there they must be alike"
    if after.family != before.family:
        yield f"written as {after.family}, which computes what this {before.family} does"
    if translation.format != "gguf":
        return
    if before.family in ("llama", "mistral") and any(before.windows):
        yield f"llama.cpp does not heed the window of {max(before.windows):,} tokens, which is in the file"
    odd = [n for n, (q, s) in qtypes_of(translation, kind).items() if q == Qtype.F16 and len(s) > 1]
    if odd and wanted.type != "f16":
        yield f"{len(odd)} tensors are F16: their rows are no whole blocks of {wanted.type} ({odd[0]}, …)"


def _staying(translation: Translation) -> list[range | np.ndarray[Any, Any]]:
    ffn = translation.model.config.ffn
    return [translation.kept.get(layer, range(width)) for layer, width in enumerate(ffn)]


# --- files ----------------------------------------------------------------------------------------


def _write_folder(translation: Translation, kind: Kind, folder: Path, report: Report) -> None:
    model, target = translation.model, translation.target
    config = restated(model, target) | {"torch_dtype": str(np.dtype(kind.dtype))}
    stages = [(EMBED,), *(layer_stages(range(n, n + 1)) for n in range(target.layers)), (HEAD,)]
    writer = FolderWriter(folder, files=len(stages), dtype=np.dtype(kind.dtype))
    for together in told(stages, "writing", len(stages), report):
        writer.add(dict(pair for stage in together for pair in translation.stage(stage)))
    if target.family == "deci":
        for file in sorted(_CODE.glob("*.txt")):
            shutil.copyfile(file, folder / f"{file.stem}.py")
        config |= {"auto_map": _AUTO_MAP}
    writer.close(model, config)


def _refuse_place(out: Path, is_file: bool) -> None:
    if not out.absolute().parent.is_dir():
        raise RequestProblem(f"{out.absolute().parent} does not exist", fix="make it, or name another place")
    if is_file and out.suffix != ".gguf":
        raise RequestProblem(f"{out} would be a GGUF file", fix=f"end its name in .gguf: {out}.gguf")
    if not is_file and out.suffix == ".gguf":
        raise RequestProblem(f"{out} would be a folder", fix="name one without .gguf, or use --format gguf")
    if out.exists() and (is_file or not out.is_dir() or any(out.iterdir())):
        raise RequestProblem(f"{out} is there already", fix="name another place, or take it away first")


def _refuse_room(out: Path, n_needed: int) -> None:
    free = shutil.disk_usage(out.absolute().parent).free
    if n_needed + _KEYS_BYTES > free:
        what = f"{out} takes {size(n_needed)} and {size(free)} are free there"
        raise RequestProblem(what, fix="make room, name another place, or use a smaller --type")


@contextmanager
def _drafted(out: Path) -> Iterator[Path]:
    """Where it is written first, beside `out`; gone afterwards. RequestProblem when it cannot be written."""
    draft = out.with_name(f".{out.stem}.part{out.suffix}")
    _away(draft)  # of one that was ended
    try:
        yield draft
    except OSError as error:
        what = f"{out} cannot be written: {error.strerror or error}"
        raise RequestProblem(what, fix="make room there, or name another place") from error
    finally:
        _away(draft)


def _away(draft: Path) -> None:
    if draft.is_dir():
        shutil.rmtree(draft)
    draft.unlink(missing_ok=True)


def _put(draft: Path, out: Path) -> None:
    if out.is_dir():
        out.rmdir()
    draft.rename(out)
