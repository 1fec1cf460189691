"""Tokenizers in llama.cpp's keys: every way of cutting words is found by what it does, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from tests.tiny import build_variant, write_gguf
from trisplit.compress.gguf_tokenizer import tokenizer_keys
from trisplit.errors import RequestProblem
from trisplit.models.gguf_vocabulary import TokenType
from trisplit.models.model import Model, open_model
from trisplit.models.pretokenizers import WORDS, Words, splitter
from trisplit.models.tokenizer import tokenizer_from_gguf

Tiny = Callable[[str], Path]
TEXT = "The tide's out; in 1897 3 boats lay there – naïve, said HTTPServer.\n\n  Twice a day!"
VOCAB = 320


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return open_model(build_variant("llama", tmp_path / "m", layers=1))


def with_engine(model: Model, change: Callable[[Engine], None]) -> Model:
    """The model with another tokenizer.json."""
    path = model.checkpoint.path / "tokenizer.json"
    engine = Engine.from_str(path.read_text())
    change(engine)
    engine.save(str(path))
    return model


def said(model: Model) -> dict[str, Any]:
    return {name: value.value for name, value in tokenizer_keys(model, VOCAB).items()}


def as_(words: Words) -> Callable[[Engine], None]:
    def change(engine: Engine) -> None:
        engine.pre_tokenizer = splitter(words)
        engine.normalizer = normalizers.NFC() if words.nfc else None

    return change


@pytest.mark.parametrize("name", [name for name, words in WORDS.items() if not words.whole])
def test_the_way_words_are_cut_is_told_by_what_it_does(name: str, model: Model) -> None:
    keys = said(with_engine(model, as_(WORDS[name])))
    found = keys["tokenizer.ggml.pre"]
    assert WORDS[found] == WORDS[name]  # some names mean the same
    assert tokenizer_from_gguf(keys).encode(TEXT) == model.tokenizer().encode(TEXT)


def test_everything_a_tokenizer_says_is_kept(tiny: Tiny, tmp_path: Path) -> None:
    keys = said(open_model(tiny("llama")))
    theirs = open_model(write_gguf(tiny("llama"), tmp_path / "m.gguf")).checkpoint.metadata
    for name in theirs:
        if name.startswith("tokenizer."):
            assert keys.pop(name) == theirs[name], name
    assert keys == {"tokenizer.ggml.add_eos_token": False}


def test_more_rows_than_tokens_are_filled_up(tmp_path: Path) -> None:
    keys = tokenizer_keys(open_model(build_variant("llama", tmp_path / "m", layers=1)), 330)
    assert keys["tokenizer.ggml.tokens"].value[-1] == "[PAD329]"
    assert keys["tokenizer.ggml.token_type"].value[-1] == TokenType.UNUSED


def test_sentencepiece_keeps_its_order_of_merges(model: Model) -> None:
    """As Llama 2 has it: pieces with ▁ for a space, bytes for the rest, no scores in its tokenizer.json."""
    engine = Engine(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    engine.decoder = decoders.Sequence(steps)
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=specials[:3], show_progress=False)
    engine.train_from_iterator([__doc__ or "", TEXT * 3, Path(__file__).read_text()], trainer)
    written = json.loads(engine.to_str())
    vocab = written["model"]["vocab"]
    for piece in specials[3:]:
        vocab[piece] = len(vocab)
    path = model.checkpoint.path / "tokenizer.json"
    path.write_text(json.dumps(written))
    tokenizer = model.tokenizer()
    keys = {name: value.value for name, value in tokenizer_keys(model, len(vocab)).items()}
    assert keys["tokenizer.ggml.model"] == "llama"
    assert keys["tokenizer.ggml.token_type"][:3] == [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    assert keys["tokenizer.ggml.token_type"][-1] == TokenType.BYTE
    again = tokenizer_from_gguf(keys)
    for text in (TEXT, "", " two  spaces", "日本 🦙", "unseen: ßþ"):
        assert again.encode(text) == tokenizer.encode(text)
        assert again.decode(again.encode(text)) == tokenizer.decode(tokenizer.encode(text))


def strange_cut(engine: Engine) -> None:
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("e", "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def lower_case(engine: Engine) -> None:
    engine.normalizer = normalizers.Lowercase()


def other_model(engine: Engine) -> None:
    engine.model = models.WordLevel(engine.get_vocab(), unk_token="<pad>")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (strange_cut, "cuts words in a way"),
        (lower_case, "cuts words in a way"),
        (other_model, "of type WordLevel"),
    ],
)
def test_what_llama_cpp_has_no_name_for_is_refused(
    change: Callable[[Engine], None], why: str, model: Model
) -> None:
    with pytest.raises(RequestProblem) as caught:
        tokenizer_keys(with_engine(model, change), VOCAB)
    assert why in caught.value.what
    assert "safetensors" in caught.value.fix
