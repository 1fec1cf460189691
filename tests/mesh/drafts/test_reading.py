"""Drafts that are models: whatever they were asked before, the guess is what plain decoding chooses."""

from __future__ import annotations

import gc
import shutil
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny import build_variant
from trisplit.errors import RequestProblem
from trisplit.mesh.drafts import Draft, Target, draft_named, source_named
from trisplit.mesh.drafts.reading import Reading, common
from trisplit.models.convert import Dtype
from trisplit.models.decoder import Decoder
from trisplit.models.generation import Generation, Request
from trisplit.models.model import open_model
from trisplit.models.sampling import Sampling, choose

Tiny = Callable[[str], Path]

CONTEXT = 96
VOCAB = 320
HOWS = (
    Sampling(),
    Sampling(temperature=0.8, seed=5),
    Sampling(temperature=1.2, top_k=40, top_p=0.9, min_p=0.02, repetition_penalty=1.3, seed=9),
)
PROMPTS = ((1, 20, 30, 40, 50), (1, *range(100, 170)))
WRONG = st.lists(st.integers(0, VOCAB - 1), max_size=20)


def target(path: Path, dtype: Dtype = "f32", context: int = CONTEXT) -> Target:
    return Target(model=open_model(path), dtype=dtype, context=context)


@cache
def plainly(path: Path, how: Sampling, prompt: tuple[int, ...]) -> list[int]:
    """A prompt and its answer as the twin gives it by plain decoding, until the context is full."""
    request = Request(prompt_ids=prompt, sampling=how, max_tokens=CONTEXT, ignore_eos=True)
    answer = Generation(request, open_model(path).tokenizer().detokenizer(), CONTEXT)
    decoder = Decoder.load(path, "int8", context=CONTEXT)
    return [*prompt, *(piece.token_id for piece in decoder.generate(answer))]


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
@pytest.mark.parametrize("how", HOWS, ids=["greedy", "warm", "filtered"])
@pytest.mark.parametrize("variant", ["llama", "gemma3"])
def test_a_guess_is_what_plain_decoding_of_the_twin_gives(
    variant: str, how: Sampling, prompt: tuple[int, ...], tiny: Tiny
) -> None:
    """Asked at random places, with wrong turns between: rewinds of every kind, also into the prompt."""
    whole = plainly(tiny(variant), how, prompt)
    draft = draft_named("twin:int8", target(tiny(variant)), how)
    assert draft.guess(prompt) == whole[len(prompt)]

    @settings(max_examples=20, deadline=None)
    @given(st.lists(st.tuples(st.integers(1, len(prompt) + 22), WRONG), max_size=6))
    def holds(asked: list[tuple[int, list[int]]]) -> None:
        for first, wrong in asked:
            for length in range(max(first, len(prompt)), first + 3):
                assert draft.guess(whole[:length]) == whole[length]
            draft.guess([*whole[:first], *wrong])

    holds()


@given(st.lists(st.integers(0, 1), max_size=20), st.lists(st.integers(0, 1), max_size=20))
def test_what_two_sequences_begin_with(one: list[int], other: list[int]) -> None:
    n = common(one, other)
    assert one[:n] == other[:n]
    assert n == min(len(one), len(other)) or one[n] != other[n]


def test_missing_ids_get_the_bits_of_plain_decoding(tiny: Tiny) -> None:
    """A prompt in chunks, then one at a time; also after rewinds, and when many are missing."""
    source = source_named("twin:int4", target(tiny("mistral")))
    assert isinstance(source, Reading)
    plain, reader = Decoder.load(tiny("mistral"), "int4", context=CONTEXT), source.reader()
    ids = np.random.default_rng(1).integers(3, VOCAB, CONTEXT).tolist()
    expected = {70: plain.forward(ids[:70], 0).copy()}
    expected |= {n + 1: plain.forward(ids[n : n + 1], n).copy() for n in range(70, 95)}
    for length in (70, 71, 72, 95, 75, 74, 70, 90):
        logits = reader.logits(ids[:length])
        assert logits is not None
        np.testing.assert_array_equal(logits, expected[length])


def test_who_has_missed_more_than_a_chunk_reads_it_as_a_prompt(tiny: Tiny) -> None:
    source = source_named("twin:int4", target(tiny("mistral")))
    assert isinstance(source, Reading)
    plain, reader = Decoder.load(tiny("mistral"), "int4", context=CONTEXT), source.reader()
    ids = np.random.default_rng(1).integers(3, VOCAB, CONTEXT).tolist()
    reader.logits(ids[:10])
    np.testing.assert_array_equal(reader.logits(ids[:90]), plain.forward(ids[:90], 0))


def test_drafts_of_one_twin_share_its_weights_and_nothing_else(tiny: Tiny) -> None:
    source = source_named("twin:int8", target(tiny("llama")))
    pairs = [(source.draft(how), plainly(tiny("llama"), how, prompt)) for how in HOWS for prompt in PROMPTS]
    for length in (*range(71, 80), 75):
        for draft, whole in pairs:
            draft.guess(whole[: 5 if whole[4] == 50 else 71])
            assert draft.guess(whole[:length]) == whole[length]
    (closed, gone), (kept, whole) = pairs[:2]
    closed.close()
    assert closed.guess(gone[:75]) is None
    assert kept.guess(whole[:75]) == whole[75]


def test_drafts_of_one_twin_may_run_at_the_same_time(tiny: Tiny) -> None:
    source = source_named("twin:int8", target(tiny("gemma3")))
    wholes = [plainly(tiny("gemma3"), how, PROMPTS[0]) for how in HOWS]
    drafts = [source.draft(how) for how in HOWS]

    def follow(draft: Draft, whole: list[int]) -> list[int | None]:
        return [draft.guess(whole[:length]) for length in range(5, CONTEXT)]

    with ThreadPoolExecutor(len(drafts)) as pool:
        assert [*pool.map(follow, drafts, wholes)] == [whole[5:] for whole in wholes]


def test_a_twin_at_the_dtype_of_the_target_is_always_right(tiny: Tiny) -> None:
    whole = plainly(tiny("llama"), HOWS[1], PROMPTS[0])
    draft = draft_named("twin:int8", target(tiny("llama"), "int8"), HOWS[1])
    assert [draft.guess(whole[:n]) for n in range(5, CONTEXT)] == whole[5:]


def test_no_guess_where_nothing_can_follow(tiny: Tiny) -> None:
    draft = draft_named("twin:int8", target(tiny("llama"), context=10), HOWS[0])
    assert draft.guess([]) is None
    assert draft.guess([*range(1, 10)]) is not None
    assert draft.guess([*range(1, 11)]) is None
    assert draft.guess([*range(1, 30)]) is None
    assert draft.guess([1, 2, 3]) is not None


def test_ids_that_only_one_of_both_has_are_neither_guessed_nor_read(tiny: Tiny, tmp_path: Path) -> None:
    """Rows of the vocabulary behind the tokenizer's last id differ between sizes of one family."""
    long, short = tiny("llama"), tmp_path / "short"
    build_variant("llama", short, vocab_size=VOCAB - 20)
    long = shutil.copytree(long, tmp_path / "long")
    shutil.copy(short / "tokenizer.json", long)
    ids = [1, *range(100, 140)]
    larger = draft_named(f"twin:{long}", target(short), Sampling(temperature=3.0))
    guesses = [larger.guess(ids[:n]) for n in range(1, 41)]
    assert all(guess is not None and guess < VOCAB - 20 for guess in guesses)
    smaller = draft_named(f"twin:{short}", target(long), HOWS[0])
    known = smaller.guess([1, 5, VOCAB - 21])
    assert smaller.guess([1, 5, VOCAB - 20]) is None
    assert smaller.guess([1, *[VOCAB - 1] * 90]) is None
    assert smaller.guess([1, 5, VOCAB - 21]) == known is not None


def test_what_a_twin_takes_is_known_before_it_is_loaded(tiny: Tiny) -> None:
    source = source_named("twin:int4", target(tiny("qwen2")))
    weight_bytes, kv_bytes = source.weight_bytes, source.kv_bytes
    assert len([*source.load()]) == source.steps == len(open_model(tiny("qwen2")).stages)
    assert [*source.load()] == []
    decoder = Decoder.load(tiny("qwen2"), "int4", context=CONTEXT)
    assert weight_bytes == decoder.session.weight_bytes
    assert kv_bytes == decoder.session.kv_bytes


def test_a_twin_there_is_no_memory_for(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trisplit.models.model.available_bytes", lambda: 1000)
    source = source_named("twin:int8", target(tiny("llama")))
    with pytest.raises(
        RequestProblem, match=r"keys and values of the draft twin:int8 need .* 1.0 kB of memory"
    ):
        source.draft(HOWS[0])


def test_closing_gives_the_memory_back(tiny: Tiny) -> None:
    source = source_named("twin:int8", target(tiny("llama"), context=512))
    draft = source.draft(HOWS[0])
    draft.guess([*range(300)])
    track = draft._reader._track  # type: ignore[attr-defined]
    assert track.kv_bytes > 0
    values, gone = next(iter(track._kv.values())), weakref.ref(track)
    assert values[0, :, 100:200].any()
    draft.close()
    draft.close()
    assert not values[0, :, 100:200].any()
    del track
    gc.collect()
    assert gone() is None


def test_the_target_s_way_of_choosing(tiny: Tiny) -> None:
    """The position, the ids before and the parameters are those of the target."""
    how = HOWS[2]
    ids = [1, *range(100, 130)]
    logits = Decoder.load(tiny("phi3"), "int8", context=CONTEXT).forward(ids, 0)
    guess = draft_named("twin:int8", target(tiny("phi3")), how).guess(ids)
    assert guess == choose(logits, ids, how, len(ids))
