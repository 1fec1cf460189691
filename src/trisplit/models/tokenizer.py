"""Text to ids and back, by the rules of the model: where it begins, where it ends, how it chats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trisplit.errors import CheckpointProblem, RequestProblem
from trisplit.models.chat import PLAIN, render
from trisplit.models.gguf_vocabulary import vocabulary_from_gguf, words_of
from trisplit.models.json_vocabulary import vocabulary_from_json
from trisplit.models.vocabulary import Detokenizer, Vocabulary

# Without BOS these babble, whatever a converter wrote.
BOS_FAMILIES = ("gemma",)
# GGUF names one end token; chat models end their turns with others, known only by how they are spelled.
ENDINGS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<|end|>",
    "<｜end▁of▁sentence｜>",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """A vocabulary and the rules of its model.

    `eos_ids`: every id that ends an answer; `eos_id`: the one a document ends with. `adds_bos`,
    `adds_eos`: whether `encode` puts them around the text.
    """

    vocabulary: Vocabulary
    bos_id: int | None
    eos_id: int | None
    eos_ids: frozenset[int]
    adds_bos: bool
    adds_eos: bool
    chat_template: str | None = field(repr=False)

    @property
    def vocab_size(self) -> int:
        """One more than the largest id; the logits of a model may have more columns, which mean nothing."""
        return self.vocabulary.size

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The ids of `text`; a RequestProblem if it is not valid Unicode.

        `special`: with BOS and EOS by the model's rules, and special tokens written in the text read as
        such. Without, text is only text: nothing is added, and `<s>` is three characters.
        """
        ids = self.vocabulary.encode(text, parse_special=special)
        return [*self._bos(), *ids, *self._eos()] if special else ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of `ids`; bytes that are not UTF-8 become replacement characters, as Python does it."""
        spelled = b"".join(self.vocabulary.bytes_of(id_, skip_special=skip_special) for id_ in ids)
        text = spelled.decode(errors="replace")
        return text.removeprefix(" ") if self.vocabulary.adds_space else text

    def detokenizer(self) -> Detokenizer:
        """A stream of ids to text; joined, it is `decode` of all of them."""
        return Detokenizer(self.vocabulary)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The messages (`role`, `content`) as the model's chat template writes them, up to its answer."""
        if self.chat_template is None:
            raise RequestProblem("this model has no chat template: it was not made to chat", fix=PLAIN)
        bos, eos = (self.vocabulary.token_of(id_) for id_ in (self.bos_id, self.eos_id))
        return render(self.chat_template, messages, bos_token=bos, eos_token=eos)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The ids of `chat_prompt`: with BOS where the model wants it, once, and without EOS."""
        ids = self.vocabulary.encode(self.chat_prompt(messages), parse_special=True)
        return ids if ids[:1] == self._bos() else [*self._bos(), *ids]

    def _bos(self) -> list[int]:
        return [self.bos_id] if self.adds_bos and self.bos_id is not None else []

    def _eos(self) -> list[int]:
        return [self.eos_id] if self.adds_eos and self.eos_id is not None else []


def tokenizer_from_folder(folder: Path) -> Tokenizer:
    """The tokenizer of a model in the layout of the Hugging Face hub; a CheckpointProblem for bad files.

    tokenizer.json has the vocabulary. tokenizer_config.json, before special_tokens_map.json, names BOS and
    EOS; its `add_bos_token` and `add_eos_token`, where given, overrule what tokenizer.json adds to an empty
    text. generation_config.json and config.json may name more ends of an answer. chat_template.jinja comes
    before the template in tokenizer_config.json (the one named "default" if there are several).
    """
    vocabulary = vocabulary_from_json(folder / "tokenizer.json")
    settings = _json(folder / "special_tokens_map.json") | _json(folder / "tokenizer_config.json")
    config, generation = _json(folder / "config.json"), _json(folder / "generation_config.json")
    bos_id, eos_id = (vocabulary.id_of(_spelling(settings.get(f"{name}_token"))) for name in ("bos", "eos"))
    around = vocabulary.engine.encode("", add_special_tokens=True).ids
    begins = around[:1] == [bos_id]
    ends = around[begins:][-1:] == [eos_id]
    return Tokenizer(
        vocabulary=vocabulary,
        bos_id=bos_id,
        eos_id=eos_id,
        eos_ids=_some([eos_id, *_ends(config), *_ends(generation)]),
        adds_bos=_needs_bos(config.get("model_type")) or _flag(settings, "add_bos_token", begins),
        adds_eos=_flag(settings, "add_eos_token", ends),
        chat_template=_chat_template(folder / "chat_template.jinja", settings.get("chat_template")),
    )


def special_spelling(folder: Path, name: str) -> str | None:
    """How the files of a folder spell a special token, such as `pad`; None where they name none."""
    settings = _json(folder / "special_tokens_map.json") | _json(folder / "tokenizer_config.json")
    return _spelling(settings.get(f"{name}_token"))


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer in the keys of a GGUF file, `tokenizer.*`; a CheckpointProblem for one we do not run."""
    vocabulary = vocabulary_from_gguf(metadata)
    wants_bos = words_of(metadata).adds_bos if vocabulary.byte_level else True
    named = [_gguf_id(metadata, name, vocabulary.size) for name in ("bos", "eos", "eot", "eom")]
    spelled = (vocabulary.id_of(token) for token in ENDINGS)
    return Tokenizer(
        vocabulary=vocabulary,
        bos_id=named[0],
        eos_id=named[1],
        eos_ids=_some([*named[1:], *(id_ for id_ in spelled if id_ in vocabulary.added)]),
        adds_bos=_needs_bos(metadata.get("general.architecture"))
        or _flag(metadata, "tokenizer.ggml.add_bos_token", wants_bos),
        adds_eos=_flag(metadata, "tokenizer.ggml.add_eos_token", False),
        chat_template=_text(metadata.get("tokenizer.chat_template")),
    )


def _needs_bos(family: object) -> bool:
    return str(family).startswith(BOS_FAMILIES)


def _flag(settings: Mapping[str, Any], key: str, default: bool) -> bool:
    value = settings.get(key)
    return value if isinstance(value, bool) else default


def _some(ids: Iterable[int | None]) -> frozenset[int]:
    return frozenset(id_ for id_ in ids if id_ is not None)


def _gguf_id(metadata: Mapping[str, Any], name: str, n: int) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    id_ = metadata.get(key)
    if id_ is not None and not (isinstance(id_, int) and 0 <= id_ < n):
        raise CheckpointProblem(f"{key} of the GGUF file is {id_} of {n} tokens", fix="get the file again")
    return id_


def _json(path: Path) -> dict[str, Any]:
    """The object in a file that may be missing."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CheckpointProblem(f"{path} cannot be read: {error}", fix="get the file again") from error
    if not isinstance(content, dict):
        raise CheckpointProblem(f"{path} is not a JSON object", fix="get the file again")
    return content


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _spelling(token: object) -> str | None:
    """A special token as its files write it: plain, or an object with its `content`."""
    return _text(token.get("content") if isinstance(token, dict) else token)


def _ends(config: Mapping[str, Any]) -> list[int]:
    """`eos_token_id` of a config: nothing, one id, or a list."""
    value = config.get("eos_token_id")
    ids = value if isinstance(value, list) else [value]
    return [id_ for id_ in ids if isinstance(id_, int)]


def _chat_template(file: Path, setting: object) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointProblem(f"{file} cannot be read: {error}", fix="get the file again") from error
    if isinstance(setting, list):
        named = {entry.get("name"): entry.get("template") for entry in setting if isinstance(entry, dict)}
        setting = named.get("default")
    return _text(setting)
