"""The pieces of a tokenizer: text cut into ids by merges, and the bytes each id stands for."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tokenizers import Tokenizer as Engine

from trisplit.errors import RequestProblem

SPACE = "▁"  # how SentencePiece writes a space inside a piece
BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
_PADDING = re.compile(r"\[PAD\d+\]")


def _byte_letters() -> dict[str, int]:
    """The alphabet of byte-level BPE: a printable letter for every byte (GPT-2's encoder.py).

    >>> letters = _byte_letters(); letters["Ġ"], letters["a"], len(letters)
    (32, 97, 256)
    """
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


BYTE_OF: Mapping[str, int] = MappingProxyType(_byte_letters())


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Ids of text, and bytes of ids, before any rule about where an answer begins or ends.

    `byte_level`: pieces are written in the byte alphabet (GPT-2); else in SentencePiece's way, with ▁
    for a space and <0xAB> for a byte. `adds_space`: encoding puts a space before the text, so decoding
    takes one off. `added`: tokens matched in the text before anything else, True where they are special.
    """

    engine: Engine = field(repr=False)
    byte_level: bool
    adds_space: bool
    added: Mapping[int, bool] = field(repr=False)
    _blind: Engine = field(repr=False)

    @classmethod
    def of(cls, engine: Engine, *, byte_level: bool, adds_space: bool) -> Vocabulary:
        """Built around an engine of the tokenizers library, whose model is shared, not copied."""
        added = {id_: bool(token.special) for id_, token in engine.get_added_tokens_decoder().items()}
        return cls(engine, byte_level, adds_space, MappingProxyType(added), _blind_twin(engine))

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return max(self.engine.get_vocab_size(with_added_tokens=False), 1 + max(self.added, default=-1))

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """The ids of `text`; special tokens written in it are read as such, or as any other text."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestProblem(
                f"the text has half a character at position {error.start}: {text[error.start]!r}",
                fix="give text that is valid Unicode (UTF-8)",
            ) from error
        engine = self.engine if parse_special else self._blind
        ids: list[int] = engine.encode(text, add_special_tokens=False).ids
        return ids

    def id_of(self, token: str | None) -> int | None:
        """The id of a token by its exact spelling."""
        return None if token is None else self.engine.token_to_id(token)

    def token_of(self, id_: int | None) -> str:
        """The spelling of a token; empty for none."""
        return "" if id_ is None else self.engine.id_to_token(id_) or ""

    def bytes_of(self, id_: int, *, skip_special: bool) -> bytes:
        """What `id_` adds to the UTF-8 text; nothing for special ids when skipped, and for unknown ids."""
        token = self.engine.id_to_token(id_)
        if token is None or (skip_special and self.added.get(id_)):
            return b""
        if self.byte_level:
            # A letter of no byte: a token that was written into the vocabulary as it is.
            as_it_is = id_ in self.added or not BYTE_OF.keys() >= set(token)
            return token.encode() if as_it_is else bytes(BYTE_OF[letter] for letter in token)
        if byte := BYTE_PIECE.fullmatch(token):
            return bytes.fromhex(byte[1])
        return token.encode() if self.added.get(id_) else token.replace(SPACE, " ").encode()


def first_difference(one: Vocabulary, other: Vocabulary) -> int | None:
    """The first id that stands for different text in two vocabularies, or is special in one alone; else None.

    Where one has more ids, those may be padding (`[PAD7]`) or tokens added behind its pieces.
    """
    for id_ in range(max(one.size, other.size)):
        spelled = [(v.bytes_of(id_, skip_special=False), v.added.get(id_)) for v in (one, other)]
        if spelled[0] == spelled[1]:
            continue
        longer = one if one.size > other.size else other
        behind = id_ >= min(one.size, other.size)
        if not (behind and (id_ in longer.added or _PADDING.fullmatch(longer.token_of(id_)))):
            return id_
    return None


def _blind_twin(engine: Engine) -> Engine:
    """The same engine blind to special tokens in the text: switching one to and fro is not thread-safe."""
    twin = Engine(engine.model)
    twin.normalizer, twin.pre_tokenizer = engine.normalizer, engine.pre_tokenizer
    twin.add_tokens([token for _, token in sorted(engine.get_added_tokens_decoder().items())])
    twin.encode_special_tokens = True
    return twin


class Detokenizer:
    """Text from ids as they come: what is pushed, joined, is what decoding all of them at once gives."""

    __slots__ = ("_skip_special", "_strip", "_utf8", "_vocabulary")

    def __init__(self, vocabulary: Vocabulary, *, skip_special: bool = True) -> None:
        self._vocabulary = vocabulary
        self._skip_special = skip_special
        self._strip = vocabulary.adds_space
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id_: int) -> str:
        """The characters that `id_` finished; empty while one is still under way."""
        return self._out(self._utf8.decode(self._vocabulary.bytes_of(id_, skip_special=self._skip_special)))

    def flush(self) -> str:
        """The end of the text: a replacement character if the last one was never finished."""
        return self._out(self._utf8.decode(b"", final=True))

    def _out(self, text: str) -> str:
        if text and self._strip:
            self._strip = False
            return text.removeprefix(" ")
        return text
