"""Speculation is plain decoding, whatever is drafted, wherever the layers lie, and whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from tests.flows.test_failover import Fleet, fleet
from tests.flows.test_token_trip import CONTEXT, Silent
from tests.mesh.adversaries import ADVERSARIES, Alternating, Right
from trisplit.errors import RequestProblem
from trisplit.mesh import speculating
from trisplit.mesh.ahead import starting_ahead
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.cuts import CUTS
from trisplit.mesh.drafts import Draft
from trisplit.mesh.overlap import Early
from trisplit.mesh.plan import Plan
from trisplit.mesh.room import Room
from trisplit.mesh.speculating import Mode, Speculate
from trisplit.mesh.speculation import Forecast
from trisplit.mesh.topology import TOPOLOGIES
from trisplit.models.decoder import PREFILL_CHUNK, Decoder
from trisplit.models.ends import Ends
from trisplit.models.generation import Detokenizer, Generation, Request
from trisplit.models.model import Model, open_model
from trisplit.models.sampling import Sampling

Tiny = Callable[[str], Path]

MODES: tuple[Mode, ...] = get_args(Mode)
PROMPT = tuple((7 * i) % 300 + 3 for i in range(PREFILL_CHUNK + 9))  # more than one chunk
TOKENS = 24
GREEDY = Sampling()
SAMPLED = Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.02, repetition_penalty=1.2, seed=5)
PATIENCE_S = 120.0


def asked(how: Sampling, *, eos: int | None = None, stop: str = "", tokens: int = TOKENS) -> Generation:
    request = Request(
        prompt_ids=PROMPT,
        sampling=how,
        max_tokens=tokens,
        stop=(stop,) if stop else (),
        eos_ids=frozenset(() if eos is None else (eos,)),
        ignore_eos=eos is None,
    )
    detokenizer: Detokenizer = Silent()
    return Generation(request, detokenizer, CONTEXT)


def answered(path: Path, answer: Generation) -> list[int]:
    """What the decoder says."""
    for _ in Decoder.load(path, context=CONTEXT).generate(answer):
        pass
    return answer.token_ids


def planned(model: Model, cut: str, topology: str, stations: Sequence[str]) -> Plan:
    rooms = [Room(name, None) for name in stations]
    return plan_model(model, rooms, cut=cut, topology=topology, dtype="f32", context=CONTEXT)


def ends_of(model: Model, topology: str) -> Ends | None:
    return None if topology == "ring" else Ends(model.config, *model.files(model.ends, "f32"), threads=1)


async def drafted(mesh: Coordinator, answer: Generation, how: Speculate) -> list[int]:
    """An answer from its opening to its close."""
    stream = await mesh.open()
    async with asyncio.timeout(PATIENCE_S):
        async for _ in mesh.speculation(stream, answer, how).pieces():
            pass
    await mesh.close(stream)
    return answer.token_ids


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "every"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("cut", CUTS)
def test_every_draft_and_mode_leaves_the_tokens_as_they_are(
    cut: str, topology: str, every: bool, tiny: Tiny, stations: Mapping[str, str]
) -> None:
    """Every draft in every mode: by turns greedily and sampled, or both."""
    path = tiny("llama")
    model, names = open_model(path), list(stations)[:3]
    truths = {how: answered(path, asked(how)) for how in (GREEDY, SAMPLED)}
    assert truths[GREEDY] != truths[SAMPLED]

    async def story() -> None:
        drawn = planned(model, cut, topology, names)
        async with Coordinator(model, ends_of(model, topology), drawn, stations) as mesh:
            async for _ in mesh.load("f32", context=CONTEXT, threads=1):
                pass
            turn = [*CUTS].index(cut) + [*TOPOLOGIES].index(topology)
            for h, (how, truth) in enumerate(truths.items()):
                for n, (made, mode) in enumerate(product(ADVERSARIES.values(), MODES)):
                    if every or (h + n + turn) % 2:
                        draft = made([*PROMPT, *truth], model.config.vocab)
                        spec = Speculate(draft=draft, mode=mode, k=5)
                        assert await drafted(mesh, asked(how), spec) == truth, (draft.name, mode)

    asyncio.run(story())


@pytest.mark.parametrize("variant", ["qwen2", "neox", "phi3"])
def test_other_families_too(variant: str, tiny: Tiny, stations: Mapping[str, str]) -> None:
    path = tiny(variant)
    model, truth = open_model(path), answered(path, asked(SAMPLED))

    async def story() -> None:
        drawn = planned(model, "recut", "ring", list(stations)[:3])
        async with Coordinator(model, None, drawn, stations) as mesh:
            async for _ in mesh.load("f32", context=CONTEXT, threads=1):
                pass
            for mode in MODES:
                draft = Alternating([*PROMPT, *truth], model.config.vocab, right=3)
                spec = Speculate(draft=draft, mode=mode, k=8)
                assert await drafted(mesh, asked(SAMPLED), spec) == truth

    asyncio.run(story())


@pytest.mark.parametrize("topology", ["ring", "chain"])
def test_what_ends_an_answer_ends_it_in_the_middle_of_an_epoch(
    topology: str, tiny: Tiny, stations: Mapping[str, str]
) -> None:
    path = tiny("llama")
    model = open_model(path)
    whole = answered(path, asked(SAMPLED))
    tenth = whole[9]
    assert tenth not in whole[:9]

    async def story() -> None:
        drawn = planned(model, "layers", topology, list(stations)[:3])
        async with Coordinator(model, ends_of(model, topology), drawn, stations) as mesh:
            async for _ in mesh.load("f32", context=CONTEXT, threads=1):
                pass
            for mode in MODES:
                draft = Right([*PROMPT, *whole])  # goes on past the end
                spec = Speculate(draft=draft, mode=mode, k=8)
                by_id, by_text = asked(SAMPLED, eos=tenth), asked(SAMPLED, stop=f" {tenth}")
                for answer in (by_id, by_text):
                    assert await drafted(mesh, answer, spec) == whole[:10]
                    assert answer.finished == "stop"
                assert await drafted(mesh, asked(SAMPLED, tokens=7), spec) == whole[:7]
            assert [facts.streams for facts in await mesh.facts()] == [0, 0, 0]
            assert [facts.kv_used_bytes for facts in await mesh.facts()] == [0, 0, 0]

    asyncio.run(story())


def test_a_conversation_is_drafted_turn_by_turn(tiny: Tiny, stations: Mapping[str, str]) -> None:
    """Each turn keeps what the one before has left, as `chat` does."""
    path = tiny("llama")
    model, decoder = open_model(path), Decoder.load(tiny("llama"), context=CONTEXT)

    def turn(ids: Sequence[int], kept: int) -> Generation:
        request = Request(prompt_ids=tuple(ids), sampling=SAMPLED, max_tokens=9, ignore_eos=True)
        return Generation(request, Silent(), CONTEXT, kept=kept)

    async def story(topology: str) -> None:
        drawn = planned(model, "layers", topology, list(stations)[:3])
        async with Coordinator(model, ends_of(model, topology), drawn, stations) as mesh:
            async for _ in mesh.load("f32", context=CONTEXT, threads=1):
                pass
            stream, ids, kept = await mesh.open(), list(PROMPT[:20]), 0
            for number in range(4):
                truth = turn(ids, 0)
                for _ in decoder.generate(truth):
                    pass
                answer = turn(ids, kept)
                draft = Alternating([*ids, *truth.token_ids, 5, 6, 7], model.config.vocab, right=4)
                spec = Speculate(draft=draft, mode=MODES[number % 2], k=4)
                async for _ in mesh.speculation(stream, answer, spec).pieces():
                    pass
                assert answer.token_ids == truth.token_ids
                kept = len(ids) + 7  # less than is there, so that it is a rewind
                ids = [*ids, *truth.token_ids, 40 + number, 50]

    for topology in ("ring", "chain"):
        asyncio.run(story(topology))


def test_several_answers_are_drafted_at_once_beside_one_that_is_not(
    tiny: Tiny, stations: Mapping[str, str]
) -> None:
    path = tiny("llama")
    model = open_model(path)
    hows = [Sampling(temperature=0.8, seed=seed) for seed in range(5)]
    truths = [answered(path, asked(how)) for how in hows]

    async def story(topology: str) -> None:
        drawn = planned(model, "layers", topology, list(stations)[:3])
        async with Coordinator(model, ends_of(model, topology), drawn, stations, sessions=6) as mesh:
            async for _ in mesh.load("f32", context=CONTEXT, threads=1):
                pass

            async def one(number: int) -> list[int]:
                draft = Alternating([*PROMPT, *truths[number]], model.config.vocab, right=1 + number)
                spec = Speculate(draft=draft, mode=MODES[number % 2], k=3)
                return await drafted(mesh, asked(hows[number]), spec)

            async def plain() -> list[int]:
                stream, answer = await mesh.open(), asked(hows[0])
                async for _ in mesh.generate(stream, answer):
                    pass
                await mesh.close(stream)
                return answer.token_ids

            assert await asyncio.gather(*map(one, range(5)), plain()) == [*truths, truths[0]]

    for topology in ("ring", "chain"):
        asyncio.run(story(topology))


def test_drafts_may_go_another_way_at_any_time(
    tiny: Tiny, stations: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if now this and now that were quicker."""
    path = tiny("llama")
    model, truth = open_model(path), answered(path, asked(SAMPLED, tokens=80))
    monkeypatch.setattr(speculating, "RECONSIDER_EVERY", 5)
    ways = iter([3, 3, 0, 5, 0, 0, 8, 3, 0] * 9)
    gone: list[tuple[int, int]] = []

    def best(_: Forecast, now: int) -> int:
        gone.append((now, next(ways)))
        return gone[-1][1]

    monkeypatch.setattr(Forecast, "best", best)

    async def story(topology: str) -> None:
        drawn = planned(model, "layers", topology, list(stations)[:3])
        async with Coordinator(model, ends_of(model, topology), drawn, stations) as mesh:
            async for _ in mesh.load("f32", context=CONTEXT, threads=1):
                pass
            draft = Alternating([*PROMPT, *truth], model.config.vocab, right=3)
            assert await drafted(mesh, asked(SAMPLED, tokens=80), Speculate(draft=draft)) == truth

    for topology in ("ring", "chain"):
        gone.clear()
        asyncio.run(story(topology))
        assert {0, 3, 5} <= {now for now, _ in gone}, gone


def test_layers_that_start_ahead_are_not_drafted_for(tiny: Tiny, stations: Mapping[str, str]) -> None:
    model = open_model(tiny("llama"))

    async def story() -> None:
        drawn = starting_ahead(planned(model, "thirds", "ring", list(stations)[:3]), [1], Early())
        async with Coordinator(model, None, drawn, stations) as mesh:
            async for _ in mesh.load("f32", context=CONTEXT, threads=1):
                pass
            with pytest.raises(RequestProblem, match="start ahead and drafts do not go together"):
                await drafted(mesh, asked(GREEDY), Speculate(draft=Right([])))

    asyncio.run(story())


# --- losses ---------------------------------------------------------------------------------------

CASES = [
    ("recut", "ring", "s1", 5, "rounds"),
    ("layers", "ring", "s2", 0, "stream"),
    ("thirds", "ring", "s3", 12, "stream"),
    ("layers", "chain", "s2", 6, "stream"),
    ("thirds", "star", "s3", 4, "rounds"),
]
MORE = [
    ("layers", "ring", "s1", 3, "stream"),
    ("layers", "ring", "s2", 1, "stream"),
    ("layers", "ring", "s3", 12, "stream"),
    ("thirds", "ring", "s2", 9, "stream"),
    ("layers", "ring", "s3", 6, "rounds"),
]


async def killed_under(
    fleet: Fleet, name: str, at: int, draft: Draft, mode: Mode, *, then: str = ""
) -> list[int]:
    """The tokens of a drafted answer under which a station is killed after `at` tokens, and another later."""
    answer, stream = asked(SAMPLED), await fleet.mesh.open()
    deaths = {at: name, at + 8: then} if then else {at: name}
    if at == 0:
        fleet.kill(deaths.pop(0))
    async with asyncio.timeout(PATIENCE_S):
        how = Speculate(draft=draft, mode=mode, k=4)
        async for _ in fleet.mesh.speculation(stream, answer, how).pieces():
            if dying := deaths.pop(len(answer.token_ids), ""):
                fleet.kill(dying, signal.SIGKILL)
    await fleet.mesh.close(stream)
    return answer.token_ids


@pytest.mark.parametrize(
    ("cut", "topology", "name", "at", "mode"),
    [*CASES, *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE)],
)
def test_a_station_killed_in_the_middle_of_an_epoch(
    cut: str, topology: str, name: str, at: int, mode: Mode, tiny: Tiny
) -> None:
    path = tiny("llama")
    truth = answered(path, asked(SAMPLED))

    async def story() -> list[int]:
        async with fleet(path, cut, topology) as those:
            draft = Alternating([*PROMPT, *truth], 256, right=4)
            return await killed_under(those, name, at, draft, mode)

    assert asyncio.run(story()) == truth


def test_two_deaths_and_an_answer_after_them(tiny: Tiny) -> None:
    path = tiny("llama")
    truth = answered(path, asked(SAMPLED))

    async def story() -> None:
        async with fleet(path, "layers", "ring", spares=("s4", "s5")) as those:
            draft = Alternating([*PROMPT, *truth], 256, right=6)
            assert await killed_under(those, "s2", 4, draft, "stream", then="s3") == truth
            assert await drafted(those.mesh, asked(SAMPLED), Speculate(draft=draft)) == truth

    asyncio.run(story())
