"""How a trip ends when something dies, lies, stalls, or is interrupted: one clear error, no remains."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.flows.test_token_trip import Silent
from tests.tiny import build
from trisplit.errors import PeerProblem
from trisplit.mesh import coordinator as coordinating
from trisplit.mesh import membership, pushing, trips
from trisplit.mesh.coordinator import Coordinator
from trisplit.mesh.costs import plan_model
from trisplit.mesh.link import Link
from trisplit.mesh.room import Room
from trisplit.mesh.server import listen
from trisplit.models.ends import Ends
from trisplit.models.generation import Generation, Request
from trisplit.models.model import Model, open_model
from trisplit.models.sampling import Sampling
from trisplit.wire import choosing
from trisplit.wire.choosing import Fence, Sample
from trisplit.wire.frame import EPOCHS_OF_A_TAIL, IDS, Activation
from trisplit.wire.greeting import VERSION, Welcome
from trisplit.wire.messages import Ask, Close, Closed, Join, Joined, Load, Loaded, Open, Opened

PATIENCE_S = 120.0
CONTEXT = 64
LAYERS = 24


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of many layers: slow enough to be killed in the middle of an answer."""
    folder = tmp_path_factory.mktemp("deep") / "model"
    return build("llama", folder, layers=LAYERS, max_position_embeddings=4096)


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`trisplit …` as a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trisplit", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def children(pid: int) -> list[int]:
    """Processes whose parent is `pid`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"waited {PATIENCE_S:.0f} s for {what}"
        time.sleep(0.02)


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


LONG = ("--max-tokens", "3000", "--context", "4096", "--ignore-eos")


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_station_killed_in_the_middle_ends_the_request_by_name(deep: Path, victim: int) -> None:
    with running("generate", str(deep), "hello", "--stations", "3", "--cut", "thirds", *LONG) as process:
        assert process.stdout is not None
        process.stdout.read(3)  # the answer has begun
        stations = sorted(children(process.pid))
        assert len(stations) == 3
        os.kill(stations[victim], signal.SIGKILL)
        _, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "Traceback" not in error
    assert f"station s{victim + 1}" in error
    assert gone(stations)


def test_a_stalled_station_ends_the_request_after_the_deadline(deep: Path) -> None:
    """SIGSTOP keeps the socket open: only the deadline can tell."""
    script = (
        "from trisplit.mesh import coordinator;"
        "coordinator.SILENCE_S = 1.0;"
        "from trisplit.cli import main; main()"
    )
    command = [sys.executable, "-c", script, "generate", str(deep), "hello", "--stations", "3", *LONG]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.read(3)
    stations = sorted(children(process.pid))
    os.kill(stations[1], signal.SIGSTOP)
    _, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    named = [i for i in (1, 2, 3) if f"station s{i} did not answer" in error]
    assert named == [2]
    assert gone(stations)


@pytest.mark.parametrize("stations", ["0", "3"])
def test_ctrl_c_stops_an_answer_of_a_chat_and_no_more(deep: Path, stations: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "trisplit", "chat", str(deep), "--stations", stations, "--max-tokens", "3000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("hello\n")
    process.stdin.flush()
    process.stdout.read(3)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate("/nonsense\n/exit\n", timeout=PATIENCE_S)
    assert process.returncode == 0, error
    assert out.endswith("\n")
    assert "no command is named '/nonsense'" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("stations", ["0", "3"])
def test_ctrl_c_while_loading_leaves_nothing(deep: Path, stations: str, tmp_path: Path) -> None:
    environment = {**os.environ, "TRISPLIT_CACHE": str(tmp_path)}  # nothing is converted there
    process = subprocess.Popen(
        [sys.executable, "-m", "trisplit", "generate", str(deep), "hello", "--stations", stations, *LONG],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: list(tmp_path.rglob("*.safetensors")), "the first converted stage")
    born = children(process.pid)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert error == ""
    assert gone(born)


# Pressed while the bar of a station moves, when what loads it stands still in the middle.
_PRESSED = """
import os, signal, sys
from trisplit.cli import main, progress
def pressed(*_):
    os.kill(os.getpid(), signal.SIGINT)
progress.Bars.advance = pressed
main()
"""


def test_ctrl_c_between_two_steps_of_loading_is_silent(deep: Path) -> None:
    words = ["generate", str(deep), "hello", "--stations", "2", "--topology", "ring", *LONG]
    ran = subprocess.run([sys.executable, "-c", _PRESSED, *words], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGTERM])
def test_a_closed_terminal_while_loading_leaves_nothing(deep: Path, how: int, tmp_path: Path) -> None:
    environment = {**os.environ, "TRISPLIT_CACHE": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "trisplit", "generate", str(deep), "hello", "--stations", "3", *LONG],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: list(tmp_path.rglob("attention-*.sha256")), "a station to convert")
    born = children(process.pid)
    assert len(born) == 3
    process.send_signal(how)
    _, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -how
    assert error == ""
    until(lambda: gone(born), "the stations to end")


def test_a_station_killed_while_loading_is_named(deep: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TRISPLIT_CACHE": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "trisplit", "generate", str(deep), "hello", "--stations", "3", *LONG],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: list(tmp_path.rglob("attention-*.sha256")), "a station to convert")
    stations = sorted(children(process.pid))
    os.kill(stations[1], signal.SIGKILL)
    out, error = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (1, "")
    assert "station s2" in error
    assert "Traceback" not in error
    assert gone(stations)


def test_stations_end_when_their_parent_is_killed(deep: Path) -> None:
    with running("generate", str(deep), "hello", "--stations", "3", *LONG) as process:
        assert process.stdout is not None
        process.stdout.read(3)
        stations = children(process.pid)
        assert len(stations) == 3
        process.kill()
        until(lambda: gone(stations), "the stations to end")


def test_a_station_outlives_its_coordinator_and_serves_the_next(
    tiny: Callable[[str], Path], stations: dict[str, str]
) -> None:
    address = stations["s1"]
    question = ("generate", str(tiny("llama")), "hello", "--stations", address, "--max-tokens", "5", "--json")
    with running("generate", str(tiny("llama")), "hello", "--stations", address, "--ignore-eos") as first:
        assert first.stdout is not None
        first.stdout.read(1)
        first.kill()
    answers = []
    for _ in range(2):
        with running(*question) as process:
            out, error = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0, error
            answers.append(out)
    assert '"finish_reason": "length"' in answers[0]


# --- a station that lies --------------------------------------------------------------------------


@dataclass
class Liar:
    """A station that answers every frame with `answer(frame)` and says nothing to messages of kind `mute`."""

    answer: Callable[[Activation], Activation | None] = lambda _: None
    mute: type | None = None
    heard: list[object] = field(default_factory=list)

    async def accept(self, link: Link) -> None:
        def on_activation(said: Activation) -> None:
            back = self.answer(said)
            if back is not None:
                link.send(back)

        link.on_activation = on_activation
        while True:
            said = await link.receive(None)
            self.heard.append(said)
            if not isinstance(said, self.mute or ()):
                match said:
                    case Load():
                        link.send(Loaded(1, 1, 1, True))
                    case Join():
                        link.send(Joined())
                    case Open(stream=stream):
                        link.send(Opened(stream))
                    case Sample(stream=stream):
                        link.send(choosing.Sampling(stream))
                    case Close(stream=stream):
                        link.send(Closed(stream))

    async def trip(self, model: Model, answer: Generation | None = None) -> None:
        """One step through a mesh whose only station this is; with an answer all of it, as a ring."""
        server = await listen("127.0.0.1", 0, welcome=Welcome(VERSION, "liar", 1, "", ""), accept=self.accept)
        ends = None if answer else Ends(model.config, *model.files(model.ends, "f32"), threads=1)
        how = {"cut": "layers", "topology": "ring" if answer else "chain"}
        drawn = plan_model(model, [Room("s1", None)], dtype="f32", context=CONTEXT, **how)
        try:
            async with Coordinator(model, ends, drawn, {"s1": f"127.0.0.1:{server.port}"}) as mesh:
                async for _ in mesh.load("f32", context=CONTEXT, threads=1):
                    pass
                stream = await mesh.open()
                if answer:
                    async for _ in mesh.generate(stream, answer):
                        pass
                else:
                    await mesh.facts() if self.mute is Ask else await mesh.forward(stream, ASKED, 0)
                await asyncio.sleep(0.05)  # the fence is not answered
        finally:
            await server.close()


ASKED = (5, 6)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda a: Activation(a.stream, 0, 0, 1, 2, bytes(8)), "8 bytes in 2 rows at the end of a trip"),
        (lambda a: Activation(a.stream, 0, 0, 7, a.rows, bytes(a.payload)), "for group 7"),
        (lambda a: Activation(a.stream + 1, 0, 0, 1, a.rows, bytes(a.payload)), "stream 2"),
        (lambda a: Activation(a.stream, 0, 0, 1, 1, bytes(a.payload)[:252]), "252 bytes in 1 rows"),
    ],
)
def test_an_answer_that_makes_no_sense_ends_the_request(
    answer: Callable[[Activation], Activation], said: str, tiny: Callable[[str], Path]
) -> None:
    with pytest.raises(Exception, match=said) as caught:
        asyncio.run(Liar(answer).trip(open_model(tiny("llama"))))
    assert caught.value.__class__.__name__ in ("PeerProblem", "OwnProblem")


def test_an_answer_that_never_comes_ends_at_the_deadline(
    tiny: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trips, "STEP_DEADLINE_S", 0.2)
    with pytest.raises(PeerProblem, match=r"an answer to a token did not come within 0\.2 s"):
        asyncio.run(Liar().trip(open_model(tiny("llama"))))


@pytest.mark.parametrize("kind", [Load, Join, Open, Ask])
def test_every_wait_has_a_deadline(
    kind: type, tiny: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing, "LOAD_DEADLINE_S", 0.2)
    monkeypatch.setattr(coordinating, "ANSWER_DEADLINE_S", 0.2)
    for deadline in ("JOIN", "ANSWER"):
        monkeypatch.setattr(membership, f"{deadline}_DEADLINE_S", 0.2)
    with pytest.raises(PeerProblem, match=r"did not come within 0\.2 s"):
        asyncio.run(Liar(mute=kind).trip(open_model(tiny("llama"))))


def test_a_tail_is_told_all_it_needs_to_sample(
    tiny: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trips, "STEP_DEADLINE_S", 0.2)
    how = Sampling(temperature=0.7, top_k=9, top_p=0.8, min_p=0.1, repetition_penalty=1.2, seed=2**64 - 1)
    request = Request(prompt_ids=ASKED, sampling=how, max_tokens=2, eos_ids=frozenset((2,)))
    answer = Generation(request, Silent(), CONTEXT)

    def seven(said: Activation) -> Activation:
        token = (7).to_bytes(4, "little")
        return Activation(said.stream, said.position + said.rows, said.epoch, 1, 1, token, IDS)

    liar = Liar(seven)
    with pytest.raises(PeerProblem, match="a token did not come"):  # it chooses one and no more
        asyncio.run(liar.trip(open_model(tiny("llama")), answer))
    assert answer.token_ids == [7]
    (said,) = [said for said in liar.heard if isinstance(said, Sample)]
    assert (said.stream, said.epoch, said.ids, said.end, said.stop_ids) == (1, 0, ASKED, 4, (2,))
    for name in Sampling.__dataclass_fields__:
        assert getattr(said, name) == getattr(how, name)
    (fence,) = [said for said in liar.heard if isinstance(said, Fence)]
    assert (fence.stream, fence.epoch) == (1, EPOCHS_OF_A_TAIL)
