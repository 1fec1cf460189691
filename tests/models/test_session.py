"""Sessions and tracks: every cut the same bits, rows alone and together, rewinding, and refusals."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import VARIANTS
from trisplit.errors import OwnProblem
from trisplit.models.config import Stage, layer_stages
from trisplit.models.convert import DTYPES, Dtype
from trisplit.models.model import Model, open_model
from trisplit.models.session import Row, StageSession, Tracks
from trisplit.models.stages import rotary_tables

CONTEXT = 48
Tiny = Callable[[str], Path]


def session(model: Model, stages: Sequence[Stage], dtype: Dtype = "f32") -> StageSession:
    return StageSession(model.config, list(model.files(stages, dtype)), context=CONTEXT, threads=1)


def rows(n: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, width), dtype=np.float32)


def whole(model: Model, dtype: Dtype = "f32") -> Tracks:
    return Tracks(session(model, layer_stages(range(model.config.layers)), dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", ["llama", "qwen3", "phi3", "gemma3", "neox", "neox-sequential"])
def test_every_cut_gives_the_same_bits(variant: str, dtype: Dtype, tiny: Tiny) -> None:
    model = open_model(tiny(variant))
    stages = layer_stages(range(model.config.layers))
    one = whole(model, dtype)
    thirds = [Tracks(session(model, [stage], dtype)) for stage in stages]
    recut = [Tracks(session(model, list(group), dtype)) for group in _recut(stages)]
    halves = [Tracks(session(model, group, dtype)) for group in _halves(stages)]
    position = 0
    for n in (20, 1, 1, 7):
        x = rows(n, model.config.hidden, seed=position)
        expected = one.run({"x": x}, position).copy()
        for tracks in (thirds, recut, halves):
            np.testing.assert_array_equal(_through(tracks, x, position), expected)
        position += n


def _halves(stages: Sequence[Stage]) -> list[Sequence[Stage]]:
    """Attention, and the FFN as one."""
    return [part for i in range(0, len(stages), 3) for part in (stages[i : i + 1], stages[i + 1 : i + 3])]


def _recut(stages: Sequence[Stage]) -> list[tuple[Stage, ...]]:
    groups: list[tuple[Stage, ...]] = [(stages[0],)]
    for stage in stages[1:]:
        if stage.kind == "attention":
            groups[-1] = (*groups[-1], stage)
        else:
            groups.append((stage,))
    return groups


def _through(tracks: Sequence[Tracks], x: np.ndarray, position: int) -> np.ndarray:
    """Hands values from session to session as stations do."""
    values = {"x": x}
    for track in tracks:
        out = track.run({name: values[name] for name in track.session.takes}, position).copy()
        if track.session.leaves[0] == "xr":
            values["x"], values["r"] = np.split(out, 2, axis=1)
        else:
            values[track.session.leaves[0]] = out
    return values["x"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_after_the_prompt_are_single_steps(dtype: Dtype, tiny: Tiny) -> None:
    model = open_model(tiny("mistral"))
    for stages in (
        layer_stages(range(2)),
        [Stage(0, "gate_up")],
        [Stage(0, "down")],
        [Stage(0, "attention")],
    ):
        part = session(model, stages, dtype)
        assert part.rows_equal()
        inputs = {name: rows(8, width) for name, width in part.takes.items()}
        alone, together = Tracks(part), Tracks(part)
        singles = [alone.run({n: v[i : i + 1] for n, v in inputs.items()}, i).copy() for i in range(8)]
        np.testing.assert_array_equal(together.step(inputs, 0, batch=True), np.concatenate(singles))


def test_rows_that_differ_in_company_are_noticed(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    part = session(open_model(tiny("llama")), [Stage(0, "gate_up")])
    honest = Tracks.together

    def drifts(self: Tracks, given: Sequence[Row]) -> list[np.ndarray]:
        outs = honest(self, given)
        return [np.nextafter(out, np.float32(np.inf)) for out in outs] if len(outs) == 8 else outs

    assert part.rows_equal()
    monkeypatch.setattr(Tracks, "together", drifts)
    assert not part.rows_equal()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_sequences_in_company_get_the_bits_they_get_alone(variant: str, dtype: Dtype, tiny: Tiny) -> None:
    """Prompts of different lengths, then steps in which some are silent, one is full and one has rewound."""
    model = open_model(tiny(variant))
    files = list(model.files(model.stages, dtype))
    part = StageSession(model.config, files, context=CONTEXT, threads=1)
    assert part.rows_equal(16)
    company, alone = Tracks(part, 5), [Tracks(part) for _ in range(5)]
    ids = np.random.default_rng(3).integers(3, 300, (5, CONTEXT))

    def step(slot: int, at: int) -> Row:
        return Row(slot, {"ids": ids[slot, at : at + 1]}, at)

    for slot, n in enumerate((3, 17, CONTEXT, 1, 9)):
        company.run({"ids": ids[slot, :n]}, 0, slot)
        alone[slot].run({"ids": ids[slot, :n]}, 0)
    for steps in ([(0, 3), (1, 17)], [(4, 9), (0, 4), (3, 1)], [(1, 12), (3, 2)], [(0, 5), (4, 10)]):
        outs = company.together([step(slot, at) for slot, at in steps])
        for out, (slot, at) in zip([out.copy() for out in outs], steps):
            np.testing.assert_array_equal(out, alone[slot].run({"ids": ids[slot, at : at + 1]}, at))
    company.free(1)
    np.testing.assert_array_equal(
        company.run({"ids": ids[0, :6]}, 0, 1), Tracks(part).run({"ids": ids[0, :6]}, 0)
    )
    assert company.lengths == [6, 6, CONTEXT, 3, 11]


@pytest.mark.parametrize("variant", ["llama", "mistral", "gemma3"])
def test_rewinding_is_setting_a_length(variant: str, tiny: Tiny) -> None:
    model = open_model(tiny(variant))
    straight, wandering = whole(model), whole(model)
    prompt, right, wrong = (rows(n, model.config.hidden, seed) for n, seed in ((20, 1), (6, 2), (9, 3)))
    straight.run({"x": prompt}, 0)
    expected = [straight.run({"x": right[i : i + 1]}, 20 + i).copy() for i in range(6)]
    wandering.run({"x": prompt}, 0)
    for i in range(9):
        wandering.run({"x": wrong[i : i + 1]}, 20 + i)
    for i in range(6):
        np.testing.assert_array_equal(wandering.run({"x": right[i : i + 1]}, 20 + i), expected[i])
    assert wandering.lengths == [26]


def test_positions_must_follow_and_fit(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    track = whole(model)
    x = rows(4, model.config.hidden)
    track.run({"x": x}, 0)
    with pytest.raises(OwnProblem, match="rows 5 to 8 do not follow 4"):
        track.run({"x": x}, 5)
    with pytest.raises(OwnProblem, match="within 48"):
        track.run({"x": rows(45, model.config.hidden)}, 4)
    assert track.lengths == [4]


def test_keys_and_values_are_billed(tiny: Tiny) -> None:
    model = open_model(tiny("qwen2"))
    part = session(model, layer_stages(range(3)))
    c = model.config
    assert part.kv_bytes == 3 * 2 * c.kv_heads * CONTEXT * c.head_dim * 4
    assert session(model, [Stage(0, "down")]).kv_bytes == 0


def test_weights_are_counted_once(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    stages = layer_stages(range(2))
    both = session(model, stages).weight_bytes
    assert both == sum(model.weight_bytes(stage, "f32") for stage in stages)


def test_rotary_tables_live_as_long_as_their_sessions(tiny: Tiny) -> None:
    """They are bound by address: a cache of tables must not be all that keeps them."""
    model = open_model(tiny("llama"))
    track, fresh = whole(model), whole(model)
    x, files = rows(12, model.config.hidden), list(model.files(layer_stages(range(1)), "f32"))
    for context in range(50, 60):  # other tables, so that any cache of them forgets ours
        Tracks(StageSession(model.config, files, context=context, threads=1))
    gc.collect()
    rotary_tables.cache_clear()
    noise = [np.full((CONTEXT, 8), np.nan, np.float32) for _ in range(100)]
    np.testing.assert_array_equal(track.run({"x": x}, 0), fresh.run({"x": x}, 0))
    assert np.isfinite(track.run({"x": x}, 0)).all()
    del noise


def test_keys_and_values_take_memory_only_where_they_are() -> None:
    """Neither numpy's large pages nor gathering pages for somebody else's weights may fill them in."""
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import numpy as np
from trisplit.machine import gather_into_huge_pages, rss_bytes
from trisplit.models.session import floats, pages_for
before = rss_bytes()
shape = (1, 2, 16384, 64)
kept = [floats(pages_for(shape), shape) for _ in range(16)]
for array in kept:
    array[:, :, :3] = 1
gather_into_huge_pages()
for array in kept:
    array[:, :, 10000:10003] = 1  # where no page was yet
print(rss_bytes() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert int(done.stdout) < 4 * 2**20


def test_a_slot_that_is_freed_gives_its_memory_back(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    files = list(model.files(layer_stages(range(model.config.layers)), "f32"))
    tracks = Tracks(StageSession(model.config, files, context=256, threads=1), 2)
    for slot in (0, 1):
        tracks.run({"x": rows(200, model.config.hidden)}, 0, slot)
    tracks.free(0)
    for values in tracks._kv.values():
        page = 4096 // 4
        assert not values[0].reshape(-1)[page:-page].any()
        assert values[1].any()
