"""What each stage is made of: its matrices and norms, their shapes, and the tensors they come from."""

from __future__ import annotations

from dataclasses import dataclass

from trisplit.models.config import ModelConfig, Stage
from trisplit.models.families import FAMILIES


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
        return Layout((ends,), (("final_norm", hidden),) if stage.kind == "head" else ())
    ffn = config.ffn[stage.layer]
    if stage.kind == "attention":
        widths = config.qkv_widths
        qkv = (Rows("qkv", sum(widths)),) if family.fused else tuple(map(Rows, "qkv", widths))
        heads = (("q_norm", config.head_dim), ("k_norm", config.head_dim)) if family.qk_norm else ()
        after = (("post_attn_norm", hidden),) if family.sandwich else ()
        return Layout(
            (
                Matrix("qkv", qkv, hidden, config.qkv_bias),
                Matrix("out", (Rows("out", hidden),), widths[0], config.out_bias),
            ),
            (("attn_norm", hidden), *heads, *after),
        )
    if stage.kind == "gate_up":
        both = (Rows("gate_up", 2 * ffn),) if family.fused else (Rows("gate", ffn), Rows("up", ffn))
        return Layout((Matrix("gate_up", both, hidden, config.mlp_bias),), (("ffn_norm", hidden),))
    down = Matrix("down", (Rows("down", hidden),), ffn, config.mlp_bias)
    return Layout((down,), (("post_ffn_norm", hidden),) if family.sandwich else ())
