"""Texts cut into passages of equal length: what models are calibrated on and judged by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from trisplit.errors import RequestProblem
from trisplit.models.tokenizer import Tokenizer

Passage = list[int]

PASSAGE_TOKENS: Final = 512


def beginning(tokenizer: Tokenizer) -> list[int]:
    """What stands before any text: BOS where the model wants it, never EOS."""
    wants = tokenizer.adds_bos and tokenizer.bos_id is not None
    return [tokenizer.bos_id] if wants and tokenizer.bos_id is not None else []


def passages(
    tokenizer: Tokenizer, texts: Sequence[str], *, count: int, n_tokens: int, seed: int = 0
) -> list[Passage]:
    """`count` passages of n_tokens + 1 ids, chosen by `seed` from all that the texts give, in their order.

    Each begins as any text does, and none runs from one text into the next. The first id is only given and
    the last only predicted, so that each makes n_tokens predictions. RequestProblem if there are too few.
    """
    begun = beginning(tokenizer)
    pool = [piece for text in texts for piece in _pieces(begun, _plain(tokenizer, text), n_tokens + 1)]
    if len(pool) < count:
        raise RequestProblem(
            f"{count} passages of {n_tokens} tokens are wanted, the text gives {len(pool)}",
            fix="ask for fewer or shorter passages, or give more text",
        )
    chosen = np.random.default_rng(seed).choice(len(pool), count, replace=False)
    return [pool[at] for at in sorted(chosen.tolist())]


def _plain(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, special=False)


def _pieces(begun: Sequence[int], ids: Sequence[int], length: int) -> Iterator[Passage]:
    step = length - len(begun)
    for at in range(0, len(ids) - step + 1, step):
        yield [*begun, *ids[at : at + step]]


def passages_of(
    tokenizer: Tokenizer, texts: Sequence[str], tokens: int, longest: int = PASSAGE_TOKENS
) -> list[Passage]:
    """Passages of up to `longest` ids, each begun as any text is, `tokens` in all if there are.

    First the beginnings of all texts, then what follows each, so that few tokens still come from many texts.
    What a text ends with may be shorter. RequestProblem when the texts hold nothing.
    """
    begun = beginning(tokenizer)
    encoded = [tokenizer.encode(text, special=False) for text in texts]
    step = longest - len(begun)
    chosen, left = list[Passage](), tokens
    for at in range(0, max(map(len, encoded), default=0), step):
        for ids in encoded:
            if left > 0 and at < len(ids):
                chosen.append([*begun, *ids[at : at + step]][:left])
                left -= len(chosen[-1])
    if not chosen:
        raise RequestProblem("there is no text to calibrate on", fix="name a text that is not empty")
    return chosen
