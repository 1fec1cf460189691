"""Texts as a person names them: one to fetch, of which a half, or a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trisplit.cli.typed import TEXTS
from trisplit.errors import RequestProblem

if TYPE_CHECKING:
    from trisplit.compress.passages import Passage
    from trisplit.models.tokenizer import Tokenizer

Half = Literal["calibration", "held-out"]


def _called(name: str) -> str:
    """What a text is called in what we show."""
    return name if name in TEXTS else Path(name).name


def read_texts(name: str, half: Half) -> list[str]:
    """That half of a text to fetch; all of a file, of articles if it has lines of them."""
    from trisplit.assets import calibration, held_out, read_articles
    from trisplit.cli.names import fetched

    if name in TEXTS:
        chosen = calibration if half == "calibration" else held_out
        return [article.text for article in chosen(read_articles(fetched(name)))]
    path = Path(name)
    if path.suffix == ".jsonl":
        return [article.text for article in read_articles(path)]
    try:
        return [path.read_text(encoding="utf-8")]
    except (OSError, UnicodeDecodeError) as error:
        what = f"the text {name} cannot be read: {error}"
        raise RequestProblem(what, fix=f"name a file of text, or one of {', '.join(TEXTS)}") from None


def exam_texts(
    tokenizer: Tokenizer, names: Sequence[str], *, count: int, n_tokens: int, seed: int
) -> dict[str, list[Passage]]:
    """So many passages of each text's held-out half, by what the text is called."""
    from trisplit.compress.passages import passages

    how = {"count": count, "n_tokens": n_tokens, "seed": seed}
    return {_called(name): passages(tokenizer, read_texts(name, "held-out"), **how) for name in names}


def calibration_of(
    tokenizer: Tokenizer, names: Sequence[str], tokens: int, longest: int | None = None
) -> list[Passage]:
    """So many tokens of these texts' calibration halves; says so where there are fewer."""
    from trisplit.compress.passages import PASSAGE_TOKENS, passages_of

    texts = [text for name in names for text in read_texts(name, "calibration")]
    found = passages_of(tokenizer, texts, tokens, min(PASSAGE_TOKENS, longest or PASSAGE_TOKENS))
    if (there := sum(map(len, found))) < tokens:
        print(f"{' and '.join(names)}: {there:,} tokens are all there are, of {tokens:,}", file=sys.stderr)
    return found
