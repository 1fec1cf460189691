"""Sessions and tracks: every cut the same bits, rows alone and together, rewinding, and refusals."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import VARIANTS, build_variant
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


def _through(tracks: Sequence[Tracks], x: np.ndarray, position: int, *, step: bool = False) -> np.ndarray:
    """Hands values from session to session as stations do."""
    values = {"x": x}
    for track in tracks:
        inputs = {name: values[name] for name in track.session.takes}
        out = (track.step(inputs, position, batch=True) if step else track.run(inputs, position)).copy()
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_of_rows_is_single_steps(variant: str, dtype: Dtype, tiny: Tiny) -> None:
    """From ids to the logits of each of 1 to 17 rows, in two slots, rewinding, up to the last position."""
    model = open_model(tiny(variant))
    part = session(model, model.stages, dtype)
    assert part.abreast_equal or sys.platform != "linux"
    steps, alone = Tracks(part, 3), Tracks(part, 3)
    ids = np.random.default_rng(5).integers(3, 300, (18, CONTEXT))
    for tracks in (steps, alone):
        tracks.run({"ids": ids[0, :11]}, 0, 1)
    for n in range(1, 18):
        slot = n % 2 + 1
        at = min(max(0, alone.lengths[slot] - n % 4), CONTEXT - n)
        some = ids[n, at : at + n]
        singles = [alone.run({"ids": some[i : i + 1]}, at + i, slot).copy() for i in range(n)]
        out = steps.step({"ids": some}, at, slot, batch=True)
        np.testing.assert_array_equal(out, np.concatenate(singles))
    assert steps.lengths == alone.lengths
    for name, kept in steps._kv.items():
        np.testing.assert_array_equal(kept, alone._kv[name])


@pytest.mark.parametrize("variant", ["llama", "gemma3", "neox", "neox-sequential"])
def test_a_step_of_rows_is_single_steps_in_every_cut(variant: str, tiny: Tiny) -> None:
    model = open_model(tiny(variant))
    stages, x = layer_stages(range(model.config.layers)), rows(19, model.config.hidden)
    expected = np.concatenate([run.copy() for run in _singles(whole(model), x)])
    for groups in ([stages], _recut(stages), _halves(stages)):
        tracks = [Tracks(session(model, list(group))) for group in groups]
        out = np.concatenate([_through(tracks, x[at : at + n], at, step=True) for at, n in ((0, 2), (2, 17))])
        np.testing.assert_array_equal(out, expected)


def _singles(track: Tracks, x: np.ndarray) -> Iterator[np.ndarray]:
    for i in range(len(x)):
        yield track.run({"x": x[i : i + 1]}, i)


def test_threads_do_not_change_a_step(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    files, ids = list(model.files(model.stages, "f32")), np.arange(3, 40)
    parts = [StageSession(model.config, files, context=CONTEXT, threads=n, spin=False) for n in (1, 2)]
    one, two = (Tracks(part).step({"ids": ids}, 0, batch=True) for part in parts)
    np.testing.assert_array_equal(one, two)
    assert all(part.abreast_equal for part in parts) or sys.platform != "linux"


def test_more_threads_than_heads_change_nothing(tmp_path: Path) -> None:
    """The engine would have some of them sum over a part of a long sequence each."""
    shape = {"num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 2048}
    model = open_model(build_variant("llama", tmp_path / "model", **shape))
    files, ids = list(model.files(model.stages, "f32")), np.arange(3, 12)
    left = []
    for threads in (1, 2):
        track = Tracks(StageSession(model.config, files, context=2048, threads=threads, spin=False))
        track.run({"ids": np.arange(2000) % 300}, 0)
        left += [track.step({"ids": ids}, 2000, batch=batch) for batch in (False, True)]
    for other in left[1:]:
        np.testing.assert_array_equal(other, left[0])


def test_an_engine_that_reads_keys_too_early_is_noticed(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its older attention does, which goes from one entry of a batch to the next."""
    model = open_model(tiny("llama"))
    expected = Tracks(session(model, model.stages)).step({"ids": np.arange(3, 12)}, 0, batch=False)
    monkeypatch.setenv("ORT_GQA_DISABLE_FLASH_ATTENTION", "1")
    older = session(model, model.stages)
    assert not older.abreast_equal
    out = Tracks(older).step({"ids": np.arange(3, 12)}, 0, batch=True)
    np.testing.assert_allclose(out, expected, atol=1e-4)


def test_where_memory_cannot_be_mapped_again_rows_go_one_by_one(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = open_model(tiny("llama"))
    part, x = session(model, layer_stages(range(2))), rows(9, model.config.hidden)
    expected = Tracks(part).step({"x": x}, 0, batch=True)
    monkeypatch.setattr(sys, "platform", "plan9")
    assert not Tracks(part).can_go_abreast(0)
    np.testing.assert_array_equal(Tracks(part).step({"x": x}, 0, batch=True), expected)


def test_more_slots_than_are_mapped_at_a_time_take_steps_in_turn(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    part, x = session(model, layer_stages(range(2))), rows(9, model.config.hidden)
    tracks, expected = Tracks(part, 20), Tracks(part).step({"x": x}, 0, batch=False)
    for at in (0, 3, 6):
        for slot in range(20):
            out = tracks.step({"x": x[at : at + 3]}, at, slot, batch=True)
            np.testing.assert_array_equal(out, expected[at : at + 3])


def test_a_slot_that_was_freed_takes_steps_again(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    part, x = session(model, layer_stages(range(2))), rows(9, model.config.hidden)
    tracks = Tracks(part, 2)
    first = tracks.step({"x": x}, 0, 1, batch=True)
    tracks.free(1)
    assert not any(kept[1].any() for kept in tracks._kv.values())
    np.testing.assert_array_equal(tracks.step({"x": x}, 0, 1, batch=True), first)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_head_leaves_logits_of_every_row_of_a_step(dtype: Dtype, tiny: Tiny) -> None:
    model = open_model(tiny("gemma3"))
    head = session(model, model.stages[-1:], dtype)
    x = rows(17, model.config.hidden)
    singles = [Tracks(head).run({"x": x[i : i + 1]}, 0).copy() for i in range(17)]
    for batch in (True, False):
        out = Tracks(head).step({"x": x}, 0, batch=batch)
        np.testing.assert_array_equal(out, np.concatenate(singles))


def test_a_step_that_does_not_fit_runs_no_row(tiny: Tiny) -> None:
    track = whole(open_model(tiny("llama")))
    x = rows(CONTEXT, track.session.config.hidden)
    track.run({"x": x[:40]}, 0)
    with pytest.raises(OwnProblem, match="within 48"):
        track.step({"x": x[:9]}, 40, batch=True)
    assert track.lengths == [40]


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
    for context in range(100, 1100, 100):  # other tables, so that any cache of them forgets ours
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
from trisplit.models.pages import floats, pages_for
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
