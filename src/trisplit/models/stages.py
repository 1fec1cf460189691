"""Attention, gate_up, down, embed, head: each stage the same shape, a few nodes on a graph.

A stage takes what stands before it and leaves what stands after it in `Flow`. Whole layers, the
thirds of a layer, and any run of neighbouring stages are all built by walking stages in order,
so every cut computes with the very same nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trisplit.models.config import Kind, ModelConfig, Stage
from trisplit.models.families import FAMILIES
from trisplit.models.graph import CONTRIB, Graph
from trisplit.models.layout import layout
from trisplit.models.quantize import BLOCK
from trisplit.models.stage_file import StageFile, matrix_name


@dataclass(slots=True)
class Flow:
    """Names of the values on their way through a graph.

    x: the residual before a layer, [batch, rows, hidden]. r: x plus attention, the same shape.
    h: act(gate) · up, [batch, rows, ffn].
    """

    config: ModelConfig
    graph: Graph
    context: int
    x: str = ""
    r: str = ""
    h: str = ""

    def need(self, name: str, width: int) -> str:
        """The value called `name`; an input of the graph when no stage before has made it."""
        value: str = getattr(self, name)
        return value or self.graph.input(name, "F32", ["batch", "rows", width])


def build(
    config: ModelConfig, files: Sequence[StageFile], context: int, *, shows_given: bool = False
) -> bytes:
    """The graph of a run of neighbouring stages, as a serialized ONNX model.

    Inputs are what the first stage needs and nobody before it makes (`ids`, `x`, `r`, `h`); with
    attention also the rotary tables, `last` (place of the last row of each entry, [batch]) and `total`
    (the most rows so far of any, [1]), and per layer `past_k_7`, `past_v_7` [batch, kv_heads, context,
    head_dim]. Outputs are what the last
    stage leaves (`x`, `r`, `xr`, `h` or `logits`, each as `…_out`) and `present_k_7`, `present_v_7`; with
    `shows_given` also what each matrix of a layer is given (`given` names them), for calibration.
    """
    flow = Flow(config, Graph(), context)
    for file in files:
        _BUILDERS[file.stage.kind](flow, file)
    _finish(flow, files[-1].stage)
    if shows_given:
        for name, width in given(config, [file.stage for file in files]).items():
            flow.graph.output(name, "F32", ["batch", "rows", width], flow.graph.given[name])
    return flow.graph.build()


def given(config: ModelConfig, stages: Sequence[Stage]) -> dict[str, int]:
    """Names and widths of what the matrices of these stages' layers multiply: `attention-007.qkv`."""
    return {
        matrix_name(stage, matrix.name): matrix.columns
        for stage in stages
        if stage.layer >= 0
        for matrix in layout(config, stage).matrices
    }


def _finish(flow: Flow, last: Stage) -> None:
    name, width = leaves(flow.config, last)
    if name == "logits":
        flow.graph.output("logits_out", "F32", ["batch", 1, width], flow.x)
    elif name == "xr":
        both = flow.graph.op("Concat", flow.need("x", flow.config.hidden), flow.r, axis=-1)
        flow.graph.output("xr_out", "F32", ["batch", "rows", width], both)
    else:
        flow.graph.output(f"{name}_out", "F32", ["batch", "rows", width], getattr(flow, name))


def leaves(config: ModelConfig, last: Stage) -> tuple[str, int]:
    """Name and width of what a run ending in this stage leaves; logits are of the last row alone.

    In parallel blocks gate_up wants the x that attention had, so both are left side by side: `xr`.
    """
    return {
        "embed": ("x", config.hidden),
        "attention": ("xr", 2 * config.hidden) if config.parallel else ("r", config.hidden),
        "gate_up": ("h", config.ffn[last.layer]),
        "down": ("x", config.hidden),
        "head": ("logits", config.vocab),
    }[last.kind]


def takes(config: ModelConfig, stages: Sequence[Stage]) -> dict[str, int]:
    """Names and widths of what a run needs and does not make: ids, or rows of floats."""
    made, needed = set[str](), dict[str, int]()
    for stage in stages:
        for name, width in _reads(config, stage).items():
            if name not in made:
                needed.setdefault(name, width)
        made |= set(leaves(config, stage)[0])
    return needed


def _reads(config: ModelConfig, stage: Stage) -> dict[str, int]:
    return {
        "embed": {"ids": 1},
        "attention": {"x": config.hidden},
        "gate_up": {"x" if config.parallel else "r": config.hidden},
        "down": {"h": config.ffn[stage.layer], "r": config.hidden},
        "head": {"x": config.hidden},
    }[stage.kind]


# --- the stages -----------------------------------------------------------------------------------


def _embed(flow: Flow, file: StageFile) -> None:
    g = flow.graph
    ids = g.input("ids", "I64", ["batch", "rows"])
    if "embed.q8" in file.tensors:
        shape = (flow.config.vocab, flow.config.hidden)
        table = g.weight("embed.q8", file.tensors["embed.q8"], shape)
        scales = g.weight("embed.scales", file.tensors["embed.scales"])
        x = g.op(
            "GatherBlockQuantized",
            table,
            ids,
            scales,
            domain=CONTRIB,
            bits=8,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )
    else:
        x = g.op("Gather", g.weight("embed.w", file.tensors["embed.w"]), ids, axis=0)
    if flow.config.embed_scale != 1.0:
        x = g.op("Mul", x, g.constant("embed.scale", np.array(flow.config.embed_scale, np.float32)))
    flow.x = x


def _attention(flow: Flow, file: StageFile) -> None:
    config, g, layer = flow.config, flow.graph, file.stage.layer
    x = flow.need("x", config.hidden)
    qkv = _linear(g, file, "qkv", _norm(flow, file, "attn_norm", x))
    if FAMILIES[config.family].qk_norm:
        q, k, v = g.op("Split", qkv, g.constant("qkv_widths", np.array(config.qkv_widths)), n=3, axis=-1)
        heads = (_head_norm(flow, file, "q_norm", q), _head_norm(flow, file, "k_norm", k), v)
    else:
        heads = (qkv, "", "")
    past = [g.input(f"past_{p}_{layer}", "F32", _kv_shape(flow)) for p in "kv"]
    attended, *present = g.op(
        "GroupQueryAttention",
        *heads,
        *past,
        g.input("last", "I32", ["batch"]),
        g.input("total", "I32", [1]),
        *_rotary(flow, layer),
        domain=CONTRIB,
        n=3,
        num_heads=config.heads,
        kv_num_heads=config.kv_heads,
        scale=config.attn_scale,
        do_rotary=1,
        local_window_size=config.windows[layer] or -1,
    )
    for part, name in zip("kv", present):
        g.output(f"present_{part}_{layer}", "F32", _kv_shape(flow), name)
    out = _linear(g, file, "out", attended)
    if FAMILIES[config.family].sandwich:
        out = _norm(flow, file, "post_attn_norm", out)
    flow.r = g.op("Add", x, out)


def _gate_up(flow: Flow, file: StageFile) -> None:
    config, g = flow.config, flow.graph
    source = flow.need("x" if config.parallel else "r", config.hidden)
    normed = _norm(flow, file, "ffn_norm", source)
    if not FAMILIES[config.family].gated:
        flow.h = _activation(flow, _linear(g, file, "gate_up", normed))
        return
    gate, up = _gate_and_up(flow, file, normed)
    flow.h = g.op("Mul", _activation(flow, gate), up)


def _gate_and_up(flow: Flow, file: StageFile, x: str) -> tuple[str, str]:
    """One product that is split; two where gate and up lie apart, with nothing to join and split again."""
    g, parts = flow.graph, file.parts_of("gate_up")
    if len(parts) == 2 and "gate_up.bias" not in file.tensors:
        g.given[matrix_name(file.stage, "gate_up")] = x
        gate, up = (_matmul(g, file, part, x) for part in parts)
        return gate, up
    ffn, wide = flow.config.ffn[file.stage.layer], _linear(g, file, "gate_up", x)
    halves: tuple[str, str] = g.op(
        "Split", wide, g.constant(f"split_{ffn}", np.array([ffn, ffn])), n=2, axis=-1
    )
    return halves


def _down(flow: Flow, file: StageFile) -> None:
    config, g = flow.config, flow.graph
    h, r = flow.need("h", config.ffn[file.stage.layer]), flow.need("r", config.hidden)
    out = _linear(g, file, "down", h)
    if FAMILIES[config.family].sandwich:
        out = _norm(flow, file, "post_ffn_norm", out)
    flow.x, flow.r, flow.h = g.op("Add", r, out), "", ""


def _head(flow: Flow, file: StageFile) -> None:
    """Logits of the last row alone: nothing else is sampled from."""
    config, g = flow.config, flow.graph
    places = {"last_row": -1, "past_it": 2**31, "axis_of_rows": 1}
    cut = [g.constant(name, np.array([at])) for name, at in places.items()]
    x = _norm(flow, file, "final_norm", g.op("Slice", flow.need("x", config.hidden), *cut))
    if "head.w" not in file.tensors:
        flow.x = _matmul(g, file, "head", x)
        return
    flat = g.op("Reshape", x, g.constant("flat", np.array([-1, config.hidden])))
    logits = g.op("Gemm", flat, g.weight("head.w", file.tensors["head.w"]), transB=1)
    flow.x = g.op("Reshape", logits, g.constant("apart_again", np.array([-1, 1, config.vocab])))


_BUILDERS: Final[Mapping[Kind, Callable[[Flow, StageFile], None]]] = {
    "embed": _embed,
    "attention": _attention,
    "gate_up": _gate_up,
    "down": _down,
    "head": _head,
}


# --- the arithmetic they share --------------------------------------------------------------------


def _kv_shape(flow: Flow) -> list[int | str]:
    return ["batch", flow.config.kv_heads, flow.context, flow.config.head_dim]


def _norm(flow: Flow, file: StageFile, name: str, x: str) -> str:
    """RMS norm over the last axis, or layer norm where the family has that."""
    kind, parts = "SimplifiedLayerNormalization", [name]
    if FAMILIES[flow.config.family].layer_norm:
        kind, parts = "LayerNormalization", [name, f"{name}_bias"]
    weights = [flow.graph.weight(f"{file.stem}.{part}", file.tensors[part]) for part in parts]
    out: str = flow.graph.op(kind, x, *weights, axis=-1, epsilon=flow.config.norm_eps, stash_type=1)
    return out


def _activation(flow: Flow, x: str) -> str:
    """silu, or gelu: with the error function, or its tanh approximation."""
    if flow.config.activation == "silu":
        out: str = flow.graph.op("QuickGelu", x, domain=CONTRIB, alpha=1.0)  # x · sigmoid(1 · x) is silu
    else:
        approximate = "tanh" if flow.config.activation == "gelu_tanh" else "none"
        out = flow.graph.op("Gelu", x, approximate=approximate)
    return out


def _head_norm(flow: Flow, file: StageFile, name: str, x: str) -> str:
    """RMS norm of each head alone (qk-norm)."""
    g, config = flow.graph, flow.config
    apart = g.op("Reshape", x, g.constant("per_head", np.array([0, -1, config.head_dim])))
    normed = _norm(flow, file, name, apart)
    width = config.qkv_widths[0 if name == "q_norm" else 1]
    together: str = g.op("Reshape", normed, g.constant(f"together_{width}", np.array([0, -1, width])))
    return together


def _rotary(flow: Flow, layer: int) -> tuple[str, str]:
    """Tables of cos and sin, inputs that all sessions of a process share: [context, rotated pairs].

    As constants they would be kept twice by each session, 4 MB for 4,096 tokens.
    """
    frequencies = flow.config.frequencies(layer)
    local = "local_" if frequencies is flow.config.local_inv_freq else ""
    cos, sin = (
        flow.graph.input(f"{local}{t}", "F32", [flow.context, len(frequencies)]) for t in ("cos", "sin")
    )
    return cos, sin


@lru_cache(maxsize=4)
def rotary_tables(config: ModelConfig, context: int) -> Mapping[str, NDArray[np.float32]]:
    """The tables `build`'s graphs take as inputs, by input name."""
    tables: dict[str, NDArray[np.float32]] = {}
    for local, frequencies in (("", config.inv_freq), ("local_", config.local_inv_freq)):
        angles = np.outer(np.arange(context, dtype=np.float32), np.array(frequencies, dtype=np.float32))
        tables |= {f"{local}cos": np.cos(angles), f"{local}sin": np.sin(angles)}
    return tables


def _linear(g: Graph, file: StageFile, name: str, x: str) -> str:
    """x times a stored matrix, plus its bias if it has one; a matrix of mixed formats lies in parts."""
    g.given[matrix_name(file.stage, name)] = x
    outs = [_matmul(g, file, part, x) for part in file.parts_of(name)]
    out: str = outs[0] if len(outs) == 1 else g.op("Concat", *outs, axis=-1)
    bias = file.tensors.get(f"{name}.bias")
    return out if bias is None else g.op("Add", out, g.weight(f"{file.stem}.{name}.bias", bias))


def _matmul(g: Graph, file: StageFile, name: str, x: str) -> str:
    """One matrix product in the format the matrix is stored in: f32, int8 or int4 blocks of 32.

    accuracy_level 4 multiplies int8 by int8. A 4-bit grid with an offset m (w = d·q + m) runs on the
    symmetric kernel as d·(q - 8), and (m + 8d) meets the block sums of x in a small second product:
    float zero points give the same through a path that takes 60 times as long.
    """

    def stored(part: str) -> str:
        return g.weight(f"{file.stem}.{name}.{part}", file.tensors[f"{name}.{part}"])

    if f"{name}.w" in file.tensors:
        product: str = g.op("MatMul", x, stored("w"))
        return product
    bits, part = (4, "q4") if f"{name}.q4" in file.tensors else (8, "q8")
    rows, blocks = file.tensors[f"{name}.scales"].shape
    product = g.op(
        "MatMulNBits",
        x,
        stored(part),
        stored("scales"),
        domain=CONTRIB,
        K=blocks * BLOCK,
        N=rows,
        bits=bits,
        block_size=BLOCK,
        accuracy_level=4,
    )
    if f"{name}.offsets" not in file.tensors:
        return product
    apart = g.op("Reshape", x, g.constant(f"blocks_{blocks}", np.array([0, -1, blocks, BLOCK])))
    sums = g.op("ReduceSum", apart, g.constant("last_axis", np.array([-1])), keepdims=0)
    both: str = g.op("Add", product, g.op("MatMul", sums, stored("offsets")))
    return both
