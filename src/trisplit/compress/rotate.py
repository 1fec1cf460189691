"""A copy of a model turned by random orthogonal matrices where that changes nothing that comes out.

The residual stream is turned as a whole, norms being folded into the matrices that follow them, and in each
head the values, which the output matrix turns back. What is left are weights of the same function that lie on
no grid and have no outlying columns (QuaRot, arXiv 2404.00456, does so to quantize).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from trisplit.compress.describing import config_json
from trisplit.compress.writing import FolderWriter
from trisplit.errors import RequestProblem
from trisplit.models import head_order
from trisplit.models.config import LayerKind, Stage
from trisplit.models.families import FAMILIES
from trisplit.models.layout import layout
from trisplit.models.model import Model
from trisplit.models.session import Floats
from trisplit.models.statistics import Doubles
from trisplit.paths import cache_dir

_ROWS: Final = 4096  # of the vocabulary, turned together
_NORMS: Final[Mapping[LayerKind, str]] = {"attention": "attn_norm", "gate_up": "ffn_norm"}


def rotate(model: Model, folder: Path, seed: int) -> None:
    """Writes the copy into `folder`, which must not hold a model, as float32.

    Its head is its own: an embedding that was both would be folded and turned in two ways. RequestProblem
    for families whose norms stand where they cannot be folded.
    """
    family = FAMILIES[model.config.family]
    if family.layer_norm or family.sandwich:
        what = f"a {family.name} has norms that cannot be folded into the matrices after them"
        raise RequestProblem(what, fix="take a llama, mistral, qwen2, qwen3 or phi3")
    turn = _Turn(model, seed)
    config = config_json(model)  # refused before anything is written
    writer = FolderWriter(folder, files=model.config.layers + 2)
    writer.add(turn.embed())
    for layer in range(model.config.layers):
        writer.add(dict(turn.layer(layer)))
    writer.add(turn.head())
    writer.close(model, config | {"tie_word_embeddings": False, "torch_dtype": "float32"})


def rotated_copy(model: Model, seed: int) -> Path:
    """The folder of the copy in the cache, made now unless it was before; Problems as of `rotate`."""
    folder = cache_dir() / "rotated" / f"{model.checkpoint.digest[:24]}-{seed}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
            rotate(model, Path(draft, "copy"), seed)
            Path(draft, "copy").replace(folder)
    return folder


def orthogonal(n: int, *seeds: int) -> Doubles:
    """A random orthogonal matrix [n, n], evenly drawn (Mezzadri, arXiv math-ph/0609050)."""
    q, r = np.linalg.qr(np.random.default_rng(seeds).standard_normal((n, n)))
    return q * np.sign(np.diag(r))


@dataclass(frozen=True, slots=True)
class _Turn:
    model: Model
    seed: int

    def embed(self) -> dict[str, Floats]:
        return {self._name("embed", 0): self._of_vocabulary("embed", self._residual())}

    def head(self) -> dict[str, Floats]:
        role = "embed" if self.model.config.tied_head else "head"
        norm = self._read("final_norm", -1)
        turned = self._of_vocabulary(role, norm[:, None] * self._residual())
        return {self._name("final_norm", -1): _ones(norm), self._name("head", -1): turned}

    def layer(self, layer: int) -> Iterator[tuple[str, Floats]]:
        """Names and tensors of one layer, turned."""
        config, turn = self.model.config, self._residual()
        values = np.stack([orthogonal(config.head_dim, self.seed, layer, h) for h in range(config.kv_heads)])
        for kind, norm in _NORMS.items():
            gain = self._read(norm, layer)
            first = layout(config, Stage(layer, kind)).matrices[0]
            for part in first.parts:
                weights = (self._read(part.role, layer) * gain) @ turn
                yield self._name(part.role, layer), _f32(self._values_turned(part.role, weights, values))
                if first.bias:
                    bias = self._read(f"{part.role}_bias", layer)[:, None]
                    turned = self._values_turned(part.role, bias, values)[:, 0]
                    yield self._name(f"{part.role}_bias", layer), _f32(turned)
            yield self._name(norm, layer), _ones(gain)
        out = self._read("out", layer).reshape(config.hidden, config.kv_heads, -1, config.head_dim)
        out = np.einsum("okgd,kde->okge", out, values).reshape(config.hidden, -1)
        for role, weights in (("out", out), ("down", self._read("down", layer))):
            yield self._name(role, layer), _f32(turn.T @ weights)
        biased = {"out": config.out_bias, "down": config.mlp_bias}
        for role in (role for role, has in biased.items() if has):
            yield self._name(f"{role}_bias", layer), _f32(turn.T @ self._read(f"{role}_bias", layer))
        if FAMILIES[config.family].qk_norm:
            for role in ("q_norm", "k_norm"):
                yield self._name(role, layer), _f32(self._read(role, layer))

    def _values_turned(self, role: str, rows: Doubles, values: Doubles) -> Doubles:
        """Rows of the value heads turned, each head by its own matrix; those of others as they are."""
        if role not in ("v", "qkv"):
            return rows
        config = self.model.config
        wide = config.qkv_widths[2]
        heads = rows[-wide:].reshape(config.kv_heads, config.head_dim, -1)
        turned = np.einsum("kde,kdc->kec", values, heads).reshape(wide, -1)
        return np.concatenate([rows[:-wide], turned])

    def _residual(self) -> Doubles:
        return orthogonal(self.model.config.hidden, self.seed)

    def _of_vocabulary(self, role: str, turn: Doubles) -> Floats:
        config = self.model.config
        turned, at = np.empty((config.vocab, config.hidden), np.float32), 0
        for slab in self.model.checkpoint.slabs(self._stored(role, -1), _ROWS):
            turned[at : at + len(slab)] = slab @ turn
            at += len(slab)
        return turned

    def _read(self, role: str, layer: int) -> Doubles:
        """A tensor in the order of rows that safetensors of the family have."""
        checkpoint, config = self.model.checkpoint, self.model.config
        values = checkpoint.read(self._stored(role, layer)).astype(np.float64)
        places = head_order.places(config, "gguf", role, len(values)) if checkpoint.format == "gguf" else None
        if places is None:
            return values
        ours = np.empty_like(values)
        ours[places] = values
        return ours

    def _stored(self, role: str, layer: int) -> str:
        names = FAMILIES[self.model.config.family].names_in(self.model.checkpoint.format)
        return names[role].format(layer)

    def _name(self, role: str, layer: int) -> str:
        return FAMILIES[self.model.config.family].names[role].format(layer)


def _f32(values: Doubles) -> Floats:
    return np.ascontiguousarray(values, np.float32)


def _ones(like: Doubles) -> Floats:
    return np.ones(like.shape, np.float32)
