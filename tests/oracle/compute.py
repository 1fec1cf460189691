"""Computes the stored answers with transformers: `python -m tests.oracle.compute [--check] [MODEL …]`.

Runs in the environment of `make oracle`: float32, eager attention, one thread. Tiny models recompute the
whole sequence for every token, so that no cache of transformers stands between the weights and the answer.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch  # type: ignore[import-not-found]
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig  # type: ignore[import-not-found]
from transformers.utils import logging  # type: ignore[import-not-found]

from tests import tiny
from tests.oracle.answers import (
    DRIFT,
    INNER_ROWS,
    LENGTHS,
    REAL,
    STORED,
    TOLERANCE,
    Answers,
    RealModel,
    drift,
    load_answers,
    store_answers,
    top_gap,
    weights_digest,
)

TINY_STEPS, REAL_STEPS = 40, 64
TINY_GREEDY_LENGTH = 33
PROMPT_SEED = 1
TOP, SAMPLE = 512, 2048
LOADING = {"dtype": torch.float32, "attn_implementation": "eager"}
TEXT = Path(__file__).parents[2] / "LICENSE"  # real prose that comes with the repository


def all_logits(model: Any, ids: np.ndarray) -> np.ndarray:
    """Logits of every row, (rows, vocab) float32; nothing is cached."""
    with torch.inference_mode():
        logits: np.ndarray = model(torch.from_numpy(ids)[None], use_cache=False).logits[0].numpy()
    return logits


# --- tiny models ----------------------------------------------------------------------------------


def tiny_answers(name: str) -> Answers:
    """Build, load and question one variant of tests/tiny.py."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = tiny.build_variant(name, Path(temporary) / name)
        model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **LOADING)
        unused = {key: value for key, value in report.items() if value}
        if unused:
            raise SystemExit(f"{name}: transformers does not take these weights as they are: {unused}")
        digest = weights_digest(folder)
        vocab = model.config.vocab_size
    answers: Answers = {"weights_sha256": np.array(digest)}
    dice = np.random.default_rng([PROMPT_SEED, zlib.crc32(name.encode())])
    for length in LENGTHS:
        ids = dice.integers(tiny.EOS + 1, vocab, length)
        rows = all_logits(model, ids)
        answers |= {f"ids_{length}": ids, f"last_{length}": rows[-1]}
    answers["inner"] = rows[list(INNER_ROWS)]
    return answers | _tiny_decode(model, answers[f"ids_{TINY_GREEDY_LENGTH}"])


def _tiny_decode(model: Any, prompt: np.ndarray) -> Answers:
    ids, logits = prompt, []
    for _ in range(TINY_STEPS):
        logits.append(all_logits(model, ids)[-1])
        ids = np.append(ids, logits[-1].argmax())
    gap = min(map(top_gap, logits))
    if gap < 2 * TOLERANCE:
        raise SystemExit(f"a near tie ({gap:.1e}) in a tiny decode decides nothing: change PROMPT_SEED")
    return {"greedy_prompt": prompt, "greedy_ids": ids[len(prompt) :], "greedy_logits": np.stack(logits)}


# --- real models ----------------------------------------------------------------------------------


def real_answers(model_of: RealModel, file: Path, stored: Answers | None) -> Answers:
    """Load one fetched model and question it: with the prompts and columns of `stored`, where given."""
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, **LOADING)
    refuse_other_weights(model, file)
    questions = stored or _questions(model_of, file)
    asked = ("greedy_prompt", *(f"ids_{length}" for length in model_of.lengths))
    answers = {key: questions[key] for key in asked}
    sample = np.sort(np.random.default_rng(0).choice(model.config.vocab_size, SAMPLE, replace=False))
    for length in model_of.lengths:
        logits = all_logits(model, answers[f"ids_{length}"])[-1]
        columns = stored[f"columns_{length}"] if stored else np.union1d(_largest(logits), sample)
        answers |= {f"columns_{length}": columns, f"last_{length}": logits[columns]}
    return answers | _real_decode(model, answers["greedy_prompt"])


def _largest(logits: np.ndarray) -> np.ndarray:
    return np.argpartition(logits, -TOP)[-TOP:]


def _questions(model_of: RealModel, file: Path) -> Answers:
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    first = [] if model_of.bos is None else [model_of.bos]

    def ids(text: str) -> list[int]:
        return first + list(tokenizer(text, add_special_tokens=False)["input_ids"])

    prose = ids(TEXT.read_text(encoding="utf-8"))
    questions = {f"ids_{length}": np.array(prose[:length]) for length in model_of.lengths}
    return questions | {"greedy_prompt": np.array(ids(model_of.prompt))}


def _real_decode(model: Any, prompt: np.ndarray) -> Answers:
    greedy = GenerationConfig(
        do_sample=False,
        max_new_tokens=REAL_STEPS,
        eos_token_id=None,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    ids = torch.from_numpy(prompt)[None]
    out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=greedy)
    gaps = [top_gap(step[0].numpy()) for step in out.logits]
    return {
        "greedy_ids": out.sequences[0, len(prompt) :].numpy(),
        "greedy_gap": np.array(gaps, dtype=np.float32),
    }


def refuse_other_weights(model: Any, file: Path) -> None:
    """Stop unless every weight transformers loaded is, bit for bit, the file's as gguf-py dequantises it."""
    config, weights = model.config, model.state_dict()
    kind = {"gemma3_text": "gemma3"}.get(config.model_type, config.model_type)
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == kind)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    by_gguf_name = {names.get_name(name, try_suffixes=(".weight", ".bias")): name for name in weights}
    for tensor in gguf.GGUFReader(file).tensors:
        hf_name = by_gguf_name[tensor.name]
        expected = _as_transformers(hf_name, gguf.quants.dequantize(tensor.data, tensor.tensor_type), config)
        if not np.array_equal(weights[hf_name].numpy(), expected):
            raise SystemExit(f"{file.name}: transformers loaded other values for {hf_name}")
        del by_gguf_name[tensor.name]
    if by_gguf_name.keys() - ({"output.weight"} if config.tie_word_embeddings else set()):
        raise SystemExit(f"{file.name} has no values for {sorted(by_gguf_name.values())}")


def _as_transformers(name: str, weight: np.ndarray, config: Any) -> np.ndarray:
    """Undo what llama.cpp's converter did: 1 + w in gemma's norms, llama's q and k rows in rotary pairs."""
    if config.model_type == "gemma3_text" and "norm" in name:
        return weight - np.float32(1)
    if config.model_type == "llama" and (".q_proj." in name or ".k_proj." in name):
        pairs = weight.reshape(-1, config.head_dim // 2, 2, *weight.shape[1:])
        return pairs.swapaxes(1, 2).reshape(weight.shape)
    return weight


# --- all of them ----------------------------------------------------------------------------------


def jobs(wanted: list[str], check: bool) -> Iterator[tuple[str, Callable[[], Answers]]]:
    """A name and how to answer it, for every model that was asked for and is here."""
    for name in tiny.VARIANTS:
        if not wanted or name in wanted:
            yield name, partial(tiny_answers, name)
    for model_of in REAL:
        if wanted and model_of.name not in wanted:
            continue
        if (file := model_of.file) is None:
            print(f"{model_of.name}: not fetched, left as it is", file=sys.stderr)
            continue
        stored = load_answers(model_of.name) if check else None
        yield model_of.name, partial(real_answers, model_of, file, stored)


def main() -> int:
    """Store the answers, or with --check compare them with those stored; 1 where one drifted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="names of variants or of fetched models; all if none")
    parser.add_argument("--check", action="store_true", help="store nothing, fail on drift")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    STORED.mkdir(exist_ok=True)
    drifted = False
    for name, answer in jobs(options.models, options.check):
        answers = answer()
        if options.check:
            change = drift(answers, load_answers(name))
            drifted |= change > DRIFT
            print(f"{name}: drift {change:.1e}{' TOO MUCH' if change > DRIFT else ''}", flush=True)
        else:
            path = store_answers(name, answers)
            print(f"{name}: {path.stat().st_size:,} bytes", flush=True)
    if not options.check:
        _write_versions()
    return int(drifted)


def _write_versions() -> None:
    packages = ("torch", "transformers", "tokenizers", "gguf", "safetensors", "numpy")
    facts = {name: version(name) for name in packages}
    facts |= {"python": platform.python_version(), "machine": platform.machine()}
    facts["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    (STORED / "versions.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
