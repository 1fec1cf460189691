"""Rows of heads: every order of a file is undone, and dimensions that stay make room for those that turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trisplit.models.config import ModelConfig
from trisplit.models.head_order import places
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]


@pytest.fixture
def llama(tiny: Tiny) -> ModelConfig:
    """Four query and two key heads of 16 dimensions, all of which turn."""
    return open_model(tiny("llama")).config


def turning(config: ModelConfig, pairs: int) -> ModelConfig:
    """The same with so many pairs of each head turning."""
    return replace(config, inv_freq=(*config.inv_freq[:pairs], *[0.0] * (8 - pairs)))


def ours(config: ModelConfig, format: str, role: str, file: list[int]) -> list[int]:
    """The rows of a file in our order."""
    to = places(config, "gguf" if format == "gguf" else "safetensors", role, len(file))
    if to is None:
        return file
    rows = np.full(len(file), -1)
    rows[to] = file
    return rows.tolist()


def test_most_rows_lie_as_they_are(llama: ModelConfig) -> None:
    for role in ("v", "out", "embed", "down", "up_bias", "v_bias", "attn_norm"):
        assert places(turning(llama, 4), "gguf", role, 64) is None
    for role in ("q", "k", "q_bias"):
        assert places(llama, "safetensors", role, 64) is None


def test_rotary_pairs_side_by_side_are_put_into_halves(llama: ModelConfig) -> None:
    halves = [*range(0, 16, 2), *range(1, 16, 2)]
    assert ours(llama, "gguf", "k", [*range(32)]) == [*halves, *(16 + at for at in halves)]


def test_heads_of_q_k_v_are_put_apart(llama: ModelConfig) -> None:
    neox = replace(llama, family="gpt_neox", kv_heads=4)
    first = [ours(neox, "safetensors", "qkv_bias", [*range(192)])[at] for at in range(0, 192, 16)]
    assert first == [0, 48, 96, 144, 16, 64, 112, 160, 32, 80, 128, 176]
    assert places(neox, "gguf", "qkv", 192) is None


def test_dimensions_that_stay_fill_both_halves_up(llama: ModelConfig) -> None:
    """Pairs are (0, 3), (1, 4), (2, 5) in the file, and (0, 8), (1, 9), (2, 10) as the kernel turns them."""
    head = [0, 1, 2, 6, 7, 8, 9, 10, 3, 4, 5, 11, 12, 13, 14, 15]
    three = turning(llama, 3)
    assert ours(three, "safetensors", "q", [*range(16)]) == head
    assert ours(three, "safetensors", "k_norm", [*range(16)]) == head
    fused = ours(replace(three, heads=1, kv_heads=1), "safetensors", "qkv", [*range(48)])
    assert fused == [*head, *(16 + at for at in head), *range(32, 48)]
