"""What an FFN takes, layer after layer: gate and up apart or as one, whole, skipped at run time, sliced."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from trisplit.bench.measure import Spread, timed
from trisplit.bench.progress import shown
from trisplit.bench.stand_ins import Gates, bytes_of, kept, narrower, stand_ins
from trisplit.errors import RequestProblem
from trisplit.machine import gather_into_huge_pages
from trisplit.models.binding import Bound, Buffers, bind
from trisplit.models.config import ModelConfig, Stage
from trisplit.models.convert import Dtype
from trisplit.models.families import FAMILIES
from trisplit.models.model import refuse_if_short
from trisplit.models.session import StageSession
from trisplit.models.stage_file import StageFile

WORKING_SET_BYTES: Final = 320_000_000
"""What the layers of the whole FFN weigh at least, if the model has as many: far more than a cache holds."""

_FEWEST_LAYERS: Final = 2
_WARM: Final = 2
SEPARATE: Final = "separate"
SKIPPING: Final = "down-only-skip50"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to have an FFN: `keep` percent of its neurons; of those, `down_keep` percent meet down."""

    gates: Gates = SEPARATE
    keep: int = 100
    down_keep: int = 100


VARIANTS: Final[Mapping[str, Variant]] = {
    SEPARATE: Variant(),
    "fused": Variant(gates="fused"),
    SKIPPING: Variant(down_keep=50),
    "sliced75": Variant(keep=75),
    "sliced50": Variant(keep=50),
    "sliced40": Variant(keep=40),
    "fused+sliced50": Variant(gates="fused", keep=50),
}

# Hidden size, neurons, layers.
SHAPES: Final[Mapping[str, tuple[int, int, int]]] = {
    "smollm2": (576, 1536, 30),
    "qwen-0.5b": (896, 4864, 24),
    "phi-3-mini": (3072, 8192, 32),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FfnRow:
    """One variant of one FFN; `us`: of a layer, as the median of all rounds, `best_us` of the fastest.

    `ratio_to_separate`: how many times as fast as the whole FFN with gate and up apart; `ratio_by_bytes`: as
    many times fewer bytes of weights. `working_set_bytes`: of the weights of all `layers` that take turns.
    """

    variant: str
    shape: str
    batch: int
    dtype: str
    us: float
    ratio_to_separate: float
    best_us: float
    ratio_by_bytes: float
    layers: int
    working_set_bytes: int
    threads: int


def shape_named(name: str) -> ModelConfig | None:
    """One of SHAPES, or such numbers as `576x1536x30`; None for another name."""
    typed = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})x([1-9]\d{0,3})", name, re.ASCII)
    numbers = tuple(map(int, typed.groups())) if typed else SHAPES.get(name)
    return None if numbers is None else config_of(*numbers)


def config_of(hidden: int, ffn: int, layers: int) -> ModelConfig:
    """A llama with these FFNs; nothing else of it is run."""
    return ModelConfig(
        family="llama",
        layers=layers,
        hidden=hidden,
        heads=1,
        kv_heads=1,
        head_dim=64,
        ffn=(ffn,) * layers,
        vocab=1,
        context=1,
        norm_eps=1e-5,
        tied_head=True,
        inv_freq=(),
        local_inv_freq=(),
        windows=(0,) * layers,
        activation="silu",
        attn_scale=1.0,
    )


def ffn(
    config: ModelConfig, *, batches: Sequence[int], dtypes: Sequence[Dtype], rounds: int, threads: int
) -> list[FfnRow]:
    """Every variant at every dtype and number of rows; all variants take turns, a pass over all layers each.

    RequestProblem for an FFN without a gate, and when memory is short.
    """
    if not FAMILIES[config.family].gated:
        what = f"the FFNs of {config.family} have no gate: there is nothing to fuse"
        raise RequestProblem(what, fix="name a model whose FFN has gate, up and down")
    rows: list[FfnRow] = []
    for dtype in dtypes:
        with ExitStack() as stack:
            folders = {name: Path(stack.enter_context(TemporaryDirectory())) for name in VARIANTS}
            chains = _chains(_few_layers(config, dtype), dtype, folders, threads)
        for batch in batches:
            rows += _measured(chains, dtype, batch, rounds, threads)
    return rows


def _few_layers(config: ModelConfig, dtype: Dtype) -> ModelConfig:
    """As many layers as make a working set, all as wide as the widest.

    Each reads what the one before leaves, so that they run as one: as layers of parallel blocks do once
    attention is left out.
    """
    width, bits = max(config.ffn), {"f32": 32, "int8": 9, "int4": 6}[dtype]
    a_layer = 3 * config.hidden * width * bits // 8
    layers = min(config.layers, max(_FEWEST_LAYERS, -(-WORKING_SET_BYTES // a_layer)))
    windows = config.windows[:layers]
    return replace(config, layers=layers, ffn=(width,) * layers, windows=windows, parallel=True)


def _stages(config: ModelConfig) -> list[Stage]:
    return [Stage(layer, kind) for layer in range(config.layers) for kind in ("gate_up", "down")]


class _Chain(StageSession):
    """The FFNs of all layers, one after the other."""

    def rows(self, n: int) -> Bound:
        """Room for that many rows, with noise in it."""
        buffers = Buffers.of(self.takes, self.leaves, 1, n)
        for values in buffers.inputs.values():
            values[:] = np.random.default_rng(0).standard_normal(values.shape, dtype=np.float32)
        return bind(self.ort, self.inputs, buffers, {}, {})


class _Skipping(_Chain):
    """gate and up whole; of what they give down takes the first half: skipping at run time, at its best."""

    def _graph(self, files: Sequence[StageFile]) -> bytes:
        model = onnx.load_model_from_string(super()._graph(files))
        nodes, skipped = model.graph.node, dict[str, str]()
        for at in range(len(nodes) - 1, -1, -1):
            if any(name.startswith("down-") for name in nodes[at].input[1:]):
                whole = nodes[at].input[0]
                skipped[whole] = nodes[at].input[0] = f"{whole}_half"
        for whole, half in skipped.items():
            at = next(i for i, node in enumerate(nodes) if half in node.input)
            nodes.insert(at, helper.make_node("Slice", [whole, "from", "past", "axis"], [half]))
        width = kept(self.config.ffn[0], VARIANTS[SKIPPING].down_keep)
        for name, value in {"from": 0, "past": width, "axis": -1}.items():
            model.graph.initializer.append(numpy_helper.from_array(np.array([value]), name))
        return bytes(model.SerializeToString())


def _chains(
    config: ModelConfig, dtype: Dtype, folders: Mapping[str, Path], threads: int
) -> dict[str, _Chain]:
    files = {name: _files(config, variant, dtype, folders[name]) for name, variant in VARIANTS.items()}
    refuse_if_short(sum(map(bytes_of, files.values())), "the FFNs of all variants")
    chains = {}
    for name in shown([*VARIANTS], f"loading {dtype}"):
        variant = VARIANTS[name]
        kind = _Skipping if name == SKIPPING else _Chain
        chains[name] = kind(
            narrower(config, variant.keep), files[name], context=1, threads=threads, spin=False
        )
    gather_into_huge_pages()
    return chains


def _files(config: ModelConfig, variant: Variant, dtype: Dtype, folder: Path) -> list[StageFile]:
    sliced = narrower(config, variant.keep)
    short = narrower(sliced, variant.down_keep)
    stages = _stages(config)
    wide, downs = stages[::2], stages[1::2]
    made = stand_ins(sliced, wide, dtype, folder, gates=variant.gates)
    return [file for pair in zip(made, stand_ins(short, downs, dtype, folder)) for file in pair]


def _measured(
    chains: Mapping[str, _Chain], dtype: Dtype, batch: int, rounds: int, threads: int
) -> Iterator[FfnRow]:
    bound = {name: chain.rows(batch) for name, chain in chains.items()}
    took_ms: dict[str, list[float]] = {name: [] for name in chains}
    for number in shown(range(_WARM + rounds), f"{dtype}, batch {batch}"):
        for name, ready in bound.items():
            ms = timed(ready.run, warm=0, repeats=1).p50_ms
            if number >= _WARM:
                took_ms[name].append(ms)
    spreads = {name: Spread.of(times) for name, times in took_ms.items()}
    whole = chains[SEPARATE]
    for name, chain in chains.items():
        layers, hidden = whole.config.layers, whole.config.hidden
        yield FfnRow(
            variant=name,
            shape=f"{hidden}x{whole.config.ffn[0]}",
            batch=batch,
            dtype=dtype,
            us=1e3 * spreads[name].p50_ms / layers,
            ratio_to_separate=spreads[SEPARATE].p50_ms / spreads[name].p50_ms,
            best_us=1e3 * spreads[name].best_ms / layers,
            ratio_by_bytes=whole.weight_bytes / chain.weight_bytes,
            layers=layers,
            working_set_bytes=chain.weight_bytes,
            threads=threads,
        )
