"""What a person asks of a model, before it is tokens."""

from __future__ import annotations

from dataclasses import dataclass

from trisplit.models.generation import Request
from trisplit.models.sampling import Sampling
from trisplit.models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A text to continue, or `as_chat` to answer, and how."""

    prompt: str
    as_chat: bool
    sampling: Sampling
    max_tokens: int
    stop: tuple[str, ...]
    ignore_eos: bool

    def request(self, tokenizer: Tokenizer) -> Request:
        """The wish in tokens; RequestProblem for one that cannot be asked."""
        message = [{"role": "user", "content": self.prompt}]
        ids = tokenizer.encode_chat(message) if self.as_chat else tokenizer.encode(self.prompt)
        return Request(
            prompt_ids=tuple(ids),
            sampling=self.sampling,
            max_tokens=self.max_tokens,
            stop=self.stop,
            eos_ids=tokenizer.eos_ids,
            ignore_eos=self.ignore_eos,
        )
