"""One WebSocket binary message: a 10-byte header, and for activations a second header before raw numbers."""

from __future__ import annotations

import struct

import msgspec

from trisplit.errors import OwnProblem, PeerProblem
from trisplit.wire.route import routes

CONTROL, ACTIVATION, RESIDUAL, EARLY = 1, 2, 3, 5  # kind; 4 is a batch
ROW_BY_ROW = 1  # flag: each row passes attention alone
_ROUTED = 2  # flag: a route word follows the headers
DECODED = 4  # flag: a token that was decoded, one row, not part of a prompt
DRAFTED = 8  # flag: nobody has chosen the token yet; it comes behind a row of its epoch that is no draft
F32, IDS = 1, 4  # dtype: numbers of a row, or one i32 token id a row; 2 = f16 and 3 = bf16 are reserved
EPOCHS_OF_A_TAIL = (
    2**16
)  # a coordinator's epochs are multiples of it; those between are made where is sampled
LINK = 0  # stream of what is about the link itself

MAX_FRAME = 64 * 2**20  # bytes
MAX_CONTROL = 4 * 2**20  # bytes; less, because msgpack unpacks to several times its size

SAME_VERSION = "run the same version of trisplit on both ends"

_HEADER = struct.Struct("!IIBB")
_BOTH = struct.Struct("!IIBBIIHHBI")
_ROUTE = struct.Struct("!H")
_EXTENT = struct.Struct("!9xB13xI")  # of both headers what says how long the frame is: flags and length
_ITEM_BYTES = {F32: 4, IDS: 4}
_KNOWN_FLAGS = ROW_BY_ROW | DECODED | DRAFTED
_NUMBERS = (ACTIVATION, RESIDUAL, EARLY)


class Activation(msgspec.Struct, frozen=True):
    """Rows of hidden numbers on their way from one stage group to the next.

    `payload` is [rows, width] in row-major little-endian `dtype`; whoever knows the model knows
    the width. `stream` is the session the rows belong to (1 and up), `position` the place of the
    first row in it, `epoch` the fence that tells rows from before a rewind from those after,
    `group` the number of the stage group the rows are for. With `residual` they are not that
    group's input but the residual it adds; if `early` they are what it starts on until its input
    comes. `route` is the word of the way that what becomes of the rows takes from there
    (`trisplit.wire.route`); 0 where whoever runs the group knows the way.
    """

    stream: int
    position: int
    epoch: int
    group: int
    rows: int
    payload: bytes | memoryview
    dtype: int = F32
    flags: int = 0
    residual: bool = False
    route: int = 0
    early: bool = False


def encode_control(body: bytes, sequence: int) -> bytes:
    """The frame of one control message; `OwnProblem` when it is too long to be accepted."""
    if len(body) > MAX_CONTROL:
        raise OwnProblem(f"a control message of {len(body):,} bytes", fix=f"at most {MAX_CONTROL:,} are sent")
    return _HEADER.pack(LINK, sequence, CONTROL, 0) + body


def encode_activation(said: Activation, sequence: int) -> bytes:
    """The frame of one activation; the payload is copied once. `OwnProblem` when a peer would refuse it."""
    payload, route = said.payload, said.route
    length = payload.nbytes if isinstance(payload, memoryview) else len(payload)
    why = _refusal(said.stream, said.flags, said.rows, said.dtype, length, route)
    if why:
        raise OwnProblem(f"an activation with {why}", fix="send whole rows of one open stream")
    try:
        head = _BOTH.pack(
            said.stream,
            sequence,
            EARLY if said.early else RESIDUAL if said.residual else ACTIVATION,
            said.flags | _ROUTED if route else said.flags,
            said.position,
            said.epoch,
            said.group,
            said.rows,
            said.dtype,
            length,
        )
    except struct.error as error:
        raise OwnProblem(
            f"an activation whose header does not fit: {error}", fix="see docs/wire.md"
        ) from None
    return (head + _ROUTE.pack(route) if route else head) + payload


def decode(data: bytes | memoryview) -> tuple[int, Activation | memoryview]:
    """The sequence number and what the frame carries: an activation, or a control message still packed.

    Nothing is copied: payload and message are views of `data`. Raises `PeerProblem` for everything
    that is not exactly one frame of ours.
    """
    n_bytes = len(data)
    if n_bytes < _HEADER.size:
        raise _nonsense(f"a frame of {n_bytes} bytes where the header takes {_HEADER.size}")
    if n_bytes > MAX_FRAME:
        raise _nonsense(f"a frame of {n_bytes:,} bytes where {MAX_FRAME:,} is the limit")
    kind = data[8]
    if kind == CONTROL:
        return _decode_control(memoryview(data))
    if kind not in _NUMBERS:
        raise _nonsense(f"a frame of unknown kind {kind}")
    if n_bytes < _BOTH.size:
        raise _nonsense(f"an activation of {n_bytes} bytes where its headers take {_BOTH.size}")
    stream, sequence, _, flags, position, epoch, group, rows, dtype, length = _BOTH.unpack_from(data)
    route = _decode_route(data) if flags & _ROUTED else 0
    flags &= ~_ROUTED
    payload = memoryview(data)[_BOTH.size + _ROUTE.size if route else _BOTH.size :]
    if length != len(payload):
        raise _nonsense(f"an activation that announces {length:,} bytes and brings {len(payload):,}")
    why = _refusal(stream, flags, rows, dtype, length, route)
    if why:
        raise _nonsense(f"an activation with {why}")
    what = kind == RESIDUAL, route, kind == EARLY
    return sequence, Activation(stream, position, epoch, group, rows, payload, dtype, flags, *what)


def is_whole(data: bytes | memoryview) -> bool:
    """Whether these bytes are exactly one frame, as far as headers tell: a fifth of the work of `decode`."""
    n_bytes = len(data)
    if n_bytes >= _BOTH.size and data[8] in _NUMBERS:
        flags, length = _EXTENT.unpack_from(data)
        return bool(n_bytes == _BOTH.size + (_ROUTE.size if flags & _ROUTED else 0) + length)
    return n_bytes >= _HEADER.size and data[8] == CONTROL


def after(sequence: int) -> int:
    """The number of the next frame in one direction of a link: u32, and round again."""
    return (sequence + 1) & 0xFFFFFFFF


def _decode_control(data: memoryview) -> tuple[int, memoryview]:
    stream, sequence, _, flags = _HEADER.unpack_from(data)
    if stream != LINK or flags:
        raise _nonsense(f"a control message with stream {stream} and flags {flags} where both must be 0")
    if len(data) - _HEADER.size > MAX_CONTROL:
        raise _nonsense(f"a control message of {len(data):,} bytes where {MAX_CONTROL:,} is the limit")
    return sequence, data[_HEADER.size :]


def _decode_route(data: bytes | memoryview) -> int:
    if len(data) < _BOTH.size + _ROUTE.size:
        raise _nonsense(f"an activation of {len(data)} bytes that announces a route")
    route: int = _ROUTE.unpack_from(data, _BOTH.size)[0]
    if not route:
        raise _nonsense("an activation with a route that leads nowhere")
    return route


def _refusal(stream: int, flags: int, rows: int, dtype: int, length: int, route: int) -> str:
    """Why these facts do not describe rows of numbers; empty when they do."""
    if stream == LINK:
        return f"stream {LINK}, which is the link itself"
    if flags & ~_KNOWN_FLAGS:
        return f"unknown flags {flags:#04x}"
    if flags & (DECODED | DRAFTED) and rows != 1:
        return f"{rows} rows of one decoded token"
    item_bytes = _ITEM_BYTES.get(dtype)
    if item_bytes is None:
        return f"dtype {dtype}, which we do not speak"
    if rows < 1 or length < 1 or length % (rows * item_bytes):
        return f"{length:,} bytes for {rows} rows of {item_bytes}-byte numbers"
    if length > MAX_FRAME - _BOTH.size - (_ROUTE.size if route else 0):
        return f"{length:,} bytes where {MAX_FRAME:,} with the headers is the limit"
    if route and route not in routes():
        return f"the route word {route:#06x}, which is none"
    return ""


def _nonsense(what: str) -> PeerProblem:
    return PeerProblem(what, fix=SAME_VERSION)
