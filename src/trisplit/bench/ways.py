"""The ways to a script's output that are timed: the engines, and ours through each door, cold and warm."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trisplit.bench.residing import Residence, living_in
from trisplit.bench.script_peers import NAMES, Peer
from trisplit.cache.key import Key
from trisplit.cache.store import FOLDER, Store, open_store
from trisplit.errors import RequestProblem
from trisplit.scripts.doors import doors
from trisplit.scripts.held import SURE_FOR_NS, Held
from trisplit.scripts.purity import Surroundings
from trisplit.scripts.runner import name_of
from trisplit.scripts.script import read_script
from trisplit.scripts.spawned import Spawned, Spawner

IN_PROCESS_AT_ONCE: Final = 20
IN_A_ROW: Final = 5  # of a process; where each follows another program, that one's traces are timed too

# What a process is given besides what it is asked for. Other variables can make one engine slow and not
# another: NODE_EXTRA_CA_CERTS takes node 20 more time than all the rest of a start.
_GIVEN: Final = ("HOME", "LANG", "PYTHONPATH", "TMPDIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to one script's output. `before` makes it cold where it is to be; `at_once`: runs each turn."""

    path: str
    engine_version: str
    warm: bool
    once: Callable[[], Spawned]
    before: Callable[[], None] = lambda: None
    at_once: int = 1

    @property
    def is_peer(self) -> bool:
        """Whether it is an engine itself, and nothing of ours."""
        return self.path in NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all ways of a bench share: its store, what spawns, what processes are given, and a resident."""

    store: Store
    spawner: Spawner
    environment: Mapping[str, str]
    residence: Residence | None = None

    @classmethod
    @contextmanager
    def laid(cls, folder: Path, *, own: bool) -> Iterator[Ground]:
        """A new one in an empty folder, gone at the end; `own`: with all variables of this shell."""
        environment = environment_of(folder, own=own)
        with (
            Spawner() as spawner,
            open_store(folder / FOLDER) as store,
            living_in(folder / "resident", environment) as residence,
        ):
            yield cls(store=store, spawner=spawner, environment=environment, residence=residence)

    def ours(self, script: Path, node: Peer) -> list[Way]:
        """Through every door there is and in this process; results are those of `node`, and of its release.

        RequestProblem where its output is not kept.
        """
        given = {**self.environment, "PATH": f"{Path(node.program).parent}:{self.environment['PATH']}"}
        around = Surroundings(environment=given)
        read = read_script(str(script))
        key = _key_of(script, node, self.store, around)
        ways = []
        for door, words in doors().items():
            asked = (*words, str(script))
            run = _spawning(self.spawner, asked, given)
            for warm, before, at_once in (
                (False, _forgetting(self.store, key), 1),
                (True, _nothing, IN_A_ROW),
            ):
                ways.append(
                    Way(
                        path=door,
                        engine_version=node.version,
                        warm=warm,
                        once=run,
                        before=before,
                        at_once=at_once,
                    )
                )

        held = Held(self.store, node.program, around)

        def answered() -> Spawned:
            cpu_ns, began_ns = time.process_time_ns(), time.perf_counter_ns()
            answer = held.recall(read, ())
            wall_ms = (time.perf_counter_ns() - began_ns) / 1e6
            cpu_ms = (time.process_time_ns() - cpu_ns) / 1e6
            frames = answer.frames if answer else ()
            stdout = b"".join(frame.data for frame in frames)
            return Spawned(wall_ms=wall_ms, cpu_ms=cpu_ms, exit_code=0, stdout=stdout, stderr=b"")

        inside = Way(
            path="in-process",
            engine_version=node.version,
            warm=True,
            once=answered,
            at_once=IN_PROCESS_AT_ONCE,
        )
        return [*ways, *self._resident(script, node, around), inside]

    def _resident(self, script: Path, node: Peer, around: Surroundings) -> list[Way]:
        if self.residence is None:
            return []
        residence, store = self.residence, self.residence.store
        residence.resident.greet(node.program, around, script.parent)
        key = _key_of(script, node, store, around)

        def forget() -> None:
            store.remove(key)
            time.sleep(2 * SURE_FOR_NS / 1e9)  # so long it does not look whether its answer is still kept

        ways = [(False, forget, 1), (True, _nothing, IN_PROCESS_AT_ONCE)]
        return [
            Way(
                path="resident",
                engine_version=node.version,
                warm=warm,
                once=lambda: residence.asked(script),
                before=before,
                at_once=at_once,
            )
            for warm, before, at_once in ways
        ]

    def theirs(self, script: Path, peers: Sequence[Peer]) -> list[Way]:
        """Each engine that runs such a script; nothing is kept between runs but what it keeps itself."""
        return [
            Way(
                path=peer.name,
                engine_version=peer.version,
                warm=False,
                once=_spawning(self.spawner, (*peer.words, str(script)), self.environment),
                at_once=IN_A_ROW,
            )
            for peer in peers
            if peer.runs(script.name)
        ]


def environment_of(folder: Path, *, own: bool) -> dict[str, str]:
    """What processes are given: little, or with `own` all that we were given ourselves."""
    given = dict(os.environ) if own else {name: os.environ[name] for name in _GIVEN if name in os.environ}
    return {
        **given,
        "PATH": os.environ.get("PATH", os.defpath) if own else os.defpath.lstrip(":"),
        "TRISPLIT_CACHE": str(folder),
        "DENO_DIR": str(folder / "deno"),
        "DENO_NO_UPDATE_CHECK": "1",
    }


def _key_of(script: Path, node: Peer, store: Store, around: Surroundings) -> Key:
    found = name_of(read_script(str(script)), (), node.program, store, around)
    if isinstance(found, str):
        what = f"nothing of node {node.version} is kept here: {found}"
        raise RequestProblem(what, fix="put another node first on PATH")
    return found[0]


def _spawning(
    spawner: Spawner, words: Sequence[str], environment: Mapping[str, str]
) -> Callable[[], Spawned]:
    return lambda: spawner.run(words, environment)


def _forgetting(store: Store, key: Key) -> Callable[[], None]:
    return lambda: store.remove(key)


def _nothing() -> None:
    """Leaves what is kept as it is."""
