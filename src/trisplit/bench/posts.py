"""What a bench starts and what it asks: the processes of its engines, and one order for all of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trisplit.bench import peers
from trisplit.bench.peers import Order
from trisplit.models.convert import Dtype
from trisplit.models.model import Model

PROMPT: Final = (
    "Every evening the keeper of the lighthouse wrote down the weather: the wind, the height of waves,"
)
PROMPT_TOKENS: Final = 16
WARM_TOKENS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A process to start: its command, and what its environment has beside ours."""

    name: str
    command: Sequence[str]
    threads: int
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How every process of a bench runs the model."""

    model: Path
    dtype: Dtype
    threads: int
    context: int

    def decoder(self, **environment: str) -> Post:
        """The decoder in one process."""
        return self._post(f"one process, {self._words}", {"kind": "decoder"}, environment)

    def stages(self) -> Post:
        """Each of its stages alone, in one process."""
        return self._post(f"stages alone, {self._words}", {"kind": "stages"}, {})

    @property
    def _words(self) -> str:
        return f"{self.dtype}, --threads {self.threads}"

    def _post(self, name: str, facts: Mapping[str, Any], environment: Mapping[str, str]) -> Post:
        own = {"model": str(self.model), "dtype": self.dtype, "context": self.context}
        return ours(name, {**facts, **own, "threads": self.threads}, environment)


def reference(kind: str, n_bytes: int, threads: int) -> Post:
    """numpy, with a buffer of `n_bytes`: `kind` is sgemv or read."""
    facts = {"kind": "reference", "reference": kind, "n_bytes": n_bytes, "threads": threads}
    return ours(f"numpy {kind}, --threads {threads}", facts, {})


def end_of_wire(which: str, facts: Mapping[str, Any] | None = None) -> Post:
    """The `far` or the `near` end of a wire; the near one is told what the far one said."""
    return ours(f"the {which} end", {"kind": f"{which} end", "threads": 1, **(facts or {})}, {})


def peer(name: str, python: Path, model: Path, *, threads: int, context: int) -> Post:
    """A peer in its own environment's Python; that cannot see what lies beside the script (-P)."""
    arguments = (peers.__file__, name, str(model), str(threads), str(context))
    return Post(name=f"{name}, --threads {threads}", command=(str(python), "-P", *arguments), threads=threads)


def ours(name: str, facts: Mapping[str, Any], environment: Mapping[str, str]) -> Post:
    """A process of `trisplit.bench.worker`, told these facts."""
    command = (sys.executable, "-m", "trisplit.bench.worker", json.dumps(facts))
    return Post(name=name, command=command, threads=facts["threads"], environment=environment)


def prompt_of(model: Model) -> list[int]:
    """The ids of a prompt that is always the same."""
    return model.tokenizer().encode(PROMPT)[:PROMPT_TOKENS]


def decoding(model: Model, tokens: int) -> Order:
    """The order for one stretch of `tokens`, after a prompt and a warm-up that are always the same."""
    return {"prompt_ids": prompt_of(model), "warm": WARM_TOKENS, "tokens": tokens}


def context_of(order: Order) -> int:
    """Positions a stretch needs room for."""
    return len(order["prompt_ids"]) + int(order["warm"]) + int(order["tokens"])
