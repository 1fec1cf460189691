"""Orders to load: refused if they make no sense; built from what is here, a copy of it, or what is sent."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.tiny import build_variant
from trisplit.errors import CheckpointProblem, PeerProblem, RequestProblem
from trisplit.mesh.fetching import Supplier
from trisplit.mesh.group import LoadedGroup
from trisplit.mesh.loading import Loader, Order, understand
from trisplit.mesh.pushing import Stock
from trisplit.models.config import Kind, Stage
from trisplit.models.description import pack
from trisplit.models.model import Model, open_model
from trisplit.models.session import StageSession, Tracks
from trisplit.models.shelf import shelf
from trisplit.wire.messages import (
    FileSpec,
    GroupSpec,
    Load,
    Loaded,
    Loading,
    Need,
    Offer,
    Piece,
    Source,
    StageSpec,
    Want,
)
from trisplit.wire.owed import Owed

CONTEXT = 32


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_variant("qwen2", tmp_path_factory.mktemp("loading") / "model", layers=2)


@pytest.fixture
def model(path: Path) -> Model:
    return open_model(path)


def group(model: Model, number: int, *stages: tuple[int, Kind]) -> GroupSpec:
    specs = tuple(StageSpec(layer, kind) for layer, kind in stages)
    return GroupSpec(number, specs, sum(model.weight_bytes(Stage(s.layer, s.kind), "f32") for s in specs))


def thirds(model: Model) -> tuple[GroupSpec, ...]:
    """A ring's first group, the middle of a layer, and a ring's last."""
    return (
        group(model, 0, (-1, "embed"), (0, "attention")),
        group(model, 1, (0, "gate_up")),
        group(model, 5, (1, "down"), (-1, "head")),
    )


def order(model: Model, **changes: Any) -> Load:
    said = Load(
        config=pack(model.config),
        source=Source(str(model.checkpoint.path), model.checkpoint.digest),
        pushes=True,
        dtype="f32",
        threads=1,
        context=CONTEXT,
        sessions=2,
        groups=thirds(model),
        builds=True,
        keeps=False,
    )
    return msgspec.structs.replace(said, **changes)


# --- understanding --------------------------------------------------------------------------------


def test_the_coordinator_s_own_files_are_known_by_their_stamp(model: Model) -> None:
    understood = understand(order(model))
    assert understood.is_same
    assert understood.own is not None
    assert [g.number for g in understood.groups] == [0, 1, 5]
    assert understood.groups[2].stages == (Stage(1, "down"), Stage(-1, "head"))
    assert understood.n_bytes == sum(model.weight_bytes(stage, "f32") for stage in understood.stages)
    assert understood.kv_bytes_per_token == model.config.kv_bytes(1)


@pytest.mark.parametrize("pushes", [True, False])
def test_a_copy_is_not_the_same_but_may_do(pushes: bool, model: Model, tmp_path: Path) -> None:
    copy = shutil.copytree(model.checkpoint.path, tmp_path / "copy")
    os.utime(copy / "model.safetensors", (1, 1))
    source = Source(str(copy), model.checkpoint.digest)
    understood = understand(order(model, source=source, pushes=pushes))
    assert understood.own is not None
    assert not understood.is_same


NOWHERE = Source("/nowhere", "00")
ODD = Source("\0", "00")


@pytest.mark.parametrize("source", [None, NOWHERE, ODD])
def test_a_model_that_is_not_here_must_be_sent(source: Source | None, model: Model) -> None:
    understood = understand(order(model, source=source))
    assert (understood.own, understood.is_same) == (None, False)
    with pytest.raises(CheckpointProblem):
        understand(order(model, source=source, pushes=False))


def test_a_model_of_another_description_is_another(model: Model) -> None:
    other = pack(replace(model.config, norm_eps=1e-3))
    assert understand(order(model, config=other)).own is None
    with pytest.raises(CheckpointProblem, match=r"is not the coordinator's model .*--weights auto"):
        understand(order(model, config=other, pushes=False))


@pytest.mark.parametrize("itself", [True, False])
def test_a_model_in_the_station_s_own_folder_is_found_there(
    itself: bool, model: Model, tmp_path: Path
) -> None:
    """By the name it has on the coordinator, or as the folder itself: as on a share mounted elsewhere."""
    folder = tmp_path / "models"
    there = Path(shutil.copytree(model.checkpoint.path, folder / "nice"))
    source = Source("/srv/elsewhere/nice", model.checkpoint.digest)
    understood = understand(order(model, source=source, pushes=False), there if itself else folder)
    assert understood.own is not None
    assert understood.own.checkpoint.path == there
    assert understood.is_same


@pytest.mark.parametrize("named", ["/srv/other", "..", "/", "", "/srv/\0"])
def test_what_is_not_in_that_folder_is_not_found(named: str, model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    shutil.copytree(model.checkpoint.path, folder / "nice")
    said = order(model, source=Source(named, "00"), pushes=False)
    with pytest.raises(CheckpointProblem, match=r"does not exist|no file of a model|no config.json"):
        understand(said, folder)
    assert understand(msgspec.structs.replace(said, pushes=True), folder).own is None


def test_another_model_of_that_name_is_passed_over(model: Model, tmp_path: Path) -> None:
    """What lies at the coordinator's own path is then taken."""
    build_variant("llama", tmp_path / model.checkpoint.path.name)
    understood = understand(order(model, pushes=False), tmp_path)
    assert understood.own is not None
    assert understood.own.checkpoint.path == model.checkpoint.path
    gone = order(model, source=Source(f"/nowhere/{model.checkpoint.path.name}", "00"), pushes=False)
    with pytest.raises(CheckpointProblem, match=r"is not the coordinator's model; /nowhere/.* not exist"):
        understand(gone, tmp_path)


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"config": b"\xc1"}, PeerProblem, "a model description that cannot be read"),
        ({"dtype": "int3"}, PeerProblem, "dtype 'int3' is not one of f32, int8, int4"),
        ({"groups": (GroupSpec(0, (), 0),)}, PeerProblem, "group 0 is no run of neighbouring stages"),
        (
            {"groups": (GroupSpec(1, (StageSpec(0, "down"),), 0), GroupSpec(1, (StageSpec(1, "down"),), 0))},
            PeerProblem,
            "are not all different",
        ),
        (
            {"groups": (GroupSpec(0, (StageSpec(0, "attention"), StageSpec(0, "down")), 0),)},
            PeerProblem,
            "group 0 is no run of neighbouring stages",
        ),
        ({"groups": (GroupSpec(3, (StageSpec(2, "down"),), 0),)}, PeerProblem, "group 3 is no run"),
        ({"groups": (GroupSpec(3, (StageSpec(0, "embed"),), 0),)}, PeerProblem, "group 3 is no run"),
        ({"context": 2**32 - 1}, RequestProblem, r"8,589,934,590 tokens of keys and values need .* short"),
        ({"groups": (GroupSpec(0, (StageSpec(0, "down"),), 2**62),)}, RequestProblem, "of weights .* short"),
    ],
)
def test_orders_that_cannot_be_carried_out_are_refused(
    model: Model, changes: dict[str, object], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        understand(order(model, **changes))


# --- carrying out ---------------------------------------------------------------------------------


@dataclass
class Desk:
    """A coordinator's side of one load, with files it has converted in a cache of its own."""

    offers: dict[StageSpec, Offer]
    stock: Stock
    told: list[Loading | Need] = field(default_factory=list)
    wants: list[Want] = field(default_factory=list)
    owed: Owed = field(default_factory=Owed)
    forged: dict[bytes, bytes] = field(default_factory=dict)
    _words: deque[Offer | Want] = field(default_factory=deque)

    @classmethod
    def of(cls, model: Model, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
        """The environment then names another cache: the station's."""
        monkeypatch.setenv("TRISPLIT_CACHE", str(cache / "desk"))

        async def offered(stock: Stock) -> dict[StageSpec, Offer]:
            specs = [StageSpec(stage.layer, stage.kind) for stage in model.stages]
            return {spec: await stock.offer(spec) for spec in specs}

        stock = Stock(model, "f32", "push")
        desk = cls(asyncio.run(offered(stock)), stock)
        monkeypatch.setenv("TRISPLIT_CACHE", str(cache / "station"))
        return desk

    def hear(self, said: Loading | Need | Want) -> None:
        if isinstance(said, Loading):
            self.told.append(said)
            return
        assert self.owed.take(said) == ""
        if isinstance(said, Need):
            self.told.append(said)
            self._words.extend(self.offers[spec] for spec in said.stages)
        else:
            self.wants.append(said)
            self._words.append(said)

    async def say(self) -> Offer | Piece:
        while not self._words:
            await asyncio.sleep(0)
        word = self._words.popleft()
        said = await self.answer(word) if isinstance(word, Want) else word
        assert self.owed.take(said) == ""
        return said

    async def answer(self, want: Want) -> Piece:
        content = self.forged.get(want.digest)
        return await self.stock.piece(want) if content is None else Piece(content)

    async def load(self, understood: Order) -> list[LoadedGroup]:
        async with (
            Supplier(self.hear, self.say) as supplier,
            aclosing(Loader(understood, supplier, self.hear).build()) as built,
        ):
            return [loaded async for loaded in built]

    def run(self, said: Load) -> list[LoadedGroup]:
        groups = asyncio.run(self.load(understand(said)))
        assert self.owed.take(Loaded(0, 0, 0, True)) == ""
        return groups


@pytest.fixture
def desk(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk.of(model, tmp_path, monkeypatch)


def same(built: LoadedGroup, model: Model, spec: GroupSpec) -> bool:
    """Whether it computes what the same stages of the model do."""
    stages = [Stage(s.layer, s.kind) for s in spec.stages]
    truth = StageSession(model.config, list(model.files(stages, "f32")), context=CONTEXT, threads=1)
    random = np.random.default_rng(0)
    inputs = {
        name: np.array([3]) if name == "ids" else random.standard_normal((1, width), dtype=np.float32)
        for name, width in truth.takes.items()
    }
    return np.array_equal(built.tracks.run(inputs, 0).copy(), Tracks(truth).run(inputs, 0))


def test_all_of_it_is_sent_to_a_station_that_has_nothing(model: Model, desk: Desk) -> None:
    groups = desk.run(order(model, source=None))
    specs = thirds(model)
    assert [built.number for built in groups] == [0, 1, 5]
    assert sum(want.n_bytes for want in desk.wants) == sum(
        path.stat().st_size for path in shelf().glob("*.safetensors")
    )
    needed, *tellings = desk.told
    assert needed == Need(tuple(spec for group in specs for spec in group.stages))
    done = [said.done for said in tellings if isinstance(said, Loading)]
    assert done == sorted(done)
    assert done[-1] == sum(group.n_bytes for group in specs)
    assert {said.what for said in tellings if isinstance(said, Loading)} == {
        "embed", "attention 0", "gate_up 0", "down 1", "head"
    }  # fmt: skip
    assert all(same(built, model, spec) for built, spec in zip(groups, specs))


def test_what_is_on_the_shelf_is_not_sent_again(model: Model, desk: Desk) -> None:
    desk.run(order(model, source=None))
    desk.wants.clear()
    groups = desk.run(order(model, source=None))
    assert desk.wants == []
    assert all(same(built, model, spec) for built, spec in zip(groups, thirds(model)))


@pytest.mark.parametrize("pushes", [True, False])
def test_a_copy_that_comes_out_the_same_is_used(
    pushes: bool, model: Model, desk: Desk, tmp_path: Path
) -> None:
    copy = shutil.copytree(model.checkpoint.path, tmp_path / "copy")
    os.utime(copy / "model.safetensors", (1, 1))
    groups = desk.run(order(model, source=Source(str(copy), model.checkpoint.digest), pushes=pushes))
    assert desk.wants == []
    assert all(same(built, model, spec) for built, spec in zip(groups, thirds(model)))


def test_a_copy_that_comes_out_otherwise_is_left(model: Model, desk: Desk, tmp_path: Path) -> None:
    other = build_variant("qwen2", tmp_path / "other", layers=2, seed=1)
    source = Source(str(other), model.checkpoint.digest)
    groups = desk.run(order(model, source=source))
    assert all(same(built, model, spec) for built, spec in zip(groups, thirds(model)))
    shutil.rmtree(shelf())
    with pytest.raises(CheckpointProblem, match=r"embed of .*other is not the coordinator's"):
        desk.run(order(model, source=source, pushes=False))


def test_the_coordinator_s_own_files_are_neither_asked_for_nor_sent(model: Model, desk: Desk) -> None:
    groups = desk.run(order(model))
    assert desk.wants == []
    assert not any(isinstance(said, Need) for said in desk.told)
    assert all(same(built, model, spec) for built, spec in zip(groups, thirds(model)))


# --- a coordinator that lies ----------------------------------------------------------------------


def test_more_bytes_than_were_announced_are_not_taken(model: Model, desk: Desk) -> None:
    spec = StageSpec(0, "gate_up")
    desk.offers[spec] = Offer(spec, (FileSpec(bytes(32), 10**6),))
    with pytest.raises(PeerProblem, match=r"bytes offered for gate_up 0 where its group has 49,408"):
        desk.run(order(model, source=None))


def test_weights_of_another_length_than_announced_are_refused(model: Model, desk: Desk) -> None:
    groups = tuple(msgspec.structs.replace(g, n_bytes=g.n_bytes + 4) for g in thirds(model))
    with pytest.raises(PeerProblem, match=r"group 0 has .* bytes of weights where .* were announced"):
        desk.run(order(model, source=None, groups=groups))


def test_another_stage_s_file_is_refused(model: Model, desk: Desk) -> None:
    spec = StageSpec(0, "gate_up")
    desk.offers[spec] = Offer(spec, desk.offers[StageSpec(1, "down")].files)
    with pytest.raises(CheckpointProblem, match="the weights of gate_up 0 are not those of the model"):
        desk.run(order(model, source=None))


def test_a_file_that_holds_no_weights_is_refused(model: Model, desk: Desk) -> None:
    spec, content = StageSpec(0, "gate_up"), b"#!/bin/sh\n"
    digest = hashlib.sha256(content).digest()
    desk.forged[digest] = content
    desk.offers[spec] = Offer(spec, (FileSpec(digest, len(content)),))
    with pytest.raises(PeerProblem, match="what was sent for gate_up 0 is no file of weights"):
        desk.run(order(model, source=None))
