"""`trisplit export`: a model in the formats that other programs load, checked before it is there."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trisplit.cli.options import AsJson, ModelArgument
from trisplit.cli.unfold import unfolded

if TYPE_CHECKING:
    from trisplit.compress.export import Exported, Wanted
    from trisplit.table import Table


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("export")(unfolded(export))


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a model is written as."""

    format: Annotated[
        str,
        typer.Option(
            metavar="safetensors|deci|gguf",
            help="A stock folder; a folder with a width for each layer (vLLM); a file (llama.cpp).",
        ),
    ] = "safetensors"
    type: Annotated[
        str | None,
        typer.Option(
            metavar="f32|f16|bf16|q8_0|q4_0|q4_1|…",
            help="What numbers are stored as; the q… in GGUF alone. Default: f32, in GGUF f16.",
        ),
    ] = None

    def wanted(self, *, trim: bool | None = None) -> Wanted:
        """The same, for `compress.export`; `trim`: in GGUF, unless it says otherwise."""
        from trisplit.compress.export import Wanted

        is_file = self.format == "gguf"
        type = self.type or ("f16" if is_file else "f32")
        return Wanted(format=self.format, type=type, trim=is_file if trim is None else trim)


def export(
    model: ModelArgument,
    out: Annotated[Path, typer.Option(metavar="PATH", help="The folder, or the .gguf file, to write.")],
    form: Form,
    trim: Annotated[
        bool, typer.Option("--trim", help="Cut neurons that give nothing; deci always does.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Read it anew in a fresh process and compare.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Write a model as safetensors, DeciLM or GGUF for transformers, vLLM or llama.cpp."""
    from trisplit.cli.names import find_model
    from trisplit.cli.printing import print_result
    from trisplit.cli.progress import bars
    from trisplit.compress.export import export as write
    from trisplit.compress.reloading import in_fresh_process
    from trisplit.models.model import open_model

    source, wanted = find_model(model), form.wanted(trim=trim)
    checking = in_fresh_process(source, wanted) if check else None
    with bars() as show:
        done = write(open_model(source), out, wanted, check=checking, report=show.advance)
    asked = {"model": model, **asdict(wanted), "command": shlex.join(["trisplit", *sys.argv[1:]])}
    facts = asked | asdict(done) | {"path": str(done.path), "stored": dict(done.stored)}
    print_result(facts if as_json else None, [_table(done)], [*done.notes, f"written: {done.path}"])


def _table(done: Exported) -> Table:
    from trisplit.table import Table, size

    widths = " to ".join(f"{width:,}" for width in sorted({min(done.widths), max(done.widths)}))
    rows: list[tuple[str, str]] = [
        ("family", done.family),
        ("FFN width", widths),
        ("parameters", f"{done.parameters:,}"),
        ("bytes of numbers", size(done.n_bytes)),
        ("tensors", ", ".join(f"{count} {kind}" for kind, count in done.stored.items())),
    ]
    if done.check is None:
        rows.append(("read anew", "no"))
    else:
        rows.append(("read anew", f"as meant; logits differ by {done.check['delta']:.1e}"))
        if done.check["of_file"] != done.check["delta"]:
            rows.append(("type", f"moves a logit by up to {done.check['of_file']:.1e}"))
    return Table(("fact", "value"), tuple(rows))
