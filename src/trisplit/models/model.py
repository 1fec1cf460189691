"""One model as a person names it: its checkpoint, its facts, and the weights of its stages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trisplit.errors import RequestProblem
from trisplit.machine import available_bytes
from trisplit.models import description
from trisplit.models.checkpoint import Checkpoint, open_checkpoint
from trisplit.models.config import EMBED, HEAD, LAYER_KINDS, LayerKind, ModelConfig, Stage
from trisplit.models.convert import Dtype, stage_bytes, stage_file
from trisplit.models.metadata import read_config
from trisplit.models.promises import broken
from trisplit.models.rounding import Rounding
from trisplit.models.stage_file import StageFile
from trisplit.models.tokenizer import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf
from trisplit.table import size

DEFAULT_CONTEXT = 4096


@dataclass(frozen=True, slots=True)
class Model:
    """An opened model: nothing of its weights is read yet. As int4 it may have a rounding of its own."""

    checkpoint: Checkpoint
    config: ModelConfig
    rounding: Rounding | None = None

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every stage in order: embed, the thirds of each layer, head."""
        return self.config.stages

    @property
    def thirds(self) -> tuple[tuple[int, LayerKind], ...]:
        """Layer and kind of every stage but embed and head, in order."""
        return tuple((layer, kind) for layer in range(self.config.layers) for kind in LAYER_KINDS)

    def files(self, stages: Sequence[Stage], dtype: Dtype) -> Iterator[StageFile]:
        """Converted weights of these stages, one by one as they become ready."""
        for stage in stages:
            yield stage_file(self.checkpoint, self.config, stage, dtype, self.rounding)

    def weight_bytes(self, stage: Stage, dtype: Dtype) -> int:
        """Bytes of one stage's weights, told from the checkpoint's header."""
        return stage_bytes(self.checkpoint, self.config, stage, dtype, self.rounding)

    def kv_bytes(self, stages: Sequence[Stage], context: int) -> int:
        """Bytes of keys and values these stages keep for one sequence of `context` tokens."""
        return self.config.kv_bytes(context) * sum(stage.kind == "attention" for stage in stages)

    def content_digest(self) -> str:
        """SHA-256 of all weights and of the facts they are run by, wherever they lie; a full read."""
        facts = description.pack(self.config)
        return hashlib.sha256(self.checkpoint.content_digest().encode() + facts).hexdigest()

    def rounded(self, rounding: Rounding) -> Model:
        """The same model, its int4 weights made by this rounding."""
        return replace(self, rounding=rounding)

    def refuse_if_short(self, stages: Sequence[Stage], dtype: Dtype, context: int) -> None:
        """RequestProblem with the numbers when this machine has no memory for these stages."""
        weights, kv = sum(self.weight_bytes(s, dtype) for s in stages), self.kv_bytes(stages, context)
        what = f"{size(weights)} of weights and {size(kv)} for {context:,} tokens of keys and values"
        refuse_if_short(weights + kv, what)

    @property
    def ends(self) -> tuple[Stage, Stage]:
        """Embed and head."""
        return EMBED, HEAD

    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer."""
        if self.checkpoint.format == "gguf":
            return tokenizer_from_gguf(self.checkpoint.metadata)
        return tokenizer_from_folder(self.checkpoint.path)


def open_model(path: Path) -> Model:
    """Opens a folder of safetensors or a GGUF file; raises CheckpointProblem if we cannot run it.

    That is told from the headers: of a model that opens no tensor is missing, of another shape than the
    config promises, or of a type we do not read.
    """
    checkpoint = open_checkpoint(path)
    config = read_config(checkpoint)
    for problem in broken(checkpoint, config):
        raise problem
    return Model(checkpoint, config)


def context_for(config: ModelConfig, asked: int | None) -> int:
    """The context length to make buffers for: what was asked, else the model's own up to 4096.

    RequestProblem when it is longer than the model was made for.
    """
    if asked is None:
        return min(config.context, DEFAULT_CONTEXT)
    if not 1 <= asked <= config.context:
        raise RequestProblem(
            f"a context of {asked:,} tokens was asked, the model was made for 1 to {config.context:,}",
            fix=f"use --context {config.context} or less",
        )
    return asked


def refuse_if_short(n_bytes: int, what: str) -> None:
    """RequestProblem with the numbers when `n_bytes` cannot be had on this machine without swapping."""
    free = available_bytes()
    if free is not None and n_bytes > free:
        raise RequestProblem(
            f"{what} need {size(n_bytes)}, {size(free)} of memory are free: {size(n_bytes - free)} short",
            fix="ask for a shorter context or a smaller dtype, or split over more machines",
        )
