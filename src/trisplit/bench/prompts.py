"""What benches of drafts ask: prompts that want new text, and prompts that want their own text again."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Literal

from trisplit.assets import Article
from trisplit.errors import RequestProblem, UnknownName
from trisplit.models.sampling import Sampling
from trisplit.models.tokenizer import Tokenizer

Kind = Literal["novel", "draftable"]
KINDS: Final[tuple[Kind, ...]] = ("novel", "draftable")

LEAST_DISTINCT: Final = 0.8
"""A novel answer with a smaller share of distinct 4-grams is a loop, which any draft would follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A text to continue, or `as_chat` to answer; no more than its first `tokens` tokens, if not 0.

    `greedy_penalty` is the repetition penalty at temperature 0: without one a small model that continues a
    text soon says the same again and again.
    """

    name: str
    kind: Kind
    text: str
    as_chat: bool
    tokens: int = 0
    greedy_penalty: float = 1.0

    def ids(self, tokenizer: Tokenizer) -> list[int]:
        """The prompt in tokens; RequestProblem for a chat with a model that has no template."""
        message = [{"role": "user", "content": self.text}]
        ids = tokenizer.encode_chat(message) if self.as_chat else tokenizer.encode(self.text)
        return ids[: self.tokens or None]

    def sampling(self, temperature: float, seed: int) -> Sampling:
        """How its tokens are chosen."""
        penalty = 1.0 if temperature else self.greedy_penalty
        return Sampling(temperature=temperature, repetition_penalty=penalty, seed=seed)


def read_prompts(kinds: Sequence[str], articles: Sequence[Article]) -> list[Prompt]:
    """The prompts of these kinds, in the order of prompts.toml; `articles` are those held out.

    UnknownName for a kind there is not, RequestProblem when an article is missing.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownName("kind of prompts", kind, KINDS)
    stored = tomllib.loads(files("trisplit.bench").joinpath("prompts.toml").read_text(encoding="utf-8"))
    texts = stored["texts"] | {f"article {article.title}": article.text for article in articles}
    prompts = []
    for entry in stored["prompts"]:
        if entry["kind"] in kinds:
            of = entry.pop("of", "")
            if of and of not in texts:
                raise RequestProblem(f"there is no {of} to continue", fix="trisplit fetch wiki")
            text = entry.pop("text", "{of}").replace("{of}", texts.get(of, ""))
            prompts.append(Prompt(text=text, **entry))
    return prompts


def distinct_4gram_share(ids: Sequence[int]) -> float:
    """Distinct runs of four ids among all of them; 1 where there are none.

    >>> distinct_4gram_share([1, 2, 3, 4, 1, 2, 3, 4])
    0.8
    """
    runs = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
    return len(set(runs)) / len(runs) if runs else 1.0
