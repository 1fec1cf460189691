"""How a coordinator has stations load: it says what each holds, and sends the weights a station lacks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from trisplit.errors import PeerProblem, RequestProblem
from trisplit.mesh.peers import Peer, Peers
from trisplit.mesh.plan import Group
from trisplit.models.config import Stage
from trisplit.models.convert import Dtype
from trisplit.models.description import pack
from trisplit.models.model import Model
from trisplit.wire.frame import SAME_VERSION
from trisplit.wire.losses import Refused
from trisplit.wire.messages import (
    Adopt,
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

Weights = Literal["auto", "push", "path"]
WEIGHTS: Final[tuple[Weights, ...]] = ("auto", "push", "path")
"""Where stations take weights from: the model under the coordinator's path where they have it and else the
coordinator; the coordinator in any case; or that path, and nothing is sent."""

LOAD_DEADLINE_S: Final = 600.0  # from one stage to the next: the first load converts weights
_OWING_DEADLINE_S: Final = 3600.0  # while we convert what others need first
_READ_DEADLINE_S: Final = 60.0  # for a station to read what it was sent; its pings tell sooner


@dataclass(frozen=True, slots=True)
class Progress:
    """One station has `done_bytes` of its `total_bytes` of weights, and is at `what`."""

    station: str
    done_bytes: int
    total_bytes: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How stations run what they hold. `keeps`: what they send can be sent again when one is lost."""

    context: int
    threads: int
    sessions: int
    keeps: bool = False


class Stock:
    """A model's stages as files by digest, each made when the first station needs it; sent from the disk."""

    def __init__(self, model: Model, dtype: Dtype, weights: Weights) -> None:
        self._model, self._dtype, self._weights = model, dtype, weights
        self._offered: dict[bytes, tuple[Path, int]] = {}
        self._converting = asyncio.Lock()  # one at a time: each takes the memory of its stage

    def order(self, groups: Sequence[Group], how: How, *, builds: bool = True) -> Load:
        """The word that has a station build these groups, or have their weights ready."""
        checkpoint = self._model.checkpoint
        source = Source(str(checkpoint.path.absolute()), checkpoint.digest)
        return Load(
            config=pack(self._model.config),
            source=None if self._weights == "push" else source,
            pushes=self._weights != "path",
            dtype=self._dtype,
            threads=how.threads,
            context=how.context,
            sessions=how.sessions,
            groups=tuple(map(self._spec, groups)),
            builds=builds,
            keeps=how.keeps,
        )

    def _spec(self, group: Group) -> GroupSpec:
        stages = [Stage(stage.layer, stage.kind) for stage in group.stages]
        n_bytes = sum(self._model.weight_bytes(stage, self._dtype) for stage in stages)
        return GroupSpec(group.number, tuple(StageSpec(s.layer, s.kind) for s in stages), n_bytes)

    async def offer(self, spec: StageSpec) -> Offer:
        """The files of a stage, converted now if need be."""
        async with self._converting:
            return await asyncio.to_thread(self._offer, spec)

    def _offer(self, spec: StageSpec) -> Offer:
        (file,) = self._model.files([Stage(spec.layer, spec.kind)], self._dtype)
        paths = [file.folder / name for name in file.files]
        found = {bytes.fromhex(path.stem): (path, path.stat().st_size) for path in paths}
        self._offered |= found
        return Offer(spec, tuple(FileSpec(digest, n_bytes) for digest, (_, n_bytes) in found.items()))

    async def piece(self, want: Want) -> Piece:
        """Bytes of a file that was offered; PeerProblem for others, RequestProblem when it cannot be read."""
        path, n_bytes = self._offered.get(want.digest, (None, 0))
        end = want.offset + want.n_bytes
        if path is None or end > n_bytes:
            what = f"bytes {want.offset:,} to {end:,} of {want.digest.hex()} are wanted"
            raise PeerProblem(f"{what}, which nobody offered", fix=SAME_VERSION)
        return Piece(await asyncio.to_thread(_read, path, want))


def _read(path: Path, want: Want) -> bytes:
    try:
        with path.open("rb", buffering=0) as stream:
            stream.seek(want.offset)
            data = stream.read(want.n_bytes)
        if len(data) != want.n_bytes:
            raise EOFError("it is shorter than it was")
    except (OSError, EOFError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        fix = "start again: it is made anew if it is missing"
        raise RequestProblem(f"{path} cannot be read: {why}", fix=fix) from error
    return data


async def to_the_end(steps: AsyncGenerator[Progress, None]) -> None:
    """Takes every step of a load; it is closed also where we are stopped in between."""
    async with aclosing(steps):
        async for _ in steps:
            pass


async def load(
    peers: Peers, orders: Mapping[str, Load | Adopt], stock: Stock
) -> AsyncGenerator[Progress, None]:
    """Has these stations load, all at once, and sends what they need; yields how far each is. To be closed.

    Whatever goes wrong with one ends all of it, with a Problem that names the station.
    """
    loads = _Loads(peers, stock)
    try:
        for name, order in orders.items():
            loads.spawn(loads.attend(peers[name], order))
        while loads.tasks:
            heard = await loads.heard.get()
            if isinstance(heard, Progress):
                yield heard
            else:
                loads.tasks.discard(heard)
                heard.result()
    finally:
        for task in loads.tasks:
            task.cancel()
        await asyncio.gather(*loads.tasks, return_exceptions=True)


class _Loads:
    """Loads under way: what is heard of them, and the tasks that see to them."""

    def __init__(self, peers: Peers, stock: Stock) -> None:
        self._peers, self._stock = peers, stock
        self.heard: asyncio.Queue[Progress | asyncio.Task[None]] = asyncio.Queue()
        self.tasks: set[asyncio.Task[None]] = set()
        self._owing: set[str] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.heard.put_nowait)

    async def attend(self, peer: Peer, order: Load | Adopt) -> None:
        """Sees to one station until it has loaded."""
        peer.loaded = None
        await _tell(peer, order)
        while peer.loaded is None:
            deadline_s = _OWING_DEADLINE_S if peer.name in self._owing else LOAD_DEADLINE_S
            said = await self._peers.next(peer, deadline_s)
            match said:
                case Loading():
                    self.heard.put_nowait(Progress(peer.name, said.done, said.total, said.what))
                case Need():
                    self.spawn(self._offer_all(peer, said))
                case Want():
                    await _tell(peer, await self._stock.piece(said))
                case Loaded():
                    peer.loaded = said
                case Refused():
                    raise RequestProblem(f"station {peer.name}: {said.what}", fix=said.fix)
                case _:
                    what = f"station {peer.name} said {type(said).__name__} while loading"
                    raise PeerProblem(what, fix=SAME_VERSION)

    async def _offer_all(self, peer: Peer, need: Need) -> None:
        self._owing.add(peer.name)
        for spec in need.stages:
            await _tell(peer, await self._stock.offer(spec))
        self._owing.discard(peer.name)


async def _tell(peer: Peer, word: Load | Adopt | Offer | Piece) -> None:
    """Says it as soon as the station has read nearly all before it, so that no file waits in memory."""
    with contextlib.suppress(PeerProblem):  # its link has ended: the next wait says why
        await peer.link.drain(_READ_DEADLINE_S)
        peer.link.send(word)
