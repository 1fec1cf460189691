"""The packed table: all of it comes back, layer by layer; a flipped bit is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compress.test_atlas import given_for
from tests.tiny import build
from trisplit.compress.anatomy import ROLES, dissect
from trisplit.compress.atlas import Atlas, survey
from trisplit.compress.atlas_table import AtlasTable, pack, save_table, table_of
from trisplit.compress.embedding import read_table
from trisplit.errors import CheckpointProblem, RequestProblem


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    folder = build("llama", tmp_path_factory.mktemp("m") / "m", layers=5)
    return survey(dissect(folder), given_for(40), cliff="p80")


@pytest.fixture(scope="module")
def table(atlas: Atlas) -> AtlasTable:
    return pack(atlas)


def test_every_layer_comes_back(atlas: Atlas, table: AtlasTable, tmp_path: Path) -> None:
    save_table(table, tmp_path / "m.atlas")
    back = read_table(tmp_path / "m.atlas")
    assert (back.layers, back.threshold) == (5, pytest.approx(atlas.threshold))
    assert len(back.words) * 4 < 2000
    for layer in atlas.layers:
        entry = back.layer(layer.layer)
        assert (entry.cliff, entry.zone) == (pytest.approx(layer.cliff), layer.zone)
        assert layer.neurons is not None
        assert (entry.neurons, entry.carry_90) == (96, layer.neurons.carrying(0.9))
        assert entry.carry_90 < entry.carry_99 <= 96
        heads = atlas.of(layer.layer, heads=True)
        assert (entry.heads, entry.heads_passing) == (12, sum(atlas.passes(h.plain.cliff) for h in heads))
        for row in atlas.of(layer.layer):
            assert entry.passes[row.matrix] == atlas.passes(row.plain.cliff)
            assert entry.columns[row.matrix]["cliff"] == pytest.approx(row.plain.cliff)
            assert row.white is not None
            assert entry.columns[row.matrix]["white_tail_50"] == pytest.approx(row.white.tail[1])
        assert set(entry.columns) == set(ROLES)


@pytest.mark.parametrize("layer", [-1, 5])
def test_a_layer_it_has_not_is_refused(layer: int, table: AtlasTable) -> None:
    with pytest.raises(RequestProblem, match=f"no layer {layer}"):
        table.layer(layer)


def test_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    entry = pack(survey(dissect(build("gpt_neox", tmp_path / "m", layers=2)))).layer(1)
    assert set(entry.columns) == set(ROLES) - {"gate"}
    assert np.isnan(entry.columns["q"]["white_tail_50"])
    assert (entry.neurons, entry.carry_90, entry.carry_99) == (0, 0, 0)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_damage_is_noticed(data: st.DataObject, table: AtlasTable) -> None:
    """Any bit of the header's first words or of the layers; any bytes that were cut off."""
    raw = bytearray(table.words.astype("<u4").tobytes())
    at = data.draw(st.sampled_from([*range(20), *range(28, 32), *range(64, len(raw))]))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CheckpointProblem):
        table_of(bytes(raw), "it")
    with pytest.raises(CheckpointProblem):
        table_of(table.words.tobytes()[: data.draw(st.integers(0, len(raw) - 1))], "it")
