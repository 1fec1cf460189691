"""`trisplit bench draft`: how good drafts are, before a mesh speculates with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trisplit.cli.options import AsJson, ModelArgument
from trisplit.cli.typed import TEXTS, one_dtype, show_rows, some, warn_if_busy, words
from trisplit.errors import RequestProblem, UnknownName

if TYPE_CHECKING:
    from trisplit.assets import Article
    from trisplit.mesh.drafts import Source


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("draft")(draft)


def draft(
    model: ModelArgument,
    drafts: Annotated[
        str, typer.Option("--draft", metavar="D,…", help="ngram, twin:int8, twin:FOLDER, model:NAME, none.")
    ] = "ngram,twin:int8",
    text: Annotated[
        str, typer.Option(metavar="T,…", help="What is read: `wiki`, `brown` (held-out half), or files.")
    ] = "wiki",
    windows: Annotated[int, typer.Option(min=1, help="Passages, each from another article.")] = 4,
    window_tokens: Annotated[int, typer.Option(min=2, help="Tokens of each that are predicted.")] = 256,
    prompts: Annotated[str, typer.Option(metavar="K,…", help="novel, draftable.")] = "novel,draftable",
    tokens: Annotated[int, typer.Option(min=1, help="Of each answer, EOS ignored.")] = 256,
    temperature: Annotated[str, typer.Option(metavar="T,…", help="Of the answers.")] = "0,0.8",
    seed: Annotated[int, typer.Option(min=0, help="Of sampled answers.")] = 0,
    dtype: Annotated[str, typer.Option("--dtype", metavar="D", help="Of the model drafted for.")] = "f32",
    threads: Annotated[int, typer.Option(min=1, help="Threads of each.")] = 1,
    as_json: AsJson = False,
) -> None:
    """How often drafts say what the model says: on text they are given, and along its own answers."""
    from trisplit.bench.draft import Exam, examine
    from trisplit.bench.prompts import read_prompts
    from trisplit.cli.names import find_model
    from trisplit.mesh.drafts import Target, source_named
    from trisplit.models.model import context_for, open_model

    warmths, kinds, kept = temperatures(temperature), words(prompts), one_dtype(dtype)
    warn_if_busy(threads)
    opened = open_model(find_model(model))
    exam = Exam.of(
        opened.tokenizer(),
        [passage for name in some(words(text), "text") for passage in _passages(name, windows)],
        read_prompts(kinds, articles("wiki") if "novel" in kinds else []),
        windows=windows,
        window_tokens=window_tokens,
        tokens=tokens,
        temperatures=warmths,
        seed=seed,
    )
    room = context_for(opened.config, exam.context)
    target = Target(model=opened, dtype=kept, context=room, threads=threads)
    sources = [source_named(name, target, find=find_model) for name in some(words(drafts), "draft")]
    _load(sources)
    found = examine(target, sources, exam)
    show_rows(found.rows, as_json=as_json, also={"acceptance": found.acceptance})


def temperatures(text: str) -> list[float]:
    """Numbers; RequestProblem for what is none, or out of range."""
    from trisplit.models.sampling import Sampling

    try:
        found = [float(word) for word in some(words(text), "temperature")]
    except ValueError:
        raise RequestProblem(
            f"--temperature {text} makes no sense", fix="write --temperature 0,0.8"
        ) from None
    return [Sampling(temperature=number).temperature for number in found]


def articles(name: str) -> list[Article]:
    """Those of a text that are held out."""
    from trisplit.assets import held_out, read_articles
    from trisplit.cli.names import fetched

    return held_out(read_articles(fetched(name)))


def _passages(name: str, windows: int) -> Sequence[str]:
    """The held-out articles of a text that is fetched; of a file, as many pieces as windows are wanted."""
    if name in TEXTS:
        return [article.text for article in articles(name)]
    path = Path(name)
    if path.name == name and not path.exists():
        raise UnknownName("text", name, TEXTS)
    try:
        whole = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestProblem(f"{name} cannot be read: {error}", fix="name a text in UTF-8") from error
    length = max(1, -(-len(whole) // windows))
    return [whole[start : start + length] for start in range(0, len(whole), length)]


def _load(sources: Sequence[Source]) -> None:
    """Loads every draft, behind bars."""
    from trisplit.cli.progress import bars

    with bars() as show:
        for source in sources:
            for _ in show.over(source.load(), source.name, source.steps):
                pass
