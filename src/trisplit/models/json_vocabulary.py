"""A vocabulary read from the tokenizer.json of a model's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine

from trisplit.errors import CheckpointProblem
from trisplit.models.vocabulary import SPACE, Vocabulary


def vocabulary_from_json(path: Path) -> Vocabulary:
    """The vocabulary in a tokenizer.json; a CheckpointProblem where it is missing, damaged or unknown."""
    engine = _read(path)
    # What a file says about cutting and padding is for training batches: a prompt is never cut silently.
    engine.no_truncation()
    engine.no_padding()
    steps = _decoder_steps(engine)
    if any(step["type"] == "ByteLevel" for step in steps):
        return Vocabulary.of(engine, byte_level=True, adds_space=False)
    if any(map(_writes_spaces, steps)):
        return Vocabulary.of(engine, byte_level=False, adds_space=any(map(_strips_space, steps)))
    raise CheckpointProblem(
        f"{path} decodes with {', '.join(step['type'] for step in steps) or 'nothing'}, which we do not know",
        fix="known: byte-level BPE (ByteLevel) and SentencePiece (Metaspace, or ▁ replaced)",
    )


def _read(path: Path) -> Engine:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if (path.parent / "tokenizer.model").exists():
            fix = "write one: AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers"
        else:
            fix = "copy it from where the model came from, or use the model's GGUF file"
        raise CheckpointProblem(f"the folder {path.parent} has no tokenizer.json", fix=fix) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointProblem(f"{path} cannot be read: {error}", fix="get the file again") from error
    try:
        return Engine.from_str(text)
    except Exception as error:  # the engine raises bare Exception
        raise CheckpointProblem(f"{path} is not a tokenizer: {error}", fix="get the file again") from error


def _decoder_steps(engine: Engine) -> list[Mapping[str, Any]]:
    if engine.decoder is None:
        return []
    decoder = json.loads(engine.decoder.__getstate__())
    steps: list[Mapping[str, Any]] = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    return steps


def _writes_spaces(step: Mapping[str, Any]) -> bool:
    replaces = step["type"] == "Replace" and (step["pattern"], step["content"]) == ({"String": SPACE}, " ")
    return bool(replaces or step["type"] == "Metaspace")


def _strips_space(step: Mapping[str, Any]) -> bool:
    if step["type"] == "Metaspace":
        return bool(step["prepend_scheme"] != "never")
    return bool(step["type"] == "Strip" and step["content"] == " " and step["start"])
