"""The decoder families we run: how each names its tensors, and its quirks, in one visible dict.

A role (left) is our word for a tensor; templates (right) are the file's words, `{}` being the layer.
To add a family, add one entry and one variant in tests/tiny.py: every test loops over them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from trisplit.models.checkpoint import Format
from trisplit.models.config import Activation

Names = Mapping[str, str]
# Which layers have a window: none, all, those after a number of full ones, or most, in turns with full ones.
Sliding = Literal["none", "all", "late", "turns"]

_LAYER = "model.layers.{}."
_HF: Final[Names] = {
    "embed": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "head": "lm_head.weight",
    "attn_norm": _LAYER + "input_layernorm.weight",
    "q": _LAYER + "self_attn.q_proj.weight",
    "k": _LAYER + "self_attn.k_proj.weight",
    "v": _LAYER + "self_attn.v_proj.weight",
    "q_bias": _LAYER + "self_attn.q_proj.bias",
    "k_bias": _LAYER + "self_attn.k_proj.bias",
    "v_bias": _LAYER + "self_attn.v_proj.bias",
    "out": _LAYER + "self_attn.o_proj.weight",
    "out_bias": _LAYER + "self_attn.o_proj.bias",
    "ffn_norm": _LAYER + "post_attention_layernorm.weight",
    "gate": _LAYER + "mlp.gate_proj.weight",
    "up": _LAYER + "mlp.up_proj.weight",
    "gate_bias": _LAYER + "mlp.gate_proj.bias",
    "up_bias": _LAYER + "mlp.up_proj.bias",
    "down": _LAYER + "mlp.down_proj.weight",
    "down_bias": _LAYER + "mlp.down_proj.bias",
}
_QK_NORM: Final[Names] = {
    "q_norm": _LAYER + "self_attn.q_norm.weight",
    "k_norm": _LAYER + "self_attn.k_norm.weight",
}
_SANDWICH: Final[Names] = {
    "post_attn_norm": _LAYER + "post_attention_layernorm.weight",
    "ffn_norm": _LAYER + "pre_feedforward_layernorm.weight",
    "post_ffn_norm": _LAYER + "post_feedforward_layernorm.weight",
}
_FUSED: Final[Names] = {
    "qkv": _LAYER + "self_attn.qkv_proj.weight",
    "qkv_bias": _LAYER + "self_attn.qkv_proj.bias",
    "gate_up": _LAYER + "mlp.gate_up_proj.weight",
    "gate_up_bias": _LAYER + "mlp.gate_up_proj.bias",
}
_NEOX_LAYER = "gpt_neox.layers.{}."
_NEOX: Final[Names] = {
    "embed": "gpt_neox.embed_in.weight",
    "final_norm": "gpt_neox.final_layer_norm.weight",
    "final_norm_bias": "gpt_neox.final_layer_norm.bias",
    "head": "embed_out.weight",
    "attn_norm": _NEOX_LAYER + "input_layernorm.weight",
    "attn_norm_bias": _NEOX_LAYER + "input_layernorm.bias",
    "qkv": _NEOX_LAYER + "attention.query_key_value.weight",
    "qkv_bias": _NEOX_LAYER + "attention.query_key_value.bias",
    "out": _NEOX_LAYER + "attention.dense.weight",
    "out_bias": _NEOX_LAYER + "attention.dense.bias",
    "ffn_norm": _NEOX_LAYER + "post_attention_layernorm.weight",
    "ffn_norm_bias": _NEOX_LAYER + "post_attention_layernorm.bias",
    "up": _NEOX_LAYER + "mlp.dense_h_to_4h.weight",
    "up_bias": _NEOX_LAYER + "mlp.dense_h_to_4h.bias",
    "down": _NEOX_LAYER + "mlp.dense_4h_to_h.weight",
    "down_bias": _NEOX_LAYER + "mlp.dense_4h_to_h.bias",
}

GGUF_NAMES: Final[Names] = {
    "embed": "token_embd.weight",
    "final_norm": "output_norm.weight",
    "final_norm_bias": "output_norm.bias",
    "head": "output.weight",
    "attn_norm": "blk.{}.attn_norm.weight",
    "attn_norm_bias": "blk.{}.attn_norm.bias",
    "q": "blk.{}.attn_q.weight",
    "k": "blk.{}.attn_k.weight",
    "v": "blk.{}.attn_v.weight",
    "qkv": "blk.{}.attn_qkv.weight",
    "q_bias": "blk.{}.attn_q.bias",
    "k_bias": "blk.{}.attn_k.bias",
    "v_bias": "blk.{}.attn_v.bias",
    "qkv_bias": "blk.{}.attn_qkv.bias",
    "q_norm": "blk.{}.attn_q_norm.weight",
    "k_norm": "blk.{}.attn_k_norm.weight",
    "out": "blk.{}.attn_output.weight",
    "out_bias": "blk.{}.attn_output.bias",
    "post_attn_norm": "blk.{}.post_attention_norm.weight",
    "ffn_norm": "blk.{}.ffn_norm.weight",
    "ffn_norm_bias": "blk.{}.ffn_norm.bias",
    "gate": "blk.{}.ffn_gate.weight",
    "up": "blk.{}.ffn_up.weight",
    "gate_up": "blk.{}.ffn_up.weight",
    "gate_bias": "blk.{}.ffn_gate.bias",
    "up_bias": "blk.{}.ffn_up.bias",
    "gate_up_bias": "blk.{}.ffn_up.bias",
    "down": "blk.{}.ffn_down.weight",
    "down_bias": "blk.{}.ffn_down.bias",
    "post_ffn_norm": "blk.{}.post_ffw_norm.weight",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What sets one family apart from the plain pre-norm, grouped-attention, gated decoder."""

    name: str
    names: Names = field(default_factory=lambda: _HF)
    words: Names = field(default_factory=dict)  # keys of config.json that are called otherwise here
    fused_qkv: bool = False  # one matrix
    qkv_by_head: bool = (
        False  # safetensors have its rows head by head, each q k v (GGUF: all q, all k, all v)
    )
    fused_gate_up: bool = False  # one matrix
    gated: bool = True  # else the activation is that of up, and there is no gate
    parallel: bool = False  # attention and FFN both read the layer's input, unless the config says no
    layer_norm: bool = False  # norms take the mean away and add a bias
    qk_norm: bool = False  # RMS norm of each query and key head before rotation
    sandwich: bool = False  # a norm after attention and after the FFN too
    qkv_bias: bool = False  # always; any family has the biases its file has
    attention_bias: bool = False  # q, k, v and out, unless the config says no
    mlp_bias: bool = False  # always
    norm_plus_one: bool = False  # safetensors store w, the norm multiplies by 1 + w (GGUF stores 1 + w)
    scales_embedding: bool = False
    activation: Activation = "silu"  # where the file names none
    sliding: Sliding = "none"  # in turns: each kind of layer with a rope base of its own
    partial_rotary: bool = False  # of each head a part may stay as it is
    rotary: float = 1.0  # the part that turns, where the config does not say
    own_blocks: bool = False  # layers may differ in width: `block_configs`, and a bias of q k v alone
    gguf_pairs_rows: bool = False  # GGUF stores q and k rows as rotary pairs (x0 y0 x1 y1 …)
    # What transformers takes where config.json has no such key; None: no window, hidden / heads, head_dim.
    window: int | None = None
    head_dim: int | None = None
    query_pre_attn_scalar: int | None = None
    norm_eps: float = 1e-6
    rope_base: float = 10_000.0
    tied: bool = False
    # Tensors that old files have beside the weights: what the code that saved them kept in the same place.
    buffers: tuple[str, ...] = ()

    def names_in(self, format: Format) -> Names:
        """Role → the file's word, with a place for the layer."""
        return GGUF_NAMES if format == "gguf" else self.names

    def word(self, key: str) -> str:
        """This family's word for a key of config.json."""
        return self.words.get(key, key)


FAMILIES: Final[Mapping[str, Family]] = {
    family.name: family
    for family in (
        Family(name="llama", gguf_pairs_rows=True),
        Family(name="mistral", sliding="all", window=4096, gguf_pairs_rows=True),
        Family(name="deci", own_blocks=True, gguf_pairs_rows=True),
        Family(name="qwen2", qkv_bias=True, sliding="late", window=4096),
        Family(
            name="qwen3",
            names={**_HF, **_QK_NORM},
            qk_norm=True,
            sliding="late",
            window=4096,
            head_dim=128,
        ),
        Family(
            name="phi3",
            names={**_HF, **_FUSED},
            fused_qkv=True,
            fused_gate_up=True,
            sliding="all",
            partial_rotary=True,
            norm_eps=1e-5,
        ),
        Family(
            name="gemma3_text",
            names={**_HF, **_QK_NORM, **_SANDWICH},
            words={"hidden_act": "hidden_activation"},
            qk_norm=True,
            sandwich=True,
            norm_plus_one=True,
            scales_embedding=True,
            activation="gelu_tanh",
            sliding="turns",
            window=4096,
            head_dim=256,
            query_pre_attn_scalar=256,
            rope_base=1_000_000.0,
            tied=True,
        ),
        Family(
            name="gpt_neox",
            names=_NEOX,
            words={
                "rms_norm_eps": "layer_norm_eps",
                "rope_theta": "rotary_emb_base",
                "partial_rotary_factor": "rotary_pct",
            },
            fused_qkv=True,
            qkv_by_head=True,
            gated=False,
            parallel=True,
            layer_norm=True,
            attention_bias=True,
            mlp_bias=True,
            activation="gelu",
            partial_rotary=True,
            rotary=0.25,
            norm_eps=1e-5,
            buffers=(_NEOX_LAYER + "attention.bias",),
        ),
    )
}

# model_type of a config.json → family: its own name, but for the newer name of DeciLM.
HF_FAMILIES: Final[Mapping[str, str]] = {**{name: name for name in FAMILIES}, "nemotron-nas": "deci"}

# general.architecture of a GGUF file → family. Mistral is written as llama, with a window key at most.
GGUF_FAMILIES: Final[Mapping[str, str]] = {
    "llama": "llama",
    "deci": "deci",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "phi3": "phi3",
    "gemma3": "gemma3_text",
    "gptneox": "gpt_neox",
}
