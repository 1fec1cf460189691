"""What is asked of every model, where the answers of transformers are stored, and how answers compare.

Answers are named arrays, one file a model. For each length L in LENGTHS: `ids_L`, the prompt, and
`last_L`, the logits of its last row, float32. For tiny models all logits are kept, and `inner`, the rows
INNER_ROWS of the longest prompt; for real ones `columns_L` says which entries of the vocabulary `last_L`
holds: the largest and a seeded sample. `greedy_prompt` and `greedy_ids` are a greedy decode; tiny models
keep the logits of each step in `greedy_logits`, real ones in `greedy_gap` by how much the chosen token led
the second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from trisplit.paths import cache_dir

Answers = dict[str, np.ndarray]

STORED = Path(__file__).parent / "stored"
LENGTHS = (1, 31, 32, 33, 257)  # around the edges of blocks and prefill chunks
INNER_ROWS = (15, 16, 17, 63, 64, 127, 128, 200)  # around the tiny models' window, and past the chunks
TOLERANCE = 1e-3  # of a logit, between our engine and transformers
DRIFT = 1e-4  # of a logit, between two runs of transformers


@dataclass(frozen=True, slots=True, kw_only=True)
class RealModel:
    """A fetched model and the text it continues; `bos` where the model wants one first."""

    name: str
    prompt: str
    bos: int | None = None
    lengths: tuple[int, ...] = LENGTHS
    slow: bool = True

    @property
    def file(self) -> Path | None:
        """The GGUF file, or None while it has not been fetched."""
        return next(iter(sorted((cache_dir() / self.name).glob("*.gguf"))), None)


_CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
REAL = (
    RealModel(name="smollm2", prompt=_CHAT.format("Why is the sky blue?"), slow=False),
    RealModel(  # 600 tokens: past its window of 512
        name="gemma3-270m", prompt="The history of the bicycle begins in", bos=2, lengths=(*LENGTHS, 600)
    ),
    RealModel(name="qwen2.5-coder-0.5b", prompt=_CHAT.format("Write quicksort in Python.")),
)


def load_answers(name: str) -> Answers:
    """The stored answers of one model."""
    with np.load(STORED / f"{name}.npz") as file:
        return dict(file)


def store_answers(name: str, answers: Mapping[str, Any]) -> Path:
    """Keep the answers of one model, and return the file."""
    path = STORED / f"{name}.npz"
    np.savez_compressed(path, **answers)
    return path


def weights_digest(folder: Path) -> str:
    """SHA-256 of the names and values in a safetensors folder, however they are spread over files."""
    tensors = {
        name: value for file in folder.glob("*.safetensors") for name, value in load_file(file).items()
    }
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].tobytes())
    return digest.hexdigest()


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The first step at which two decodes chose differently."""
    return next((step for step, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), None)


def top_gap(logits: np.ndarray) -> float:
    """By how much the largest logit leads the second; `logits` is (vocab,)."""
    second, first = np.partition(logits, -2)[-2:]
    return float(first - second)


def drift(new: Mapping[str, np.ndarray], old: Mapping[str, np.ndarray]) -> float:
    """The largest change of a logit between two answers; infinite where shapes or token ids changed."""
    if new.keys() != old.keys() or any(new[key].shape != old[key].shape for key in new):
        return float("inf")
    if any(not np.array_equal(new[key], old[key]) for key in new if new[key].dtype.kind != "f"):
        return float("inf")
    return max(float(np.abs(new[key] - old[key]).max()) for key in new if new[key].dtype.kind == "f")
