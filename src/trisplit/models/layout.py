"""What each stage is made of: its matrices and norms, their shapes, and the tensors they come from."""

from __future__ import annotations

from dataclasses import dataclass

from trisplit.models.config import ModelConfig, Stage
from trisplit.models.families import FAMILIES, Family


@dataclass(frozen=True, slots=True)
class Rows:
    """`n` rows of a matrix, kept in the file under one role."""

    role: str
    n: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of ours: rows of one or more tensors under each other, (rows, columns)."""

    name: str
    parts: tuple[Rows, ...]
    columns: int
    bias: bool = False

    @property
    def rows(self) -> int:
        return sum(part.n for part in self.parts)


@dataclass(frozen=True, slots=True)
class Layout:
    """All that one stage computes with; `norms` are (role, width)."""

    matrices: tuple[Matrix, ...]
    norms: tuple[tuple[str, int], ...] = ()


def layout(config: ModelConfig, stage: Stage) -> Layout:
    """The matrices and norms of one stage of this model."""
    family, hidden = FAMILIES[config.family], config.hidden
    if stage.kind in ("embed", "head"):
        ends = Matrix(stage.kind, (Rows(stage.kind, config.vocab),), hidden)
        return Layout((ends,), _norms(family, "final_norm", hidden) if stage.kind == "head" else ())
    ffn = config.ffn[stage.layer]
    if stage.kind == "attention":
        widths = config.qkv_widths
        qkv = (Rows("qkv", sum(widths)),) if family.fused_qkv else tuple(map(Rows, "qkv", widths))
        heads = (("q_norm", config.head_dim), ("k_norm", config.head_dim)) if family.qk_norm else ()
        after = (("post_attn_norm", hidden),) if family.sandwich else ()
        return Layout(
            (
                Matrix("qkv", qkv, hidden, config.qkv_bias),
                Matrix("out", (Rows("out", hidden),), widths[0], config.out_bias),
            ),
            (*_norms(family, "attn_norm", hidden), *heads, *after),
        )
    if stage.kind == "gate_up":
        wide = Matrix("gate_up", _wide(family, ffn), hidden, config.mlp_bias)
        return Layout((wide,), _norms(family, "ffn_norm", hidden))
    down = Matrix("down", (Rows("down", hidden),), ffn, config.mlp_bias)
    return Layout((down,), (("post_ffn_norm", hidden),) if family.sandwich else ())


def _norms(family: Family, role: str, width: int) -> tuple[tuple[str, int], ...]:
    """A norm's weights, and its bias if it has one."""
    return ((role, width), (f"{role}_bias", width)) if family.layer_norm else ((role, width),)


def _wide(family: Family, ffn: int) -> tuple[Rows, ...]:
    """The rows of gate and up, or of up alone."""
    if family.fused_gate_up:
        return (Rows("gate_up", 2 * ffn),)
    return (Rows("gate", ffn), Rows("up", ffn)) if family.gated else (Rows("up", ffn),)
