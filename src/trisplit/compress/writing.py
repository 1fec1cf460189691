"""A model written as a folder of safetensors that stock loaders read, a file at a time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file
from tokenizers import Tokenizer as Engine
from tokenizers import decoders

from trisplit.compress.kinds import as_type
from trisplit.errors import RequestProblem
from trisplit.models.model import Model
from trisplit.models.session import Floats
from trisplit.models.tokenizer import Tokenizer
from trisplit.models.vocabulary import SPACE

_TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
)


class FolderWriter:
    """Weights in so many files, numbered, with the index that names them; a file at a time in memory."""

    def __init__(self, folder: Path, *, files: int, dtype: DTypeLike = np.float32) -> None:
        """RequestProblem when the folder holds something, or cannot be made."""
        self._dtype = np.dtype(dtype)
        self._folder, self._files, self._written = folder, files, 0
        self._where: dict[str, str] = {}
        self._n_bytes = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            is_empty = not any(folder.iterdir())
        except OSError as error:
            raise _unwritable(folder, error) from error
        if not is_empty:
            raise RequestProblem(f"{folder} is not empty", fix="name a folder that does not exist yet")

    def add(self, tensors: Mapping[str, Floats]) -> None:
        """Writes the next file; RequestProblem when the folder cannot take it."""
        self._written += 1
        name = f"model-{self._written:05}-of-{self._files:05}.safetensors"
        try:
            stored = {key: self._stored(key, tensor) for key, tensor in tensors.items()}
            save_file(stored, self._folder / name, metadata={"format": "pt"})
        except (OSError, SafetensorError) as error:
            raise _unwritable(self._folder, error) from error
        self._where |= dict.fromkeys(tensors, name)
        self._n_bytes += sum(tensor.size * self._dtype.itemsize for tensor in tensors.values())

    def _stored(self, name: str, values: Floats) -> NDArray[Any]:
        # The library writes the bytes of an array as they lie, whatever their order.
        return np.ascontiguousarray(as_type(name, values, self._dtype))

    def close(self, model: Model, config: Mapping[str, Any]) -> None:
        """Writes the index, this config.json, and the tokenizer of `model`."""
        index = {"metadata": {"total_size": self._n_bytes}, "weight_map": self._where}
        try:
            _write_json(self._folder / "model.safetensors.index.json", index)
            _write_json(self._folder / "config.json", config)
            _write_tokenizer(model, self._folder)
        except OSError as error:
            raise _unwritable(self._folder, error) from error


def _write_tokenizer(model: Model, folder: Path) -> None:
    """The files of the model's tokenizer, copied, or written from what a GGUF file says."""
    if model.checkpoint.format == "safetensors":
        for name in _TOKENIZER_FILES:
            if (model.checkpoint.path / name).exists():
                shutil.copyfile(model.checkpoint.path / name, folder / name)
        return
    tokenizer = model.tokenizer()
    engine = Engine.from_str(tokenizer.vocabulary.engine.to_str())
    engine.decoder = _decoder(tokenizer)
    engine.save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", _settings(tokenizer))
    _write_json(folder / "generation_config.json", {"eos_token_id": sorted(tokenizer.eos_ids)})


def _decoder(tokenizer: Tokenizer) -> decoders.Decoder:
    """How stock tools turn ids into text; ours do it by the vocabulary."""
    if tokenizer.vocabulary.byte_level:
        return decoders.ByteLevel()
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * tokenizer.vocabulary.adds_space)


def _settings(tokenizer: Tokenizer) -> dict[str, Any]:
    named = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
    spelled = {key: tokenizer.vocabulary.token_of(id_) for key, id_ in named.items() if id_ is not None}
    template = {"chat_template": tokenizer.chat_template} if tokenizer.chat_template else {}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": tokenizer.adds_bos,
        "add_eos_token": tokenizer.adds_eos,
        **spelled,
        **template,
    }


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _unwritable(folder: Path, error: Exception) -> RequestProblem:
    return RequestProblem(
        f"{folder} cannot be written: {error}", fix="make room there, or name another folder"
    )
