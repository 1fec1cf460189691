"""Ids to text, at once and streamed: the same characters, whatever the ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import decoders

from tests.models.pieces import byte_level, sentencepiece
from trisplit.errors import RequestProblem
from trisplit.models.gguf_vocabulary import vocabulary_from_gguf
from trisplit.models.vocabulary import Detokenizer, Vocabulary, first_difference

BYTE_LEVEL = vocabulary_from_gguf(byte_level(["Ġ a", "ð Ł", "ðŁ ĺ", "Ã ©"], control=["<s>", "</s>", "<é▁>"]))
SPM = vocabulary_from_gguf(sentencepiece({"▁": -3.0, "a": -4.0, "▁a": -1.0, "▁▁": -2.0, "é": -5.0}))
BOTH = pytest.mark.parametrize("vocabulary", [BYTE_LEVEL, SPM], ids=["byte level", "sentencepiece"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("a é😀\n\t\0"))


def whole(vocabulary: Vocabulary, ids: list[int]) -> str:
    """The text of ids decoded at once."""
    text = b"".join(vocabulary.bytes_of(id_, skip_special=True) for id_ in ids).decode(errors="replace")
    return text.removeprefix(" ") if vocabulary.adds_space else text


def streamed(vocabulary: Vocabulary, ids: list[int]) -> list[str]:
    """What comes out after each id, and at the end."""
    stream = Detokenizer(vocabulary)
    return [*(stream.push(id_) for id_ in ids), stream.flush()]


@BOTH
@given(data=st.data())
def test_a_stream_joins_to_the_whole(vocabulary: Vocabulary, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, vocabulary.size - 1)))

    assert "".join(streamed(vocabulary, ids)) == whole(vocabulary, ids)


@given(st.lists(st.integers(3, BYTE_LEVEL.size - 1)))
def test_invalid_bytes_are_replaced_as_the_library_does(ids: list[int]) -> None:
    expected = decoders.ByteLevel().decode([BYTE_LEVEL.token_of(id_) for id_ in ids])

    assert "".join(streamed(BYTE_LEVEL, ids)) == expected


@BOTH
@given(text=TEXT)
def test_text_comes_back(vocabulary: Vocabulary, text: str) -> None:
    if not vocabulary.byte_level:
        text = text.replace("▁", " ")  # SentencePiece cannot tell the two apart

    ids = vocabulary.encode(text, parse_special=False)

    assert whole(vocabulary, ids) == text
    assert "".join(streamed(vocabulary, ids)) == text


def test_a_character_split_over_tokens_comes_when_it_is_finished() -> None:
    pieces = BYTE_LEVEL.encode("a😀é", parse_special=False)
    assert [BYTE_LEVEL.token_of(id_) for id_ in pieces] == ["a", "ðŁĺ", "Ģ", "Ã©"]
    assert streamed(BYTE_LEVEL, pieces) == ["a", "", "😀", "é", ""]

    by_byte = SPM.encode("😀", parse_special=False)
    assert [SPM.token_of(id_) for id_ in by_byte] == ["▁", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]
    assert streamed(SPM, by_byte) == ["", "", "", "", "😀", ""]


def test_a_character_that_never_ends_is_replaced_at_the_end() -> None:
    assert streamed(BYTE_LEVEL, BYTE_LEVEL.encode("😀", parse_special=False)[:1]) == ["", "\ufffd"]


def test_only_the_first_space_is_taken_off() -> None:
    ids = SPM.encode("  a a", parse_special=False)

    assert [SPM.token_of(id_) for id_ in ids] == ["▁▁", "▁a", "▁a"]
    assert streamed(SPM, ids) == [" ", " a", " a", ""]
    assert streamed(SPM, ids[1:]) == ["a", " a", ""]


def test_special_tokens_are_silent_and_written_as_they_are_when_asked_for() -> None:
    odd = BYTE_LEVEL.id_of("<é▁>")
    assert odd is not None

    assert BYTE_LEVEL.bytes_of(odd, skip_special=True) == b""
    assert BYTE_LEVEL.bytes_of(odd, skip_special=False).decode() == "<é▁>"
    assert SPM.bytes_of(1, skip_special=False) == b"<s>"


def test_ids_of_no_token_are_silent() -> None:
    assert BYTE_LEVEL.bytes_of(BYTE_LEVEL.size, skip_special=True) == b""
    assert BYTE_LEVEL.token_of(BYTE_LEVEL.size) == BYTE_LEVEL.token_of(None) == ""


def test_half_a_character_is_not_text() -> None:
    with pytest.raises(RequestProblem, match=r"position 2: '\\udcff'.*UTF-8"):
        BYTE_LEVEL.encode("ab\udcff", parse_special=True)


MERGES = ["Ġ a", "a b", "b c"]
SPECIALS = ["<s>", "</s>"]


def spelled(merges: list[str], control: list[str]) -> Vocabulary:
    return vocabulary_from_gguf(byte_level(merges, control=control))


def test_the_first_id_that_stands_for_something_else() -> None:
    one = spelled(MERGES, SPECIALS)
    assert first_difference(one, spelled(MERGES, SPECIALS)) is None
    other = spelled(["Ġ a", "a c", "c b"], SPECIALS)
    id_ = first_difference(one, other)
    assert id_ == first_difference(other, one)
    assert id_ is not None
    assert (one.token_of(id_), other.token_of(id_)) == ("ab", "ac")
    assert all(one.token_of(i) == other.token_of(i) for i in range(id_))
    renamed = first_difference(one, spelled(MERGES, ["<s>", "<end>"]))
    assert one.token_of(renamed) == "</s>"


def test_what_stands_behind_the_pieces_may_be_more_or_less() -> None:
    """Padding, and tokens added later: ids of one alone that the other never says."""
    one = spelled(MERGES, SPECIALS)
    engine = Engine.from_str(one.engine.to_str())
    engine.add_special_tokens(["<tool>"])
    added = Vocabulary.of(engine, byte_level=True, adds_space=False)
    assert added.size == one.size + 1
    assert first_difference(one, added) is None
    assert first_difference(added, one) is None
    more = vocabulary_from_gguf(sentencepiece({"▁": -3.0, "a": -4.0, "▁a": -1.0}))
    padded = vocabulary_from_gguf(sentencepiece({"▁": -3.0, "a": -4.0, "▁a": -1.0, "[PAD7]": -9.0}))
    words = vocabulary_from_gguf(sentencepiece({"▁": -3.0, "a": -4.0, "▁a": -1.0, "aa": -9.0}))
    assert first_difference(more, padded) is None
    assert first_difference(words, more) == more.size == words.size - 1
