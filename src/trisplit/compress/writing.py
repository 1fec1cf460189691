"""A model written as a folder of safetensors that stock loaders read, a file at a time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.numpy import save_file
from tokenizers import Tokenizer as Engine
from tokenizers import decoders

from trisplit.errors import RequestProblem
from trisplit.models.keys import Keys
from trisplit.models.model import Model
from trisplit.models.rope import frequencies
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
# Families whose config.json we can write from the facts of a GGUF file.
_FROM_GGUF: Final = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}


class FolderWriter:
    """Weights in so many files, numbered, with the index that names them; a file at a time in memory."""

    def __init__(self, folder: Path, *, files: int) -> None:
        """RequestProblem when the folder holds something, or cannot be made."""
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
            save_file(dict(tensors), self._folder / name, metadata={"format": "pt"})
        except (OSError, SafetensorError) as error:
            raise _unwritable(self._folder, error) from error
        self._where |= dict.fromkeys(tensors, name)
        self._n_bytes += sum(tensor.nbytes for tensor in tensors.values())

    def finish(self, model: Model, changes: Mapping[str, Any]) -> None:
        """Writes the index, the config of `model` with these changes, and its tokenizer."""
        index = {"metadata": {"total_size": self._n_bytes}, "weight_map": self._where}
        try:
            _write_json(self._folder / "model.safetensors.index.json", index)
            _write_json(self._folder / "config.json", {**config_json(model), **changes})
            _write_tokenizer(model, self._folder)
        except OSError as error:
            raise _unwritable(self._folder, error) from error


def config_json(model: Model) -> dict[str, Any]:
    """config.json of the model: its own, or one made from the facts of a GGUF file.

    RequestProblem for GGUF files with facts we cannot write so: other families, a scaled rope, windows.
    """
    config = model.config
    if model.checkpoint.format == "safetensors":
        return dict(model.checkpoint.metadata)
    keys = Keys(model.checkpoint.metadata, str(model.checkpoint.path), _arch(model) + ".")
    base = keys.positive("rope.freq_base", 10_000.0, least=1)
    is_plain = config.inv_freq == frequencies(base, config.head_dim, Keys({}, keys.where))
    if config.family not in _FROM_GGUF or not is_plain or any(config.windows):
        what = f"{keys.where} has facts that we cannot write as a config.json"
        raise RequestProblem(what, fix="start from the folder of safetensors it was made from")
    tokenizer = model.tokenizer()
    return {
        "architectures": [_FROM_GGUF[config.family]],
        "model_type": config.family,
        "num_hidden_layers": config.layers,
        "hidden_size": config.hidden,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.ffn[0],
        "vocab_size": config.vocab,
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": base,
        "hidden_act": "silu",
        "attention_bias": config.out_bias,
        "mlp_bias": config.mlp_bias,
        "tie_word_embeddings": config.tied_head,
        "bos_token_id": tokenizer.bos_id,
        "eos_token_id": sorted(tokenizer.eos_ids),
    }


def _arch(model: Model) -> str:
    return str(model.checkpoint.metadata["general.architecture"])


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
