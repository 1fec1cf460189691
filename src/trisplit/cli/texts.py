"""Texts as a person names them: one to fetch, of which a half, or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from trisplit.cli.typed import TEXTS
from trisplit.errors import RequestProblem

Half = Literal["calibration", "held-out"]


def called(name: str) -> str:
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
