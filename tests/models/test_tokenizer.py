"""The rules around a vocabulary: BOS, EOS, the ends of an answer, chat; on small and on real tokenizers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, processors

from tests.models.pieces import byte_level, sentencepiece
from tests.tiny import write_gguf
from trisplit.errors import CheckpointProblem, RequestProblem
from trisplit.models.checkpoint import open_checkpoint
from trisplit.models.gguf_vocabulary import vocabulary_from_gguf
from trisplit.models.tokenizer import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf
from trisplit.paths import cache_dir

HELLO = [{"role": "user", "content": "Hi"}]
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("a é😀漢\n\t\r\0'19 =_"), max_size=60
)


# --- from a GGUF file -----------------------------------------------------------------------------


def gguf(flag: bool | None, *, family: str = "llama", **keys: Any) -> dict[str, Any]:
    """A byte-level vocabulary with BOS 0 and EOS 1, and `add_bos_token` as given."""
    flags = {} if flag is None else {"add_bos_token": flag}
    metadata = byte_level(bos_token_id=0, eos_token_id=1, **(flags | keys))
    return metadata | {"general.architecture": family}


@pytest.mark.parametrize(
    ("metadata", "adds_bos"),
    [
        (gguf(None), False),
        (gguf(True), True),
        (gguf(False), False),
        (gguf(None, pre="llama-bpe"), True),
        (gguf(False, pre="llama-bpe"), False),
        (gguf(None, pre="tekken"), True),
        (gguf(False, family="gemma3"), True),
        (sentencepiece({"a": -1.0}), True),
        (sentencepiece({"a": -1.0}, add_bos_token=False), False),
        (sentencepiece({"a": -1.0}, add_bos_token=False) | {"general.architecture": "gemma3"}, True),
    ],
)
def test_who_begins_with_bos(metadata: dict[str, Any], adds_bos: bool) -> None:
    tokenizer = tokenizer_from_gguf(metadata)

    assert tokenizer.adds_bos == adds_bos
    assert (tokenizer.encode("a")[0] == tokenizer.bos_id) == adds_bos
    assert tokenizer.encode("") == [tokenizer.bos_id] * adds_bos
    assert tokenizer.encode("a", special=False)[0] != tokenizer.bos_id


def test_eos_is_added_where_the_file_says_so() -> None:
    assert tokenizer_from_gguf(gguf(True, add_eos_token=True)).encode("a") == [0, 66, 1]
    assert tokenizer_from_gguf(gguf(True)).encode("a") == [0, 66]


def test_special_tokens_are_text_without_special() -> None:
    tokenizer = tokenizer_from_gguf(gguf(True))

    assert tokenizer.encode("a</s>") == [0, 66, 1]
    assert tokenizer.encode("a</s>", special=False) == [tokenizer.vocabulary.id_of(c) for c in "a</s>"]
    assert tokenizer.decode([0, 66, 1]) == "a"
    assert tokenizer.decode([0, 66, 1], skip_special=False) == "<s>a</s>"


def test_every_way_an_answer_ends() -> None:
    control = ["<s>", "</s>", "<|im_end|>", "<|user|>", "<|eot_id|>", "<tool>", "<more>"]
    metadata = byte_level(control=control, bos_token_id=0, eos_token_id=1, eot_token_id=5, eom_token_id=6)

    assert tokenizer_from_gguf(metadata).eos_ids == {1, 2, 4, 5, 6}


def test_an_ending_that_is_only_text_ends_nothing() -> None:
    metadata = sentencepiece({"<|end|>": -1.0})

    assert tokenizer_from_gguf(metadata).eos_ids == {2}


def test_files_may_name_no_bos_and_no_eos() -> None:
    tokenizer = tokenizer_from_gguf(byte_level(add_bos_token=True, add_eos_token=True))

    assert (tokenizer.bos_id, tokenizer.eos_ids) == (None, frozenset())
    assert tokenizer.encode("a") == [66]


@pytest.mark.parametrize("wrong", [258, -1, "0"])
def test_ids_that_no_token_has_are_refused(wrong: object) -> None:
    with pytest.raises(CheckpointProblem, match=rf"eos_token_id of the GGUF file is {wrong} of 258 tokens"):
        tokenizer_from_gguf(byte_level(eos_token_id=wrong))


# --- from a folder --------------------------------------------------------------------------------


def folder(path: Path, *, adds: str = "", **files: Any) -> Path:
    """A folder with the tokenizer of `gguf`, which puts `adds` (`"<s> $A"`) around a text, and JSON files."""
    engine = vocabulary_from_gguf(gguf(None)).engine
    engine.decoder = decoders.ByteLevel()
    if adds:
        engine.post_processor = processors.TemplateProcessing(adds, special_tokens=[("<s>", 0), ("</s>", 1)])
    engine.save(str(path / "tokenizer.json"))
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return path


NAMES = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}}


@pytest.mark.parametrize(
    ("adds", "config", "ids"),
    [
        ("", NAMES, [66]),
        ("<s> $A", NAMES, [0, 66]),
        ("<s> $A </s>", NAMES, [0, 66, 1]),
        ("<s> $A", NAMES | {"add_bos_token": False}, [66]),
        ("", NAMES | {"add_bos_token": True}, [0, 66]),
        ("$A </s>", NAMES, [66, 1]),
        ("<s> $A", NAMES | {"eos_token": "<s>"}, [0, 66]),
        ("", {"add_bos_token": True}, [66]),
        ("", {"add_bos_token": True, "bos_token": "<unheard of>"}, [66]),
    ],
)
def test_who_begins_and_ends_in_a_folder(adds: str, config: Any, ids: list[int], tmp_path: Path) -> None:
    assert tokenizer_from_folder(folder(tmp_path, adds=adds, tokenizer_config=config)).encode("a") == ids


def test_gemma_begins_with_bos_whatever_its_folder_says(tmp_path: Path) -> None:
    said = NAMES | {"add_bos_token": False}
    files = folder(tmp_path, tokenizer_config=said, config={"model_type": "gemma3_text"})

    assert tokenizer_from_folder(files).encode("a") == [0, 66]


def test_names_come_from_the_map_where_the_config_has_none(tmp_path: Path) -> None:
    files = folder(tmp_path, special_tokens_map=NAMES, tokenizer_config={"eos_token": "<s>"})

    tokenizer = tokenizer_from_folder(files)

    assert (tokenizer.bos_id, tokenizer.eos_id) == (0, 0)


@pytest.mark.parametrize(
    ("config", "generation", "eos_ids"),
    [
        ({}, {}, {1}),
        ({"eos_token_id": 7}, {}, {1, 7}),
        ({"eos_token_id": None}, {"eos_token_id": [1, 8]}, {1, 8}),
        ({"eos_token_id": 7}, {"eos_token_id": [1, 8]}, {1, 7, 8}),
    ],
)
def test_all_files_may_name_ends(config: Any, generation: Any, eos_ids: set[int], tmp_path: Path) -> None:
    files = folder(tmp_path, tokenizer_config=NAMES, config=config, generation_config=generation)

    assert tokenizer_from_folder(files).eos_ids == eos_ids


def test_which_chat_template_is_taken(tmp_path: Path) -> None:
    several = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "talk"}]
    folder(tmp_path, tokenizer_config={"chat_template": "one"})
    assert tokenizer_from_folder(tmp_path).chat_template == "one"

    folder(tmp_path, tokenizer_config={"chat_template": several})
    assert tokenizer_from_folder(tmp_path).chat_template == "talk"

    folder(tmp_path, tokenizer_config={"chat_template": several[:1]})
    assert tokenizer_from_folder(tmp_path).chat_template is None

    (tmp_path / "chat_template.jinja").write_text("of its own", encoding="utf-8")
    assert tokenizer_from_folder(tmp_path).chat_template == "of its own"


@pytest.mark.parametrize("name", ["tokenizer_config", "special_tokens_map", "config", "generation_config"])
@pytest.mark.parametrize("content", ["{", "[]", "\N{LATIN SMALL LETTER E WITH ACUTE}"])
def test_damaged_files_are_named(name: str, content: str, tmp_path: Path) -> None:
    (folder(tmp_path) / f"{name}.json").write_bytes(content.encode("latin-1"))

    with pytest.raises(CheckpointProblem, match=rf"{name}\.json (cannot be read|is not a JSON object)"):
        tokenizer_from_folder(tmp_path)


@pytest.mark.parametrize("variant", ["llama", "qwen2", "gemma3"])
def test_a_folder_and_its_gguf_agree(variant: str, tiny: Callable[[str], Path], tmp_path: Path) -> None:
    path = write_gguf(tiny(variant), tmp_path / "tiny.gguf")
    ours = tokenizer_from_folder(tiny(variant))
    theirs = tokenizer_from_gguf(open_checkpoint(path).metadata)

    @given(TEXTS)
    @settings(max_examples=50)
    def agree(text: str) -> None:
        ids = ours.encode(text)
        assert theirs.encode(text) == ids
        assert theirs.decode(ids) == ours.decode(ids) == text

    agree()
    assert ours.encode_chat(HELLO) == theirs.encode_chat(HELLO)
    assert (ours.bos_id, ours.eos_ids, ours.adds_bos) == (theirs.bos_id, theirs.eos_ids, theirs.adds_bos)


# --- chat -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("begins", ["{{ bos_token }}", ""])
def test_a_chat_begins_with_bos_once_and_has_no_eos(begins: str) -> None:
    template = begins + "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}>"
    metadata = gguf(True, add_eos_token=True) | {"tokenizer.chat_template": template}
    tokenizer = tokenizer_from_gguf(metadata)

    assert tokenizer.chat_prompt(HELLO) == ("<s>" if begins else "") + "Hi</s>>"
    assert tokenizer.encode_chat(HELLO) == [0, *tokenizer.encode("Hi", special=False), 1, 31]


def test_a_model_that_wants_no_bos_gets_none() -> None:
    metadata = gguf(False) | {"tokenizer.chat_template": "{{ messages[0].content }}"}

    assert tokenizer_from_gguf(metadata).encode_chat([{"role": "user", "content": "a"}]) == [66]


def test_without_a_template_plain_completion_is_offered() -> None:
    with pytest.raises(RequestProblem, match=r"no chat template.*plain completion.*trisplit generate"):
        tokenizer_from_gguf(gguf(True)).encode_chat(HELLO)


# --- real models ----------------------------------------------------------------------------------


def real(name: str) -> Tokenizer:
    """The tokenizer of a fetched model."""
    files = [*(cache_dir() / name).glob("*.gguf")]
    if not files:
        pytest.skip(f"not here yet: run `trisplit fetch {name}`")
    return tokenizer_from_gguf(open_checkpoint(files[0]).metadata)


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    """SmolLM2-135M-Instruct: byte-level, digits one by one, no BOS."""
    return real("smollm2")


@pytest.fixture(scope="module")
def gemma() -> Tokenizer:
    """Gemma 3 270M: SentencePiece with byte fallback and no leading space, always BOS, no chat template."""
    return real("gemma3-270m")


# The ids are llama.cpp's (0.3.36 of its Python package) on the same files.
SAMPLE = "The cat's 12 naïve  spaces\n\n\tdef f(x): 日本語 😀"
SMOLLM2_IDS = (
    "504 2644 506 216 33 34 15486 46494 216 5600 1116 197 1604 275 24 104 727 17097 241 115 40993 "
    "179 120 248 40303 218"
)
GEMMA_IDS = (
    "2 818 5866 236789 236751 236743 236770 236778 120362 138 35220 108 255968 2063 517 236769 "
    "236781 1473 33375 238582 163543"
)
QWEN_IDS = "785 8251 594 220 16 17 94880 586 220 12621 271 7452 282 2075 1648 75402 21894 102819 90316"


@pytest.mark.real
def test_smollm2(smollm2: Tokenizer) -> None:
    ids = smollm2.encode(SAMPLE)

    assert ids == [int(id_) for id_ in SMOLLM2_IDS.split()]
    assert smollm2.decode(ids) == SAMPLE
    assert (smollm2.vocab_size, smollm2.bos_id, smollm2.eos_ids) == (49152, 1, {0, 2})
    assert smollm2.encode("<|im_start|>") == [1]
    assert smollm2.chat_prompt(HELLO) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert smollm2.encode_chat(HELLO) == smollm2.encode(smollm2.chat_prompt(HELLO))


@pytest.mark.real
@pytest.mark.slow
def test_gemma(gemma: Tokenizer) -> None:
    ids = gemma.encode(SAMPLE)

    assert ids == [int(id_) for id_ in GEMMA_IDS.split()]
    assert gemma.decode(ids) == SAMPLE
    assert (gemma.vocab_size, gemma.bos_id, gemma.eos_ids) == (262144, 2, {1, 106})
    assert gemma.encode(" " * 31 + "x" + "\n" * 3) == [2, 167, 236781, 109]
    with pytest.raises(RequestProblem, match="no chat template"):
        gemma.chat_prompt(HELLO)


@pytest.mark.real
@pytest.mark.slow
def test_qwen() -> None:
    qwen = real("qwen2.5-coder-0.5b")
    ids = qwen.encode(SAMPLE)

    assert ids == [int(id_) for id_ in QWEN_IDS.split()]
    assert qwen.decode(ids) == SAMPLE
    assert (qwen.vocab_size, qwen.bos_id, qwen.adds_bos) == (151936, 151643, False)
    assert qwen.eos_ids == {151643, 151645}
    assert qwen.chat_prompt(HELLO).endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert qwen.encode("e\u0301") == qwen.encode(normalize("NFC", "e\u0301"))


# SmolLM2 has no token for the bytes of some control characters and of planes without characters.
ASSIGNED = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]) | st.sampled_from(" \n\t\r\0"))


@pytest.mark.real
@pytest.mark.parametrize("name", ["smollm2", pytest.param("gemma", marks=pytest.mark.slow)])
@given(data=st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_real_tokenizers_give_text_back(
    name: str, request: pytest.FixtureRequest, data: st.DataObject
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(name)
    text = data.draw(ASSIGNED)
    ids = data.draw(st.just(tokenizer.encode(text)) | st.lists(st.integers(0, tokenizer.vocab_size - 1)))

    stream = tokenizer.detokenizer()
    joined = "".join(stream.push(id_) for id_ in ids) + stream.flush()

    assert joined == tokenizer.decode(ids)
    if "▁" not in text or tokenizer.vocabulary.byte_level:
        assert tokenizer.decode(tokenizer.encode(text, special=False)) == text
