"""Layers of different widths: what a config or a GGUF says of each, and what is refused by its name."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiny import UNEVEN
from trisplit.errors import CheckpointProblem
from trisplit.models.blocks import Blocks, blocks_of_config, blocks_of_gguf
from trisplit.models.keys import Keys

WIDTHS = UNEVEN["deci-biases"]["widths"]
PART = {"no_op": False, "replace_with_linear": False}
BLOCKS: list[dict[str, Any]] = [
    {"attention": {**PART, "n_heads_in_group": 2}, "ffn": {**PART, "intermediate_size": width}}
    for width in WIDTHS
]


def of_config(**config: Any) -> Blocks:
    return blocks_of_config(Keys(config, "config.json"), len(WIDTHS), 64, 4)


def of_gguf(**keys: Any) -> Blocks:
    plain = {"attention.head_count": 4, "attention.head_count_kv": 2, "feed_forward_length": 96}
    given = {f"deci.{key}": value for key, value in (plain | keys).items()}
    return blocks_of_gguf(Keys(given, "m.gguf", "deci."), len(WIDTHS))


def changed(layer: int, part: str, **what: Any) -> list[dict[str, Any]]:
    blocks = deepcopy(BLOCKS)
    blocks[layer][part] |= what
    return blocks


def test_each_layer_says_its_own_width() -> None:
    assert of_config(block_configs=BLOCKS) == Blocks(4, 2, WIDTHS)
    assert of_gguf(feed_forward_length=list(WIDTHS)) == Blocks(4, 2, WIDTHS)
    arrays = {"attention.head_count": [4] * 4, "attention.head_count_kv": [2] * 4}
    assert of_gguf(**arrays, feed_forward_length=list(WIDTHS)) == Blocks(4, 2, WIDTHS)


def test_a_width_said_as_a_multiple_is_rounded_up() -> None:
    """As Nemotron 51B: 5.25 · 8192 · 2/3 are 28,672."""
    blocks = [{**BLOCKS[0], "ffn": {"ffn_mult": 5.25}}]
    assert blocks_of_config(Keys({"block_configs": blocks}, ""), 1, 8192, 64).ffn == (28_672,)
    assert of_config(block_configs=changed(0, "ffn", ffn_mult=1.0)).ffn[0] == 256
    assert of_config(block_configs=changed(0, "ffn", ffn_mult=None)).ffn == WIDTHS


def test_one_width_for_all() -> None:
    assert of_config(intermediate_size=96, num_key_value_heads=2) == Blocks(4, 2, (96,) * 4)
    per_layer = {"num_key_value_heads_per_layer": [1] * 4}
    assert of_config(intermediate_size=96, **per_layer) == Blocks(4, 1, (96,) * 4)
    assert of_gguf() == Blocks(4, 2, (96,) * 4)
    assert of_gguf(**{"attention.head_count_kv": None}) == Blocks(4, 4, (96,) * 4)


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        (changed(1, "attention", no_op=True), "layer 1 has no attention (no_op)"),
        (changed(2, "ffn", replace_with_linear=True), "layer 2 has no ffn (replace_with_linear)"),
        (changed(2, "attention", n_heads_in_group=4), "layers have 2 to 4 heads in a group"),
        (changed(0, "attention", window_length=8), "attention of layer 0 has window_length"),
        (changed(0, "ffn", hidden_act="relu"), "hidden_act is not"),
        (changed(3, "ffn", intermediate_size=0), "intermediate_size is 0 in ffn of layer 3"),
        (changed(3, "ffn", intermediate_size=None), "intermediate_size is missing in ffn of layer 3"),
        (BLOCKS[:3], "block_configs does not describe 4 layers"),
        ([None] * 4, "n_heads_in_group is missing in attention of layer 0"),
        ("four", "block_configs does not describe 4 layers"),
    ],
)
def test_what_we_do_not_run_is_named(blocks: Any, said: str) -> None:
    with pytest.raises(CheckpointProblem) as caught:
        of_config(block_configs=blocks, hidden_act="silu")
    assert said in caught.value.what


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"attention.head_count_kv": [2, 0, 2, 2]},
            "layer 1 has no attention",
        ),
        ({"feed_forward_length": [96, 96, 0, 96]}, "layer 2 has no FFN (feed_forward_length is 0)"),
        ({"attention.head_count_kv": [2, 1, 2, 2]}, "layers have 1 to 2 key/value heads"),
        ({"feed_forward_length": [96]}, "has 1 numbers for 4 layers"),
    ],
)
def test_what_a_gguf_has_that_we_do_not_run(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointProblem) as caught:
        of_gguf(**keys)
    assert said in caught.value.what


@given(
    part=st.sampled_from(["attention", "ffn"]),
    key=st.sampled_from(
        [*PART, "n_heads_in_group", "intermediate_size", "ffn_mult", "hidden_act", "sparsify"]
    ),
    value=st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.lists(st.none()),
)
def test_any_value_in_a_block_is_read_or_refused(part: str, key: str, value: Any) -> None:
    try:
        blocks = of_config(block_configs=changed(1, part, **{key: value}))
    except CheckpointProblem:
        return
    assert all(width >= 1 for width in blocks.ffn)
    assert blocks.kv_heads >= 1
