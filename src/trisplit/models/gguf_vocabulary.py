"""A vocabulary built from the `tokenizer.ggml.*` keys of a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any

from tokenizers import AddedToken, normalizers
from tokenizers import Tokenizer as Engine
from tokenizers.models import BPE

from trisplit.errors import CheckpointProblem
from trisplit.models.pretokenizers import WORDS, Words, splitter
from trisplit.models.vocabulary import SPACE, Vocabulary

CONVERT = "convert the model again with a current llama.cpp, or give the folder it was made from"


class TokenType(IntEnum):
    """What a token is for (`tokenizer.ggml.token_type` of the GGUF specification)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPECIAL = frozenset({TokenType.UNKNOWN, TokenType.CONTROL})
MERGED = frozenset({TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED})


@dataclass(frozen=True, slots=True)
class Pieces:
    """The tokens of the file, by id, with their types; spellings are unique and not empty."""

    metadata: Mapping[str, Any] = field(repr=False)
    tokens: Sequence[str] = field(repr=False)
    types: Sequence[int] = field(repr=False)
    ids: dict[str, int] = field(repr=False)

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Pieces:
        """Read and checked: a CheckpointProblem where the lists are missing or do not belong together."""
        tokens = [token or f"[EMPTY_{id_}]" for id_, token in enumerate(_array(metadata, "tokens", str))]
        n = len(tokens)
        typed = "tokenizer.ggml.token_type" in metadata
        types = _array(metadata, "token_type", int, n) if typed else [TokenType.NORMAL] * n
        ids = {token: id_ for id_, token in enumerate(tokens)}
        if len(ids) != n:
            what = f"{n - len(ids)} tokens of the GGUF file are spelled like another"
            raise CheckpointProblem(what, fix=CONVERT)
        return cls(metadata, tokens, types, ids)

    def engine(self, merges: list[tuple[str, str]], **options: Any) -> Engine:
        """BPE of these merges, between the tokens that are found in the text first."""
        try:
            engine = Engine(BPE(self.ids, merges, **options))
        except Exception as error:  # the library raises bare Exception
            what = f"the tokenizer of the GGUF file does not hold together: {error}"
            raise CheckpointProblem(what, fix=CONVERT) from error
        engine.add_tokens(
            [
                AddedToken(token, special=kind in SPECIAL, normalized=False, rstrip=self._swallows(token))
                for token, kind in zip(self.tokens, self.types)
                if kind in SPECIAL or kind == TokenType.USER_DEFINED
            ]
        )
        return engine

    def _swallows(self, token: str) -> bool:
        """Whether an added token takes the white space after it along: Phi-3's do, and GGUF cannot say so."""
        facts = (self.metadata.get("general.architecture"), self.metadata.get("tokenizer.ggml.model"))
        return facts == ("phi3", "llama") and token not in {"<unk>", "<s>", "<|endoftext|>"}


def words_of(metadata: Mapping[str, Any]) -> Words:
    """How this byte-level tokenizer cuts words; a CheckpointProblem where we do not know it."""
    name = metadata.get("tokenizer.ggml.pre")
    if name is None:
        what = "the GGUF file does not say how its tokenizer cuts words (tokenizer.ggml.pre)"
        raise CheckpointProblem(what, fix=CONVERT)
    if str(name) not in WORDS:
        what = f"the GGUF file cuts words as {name!r} does, which we do not know (tokenizer.ggml.pre)"
        raise CheckpointProblem(what, fix=_known(WORDS))
    return WORDS[name]


def vocabulary_from_gguf(metadata: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary of a GGUF file; a CheckpointProblem for kinds of tokenizer that are not BPE."""
    model = metadata.get("tokenizer.ggml.model")
    if model is None:
        raise CheckpointProblem("the GGUF file has no tokenizer (tokenizer.ggml.model)", fix=CONVERT)
    if str(model) not in BUILDERS:
        what = f"the GGUF file has a tokenizer of kind {model!r}, which we do not run (tokenizer.ggml.model)"
        raise CheckpointProblem(what, fix=_known(BUILDERS))
    return BUILDERS[model](Pieces.of(metadata))


def _known(names: Mapping[str, object]) -> str:
    return f"known: {', '.join(names)}; or give the folder of the model with its tokenizer.json"


def _byte_level(pieces: Pieces) -> Vocabulary:
    words = words_of(pieces.metadata)
    written = _array(pieces.metadata, "merges", str)
    merges = [(m[:cut], m[cut + 1 :]) for m in written if (cut := m.find(" ", 1)) > 0]
    if len(merges) != len(written):
        raise CheckpointProblem("a merge of the GGUF file does not name two pieces", fix=CONVERT)
    engine = pieces.engine(merges, ignore_merges=words.whole)
    if words.nfc:
        engine.normalizer = normalizers.NFC()
    engine.pre_tokenizer = splitter(words)
    return Vocabulary.of(engine, byte_level=True, adds_space=False)


def _sentencepiece(pieces: Pieces) -> Vocabulary:
    scores = _array(pieces.metadata, "scores", float, len(pieces.tokens))
    adds_space = bool(pieces.metadata.get("tokenizer.ggml.add_space_prefix", True))
    unknown = next((t for t, kind in zip(pieces.tokens, pieces.types) if kind == TokenType.UNKNOWN), None)
    merges = merges_from_scores(pieces, scores)
    engine = pieces.engine(merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    spaces = normalizers.Replace(" ", SPACE)
    engine.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if adds_space else spaces
    return Vocabulary.of(engine, byte_level=False, adds_space=adds_space)


BUILDERS: Mapping[str, Callable[[Pieces], Vocabulary]] = MappingProxyType(
    {"gpt2": _byte_level, "llama": _sentencepiece}
)


def merges_from_scores(pieces: Pieces, scores: Sequence[float]) -> list[tuple[str, str]]:
    """SentencePiece's BPE as merges: every split of every piece into two pieces, best score first.

    SentencePiece joins the neighbours whose union scores highest, the leftmost of equals. Which split a
    piece is joined by is settled inside the piece, so the order among its splits is free. Among equal
    scores the longer union comes first, which grows a run of spaces from the left as leftmost-first does
    (Llama gives all its runs one score). Control and byte tokens are never joined from text.
    """
    penalties = {
        token: -score for token, score, kind in zip(pieces.tokens, scores, pieces.types) if kind in MERGED
    }
    order = sorted(penalties, key=len, reverse=True)
    order.sort(key=penalties.__getitem__)
    # Looking up the right half first saves most of the left ones: this loop is most of the loading.
    return [
        (left, right)
        for token in order
        for cut in range(len(token) - 1, 0, -1)
        if (right := token[cut:]) in penalties and (left := token[:cut]) in penalties
    ]


def _array(metadata: Mapping[str, Any], key: str, kind: type, n: int | None = None) -> Any:
    """The list `tokenizer.ggml.<key>`, held to its kind and to the number of tokens."""
    values = metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(values, list) or not {*map(type, values)} <= {kind}:
        what = f"the GGUF file has no list tokenizer.ggml.{key} of {kind.__name__}"
        raise CheckpointProblem(what, fix=CONVERT)
    if n is not None and len(values) != n:
        what = f"tokenizer.ggml.{key} of the GGUF file has {len(values)} entries for {n} tokens"
        raise CheckpointProblem(what, fix=CONVERT)
    return values
