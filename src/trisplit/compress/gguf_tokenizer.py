"""The tokenizer of a folder in the keys that llama.cpp reads, `tokenizer.*`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trisplit.compress.gguf_values import Value, typed
from trisplit.errors import CheckpointProblem, RequestProblem
from trisplit.models.gguf_vocabulary import TokenType
from trisplit.models.model import Model
from trisplit.models.pretokenizers import WORDS, splitter
from trisplit.models.tokenizer import ENDINGS, Tokenizer, special_spelling, tokenizer_from_gguf
from trisplit.models.vocabulary import BYTE_PIECE

_FIX: Final = "export it as safetensors, or take the model's own GGUF file"
# What tells the ways of cutting words apart: signs, digits, cases, line ends, scripts, marks.
_PROBE: Final = "".join(
    (
        "Hello, world!  It's 12367 o'clock; WE'LL I'm.\n\n\n  x=3.14159+y_2 \t\tThe-End/path ...?!\r\n ",
        "naïve café Ünïcode ÀÉÎ straße İstanbul ½ ² ३४५ かな漢字 中文字符 ",
        "한국어 العربية हिन्दी भाषा 🦙🚀 ñ e\u0301 ",
        "camelCaseWord HTTPServer don't DON'T \u2018quoted\u2019 a$b+c<d>e=f^g~h|i`j     end \n",
    )
)


def tokenizer_keys(model: Model, vocab: int) -> dict[str, Value]:
    """The keys of the model's tokenizer, with a token for each of `vocab` rows of its embedding.

    RequestProblem for a tokenizer that llama.cpp has no name for. That the keys say the same is tried on a
    text before they are given away. CheckpointProblem as of reading the tokenizer.
    """
    tokenizer = model.tokenizer()
    written: Mapping[str, Any] = json.loads(tokenizer.vocabulary.engine.to_str())
    if written["model"]["type"] != "BPE":
        raise _unknown(f"its tokenizer is of type {written['model']['type']}")
    tokens, types = _tokens(tokenizer, written, vocab)
    said: dict[str, Any] = {"tokens": tokens, "token_type": types}
    listed = written["model"]["merges"]
    merges = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in listed]
    if tokenizer.vocabulary.byte_level:
        said |= {"model": "gpt2", "pre": _words_of(tokenizer, written)}
        said["merges"] = [" ".join(merge) for merge in merges]
    else:
        said |= {"model": "llama", "pre": "default", "scores": _scores(tokens, merges)}
        said["add_space_prefix"] = tokenizer.vocabulary.adds_space
    said |= _special(model, tokenizer, written)
    template = {"tokenizer.chat_template": tokenizer.chat_template} if tokenizer.chat_template else {}
    keys = {f"tokenizer.ggml.{name}": value for name, value in said.items()} | template
    _refuse_if_other(tokenizer, keys | {"general.architecture": ""})
    return typed({name: value for name, value in keys.items() if value != []})


def _tokens(tokenizer: Tokenizer, written: Mapping[str, Any], vocab: int) -> tuple[list[str], list[int]]:
    """Spelling and type of each id; ids of no token are padding."""
    tokens, types, unknown = list[str](), list[int](), written["model"].get("unk_token")
    added = tokenizer.vocabulary.added
    for id_ in range(vocab):
        token = tokenizer.vocabulary.token_of(id_)
        if not token:
            kind, token = TokenType.UNUSED, f"[PAD{id_}]"
        elif token == unknown and not tokenizer.vocabulary.byte_level:
            kind = TokenType.UNKNOWN
        elif id_ in added:
            kind = TokenType.CONTROL if added[id_] else TokenType.USER_DEFINED
        elif not tokenizer.vocabulary.byte_level and BYTE_PIECE.fullmatch(token):
            kind = TokenType.BYTE
        else:
            kind = TokenType.NORMAL
        tokens.append(token)
        types.append(int(kind))
    return tokens, types


def _words_of(tokenizer: Tokenizer, written: Mapping[str, Any]) -> str:
    """llama.cpp's name for the way this tokenizer cuts words, told by what it makes of a text."""
    engine, normalizer = tokenizer.vocabulary.engine, written.get("normalizer")
    steps = (normalizer or {}).get("normalizers", [normalizer] if normalizer else [])
    kinds = {step["type"] for step in steps}
    facts = (kinds == {"NFC"}, bool(written["model"].get("ignore_merges")))
    if kinds <= {"NFC"} and engine.pre_tokenizer is not None:
        cut = [piece for piece, _ in engine.pre_tokenizer.pre_tokenize_str(_PROBE)]
        for name, words in WORDS.items():
            if (words.nfc, words.whole) == facts and cut == [
                piece for piece, _ in splitter(words).pre_tokenize_str(_PROBE)
            ]:
                return name
    raise _unknown("it cuts words in a way that llama.cpp has no name for, or none that we know")


def _scores(tokens: Sequence[str], merges: Sequence[Sequence[str]]) -> list[float]:
    """Scores that join pieces in the order of these merges; what no merge makes is joined last."""
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(left + right, rank)
    return [-float(ranks.get(token, len(merges))) for token in tokens]


def _special(model: Model, tokenizer: Tokenizer, written: Mapping[str, Any]) -> dict[str, Any]:
    """Ids of special tokens, and what is put around a text."""
    vocabulary, folder = tokenizer.vocabulary, model.checkpoint.path
    spelled = {vocabulary.id_of(token) for token in ENDINGS}
    ends = sorted(tokenizer.eos_ids - {tokenizer.eos_id} - spelled)
    ids = {
        "bos": tokenizer.bos_id,
        "eos": tokenizer.eos_id,
        **dict(zip(("eot", "eom"), ends)),
        "unknown": vocabulary.id_of(written["model"].get("unk_token")),
        "padding": vocabulary.id_of(special_spelling(folder, "pad")),
    }
    said: dict[str, Any] = {f"{name}_token_id": id_ for name, id_ in ids.items() if id_ is not None}
    return said | {"add_bos_token": tokenizer.adds_bos, "add_eos_token": tokenizer.adds_eos}


def _refuse_if_other(tokenizer: Tokenizer, keys: Mapping[str, Any]) -> None:
    try:
        again = tokenizer_from_gguf(keys)
    except CheckpointProblem as problem:
        raise _unknown(problem.what) from problem
    if again.encode(_PROBE) != tokenizer.encode(_PROBE):
        raise _unknown("a text came out as other tokens when it was written as llama.cpp wants it")


def _unknown(why: str) -> RequestProblem:
    return RequestProblem(f"the tokenizer cannot be written to a GGUF: {why}", fix=_FIX)
