"""Small vocabularies as the keys of a GGUF file: byte-level BPE and SentencePiece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trisplit.models.gguf_vocabulary import TokenType
from trisplit.models.vocabulary import BYTE_OF

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_level(
    merges: Sequence[str] = (), *, control: Sequence[str] = ("<s>", "</s>"), pre: str = "gpt-2", **keys: Any
) -> dict[str, Any]:
    """Control tokens, the 256 bytes, one token per merge (`"Ġ a"`); `keys` go under tokenizer.ggml."""
    tokens = [*control, *BYTE_OF, *(merge.replace(" ", "") for merge in merges)]
    types = [TokenType.CONTROL] * len(control) + [TokenType.NORMAL] * (len(tokens) - len(control))
    return _keys(model="gpt2", pre=pre, tokens=tokens, types=types, merges=[*merges], **keys)


def sentencepiece(
    scores: Mapping[str, float], *, user_defined: Sequence[str] = (), **keys: Any
) -> dict[str, Any]:
    """<unk>, <s>, </s>, the 256 bytes, and pieces with their scores; `keys` go under tokenizer.ggml."""
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *user_defined, *scores]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]
    types += [TokenType.USER_DEFINED] * len(user_defined) + [TokenType.NORMAL] * len(scores)
    every_score = [0.0] * (259 + len(user_defined)) + [*scores.values()]
    ids = {"bos_token_id": 1, "eos_token_id": 2}
    return _keys(model="llama", tokens=tokens, types=types, scores=every_score, **(ids | keys))


def _keys(types: Sequence[TokenType], **keys: Any) -> dict[str, Any]:
    named = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    return named | {"tokenizer.ggml.token_type": [int(kind) for kind in types]}
