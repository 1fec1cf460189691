"""Vocabularies from tokenizer.json: which ones are read, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers

from tests.models.pieces import byte_level, sentencepiece
from trisplit.errors import CheckpointProblem
from trisplit.models.gguf_vocabulary import vocabulary_from_gguf
from trisplit.models.json_vocabulary import vocabulary_from_json

LLAMA = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
SPM = {"▁": -3.0, "a": -4.0, "▁a": -1.0}


def saved(engine: Engine, decoder: decoders.Decoder | None, folder: Path) -> Path:
    """The engine as a tokenizer.json that decodes with `decoder`."""
    if decoder is not None:
        engine.decoder = decoder
    path = folder / "tokenizer.json"
    engine.save(str(path))
    return path


def test_byte_level(tmp_path: Path) -> None:
    source = vocabulary_from_gguf(byte_level(["Ġ a"]))
    vocabulary = vocabulary_from_json(saved(source.engine, decoders.ByteLevel(), tmp_path))

    assert (vocabulary.byte_level, vocabulary.adds_space) == (True, False)
    assert dict(vocabulary.added) == {0: True, 1: True}
    assert vocabulary.size == source.size
    text = "<s> a é"
    for parse_special in (True, False):
        ids = vocabulary.encode(text, parse_special=parse_special)
        assert ids == source.encode(text, parse_special=parse_special)


@pytest.mark.parametrize(
    ("decoder", "adds_space"),
    [
        (decoders.Sequence(LLAMA), True),
        (decoders.Sequence(LLAMA[:3]), False),
        (decoders.Metaspace(), True),
        (decoders.Metaspace(prepend_scheme="never"), False),
    ],
)
def test_sentencepiece(decoder: decoders.Decoder, adds_space: bool, tmp_path: Path) -> None:
    source = vocabulary_from_gguf(sentencepiece(SPM, add_space_prefix=adds_space))
    vocabulary = vocabulary_from_json(saved(source.engine, decoder, tmp_path))

    assert (vocabulary.byte_level, vocabulary.adds_space) == (False, adds_space)
    assert vocabulary.encode("a é", parse_special=False) == source.encode("a é", parse_special=False)


def test_added_tokens_keep_their_ids(tmp_path: Path) -> None:
    engine = vocabulary_from_gguf(byte_level()).engine
    engine.add_tokens(["<tool>"])
    engine.add_special_tokens(["<turn>"])
    vocabulary = vocabulary_from_json(saved(engine, decoders.ByteLevel(), tmp_path))

    assert vocabulary.size == 260
    assert vocabulary.encode("<tool><turn>", parse_special=True) == [258, 259]
    blind = vocabulary.encode("<tool><turn>", parse_special=False)
    assert blind[0] == 258
    assert [vocabulary.token_of(id_) for id_ in blind[1:]] == [*"<turn>"]


def test_no_prompt_is_cut_or_padded(tmp_path: Path) -> None:
    engine = vocabulary_from_gguf(byte_level()).engine
    engine.enable_truncation(3)
    engine.enable_padding(length=8)
    vocabulary = vocabulary_from_json(saved(engine, decoders.ByteLevel(), tmp_path))

    assert len(vocabulary.encode("abcde", parse_special=True)) == 5


def test_decoders_we_do_not_know_are_named(tmp_path: Path) -> None:
    wordpiece = Engine(models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    with pytest.raises(CheckpointProblem, match=r"decodes with WordPiece.*ByteLevel.*SentencePiece"):
        vocabulary_from_json(saved(wordpiece, decoders.WordPiece(), tmp_path))

    nothing = Engine(models.BPE({"a": 0}, []))
    nothing.normalizer = normalizers.NFC()
    with pytest.raises(CheckpointProblem, match="decodes with nothing"):
        vocabulary_from_json(saved(nothing, None, tmp_path))


def test_a_missing_file_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(CheckpointProblem, match=r"has no tokenizer.json \(copy it"):
        vocabulary_from_json(tmp_path / "tokenizer.json")

    (tmp_path / "tokenizer.model").write_bytes(b"\x0a")
    with pytest.raises(CheckpointProblem, match=r"has no tokenizer.json \(write one: AutoTokenizer"):
        vocabulary_from_json(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"model": 1}', b"\xff\xfe"])
def test_a_damaged_file_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)

    with pytest.raises(CheckpointProblem, match=r"tokenizer\.json (is not a tokenizer|cannot be read)"):
        vocabulary_from_json(path)
