"""A model's facts survive the trip, and what cannot be a model's is refused with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tiny import UNEVEN, VARIANTS
from trisplit.errors import PeerProblem
from trisplit.models.config import ModelConfig
from trisplit.models.description import pack, unpack
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]


@pytest.mark.parametrize("variant", [*VARIANTS, *UNEVEN])
def test_what_is_packed_is_unpacked(variant: str, tiny: Tiny) -> None:
    config = open_model(tiny(variant)).config
    assert unpack(pack(config)) == config


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    from tests.tiny import build_variant

    return open_model(build_variant("gemma3", tmp_path_factory.mktemp("described") / "model")).config


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"family": "zeppelin"}, "the family 'zeppelin', which is not supported"),
        ({"hidden": 0}, "hidden 0"),
        ({"vocab": 2**31}, "vocab 2147483648"),
        ({"kv_heads": 0}, "kv_heads 0"),
        ({"kv_heads": 3}, "4 heads of 32 on 3"),
        ({"head_dim": 24}, "4 heads of 24 on 1"),
        ({"layers": 0}, "0 layers"),
        ({"layers": 5}, "6 widths and 6 windows for 5 layers"),
        ({"ffn": (96, 96, 96, 0, 96, 96)}, "ffn 3 0"),
        ({"windows": (16, 16, -1, 16, 16, 0)}, "a window of no length"),
        ({"inv_freq": ()}, "0 and 32 rotated dimensions in heads of 32"),
        ({"local_inv_freq": (1.0,) * 24}, "32 and 48 rotated dimensions"),
        ({"norm_eps": math.nan}, "a number that is none"),
        ({"attn_scale": math.inf}, "a number that is none"),
        ({"embed_scale": 0.0}, "a number that is none, or not above 0"),
    ],
)
def test_what_no_model_says_is_refused(config: ModelConfig, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(PeerProblem, match=f"a model description with {why}"):
        unpack(pack(replace(config, **changes)))


@pytest.mark.parametrize("packed", [b"", b"\xc1", msgspec.msgpack.encode({"family": "llama"})])
def test_what_is_no_description_is_refused(packed: bytes) -> None:
    with pytest.raises(PeerProblem, match="a model description that cannot be read"):
        unpack(packed)


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_anywhere_is_a_description_or_a_peer_problem(
    config: ModelConfig, data: st.DataObject
) -> None:
    facts = msgspec.to_builtins(config)
    name = data.draw(st.sampled_from([f.name for f in fields(ModelConfig)]))
    facts[name] = data.draw(scalars | st.lists(scalars, max_size=7))
    try:
        found = unpack(msgspec.msgpack.encode(facts))
    except PeerProblem:
        return
    assert unpack(pack(found)) == found
