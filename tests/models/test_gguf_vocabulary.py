"""Vocabularies from GGUF keys: against llama.cpp's vectors, SentencePiece itself, and broken files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.pieces import byte_level, sentencepiece
from trisplit.errors import CheckpointProblem
from trisplit.models.gguf import read_header
from trisplit.models.gguf_vocabulary import vocabulary_from_gguf
from trisplit.paths import cache_dir

VECTORS = (
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
)
# llama.cpp does not compose (NFC); the tokenizer.json of these models does.
NOT_COMPOSED = {"qwen35": 3}


@pytest.mark.real
@pytest.mark.parametrize("name", VECTORS)
def test_vectors_of_llama_cpp(name: str) -> None:
    folder = cache_dir() / "tokenizer-vectors"
    if not folder.exists():
        pytest.skip("not here yet: run `trisplit fetch tokenizer-vectors`")
    vocabulary = vocabulary_from_gguf(read_header(folder / f"ggml-vocab-{name}.gguf").keys)
    written = (folder / f"ggml-vocab-{name}.gguf.inp").read_bytes().decode()
    *texts, rest = written.split("\n__ggml_vocab_test__\n")
    answers = (folder / f"ggml-vocab-{name}.gguf.out").read_text(encoding="ascii").splitlines()
    assert (len(texts), rest) == (len(answers), "")

    wrong = []
    for text, answer in zip(texts, answers):
        ids = vocabulary.encode(text, parse_special=False)
        if ids != [int(number) for number in answer.split()]:
            wrong.append(text)

    assert len(wrong) == NOT_COMPOSED.get(name, 0)
    for text in wrong:
        assert text != normalize("NFC", text)


def as_sentencepiece_does(text: str, scores: Mapping[str, float]) -> list[str]:
    """Join the neighbours whose union scores highest, the leftmost of equals, until none is a piece."""
    symbols = list(text.replace(" ", "▁"))
    while True:
        unions = [left + right for left, right in pairwise(symbols)]
        found = [(-scores[union], at) for at, union in enumerate(unions) if union in scores]
        if not found:
            return symbols
        _, at = min(found)
        symbols[at : at + 2] = [unions[at]]


PIECES = st.lists(st.text("ab▁", min_size=2, max_size=6), unique=True, max_size=40)


@given(PIECES, st.randoms(use_true_random=False), st.text("ab ", max_size=40))
def test_merges_join_what_sentencepiece_joins(pieces: list[str], order: Any, text: str) -> None:
    order.shuffle(pieces)
    scores = {piece: -float(rank) for rank, piece in enumerate([*pieces, "a", "b", "▁"])}
    vocabulary = vocabulary_from_gguf(sentencepiece(scores, add_space_prefix=False))

    ids = vocabulary.encode(text, parse_special=False)

    assert [vocabulary.token_of(id_) for id_ in ids] == as_sentencepiece_does(text, scores)


@given(st.integers(2, 9), st.integers(1, 40))
def test_a_run_of_spaces_grows_from_the_left(longest: int, n: int) -> None:
    scores = {"▁" * length: -1e9 for length in range(1, longest + 1)} | {"x": -5.0, "▁x": -1.0}
    vocabulary = vocabulary_from_gguf(sentencepiece(scores, add_space_prefix=False))

    ids = vocabulary.encode(" " * n + "x", parse_special=False)

    full, rest = divmod(n - 1, longest)
    pieces = [vocabulary.token_of(id_) for id_ in ids]
    assert pieces == ["▁" * longest] * full + ["▁" * rest] * (rest > 0) + ["▁x"]
    assert pieces == as_sentencepiece_does(" " * n + "x", scores)


def test_user_defined_tokens_come_first_and_control_tokens_only_when_asked() -> None:
    metadata = sentencepiece({"a": -1.0, "<": -2.0, "s": -3.0, ">": -4.0, "s>": -5.0}, user_defined=["\n\n"])
    vocabulary = vocabulary_from_gguf(metadata | {"tokenizer.ggml.add_space_prefix": False})

    def pieces(text: str, *, parse_special: bool) -> list[str]:
        return [vocabulary.token_of(i) for i in vocabulary.encode(text, parse_special=parse_special)]

    assert pieces("a\n\n<s>\n", parse_special=True) == ["a", "\n\n", "<s>", "<0x0A>"]
    assert pieces("a\n\n<s>\n", parse_special=False) == ["a", "\n\n", "<", "s>", "<0x0A>"]


def test_every_stretch_of_text_gets_its_leading_space() -> None:
    vocabulary = vocabulary_from_gguf(sentencepiece({"▁a": -1.0, "▁": -2.0, "a": -3.0}))

    assert [vocabulary.token_of(i) for i in vocabulary.encode("a<s>a a", parse_special=True)] == [
        *("▁a", "<s>", "▁a", "▁a")
    ]


def test_special_tokens_of_phi_3_swallow_the_white_space_after_them() -> None:
    metadata = sentencepiece({"▁a": -1.0, "▁": -2.0, "a": -3.0}) | {"general.architecture": "phi3"}
    vocabulary = vocabulary_from_gguf(metadata)

    assert [vocabulary.token_of(i) for i in vocabulary.encode("</s>\n a<s> a", parse_special=True)] == [
        *("</s>", "▁a", "<s>", "▁", "▁a")
    ]


def test_a_whole_word_needs_no_merges_where_the_model_says_so() -> None:
    metadata = byte_level(["a b"], pre="llama-bpe")
    metadata["tokenizer.ggml.tokens"].append("cab")
    metadata["tokenizer.ggml.token_type"].append(1)
    whole = vocabulary_from_gguf(metadata)
    merged = vocabulary_from_gguf(metadata | {"tokenizer.ggml.pre": "dbrx"})

    assert [whole.token_of(i) for i in whole.encode("cab cab", parse_special=False)] == [
        "cab",
        "Ġ",
        "c",
        "ab",
    ]
    assert [merged.token_of(i) for i in merged.encode("cab", parse_special=False)] == ["c", "ab"]


def test_text_is_composed_where_the_model_does() -> None:
    composed = vocabulary_from_gguf(byte_level(pre="qwen2"))
    as_it_is = vocabulary_from_gguf(byte_level(pre="llama-bpe"))

    assert composed.encode("e\u0301", parse_special=False) == composed.encode("\u00e9", parse_special=False)
    assert as_it_is.encode("e\u0301", parse_special=False) != as_it_is.encode("\u00e9", parse_special=False)


def without(metadata: dict[str, Any], key: str) -> dict[str, Any]:
    """The keys but one."""
    return {name: value for name, value in metadata.items() if name != f"tokenizer.ggml.{key}"}


SPM = sentencepiece({"a": -1.0})
BROKEN: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "no tokenizer": (lambda: {"general.architecture": "llama"}, "no tokenizer"),
    "another kind": (lambda: byte_level() | {"tokenizer.ggml.model": "bert"}, "kind 'bert'.*gpt2, llama"),
    "no pre": (lambda: without(byte_level(), "pre"), "does not say how its tokenizer cuts words"),
    "unknown pre": (lambda: byte_level(pre="poro-chat"), "'poro-chat'.*known: gpt-2.*qwen2"),
    "no tokens": (lambda: without(SPM, "tokens"), "no list tokenizer.ggml.tokens of str"),
    "tokens of numbers": (lambda: SPM | {"tokenizer.ggml.tokens": [1, 2]}, "no list .*tokens of str"),
    "no merges": (lambda: without(byte_level(), "merges"), "no list tokenizer.ggml.merges"),
    "half a merge": (lambda: byte_level() | {"tokenizer.ggml.merges": ["ab"]}, "does not name two pieces"),
    "merge to nowhere": (lambda: byte_level() | {"tokenizer.ggml.merges": ["a b"]}, "hold together.*ab"),
    "no scores": (lambda: without(SPM, "scores"), "no list tokenizer.ggml.scores of float"),
    "few scores": (lambda: SPM | {"tokenizer.ggml.scores": [0.0]}, "1 entries for 260 tokens"),
    "few types": (lambda: SPM | {"tokenizer.ggml.token_type": [1]}, "1 entries for 260 tokens"),
    "twins": (lambda: byte_level(control=["<s>", "a"]), "1 tokens .* are spelled like another"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_in_words(name: str) -> None:
    metadata, words = BROKEN[name]

    with pytest.raises(CheckpointProblem, match=words):
        vocabulary_from_gguf(metadata())


def test_files_without_token_types_have_only_text() -> None:
    vocabulary = vocabulary_from_gguf(without(byte_level(), "token_type"))

    assert vocabulary.added == {}
    assert vocabulary.size == 258


def test_empty_tokens_get_a_name_nobody_writes() -> None:
    vocabulary = vocabulary_from_gguf(byte_level(control=["", "<s>"]))

    assert vocabulary.token_of(0) == "[EMPTY_0]"
