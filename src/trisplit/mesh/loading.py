"""What a station does with a Load: understands it, finds the weights or has them sent, builds sessions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trisplit.errors import CheckpointProblem, PeerProblem, RequestProblem
from trisplit.machine import gather_into_huge_pages, return_free_memory, usable_cores
from trisplit.mesh.fetching import FILES_AT_ONCE, Supplier, fetch
from trisplit.mesh.group import LoadedGroup
from trisplit.mesh.holding import Held
from trisplit.models.config import ModelConfig, Stage
from trisplit.models.convert import DTYPES, Dtype
from trisplit.models.description import unpack
from trisplit.models.model import Model, open_model, refuse_if_short
from trisplit.models.session import StageSession, Tracks
from trisplit.models.shelf import contents, stage_on_shelf
from trisplit.models.stage_file import StageFile
from trisplit.table import size
from trisplit.wire.frame import SAME_VERSION
from trisplit.wire.messages import GroupSpec, Load, Loading, Need, Offer, Source, StageSpec

OFFER_DEADLINE_S: Final = 3600.0  # others may be served first, and every stage be converted first
_TELL_EVERY_S: Final = 0.2
_MOST_HEADER_BYTES: Final = 2**16  # of a file, beside its weights
_SAME_MODEL: Final = "give both the same model, or have the coordinator send it: --weights auto"

Tell = Callable[[Loading | Need], None]


@dataclass(frozen=True, slots=True)
class Group:
    """Stages to build as one session, and what their weights take."""

    number: int
    stages: tuple[Stage, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A Load message, understood and checked: what to build, from what.

    `own` lies here under the coordinator's path, and `is_same` says that its files are the coordinator's;
    else it may be a copy, known by its content. What is not here is sent if the coordinator `pushes`.
    """

    config: ModelConfig
    dtype: Dtype
    threads: int
    context: int
    sessions: int
    groups: tuple[Group, ...]
    own: Model | None
    is_same: bool
    pushes: bool
    builds: bool

    @property
    def stages(self) -> list[Stage]:
        """All stages of all groups."""
        return [stage for group in self.groups for stage in group.stages]

    @property
    def n_bytes(self) -> int:
        """What all weights take."""
        return sum(group.n_bytes for group in self.groups)

    @property
    def kv_bytes_per_token(self) -> int:
        """What one token of a sequence takes in keys and values."""
        return self.config.kv_bytes(1) * sum(stage.kind == "attention" for stage in self.stages)


def understand(said: Load, models: Path | None = None) -> Order:
    """Looks for the model a coordinator speaks of and checks that its order can be carried out here.

    `models` is where this station has models, or is one. PeerProblem for an order that makes no sense,
    CheckpointProblem for a model that is not here and is not sent, RequestProblem when memory or cores are
    short.
    """
    config = unpack(said.config)
    dtype = next((d for d in DTYPES if d == said.dtype), None)
    if dtype is None:
        raise PeerProblem(f"dtype {said.dtype!r} is not one of {', '.join(DTYPES)}", fix=SAME_VERSION)
    if said.threads > usable_cores():
        what = f"{said.threads:,} threads on a station of {usable_cores()} cores"
        raise RequestProblem(what, fix="ask for fewer")
    numbers = [group.number for group in said.groups]
    if len(set(numbers)) < len(numbers):
        raise PeerProblem(f"groups {numbers} are not all different", fix=SAME_VERSION)
    own = _own(said.source, config, said.pushes, models)
    order = Order(
        config=config,
        dtype=dtype,
        threads=said.threads,
        context=said.context,
        sessions=said.sessions,
        groups=tuple(Group(group.number, _stages(group, config), group.n_bytes) for group in said.groups),
        own=own,
        is_same=own is not None and said.source is not None and own.checkpoint.digest == said.source.stamp,
        pushes=said.pushes,
        builds=said.builds,
    )
    if not said.builds:
        return order
    tokens = said.context * said.sessions
    kv_bytes = order.kv_bytes_per_token * tokens
    what = f"{size(order.n_bytes)} of weights and {size(kv_bytes)} for {tokens:,} tokens"
    refuse_if_short(order.n_bytes + kv_bytes, f"{what} of keys and values")
    return order


def _own(source: Source | None, config: ModelConfig, pushes: bool, models: Path | None) -> Model | None:
    """The model of this description that lies here first; None where there is none and it is sent."""
    why = [] if source else ["the coordinator names no model and sends none"]
    for path in _places(source, models) if source else ():
        try:
            model = open_model(path)
        except CheckpointProblem as problem:
            why.append(problem.what)
            continue
        if model.config == config:
            return model
        why.append(f"{path} is not the coordinator's model")
    if pushes:
        return None
    raise CheckpointProblem("; ".join(why), fix=_SAME_MODEL)


def _places(source: Source, models: Path | None) -> Iterator[Path]:
    """Where it may be: in our folder under the name it has there, our folder, and the path it has there."""
    there = Path(source.path)
    if models is not None:
        if there.name not in ("", ".."):  # a peer's word never leads out of the folder
            yield models / there.name
        if (models / "config.json").is_file():
            yield models
    yield there


def _stages(group: GroupSpec, config: ModelConfig) -> tuple[Stage, ...]:
    """The group's stages, which must be neighbours in the model."""
    stages, all_stages = tuple(Stage(s.layer, s.kind) for s in group.stages), config.stages
    first = all_stages.index(stages[0]) if stages and stages[0] in all_stages else 0
    if all_stages[first : first + len(stages)] != stages or not stages:
        what = f"group {group.number} is no run of neighbouring stages of the model"
        raise PeerProblem(what, fix=SAME_VERSION)
    return stages


async def build(said: Load, supplier: Supplier, tell: Tell, *, models: Path | None = None) -> Held:
    """What a station holds once it has done as it was told. Arguments and Problems as of `understand`."""
    order = await asyncio.to_thread(understand, said, models)
    async with aclosing(Loader(order, supplier, tell).build()) as built:
        groups = {group.number: group async for group in built}
    equal = await asyncio.to_thread(_settle, groups.values(), said.sessions)
    return Held(groups, equal, order.kv_bytes_per_token, said.sessions)


def _settle(groups: Iterable[LoadedGroup], sessions: int) -> bool:
    """What is done once all is loaded; whether rows may pass together."""
    equal = all(group.session.rows_equal(sessions) for group in groups)
    return_free_memory()  # what converting has used is of no use any more
    gather_into_huge_pages()
    return equal


class Loader:
    """Carries out one order; `tell` is told how far it is, and what is asked of the coordinator."""

    def __init__(self, order: Order, supplier: Supplier, tell: Tell) -> None:
        self._order, self._supplier, self._tell = order, supplier, tell
        self._copy = order.own
        self._converting = asyncio.Lock()  # one at a time: each takes the memory of its stage
        self._here: dict[Stage, int] = {}  # bytes of weights
        self._told_s = 0.0

    async def build(self) -> AsyncGenerator[LoadedGroup, None]:
        """Every group as its session is ready, while the weights of the next are had."""
        stages = [(stage, group) for group in self._order.groups for stage in group.stages]
        offers: list[asyncio.Future[Offer] | None] = [None] * len(stages)
        if not self._order.is_same:
            self._tell(Need(tuple(StageSpec(stage.layer, stage.kind) for stage, _ in stages)))
            offers = [self._supplier.expect(Offer) for _ in stages]
        todo = deque(self._file(stage, group, offer) for (stage, group), offer in zip(stages, offers))
        under_way: deque[asyncio.Task[StageFile]] = deque()
        try:
            for group in self._order.groups:
                files = []
                for _ in group.stages:
                    while todo and len(under_way) < FILES_AT_ONCE:
                        under_way.append(asyncio.create_task(todo.popleft()))
                    files.append(await under_way[0])
                    under_way.popleft()
                _check(group, files)
                if self._order.builds:
                    yield await self._built(group, files)
        finally:
            for file in todo:
                file.close()
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _built(self, group: Group, files: Sequence[StageFile]) -> LoadedGroup:
        order = self._order
        how = {"context": order.context, "threads": order.threads}
        session = await asyncio.to_thread(StageSession, order.config, files, spin=False, **how)
        return LoadedGroup(group.number, Tracks(session, order.sessions))

    async def _file(self, stage: Stage, group: Group, offered: asyncio.Future[Offer] | None) -> StageFile:
        """A stage's weights: from the coordinator's own files, else those under the digests it offers."""
        if offered is None:
            assert self._order.own is not None
            file = await self._converted(self._order.own, stage)
        else:
            offer = await self._supplier.wait(offered, OFFER_DEADLINE_S)
            file = await self._offered(stage, group, offer)
        self._here[stage] = file.weight_bytes
        self._say(stage)
        return file

    async def _offered(self, stage: Stage, group: Group, offer: Offer) -> StageFile:
        """From the shelf, or made from a copy of the model if that comes out the same, or sent."""
        announced = sum(file.n_bytes - _MOST_HEADER_BYTES for file in offer.files)
        if announced > group.n_bytes:
            what = f"{announced:,} bytes offered for {stage} where its group has {group.n_bytes:,}"
            raise PeerProblem(what, fix=SAME_VERSION)
        digests = [file.digest.hex() for file in offer.files]
        found = await asyncio.to_thread(stage_on_shelf, self._order.config, stage, digests)
        found = found or await self._copied(stage, digests)
        if found is None:
            await self._receive(offer, stage)
            found = await asyncio.to_thread(stage_on_shelf, self._order.config, stage, digests)
        if found is None:
            raise PeerProblem(f"what was sent for {stage} is no file of weights", fix=SAME_VERSION)
        return found

    async def _copied(self, stage: Stage, digests: Sequence[str]) -> StageFile | None:
        """Made from the copy; CheckpointProblem when that is another and nothing is sent."""
        if self._copy is not None:
            made = await self._converted(self._copy, stage)
            if [Path(name).stem for name in made.files] == digests:
                return made
            self._copy = None  # its other stages will be no better
        if not self._order.pushes:
            where = self._order.own.checkpoint.path if self._order.own else "what is here"
            raise CheckpointProblem(f"{stage} of {where} is not the coordinator's", fix=_SAME_MODEL)
        return None

    async def _converted(self, model: Model, stage: Stage) -> StageFile:
        async with self._converting:
            (file,) = await asyncio.to_thread(list, model.files([stage], self._order.dtype))
        return file

    async def _receive(self, offer: Offer, stage: Stage) -> None:
        """Has those of the offered files sent that are not here, and tells now and then how far they are."""
        clock, here = asyncio.get_running_loop().time, -_MOST_HEADER_BYTES
        for spec in offer.files:
            if contents(spec.digest.hex()) is None:
                async with aclosing(fetch(self._supplier, spec, str(stage))) as coming:
                    async for length in coming:
                        self._here[stage] = max(here + length, 0)
                        if clock() - self._told_s > _TELL_EVERY_S:
                            self._say(stage)
            here += spec.n_bytes

    def _say(self, stage: Stage) -> None:
        self._told_s = asyncio.get_running_loop().time()
        here = min(sum(self._here.values()), self._order.n_bytes)
        self._tell(Loading(here, self._order.n_bytes, str(stage)))


def _check(group: Group, files: Sequence[StageFile]) -> None:
    found = sum(file.weight_bytes for file in files)
    if found != group.n_bytes:
        what = f"group {group.number} has {found:,} bytes of weights"
        raise PeerProblem(f"{what} where {group.n_bytes:,} were announced", fix=SAME_VERSION)
