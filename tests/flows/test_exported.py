"""Exported copies at work: layers of different widths on stations that are sent them, and as drafts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import facts_of
from tests.tiny import write_gguf
from trisplit.compress.export import STOCK, Wanted, export
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]
PROMPT = "the tide goes out; the tide comes in; the tide"
WORDS = ("--max-tokens", "16", "--ignore-eos", "--context", "128", "--check")


@pytest.mark.parametrize("format", ["safetensors", "gguf"])
def test_uneven_layers_are_sent_to_stations(
    format: str, tiny: Tiny, tmp_path: Path, stations: dict[str, str]
) -> None:
    model = tiny("deci") if format == "safetensors" else write_gguf(tiny("deci"), tmp_path / "m.gguf")
    where = ("--stations", ",".join([*stations.values()][:3]), "--weights", "push", "--cut", "thirds")
    facts = facts_of("generate", model, PROMPT, *WORDS, *where)
    assert facts["identical_to_one_machine"]


def test_a_copy_with_widths_of_its_own_drafts_for_one_that_is_filled_up(
    tiny: Tiny, tmp_path: Path, stations: dict[str, str]
) -> None:
    """Both compute the same, so that guesses are right."""
    padded = export(open_model(tiny("deci")), tmp_path / "padded", STOCK).path
    twin = export(open_model(padded), tmp_path / "twin", Wanted(format="deci", type="f32")).path
    assert open_model(twin).config.ffn == open_model(tiny("deci")).config.ffn != open_model(padded).config.ffn
    where = ("--stations", ",".join([*stations.values()][:2]), "--drafts-go", "rounds:4")
    facts = facts_of("generate", padded, PROMPT, *WORDS, *where, "--speculate", f"twin:{twin}")
    assert facts["identical_to_one_machine"]
    assert facts["drafts"]["right"] > 0
    assert facts["drafts"]["wrong"] <= 1
