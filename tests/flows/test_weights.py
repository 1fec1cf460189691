"""How stations come by weights: sent, resumed, found, or not at all, and what is said then."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from tests.tiny import build, build_variant
from trisplit.errors import PeerProblem
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.pushing import Progress, Stock, Weights
from trisplit.mesh.room import Room
from trisplit.models.convert import Dtype
from trisplit.models.decoder import Decoder
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation, Request
from trisplit.models.model import Model, open_model
from trisplit.models.sampling import Sampling
from trisplit.wire.messages import Piece, Want

T = TypeVar("T")

CONTEXT = 64
PROMPT = (5, 6, 7, 8)
TOKENS = 8


class Silent:
    """A detokenizer for those who look at ids only."""

    def push(self, token_id: int) -> str:
        return f" {token_id}"

    def flush(self) -> str:
        return ""


@contextmanager
def station(
    cache: Path, *options: object, most_bytes: int | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A station process with a cache of its own, which may write files of `most_bytes`; its address."""

    def limit() -> None:
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    process = subprocess.Popen(
        [sys.executable, "-m", "trisplit", "station", "--json", "--until-stdin-closes", *map(str, options)],
        env={**os.environ, "TRISPLIT_CACHE": str(cache)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["listening"], process
    finally:
        _, error = process.communicate(timeout=120)
        assert "Traceback" not in error, error


@contextmanager
def stations(caches: list[Path]) -> Iterator[dict[str, str]]:
    """One for each cache: s1, s2, …"""
    with ExitStack() as stack:
        yield {f"s{i}": stack.enter_context(station(cache))[0] for i, cache in enumerate(caches, 1)}


@dataclass
class Sent:
    """What coordinators of this process have sent, and what they do instead."""

    wants: list[Want] = field(default_factory=list)
    instead: Callable[[Want, Piece], Piece] = lambda _, piece: piece

    @property
    def n_bytes(self) -> int:
        return sum(want.n_bytes for want in self.wants)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    log, honest = Sent(), Stock.piece

    async def watched(stock: Stock, want: Want) -> Piece:
        piece = await honest(stock, want)
        log.wants.append(want)
        return log.instead(want, piece)

    monkeypatch.setattr(Stock, "piece", watched)
    return log


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The coordinator's."""
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path / "desk"))
    return tmp_path / "desk"


@dataclass(frozen=True)
class Trip:
    """A model, and how it is split."""

    model: Model
    dtype: Dtype = "f32"
    cut: str = "layers"
    topology: str = "chain"

    def alone(self) -> list[int]:
        """The tokens of the decoder in this process; every stage is then on the coordinator's shelf."""
        files = list(self.model.files(self.model.stages, self.dtype))
        decoder, answer = Decoder(self.model.config, files, context=CONTEXT, threads=1), asked()
        for _ in decoder.generate(answer):
            pass
        return list(answer.token_ids)

    def on(self, addresses: dict[str, str], weights: Weights = "auto") -> list[int]:
        """The tokens of these stations."""
        return asyncio.run(self._on(addresses, weights))

    async def _on(self, addresses: dict[str, str], weights: Weights) -> list[int]:
        answer = asked()
        async with self.coordinator(addresses) as mesh:
            async for _ in self.load(mesh, weights):
                pass
            stream = await mesh.open()
            async for _ in mesh.generate(stream, answer):
                pass
            await mesh.close(stream)
        return list(answer.token_ids)

    def coordinator(self, addresses: dict[str, str]) -> Coordinator:
        ring = self.topology == "ring"
        ends = (
            None
            if ring
            else Ends(self.model.config, *self.model.files(self.model.ends, self.dtype), threads=1)
        )
        rooms = [Room(name, None) for name in addresses]
        how = {"cut": self.cut, "topology": self.topology, "dtype": self.dtype, "context": CONTEXT}
        return Coordinator(self.model, ends, plan_model(self.model, rooms, **how), addresses)  # type: ignore[arg-type]

    def load(self, mesh: Coordinator, weights: Weights) -> AsyncIterator[Progress]:
        return mesh.load(self.dtype, context=CONTEXT, threads=1, weights=weights)


def asked() -> Generation:
    request = Request(prompt_ids=PROMPT, sampling=Sampling(), max_tokens=TOKENS, ignore_eos=True)
    return Generation(request, Silent(), CONTEXT)


def kept(cache: Path) -> set[str]:
    """Names of the files of weights in a cache, each checked against its content."""
    files = set((cache / "engine").glob("*.safetensors"))
    for file in files:
        assert hashlib.sha256(file.read_bytes()).hexdigest() == file.stem
    return {file.name for file in files}


def rest(cache: Path) -> set[str]:
    """What else lies there: nothing, when all went well."""
    return {path.name for path in (cache / "engine").iterdir() if path.suffix != ".safetensors"}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A model that a test may move away and change."""
    return build_variant("qwen2", tmp_path / "model")


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose layers take some pieces each."""
    folder = tmp_path_factory.mktemp("big") / "model"
    return build("llama", folder, layers=2, intermediate_size=2048)


# --- sent -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "cut", "topology"),
    [
        ("f32", "layers", "chain"),
        ("int8", "recut", "ring"),
        ("int4", "thirds", "star"),
        pytest.param("f32", "layers", "ring", marks=pytest.mark.slow),
    ],
)
def test_stations_without_the_model_answer_as_the_decoder(
    dtype: Dtype, cut: str, topology: str, own: Path, tmp_path: Path, sent: Sent, cache: Path
) -> None:
    """The files of the model are moved away: nobody but the coordinator has seen them."""
    trip = Trip(open_model(own), dtype, cut, topology)
    truth = trip.alone()
    own.rename(tmp_path / "away")
    caches = [tmp_path / "one", tmp_path / "two", tmp_path / "three"]
    with stations(caches) as addresses:
        assert trip.on(addresses) == truth
        whole = sum(path.stat().st_size for here in caches for path in (here / "engine").iterdir())
        assert sent.n_bytes == whole
        assert trip.on(addresses) == truth
        assert sent.n_bytes == whole, "the second time all of it is on the shelves"
    for here in caches:
        assert kept(here) < kept(cache), "a station has its own stages and no others"
        assert rest(here) == set()


def test_what_is_pushed_is_not_looked_for(own: Path, tmp_path: Path, sent: Sent) -> None:
    trip = Trip(open_model(own))
    with stations([tmp_path / "one"]) as addresses:
        assert trip.on(addresses, "push") == trip.alone()
    assert sent.n_bytes > 0
    assert rest(tmp_path / "one") == set(), "nothing was converted there"


def test_progress_is_told_in_bytes(big: Path, tmp_path: Path) -> None:
    trip = Trip(open_model(big))

    async def steps(addresses: dict[str, str]) -> list[Progress]:
        async with trip.coordinator(addresses) as mesh:
            return [step async for step in trip.load(mesh, "push")]

    with stations([tmp_path / "one", tmp_path / "two"]) as addresses:
        told = asyncio.run(steps(addresses))
    for name in addresses:
        done = [step.done_bytes for step in told if step.station == name]
        assert done == sorted(done)
        (total,) = {step.total_bytes for step in told if step.station == name}
        assert done[-1] == total > 10**6


def test_two_stations_with_one_cache_may_receive_the_same(big: Path, tmp_path: Path, cache: Path) -> None:
    trip = Trip(open_model(big))
    truth, shared = trip.alone(), tmp_path / "shared"

    async def both(addresses: list[str]) -> list[list[int]]:
        return await asyncio.gather(*(trip._on({"s1": address}, "push") for address in addresses))

    with stations([shared, shared, shared]) as addresses:
        assert asyncio.run(both([*addresses.values()])) == [truth] * 3
    assert kept(shared) < kept(cache)
    assert rest(shared) == set()


# --- cut off --------------------------------------------------------------------------------------


class Cut(Exception):
    """The coordinator is no more."""


def until_free(trip: Callable[[], T]) -> T:
    """Tries again while the station is not yet done with the coordinator before."""
    for _ in range(100):
        try:
            return trip()
        except PeerProblem as problem:
            if "already works for another coordinator" not in problem.what:
                raise
            time.sleep(0.05)
    raise AssertionError("the station is never free")


def test_a_transfer_that_is_cut_goes_on_where_it_was(big: Path, tmp_path: Path, sent: Sent) -> None:
    """First the coordinator dies, then the station, by SIGKILL."""
    trip, here = Trip(open_model(big)), tmp_path / "one"
    truth = trip.alone()

    def die(_: Want, piece: Piece) -> Piece:
        if len(sent.wants) == 14:
            raise Cut
        return piece

    sent.instead = die
    with station(here) as (address, process):
        with pytest.raises(Cut):
            trip.on({"s1": address}, "push")
        before = sent.n_bytes

        def kill(_: Want, piece: Piece) -> Piece:
            if len(sent.wants) == 24:
                process.kill()
            return piece

        sent.instead = kill
        with pytest.raises(PeerProblem, match="station s1"):
            until_free(lambda: trip.on({"s1": address}, "push"))
    assert {Path(name).suffix for name in rest(here)} == {".part"}
    assert sent.n_bytes > before
    there = sum(path.stat().st_size for path in (here / "engine").iterdir())
    sent.wants.clear()
    sent.instead = lambda _, piece: piece
    with station(here) as (address, _):
        assert trip.on({"s1": address}, "push") == truth
    first = {want.digest: want.offset for want in reversed(sent.wants)}
    assert any(first.values()), "none has gone on"
    assert sent.n_bytes == sum(path.stat().st_size for path in (here / "engine").iterdir()) - there
    kept(here)
    assert rest(here) == set()


def test_a_wrong_beginning_is_sent_again(big: Path, tmp_path: Path, sent: Sent) -> None:
    trip, here = Trip(open_model(big)), tmp_path / "one"
    truth = trip.alone()
    first = next(trip.model.files(trip.model.stages[1:2], "f32"))
    (here / "engine").mkdir(parents=True)
    (here / "engine" / first.files[0].replace(".safetensors", ".part")).write_bytes(b"nonsense")
    with station(here) as (address, _):
        assert trip.on({"s1": address}, "push") == truth
    offsets = [want.offset for want in sent.wants if want.digest.hex() == Path(first.files[0]).stem]
    assert offsets[0] == len(b"nonsense")
    assert offsets.count(0) == 1
    kept(here)
    assert rest(here) == set()


# --- refused --------------------------------------------------------------------------------------


def test_other_bytes_than_were_offered_are_refused(big: Path, tmp_path: Path, sent: Sent) -> None:
    trip, here = Trip(open_model(big)), tmp_path / "one"
    truth = trip.alone()
    sent.instead = lambda _, piece: Piece(bytes(len(piece.data)))
    with station(here) as (address, _):
        with pytest.raises(PeerProblem, match=r"station s1: the weights of attention 0 came with another"):
            trip.on({"s1": address}, "push")
        assert kept(here) == set()
        sent.instead = lambda _, piece: piece
        answer = until_free(lambda: trip.on({"s1": address}, "push"))
        assert answer == truth, "and it serves the next"
    kept(here)
    assert rest(here) == set()


def test_a_disk_that_fills_up_is_told(big: Path, tmp_path: Path) -> None:
    here = tmp_path / "one"
    with station(here, most_bytes=300_000) as (address, _):
        with pytest.raises(
            PeerProblem, match=r"station s1: the cache directory .*/one/engine cannot be written"
        ):
            Trip(open_model(big)).on({"s1": address}, "push")
        assert [path for path in (here / "engine").iterdir() if path.stat().st_size > 300_000] == []
    kept(here)


def test_a_cache_that_cannot_be_is_told(own: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = r"station s1: the cache directory .*/file cannot be written: "
    with station(tmp_path / "file") as (address, _), pytest.raises(PeerProblem, match=said):
        Trip(open_model(own)).on({"s1": address}, "push")


# --- found ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["auto", "path"])
def test_the_model_s_own_files_are_read_where_they_lie(
    weights: Weights, own: Path, tmp_path: Path, sent: Sent
) -> None:
    trip = Trip(open_model(own), cut="recut")
    with stations([tmp_path / "one", tmp_path / "two"]) as addresses:
        assert trip.on(addresses, weights) == trip.alone()
    assert sent.wants == []


@pytest.mark.parametrize("weights", ["auto", "path"])
def test_a_share_is_read_where_a_station_has_it(
    weights: Weights, own: Path, tmp_path: Path, sent: Sent
) -> None:
    """Nothing lies under the coordinator's path any more, as on another host; its dates have changed."""
    trip = Trip(open_model(own))
    truth = trip.alone()
    share = tmp_path / "share"
    share.mkdir()
    own.rename(share / own.name)
    os.utime(share / own.name / "model.safetensors", (1, 1))
    with station(tmp_path / "one", "--models", share) as (address, _):
        assert trip.on({"s1": address}, weights) == truth
    assert sent.wants == []


@pytest.mark.parametrize("weights", ["auto", "path"])
def test_a_copy_with_other_dates_is_known_by_its_content(
    weights: Weights, own: Path, tmp_path: Path, sent: Sent
) -> None:
    trip = Trip(open_model(own))
    truth = trip.alone()
    os.utime(own / "model.safetensors", (1, 1))
    with stations([tmp_path / "one", tmp_path / "two"]) as addresses:
        assert trip.on(addresses, weights) == truth
    assert sent.wants == []


def test_another_model_in_its_place_is_not_taken_for_it(own: Path, tmp_path: Path, sent: Sent) -> None:
    trip = Trip(open_model(own))
    truth = trip.alone()
    shutil.rmtree(own)
    build_variant("qwen2", own, seed=1)
    with stations([tmp_path / "one", tmp_path / "two"]) as addresses:
        with pytest.raises(
            PeerProblem, match=r"station s[12]: attention . of .*/model is not the coordinator's"
        ):
            trip.on(addresses, "path")
        assert sent.wants == []
        assert until_free(lambda: trip.on(addresses)) == truth
    assert sent.n_bytes > 0


def test_a_model_that_is_not_there_and_not_sent_is_told(own: Path, tmp_path: Path, sent: Sent) -> None:
    trip = Trip(open_model(own))
    trip.alone()
    own.rename(tmp_path / "away")
    said = r"station s1: .*/model does not exist"
    with stations([tmp_path / "one"]) as addresses, pytest.raises(PeerProblem, match=said):
        trip.on(addresses, "path")
    assert sent.wants == []
