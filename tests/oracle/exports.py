"""Exports of every tiny model, loaded by transformers and by llama.cpp: `python -m tests.oracle.exports …`.

`make DIR` writes them, in our own environment, with the logits they must give. `transformers DIR` and
`llama.cpp DIR` load them, each in its own, and store what they saw in tests/oracle/stored/exports-….json: how
far logits are apart, and the digest of what was loaded, by which the tests know that we still write the same.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests import tiny

STORED = Path(__file__).parent / "stored"
IDS = [1, 40, 77, 120, 13, 200, 9, 88, 301, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
UNKNOWN_TO_GGUF = ("qwen3-biases", "gemma3-biases")  # llama.cpp knows no biases there
# llama.cpp heeds no window of mistral, and wants tokens of a phi3 that no tiny model has.
PASSED_OVER = ("mistral", "phi3", "phi3-partial-rotary")
LIKE_LLAMA = ("llama", "llama-llama3-rope", "llama-linear-rope", "llama-biases", "mistral-no-window", "qwen2")
TYPES = ("f16", "bf16", "q8_0", "q4_0", "q4_1")


@dataclass(frozen=True, slots=True)
class Job:
    """A variant, what it is exported from (a folder or GGUF), and as what."""

    variant: str
    source: str
    format: str
    type: str = "f32"

    @property
    def name(self) -> str:
        end = ".gguf" if self.format == "gguf" else ""
        return f"{self.variant}-{self.source}-{self.format}-{self.type}{end}"


def jobs() -> Iterator[Job]:
    """Every variant in every format that can say it; folders from GGUF files where there are any."""
    in_gguf = [v for v in (*tiny.GGUF_VARIANTS, *tiny.UNEVEN) if v not in UNKNOWN_TO_GGUF]
    for variant in (*tiny.VARIANTS, *tiny.UNEVEN):
        yield Job(variant, "gguf" if variant in in_gguf else "folder", "safetensors")
    for variant in (*LIKE_LLAMA, *tiny.UNEVEN):
        yield Job(variant, "folder", "deci")
    for variant in in_gguf:
        yield Job(variant, "folder", "gguf")
    yield from (Job("llama", "folder", "gguf", type) for type in TYPES)


def make(job: Job, folder: Path) -> Path:
    """Exports one, from a tiny model built in `folder` unless it is there."""
    export = import_module("trisplit.compress.export")
    open_model = import_module("trisplit.models.model").open_model
    source = folder / job.variant
    if not source.exists():
        tiny.build_variant(job.variant, source)
    if job.source == "gguf":
        source = folder / f"{job.variant}.gguf"
        if not source.exists():
            tiny.write_gguf(folder / job.variant, source)
    wanted = export.Wanted(format=job.format, type=job.type)
    path: Path = export.export(open_model(source), folder / job.name, wanted).path
    return path


def digest_of(path: Path) -> str:
    """SHA-256 of an export: of a folder config.json, code and tensors, of a GGUF all but its tokenizer."""
    digest = hashlib.sha256()
    if path.is_dir():
        for file in sorted(path.iterdir()):
            if file.suffix in (".safetensors", ".py") or file.name == "config.json":
                digest.update(file.name.encode() + file.read_bytes())
        return digest.hexdigest()
    reader = import_module("gguf").GGUFReader(path)
    for name, field in sorted(reader.fields.items()):
        if not name.startswith(("GGUF.", "tokenizer.")):
            digest.update(f"{name} {field.types} {field.contents()}".encode())
    for tensor in reader.tensors:
        digest.update(f"{tensor.name} {tensor.tensor_type.name}".encode() + tensor.data.tobytes())
    return digest.hexdigest()


def make_all(folder: Path) -> None:
    """All of them, and what our decoder says of each model they come from."""
    decoder = import_module("trisplit.models.decoder").Decoder
    said = {}
    for job in jobs():
        path = make(job, folder)
        # What the type of a file loses is not its loader's doing.
        source = folder / job.variant if job.type == "f32" else path
        said[job.name] = decoder.load(source).forward(IDS, 0).copy()
    np.savez(folder / "said.npz", **said)


# --- those who load them --------------------------------------------------------------------------


def by_transformers(path: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Logits of the last row; refuses what it finds missing or unexpected."""
    torch, hf = import_module("torch"), import_module("transformers")
    hf.utils.logging.set_verbosity_error()
    how = {"dtype": torch.float32, "attn_implementation": "eager", "trust_remote_code": True}
    model, report = hf.AutoModelForCausalLM.from_pretrained(path, output_loading_info=True, **how)
    if odd := {key: value for key, value in report.items() if value}:
        raise SystemExit(f"{path.name}: {odd}")
    with torch.inference_mode():
        logits = model(torch.tensor([IDS]), use_cache=False).logits[0, -1].numpy()
    return logits, {"parameters": sum(p.numel() for p in model.parameters())}


def by_llama_cpp(path: Path) -> tuple[np.ndarray, dict[str, Any]]:
    """Logits of the last row, keys and values in f32."""
    import_module("logging").getLogger("llama-cpp-python").setLevel("CRITICAL")
    c = import_module("llama_cpp.llama_cpp")
    net = c.llama_model_load_from_file(str(path).encode(), c.llama_model_default_params())
    if not net:
        raise SystemExit(f"{path.name}: llama.cpp does not load it")
    wanted = c.llama_context_default_params()
    wanted.n_ctx, wanted.n_threads, wanted.n_threads_batch = 512, 1, 1
    wanted.type_k = wanted.type_v = wanted.flash_attn_type = 0
    vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(net))
    state = c.llama_init_from_model(net, wanted)
    ids = (c.llama_token * len(IDS))(*IDS)  # the batch points to it
    c.llama_decode(state, c.llama_batch_get_one(ids, len(IDS)))
    logits = np.ctypeslib.as_array(c.llama_get_logits_ith(state, -1), shape=(vocab,)).copy()
    c.llama_free(state)
    c.llama_model_free(net)
    return logits, {}


def load_all(by: str, folder: Path) -> None:
    """Stores, for each that this one can load, how far its logits are from ours."""
    load = {"transformers": by_transformers, "llama.cpp": by_llama_cpp}[by]
    rows, said = [], np.load(folder / "said.npz")
    for job in jobs():
        is_file = job.format == "gguf"
        if is_file != (by == "llama.cpp") or (is_file and job.variant in PASSED_OVER):
            continue
        logits, facts = load(folder / job.name)
        ours = said[job.name]
        facts |= {"delta": float(f"{np.abs(logits - ours).max():.2e}")}
        facts |= {"same_token": bool(logits.argmax() == ours.argmax())}
        facts |= {"sha256": digest_of(folder / job.name)}
        rows.append(asdict(job) | facts)
        print(rows[-1], flush=True)
    (STORED / f"exports-{by}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    what, where = sys.argv[1], Path(sys.argv[2])
    if what == "make":
        make_all(where)
    else:
        load_all(what, where)
