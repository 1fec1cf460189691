"""One connection between machines: a wire session on a WebSocket, opened by calling or by listening."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport

from trisplit.errors import OwnProblem, PeerProblem, Problem
from trisplit.mesh.outbox import Outbox
from trisplit.wire.batch import split
from trisplit.wire.choosing import Fence
from trisplit.wire.fields import MAX_TEXT
from trisplit.wire.frame import MAX_FRAME, SAME_VERSION, Activation
from trisplit.wire.greeting import Hello, Welcome
from trisplit.wire.messages import Bye, Fault, Ping, Pong
from trisplit.wire.session import CLOSED, Said, Session

T = TypeVar("T", bound=Said)

MAX_WAITING: Final = 1024
MAX_WAITING_BYTES: Final = 2 * MAX_FRAME
MAX_UNSENT_BYTES: Final = 4 * MAX_FRAME
LINGER_S: Final = 1.0
_MAX_CLOSE_BYTES: Final = 123  # RFC 6455 §5.5: what a close frame holds beside its code
SEE_ITS_OUTPUT: Final = "see whether it still runs; its own output says why it stopped"

# picows logs a peer's nonsense as an error; we raise it, so it need not be printed as well.
LOG: Final = logging.getLogger(__name__)
LOG.addHandler(logging.NullHandler())

# Reading a member of an enum takes 0.1 µs, and these are read for every frame.
_BINARY, _CLOSE = WSMsgType.BINARY, WSMsgType.CLOSE
_PING, _PONG = WSMsgType.PING, WSMsgType.PONG


class Link:
    """One connection: a wire session on a WebSocket. Made by `calling` and `server`; close it always.

    `peer` names the other side in messages; `welcome` is what it answered, or `hello` what it called with.
    `on_activation` and `on_fence`, when set, are called with each such word straight from the socket, with no
    task switch. The payload is then a view of the receive buffer, dead when the call returns: use or copy it
    inside. A `Problem` raised there ends this link. Pings are answered here and not shown.

    With `batched` what is sent in one turn of the event loop leaves together at its end, or at `flush`.
    What leaves goes to the kernel at once, or waits in memory while the peer does not read: await `drain`
    before sending more than a peer may be expected to take. A peer that lets more than `MAX_UNSENT_BYTES`
    wait, or sends more than we read, or what nobody may say, has `broken_rules` and its link ends so.
    """

    def __init__(self, session: Session, transport: WSTransport, peer: str) -> None:
        self.peer = peer
        self.transport = transport.underlying_transport
        self.hello: Hello | None = None
        self.welcome: Welcome | None = None
        self.on_activation: Callable[[Activation], None] | None = None
        self.on_fence: Callable[[Fence], None] | None = None
        self.batched = False
        self.broken_rules = False
        self.session = session
        self._transport = transport
        self._outbox = Outbox(transport)
        self._inbox: deque[tuple[Said, int]] = deque()
        self._inbox_bytes = 0
        self._reader: asyncio.Future[None] | None = None
        self._end: Exception | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()

    @property
    def is_open(self) -> bool:
        """Whether more can be said."""
        return self._end is None

    def send(self, said: Said) -> None:
        """Say it now; a Fault or Bye is the last. Raises `OwnProblem` out of turn, or why the link ended."""
        if self._end is not None:
            raise self._end
        self._outbox.put(self.session.send(said), wait=self.batched)
        if self.session.where == CLOSED:
            self._stop(None, self._closed(), WSCloseCode.OK, "")
        elif not self._flowing.is_set():
            self._refuse_to_hoard()

    async def drain(self, deadline_s: float) -> None:
        """Return once the peer has read nearly all that was sent. Raises as `receive` does."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._flowing.wait()
        except TimeoutError:
            raise PeerProblem(f"{self.peer} read nothing for {deadline_s:g} s", fix=SEE_ITS_OUTPUT) from None
        if self._end is not None:
            raise self._end

    def flush(self) -> None:
        """Let what waits for others leave now."""
        self._outbox.flush()

    async def receive(self, deadline_s: float | None) -> Said:
        """The next word, in order; a Fault or Bye is the last. One task at a time may wait here.

        Raises `PeerProblem` when nothing comes within `deadline_s` seconds (the link stays open; None
        is for waits that are nobody's turn, as a station's for its next order), and, after everything
        that came before it, why the link ended.
        """
        if not self._inbox and self._end is None:
            await self._wait(deadline_s)
        if self._inbox:
            said, n_bytes = self._inbox.popleft()
            self._inbox_bytes -= n_bytes
            return said
        if self._end is None:
            raise PeerProblem(f"{self.peer} said nothing for {deadline_s:g} s", fix=SEE_ITS_OUTPUT)
        raise self._end

    async def expect(self, kind: type[T], deadline_s: float | None) -> T:
        """The next word, which must be of this kind; a Fault is raised with the peer's own what and fix."""
        return self.insist(await self.receive(deadline_s), kind)

    def insist(self, said: Said, kind: type[T]) -> T:
        """This word, which must be of this kind; as `expect`."""
        if isinstance(said, kind):
            return said
        if isinstance(said, (Fault, Bye)):
            raise self._farewell(said)
        what = f"{self.peer} said {type(said).__name__} where {kind.__name__} was due"
        raise PeerProblem(what, fix=SAME_VERSION)

    async def close(self, reason: str = "") -> None:
        """Say Bye unless the link has ended already; done once the socket is closed, within `LINGER_S`."""
        if self._end is None:
            self._stop(Bye(_clip(reason, MAX_TEXT)), self._closed(), WSCloseCode.OK, reason)
        await self.wait_closed()

    async def close_with(self, problem: Problem) -> None:
        """Tell the peer it cannot go on, and why, unless the link has ended already; then as `close`."""
        self._break(problem, problem, WSCloseCode.INTERNAL_ERROR)
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Done once the socket is closed, by whomever and for whatever reason."""
        # A peer that broke the WebSocket protocol is reported by receive(); picows repeats it here.
        with contextlib.suppress(Exception):
            await self._transport.wait_disconnected()

    def _hear(self, message: WSFrame) -> None:
        sink = self.on_activation
        data = message.get_payload_as_bytes() if sink is None else message.get_payload_as_memoryview()
        try:
            for one in split(data):
                if self._end is None:
                    self._take(self.session.receive(one), len(one), sink)
        except PeerProblem as problem:
            self.accuse(problem.what, problem.fix)

    def _take(self, said: Said, n_bytes: int, sink: Callable[[Activation], None] | None) -> None:
        try:
            if sink is not None and isinstance(said, Activation):
                sink(said)
            elif self.on_fence is not None and isinstance(said, Fence):
                self.on_fence(said)
            else:
                self._keep(said, n_bytes)
        except Problem as problem:
            self._break(problem, problem, WSCloseCode.INTERNAL_ERROR)
        except Exception as error:
            # A defect of ours: the peer hears so, and whoever receives from this link gets it whole.
            ours = OwnProblem(f"an internal error: {type(error).__name__}", fix="see the other side's output")
            self._break(ours, error, WSCloseCode.INTERNAL_ERROR)

    def _keep(self, said: Said, n_bytes: int) -> None:
        if isinstance(said, Ping):
            self.send(Pong(said.nonce))
            return
        if len(self._inbox) >= MAX_WAITING or self._inbox_bytes + n_bytes > MAX_WAITING_BYTES:
            waiting = f"{len(self._inbox):,} messages ({self._inbox_bytes:,} bytes)"
            self.broken_rules = True
            raise PeerProblem(f"{waiting} of {self.peer} wait unread", fix="send less before an answer comes")
        self._inbox.append((said, n_bytes))
        self._inbox_bytes += n_bytes
        if isinstance(said, (Hello, Welcome)):
            self._meet(said)
        elif isinstance(said, (Fault, Bye)):
            self._stop(None, self._farewell(said), WSCloseCode.OK, "")
        self._wake()

    def _meet(self, said: Hello | Welcome) -> None:
        if isinstance(said, Hello):
            self.hello, role = said, said.role
        else:
            self.welcome, role = said, "station"
        self.peer = f"{role} {plain(said.name)} at {_address(self.transport)}"

    def _hear_close(self, payload: bytes) -> None:
        if self._end is None:
            reason = plain(payload[2:].decode(errors="replace")) or "no reason given"
            what = f"{self.peer} closed the connection: {reason} (code {int.from_bytes(payload[:2])})"
            self._stop(None, PeerProblem(what, fix=SEE_ITS_OUTPUT), WSCloseCode.OK, "")
        self._transport.disconnect()

    def _lose(self) -> None:
        """The socket is closed: all that is left is to say why, if nobody has yet."""
        if self._linger is not None:
            self._linger.cancel()
        if self._end is None:
            closing = self._transport.close_handshake
            refused = closing.sent if closing else None
            how = f"broke the WebSocket protocol: {refused.reason}" if refused else "hung up without a word"
            self.broken_rules = refused is not None
            self._end = PeerProblem(f"{self.peer} {plain(how)}", fix=SEE_ITS_OUTPUT)
        self._flowing.set()
        self._wake()

    def _hear_ping(self, payload: bytes) -> None:
        """A WebSocket's own ping; picows would answer without end while nobody reads the answers."""
        if self._end is None:
            self._transport.send_pong(payload)
            if not self._flowing.is_set():
                with contextlib.suppress(PeerProblem):  # nobody called us to whom it could be raised
                    self._refuse_to_hoard()

    def _hold(self) -> None:
        if self._end is None:  # what is said last is waited for by nobody
            self._flowing.clear()

    def _refuse_to_hoard(self) -> None:
        """End the link when too much waits for the peer to read it, and raise why."""
        waiting = self.transport.get_write_buffer_size()
        if waiting > MAX_UNSENT_BYTES:
            self.broken_rules = True
            problem = PeerProblem(
                f"{waiting:,} bytes wait for {self.peer} to read them", fix="read what comes, or ask for less"
            )
            self._break(problem, problem, WSCloseCode.POLICY_VIOLATION)
            raise problem

    def accuse(self, what: str, fix: str = SAME_VERSION) -> None:
        """End the link because the peer sent what nobody may send."""
        self.broken_rules = True
        ended = PeerProblem(f"{self.peer} broke the protocol: {plain(what)}", fix=fix)
        self._break(PeerProblem(what, fix=fix), ended, WSCloseCode.PROTOCOL_ERROR)

    def _break(self, told: Problem, ended: Exception, code: WSCloseCode) -> None:
        if self._end is None:
            self._stop(fault(told), ended, code, told.what)

    def _stop(self, last: Fault | Bye | None, ended: Exception, code: WSCloseCode, reason: str) -> None:
        """Start the closing handshake; the peer closes the socket, or we do after `LINGER_S`.

        Closing it at once could reset the connection before the peer has read the last word.
        """
        if last is not None:
            self._outbox.put(self.session.send(last), wait=False)
        self.flush()
        self._transport.send_close(code, _clip(reason, _MAX_CLOSE_BYTES))
        self._linger = asyncio.get_running_loop().call_later(LINGER_S, self._transport.disconnect, False)
        self._end = ended
        self._flowing.set()
        self._wake()

    def _closed(self) -> PeerProblem:
        return PeerProblem(f"the link to {self.peer} is closed", fix="open another")

    def _farewell(self, said: Fault | Bye) -> PeerProblem:
        if isinstance(said, Fault):
            return PeerProblem(f"{self.peer} gave up: {plain(said.what)}", fix=plain(said.fix))
        reason = plain(said.reason) or "no reason given"
        return PeerProblem(f"{self.peer} ended the link: {reason}", fix=SEE_ITS_OUTPUT)

    async def _wait(self, deadline_s: float | None) -> None:
        """Return when something has come, the link has ended, or the time is up."""
        if self._reader is not None:
            raise OwnProblem(f"two readers of the link to {self.peer}", fix="receive in one task")
        loop = asyncio.get_running_loop()
        self._reader = loop.create_future()
        timer = None if deadline_s is None else loop.call_later(deadline_s, self._wake)
        try:
            await self._reader
        finally:
            self._reader = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Ears(WSListener):
    """What picows calls: turns WebSocket frames into words of a `Link`, made once there is a WebSocket."""

    def __init__(self, session: Session, peer: str, opened: Callable[[Link], None]) -> None:
        self.session = session
        self._peer = peer
        self._opened = opened

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._link = Link(self.session, transport, self._peer)
        self._opened(self._link)

    def on_ws_frame(self, _transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if kind == _BINARY and frame.fin and not (frame.rsv1 or frame.rsv2 or frame.rsv3):
            self._link._hear(frame)
        elif kind == _CLOSE:
            self._link._hear_close(frame.get_payload_as_bytes())
        elif kind == _PING:
            self._link._hear_ping(frame.get_payload_as_bytes())
        elif kind != _PONG:
            self._link.accuse("a WebSocket frame that is not one whole binary message")

    def on_ws_disconnected(self, _transport: WSTransport) -> None:
        self._link._lose()

    def pause_writing(self) -> None:
        """The peer reads slowly: what is sent waits in memory."""
        self._link._hold()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._link._flowing.set()


def fault(problem: Problem, stream: int | None = None) -> Fault:
    """The word that tells a problem, as long as a peer accepts."""
    return Fault(_clip(problem.what, MAX_TEXT), _clip(problem.fix, MAX_TEXT), stream)


def _address(transport: asyncio.Transport) -> str:
    name = transport.get_extra_info("peername")
    if not name:  # it was gone before we looked
        return "an unknown address"
    host, port, *_ = name
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _clip(text: str, n_bytes: int) -> str:
    """As much of the text as fits, in characters that can be sent."""
    return text.encode(errors="backslashreplace")[:n_bytes].decode(errors="ignore")


def plain(text: str) -> str:
    """A peer's text without what could move a terminal's cursor."""
    return text if text.isprintable() else ascii(text)[1:-1]
