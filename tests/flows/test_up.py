"""A mesh that stays up, by real processes: many clients at once, those that go wrong, and its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.cli.running import problem_of, run
from tests.flows.test_endings import PATIENCE_S, children, gone, until
from tests.flows.test_token_trip import Silent
from tests.tiny import build
from trisplit.errors import PeerProblem, RequestProblem
from trisplit.mesh.client import Client, client
from trisplit.mesh.trust import NOBODY
from trisplit.models.decoder import Decoder
from trisplit.models.generation import Generation, Request
from trisplit.models.sampling import Sampling
from trisplit.wire.questions import How, Question, Reported, Token, Waiting

CONTEXT, SESSIONS, STATIONS = 1024, 8, 4
ENDLESS = 16 * CONTEXT  # tokens nobody waits for: an answer that is still under way when it is looked at
LAYERS, LONG = 12, 300
COMMAND = [sys.executable, "-W", "error", "-m", "trisplit"]
HOW = (Sampling(), Sampling(temperature=0.8, top_k=40, repetition_penalty=1.1, seed=5))
TOKENS = 24


@dataclass(frozen=True)
class Up:
    """A running `trisplit up`: what it said, and its process."""

    process: subprocess.Popen[str]
    said: dict[str, Any]

    @property
    def address(self) -> str:
        address: str = self.said["listening"]
        return address

    def status(self) -> dict[str, Any]:
        """What `trisplit status --json` says."""
        done = trisplit("status", self.address, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        now: dict[str, Any] = json.loads(done.stdout)
        return now


def trisplit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """One command, from its beginning to its end."""
    words = [*COMMAND, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)


def started(*arguments: str | Path, patch: str = "") -> subprocess.Popen[str]:
    """One command, under way."""
    run_patched = ["-c", f"{patch}; from trisplit.cli import main; main()"]
    command = [*COMMAND[:3], *run_patched] if patch else COMMAND
    words = [*command, *map(str, arguments)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def brought_up(*arguments: str | Path, patch: str = "") -> Iterator[Up]:
    """`trisplit up`, with a line of Python before it if a test cannot wait as long as a user would."""
    process = started("up", *arguments, "--json", patch=patch)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield Up(process, json.loads(line))
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny, of many layers: slow enough for things to happen in the middle of an answer."""
    folder = tmp_path_factory.mktemp("up") / "model"
    return build("llama", folder, layers=LAYERS, max_position_embeddings=ENDLESS)


@pytest.fixture(scope="module")
def mesh(model: Path, test_cache: Path) -> Iterator[Up]:
    """A mesh of four stations and a spare, with room for eight sessions and one that waits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRISPLIT_CACHE", str(test_cache))
        words = ("--stations", str(STATIONS), "--spares", "1", "--sessions", str(SESSIONS), "--waiting", "1")
        with brought_up(model, *words, "--context", str(CONTEXT)) as up:
            yield up


def prompt(number: int) -> str:
    return f"{number}: the weights of a model " * (number % 3 + 1)


def truth(model: Path, number: int, max_tokens: int = TOKENS) -> list[int]:
    """The decoder's own tokens for a question."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    ids = tuple(tokenizer.encode(prompt(number)).ids)
    request = Request(prompt_ids=ids, sampling=HOW[number % 2], max_tokens=max_tokens, ignore_eos=True)
    answer = Generation(request, Silent(), CONTEXT)
    for _ in Decoder.load(model, context=CONTEXT).generate(answer):
        pass
    return answer.token_ids


def question(number: int, max_tokens: int = TOKENS) -> Question:
    how = HOW[number % 2]
    spoken = How(how.temperature, how.top_k, how.top_p, how.min_p, how.repetition_penalty, how.seed)
    return Question(prompt(number), False, spoken, max_tokens, (), True)


def words_for(number: int) -> list[str]:
    """The same question for the command."""
    how = HOW[number % 2]
    words = ["--max-tokens", str(TOKENS), "--ignore-eos", "--temperature", str(how.temperature)]
    words += ["--top-k", str(how.top_k), "--repetition-penalty", str(how.repetition_penalty)]
    return [*words, "--seed", str(how.seed), "--", prompt(number)]


async def tokens(asking: Client, what: Question) -> list[int]:
    return [said.token_id async for said in asking.answer(what) if isinstance(said, Token)]


@asynccontextmanager
async def under_way(address: str, number: int = 0, max_tokens: int = CONTEXT) -> AsyncIterator[Client]:
    """A client that has heard the first token of an answer as long as there is room for."""
    async with client(address, NOBODY) as asking:
        asking._link.send(question(number, max_tokens))
        assert isinstance(await asking._next(), Token)
        yield asking


async def asked(address: str, what: Question) -> list[int]:
    """The tokens a client of its own gets."""
    async with client(address, NOBODY) as asking:
        return await tokens(asking, what)


async def rest(asking: Client) -> None:
    """Hears all that is still to come."""
    while True:
        await asking._next()


async def settled(address: str, stations: int = STATIONS) -> Reported:
    """The report once nobody is answered: whoever has left must leave nothing behind."""
    async with client(address, NOBODY) as asking, asyncio.timeout(PATIENCE_S):
        while True:
            now = await asking.report()
            held = [(s.streams, s.kv_used_bytes) for s in now.stations[:stations]]
            if (now.open, now.waiting, held) == (0, 0, [(0, 0)] * stations):
                return now
            await asyncio.sleep(0.05)


# --- answers --------------------------------------------------------------------------------------


def test_eight_clients_at_once_get_the_decoders_tokens(mesh: Up, model: Path) -> None:
    clients = [
        started("generate", "--mesh", mesh.address, "--json", *words_for(number))
        for number in range(SESSIONS)
    ]
    for number, process in enumerate(clients):
        out, error = process.communicate(timeout=2 * PATIENCE_S)
        assert (process.returncode, error) == (0, "")
        facts = json.loads(out)
        assert facts["token_ids"] == truth(model, number)
        assert facts["finish_reason"] == "length"
        assert (facts["identical_to_one_machine"], facts["identity_withheld"]) == (None, None)
        assert [row["name"] for row in facts["stations"]] == ["s1", "s2", "s3", "s4", "coordinator"]
        assert (facts["spares"], facts["legs_per_token"]) == (["s5"], STATIONS)
    asyncio.run(settled(mesh.address))


def test_text_is_streamed_and_the_figures_follow(mesh: Up, model: Path) -> None:
    told = trisplit("generate", "--mesh", mesh.address, *words_for(0))
    alone = trisplit("generate", model, *words_for(0))
    assert (told.returncode, told.stdout) == (0, alone.stdout)
    for word in ("s1", "embed, layers 0-2", "layers 9-11, head", "coordinator", "legs per token: 4"):
        assert word in told.stderr


def test_sixty_questions_on_few_links(mesh: Up, model: Path) -> None:
    """One after the other on each link, all at once: no place, slot or number is lost on the way."""
    expected = {number: truth(model, number) for number in (0, 1, 2)}

    async def story() -> None:
        async def several(number: int) -> None:
            async with client(mesh.address, NOBODY) as asking:
                for _ in range(10):
                    assert await tokens(asking, question(number)) == expected[number]

        await asyncio.gather(*(several(number % 3) for number in range(6)))
        await settled(mesh.address)

    asyncio.run(story())


# --- clients that go wrong ------------------------------------------------------------------------


def test_a_client_killed_in_the_middle_leaves_nothing_and_holds_nobody(mesh: Up, model: Path) -> None:
    dropped = mesh.status()["dropped"]
    words = ("--max-tokens", str(CONTEXT), "--ignore-eos", "the weights")
    victim = started("generate", "--mesh", mesh.address, *words)
    assert victim.stdout is not None
    victim.stdout.read(3)
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()
    now = asyncio.run(settled(mesh.address))
    assert (now.dropped, now.last_error) == (dropped + 1, "")
    told = trisplit("generate", "--mesh", mesh.address, "--json", *words_for(1))
    assert json.loads(told.stdout)["token_ids"] == truth(model, 1)


def test_a_client_that_is_stopped_is_given_up_in_the_middle_of_its_answer(model: Path) -> None:
    """Its socket stays open and its kernel takes what comes, as when a host vanishes without a word."""
    patch = "from trisplit.mesh import daemon; daemon.PING_EVERY_S = 0.3"
    most = str(2 * CONTEXT)
    with brought_up(model, "--stations", "3", "--cut", "thirds", "--context", most, patch=patch) as up:
        words = ("--max-tokens", most, "--ignore-eos", "the weights")
        victim = started("generate", "--mesh", up.address, *words)
        assert victim.stdout is not None
        victim.stdout.read(3)
        victim.send_signal(signal.SIGSTOP)
        now = asyncio.run(settled(up.address, 3))
        assert (now.dropped, now.answered, now.last_error) == (1, 0, "")
        victim.send_signal(signal.SIGCONT)
        _, error = victim.communicate(timeout=PATIENCE_S)
        assert victim.returncode == 1
        assert "has answered no ping for 1.5 s" in error
        assert asyncio.run(asked(up.address, question(1))) == truth(model, 1)


def test_a_client_that_never_reads_holds_nobody(mesh: Up, model: Path) -> None:
    expected = truth(model, 1)

    async def story() -> None:
        async with AsyncExitStack() as stack:
            for _ in range(2):
                deaf = await stack.enter_async_context(under_way(mesh.address))
                deaf._link.transport.pause_reading()
            async with client(mesh.address, NOBODY) as asking:
                assert await tokens(asking, question(1)) == expected
            # Their answers end, or they are dropped, whichever comes first: either way their places are free.
            await settled(mesh.address)

    asyncio.run(story())


def test_one_too_many_waits_the_next_is_refused_and_memory_is_never_short(mesh: Up) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            others = [await stack.enter_async_context(under_way(mesh.address)) for _ in range(SESSIONS)]
            ninth = await stack.enter_async_context(client(mesh.address, NOBODY))
            ninth._link.send(question(1))
            assert await ninth._next() == Waiting(0)
            async with client(mesh.address, NOBODY) as asking:
                now = await asking.report()
                assert (now.open, now.waiting) == (SESSIONS, 1)
                assert {s.streams for s in now.stations[:STATIONS]} == {SESSIONS}
                for s in now.stations[:STATIONS]:
                    assert s.kv_used_bytes is not None
                    assert 0 < s.kv_used_bytes <= s.kv_bytes
                with pytest.raises(
                    RequestProblem, match="all 8 sessions are taken and 1 questions wait already"
                ):
                    await tokens(asking, question(2))
            await others[0]._link.close()
            while not isinstance(said := await ninth._next(), Token):
                assert said == Waiting(0)
        await settled(mesh.address)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((" a" * CONTEXT,), "tokens and the context is 1,024"),
        (("--max-tokens", "0", "a"), "max_tokens is 0"),
        (("--temperature", "-1", "a"), "temperature -1.0 is out of range"),
        (("--stop", "", "a"), "a stop string is empty"),
        (("--cut", "thirds", "--dtype", "int8", "--check", "a"), "--cut, --dtype, --check cannot be chosen"),
        (("model", "a"), "a model was given, and a mesh has its own"),
        (("x" * (2**19 + 1),), "the prompt has 524,289 characters, a mesh takes 524,288"),
        ((*(("--stop", "x") * 65), "a"), "65 texts to stop at, a mesh takes 64"),
    ],
    ids=["long", "max-tokens", "temperature", "stop", "options", "model", "longer", "stops"],
)
def test_what_makes_no_sense_is_refused_by_the_number(words: Sequence[str], what: str, mesh: Up) -> None:
    assert what in problem_of("generate", "--mesh", mesh.address, *words).what


# --- status ---------------------------------------------------------------------------------------


def test_status_says_what_is_there(mesh: Up, model: Path) -> None:
    now = mesh.status()
    facts = ("model", "dtype", "cut", "topology", "legs_per_token", "context", "sessions", "spares", "mixed")
    assert {name: now[name] for name in facts} == {
        "model": str(model),
        "dtype": "f32",
        "cut": "layers",
        "topology": "ring",
        "legs_per_token": STATIONS,
        "context": CONTEXT,
        "sessions": SESSIONS,
        "spares": ["s5"],
        "mixed": "",
    }
    *stations, coordinator = now["stations"]
    assert [s["stages"] for s in stations] == [
        "embed, layers 0-2",
        "layers 3-5",
        "layers 6-8",
        "layers 9-11, head",
    ]
    layer_bytes = 2 * 2 * 16 * 4 * CONTEXT * SESSIONS  # keys and values, heads, width, f32
    for station in stations:
        assert station["kv_bytes"] == 3 * layer_bytes
        assert station["rss_bytes"] > station["weight_bytes"] > 0
        assert station["frames"] > 0
        assert station["round_trip_ms"] >= 0
        assert (station["cpu"], station["runtime"]) == (coordinator["cpu"], coordinator["runtime"])
    assert (coordinator["name"], coordinator["stages"], coordinator["streams"]) == ("coordinator", "", None)
    assert {key: mesh.said[key] for key in facts} == {key: now[key] for key in facts}
    table = trisplit("status", mesh.address).stdout
    for word in ("station", "rtt ms", "s4", "layers 9-11, head", "spare stations: s5", "8 sessions open"):
        assert word in table


# --- the end --------------------------------------------------------------------------------------


def test_down_leaves_nothing_and_tells_who_is_under_way(model: Path) -> None:
    with brought_up(model, "--stations", "2", "--spares", "1", "--context", str(ENDLESS)) as up:
        stations = children(up.process.pid)
        assert len(stations) == 3
        words = ("--max-tokens", str(ENDLESS), "--ignore-eos", "the weights")
        asking = started("generate", "--mesh", up.address, *words)
        assert asking.stdout is not None
        asking.stdout.read(3)
        ended = trisplit("down", up.address)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
        _, error = asking.communicate(timeout=PATIENCE_S)
        assert asking.returncode == 1
        assert "the mesh is being taken down" in error
        assert (up.process.wait(timeout=PATIENCE_S), up.process.communicate()) == (0, ("", ""))
        assert gone(stations)
        refused = trisplit("down", up.address)
        assert refused.returncode == 1
        assert f"the mesh at {up.address} cannot be reached" in refused.stderr


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_however_it_ends_its_stations_end_too(how: int, code: int, model: Path) -> None:
    with brought_up(model, "--stations", "2") as up:
        stations = children(up.process.pid)
        up.process.send_signal(how)
        assert up.process.wait(timeout=PATIENCE_S) == code
        assert up.process.communicate() == ("", "")
        until(lambda: gone(stations), "the stations to end")


def test_stations_that_were_found_are_left_idle_and_clean(model: Path, stations: dict[str, str]) -> None:
    places = ",".join([stations["s1"], stations["s2"]])
    for _ in range(2):
        with brought_up(model, "--stations", places, "--topology", "chain", "--cut", "recut") as up:
            assert up.said["legs_per_token"] == 2 * LAYERS + 2
            assert asyncio.run(asked(up.address, question(0))) == truth(model, 0)
            assert run("down", up.address).exit_code == 0


def test_a_station_that_dies_is_made_good_and_its_clients_do_not_notice(model: Path) -> None:
    expected = truth(model, 1, LONG)
    with brought_up(model, "--stations", "2", "--spares", "1", "--context", str(CONTEXT)) as up:
        first = min(children(up.process.pid))

        async def story() -> None:
            async with under_way(up.address, 1, LONG) as asking:
                os.kill(first, signal.SIGKILL)
                ids = list[int]()
                while isinstance(said := await asking._next(), Token):
                    ids.append(said.token_id)
                assert ids == expected[1:], said

        asyncio.run(story())
        now = up.status()
        assert (now["recovered"], now["spares"]) == (1, [])
        assert "s1" in now["last_error"]
        assert sorted(s["name"] for s in now["stations"]) == ["coordinator", "s2", "s3"]


def test_a_station_without_room_takes_nothing_over(model: Path) -> None:
    """The first spare states too little, the second takes; when that dies too the numbers are told."""
    expected = truth(model, 1, LONG)
    words = ("--stations", "1", "--spares", "2", "--memory", "1GB,1kB,1GB", "--context", str(CONTEXT))
    with brought_up(model, *words) as up:
        (first,) = holders(up)

        async def story() -> None:
            async with under_way(up.address, 1, LONG) as asking:
                os.kill(first, signal.SIGKILL)
                ids = list[int]()
                while isinstance(said := await asking._next(), Token):
                    ids.append(said.token_id)
                assert ids == expected[1:], said
            now = up.status()
            assert (now["recovered"], now["spares"]) == (1, ["s2"])
            assert sorted(s["name"] for s in now["stations"]) == ["coordinator", "s3"]
            (second,) = holders(up)
            async with under_way(up.address) as asking:
                os.kill(second, signal.SIGKILL)
                with pytest.raises(PeerProblem, match=r"s3 is lost, .* need .* where others have 1.0 kB"):
                    await rest(asking)

        asyncio.run(story())


def holders(up: Up) -> list[int]:
    """Processes of the stations that hold something."""
    return [one["pid"] for one in up.status()["stations"] if one["name"] != "coordinator"]


def test_a_station_leaves_a_coordinator_that_has_fallen_silent(model: Path) -> None:
    """Stopped, its socket stays open: only that it pings no more can tell."""
    script = (
        "from trisplit.mesh import station; station.SILENCE_S = 1.0; from trisplit.cli import main; main()"
    )
    command = [sys.executable, "-c", script, "station", "--json", "--until-stdin-closes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as station:
        assert station.stdout is not None
        place = json.loads(station.stdout.readline())["listening"]
        with brought_up(model, "--stations", place) as up:
            up.process.send_signal(signal.SIGSTOP)
            words = ("generate", model, "--stations", place, "--json", *words_for(0))
            until(lambda: "already works for another" not in trisplit(*words).stderr, "it to be free")
            told = trisplit(*words)
            assert json.loads(told.stdout)["token_ids"] == truth(model, 0)
        station.communicate()


# --- what is refused before anything is loaded ----------------------------------------------------


def test_a_mesh_that_cannot_be_is_refused_at_once(mesh: Up, model: Path, stations: dict[str, str]) -> None:
    place = stations["s1"]
    for words, what in (  # in this process, which is quick; so is the refusal
        ((), "a mesh has at least one station"),
        (("--stations", place, "--spares", "1"), "--spares 1 of 1 stations leave none to hold the model"),
        (("--stations", "2", "--spares", "999"), "--stations 2 and --spares 999 are too many processes"),
        (("--stations", "2", "--listen", mesh.address), f"cannot listen on {mesh.address}"),
        (("--stations", "2", "--listen", "0.0.0.0:0"), "there is no secret"),
        (("--stations", "2", "--memory", "1GB,1GB,1GB"), "--memory states 3 limits for 2 stations"),
        (("--stations", "2", "--memory", "much"), "'much' is not a size"),
        (("--stations", "2", "--memory", "10kB"), "the largest station s1 offers 10.0 kB"),
        (("--stations", "2", "--topology", "circle"), "no topology is named 'circle'"),
    ):
        assert what in problem_of("up", model, *words).what


def test_a_client_is_told_that_a_station_is_no_mesh_and_a_mesh_no_station(
    mesh: Up, stations: dict[str, str]
) -> None:
    assert "which only coordinators and stations do" in problem_of("status", stations["s1"]).what
    words = ("generate", mesh.said["model"], "a", "--stations", mesh.address)
    assert "which only clients ask" in problem_of(*words).what


def test_an_unexpected_end_is_a_peer_problem(model: Path) -> None:
    with brought_up(model, "--stations", "1", "--context", str(CONTEXT)) as up:
        stations = children(up.process.pid)

        async def story() -> None:
            async with under_way(up.address) as asking:
                up.process.kill()
                with pytest.raises(PeerProblem, match=f"the mesh at {up.address}"):
                    await rest(asking)

        asyncio.run(story())
        until(lambda: gone(stations), "the station to end")
