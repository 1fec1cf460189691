"""Control messages as msgpack, and back: exactly one message of ours, or the reason why not."""

from __future__ import annotations

import msgspec

from trisplit.errors import OwnProblem, PeerProblem
from trisplit.wire import messages
from trisplit.wire.frame import SAME_VERSION
from trisplit.wire.gauging import GaugeMessage
from trisplit.wire.questions import ClientMessage

Message = messages.Message | GaugeMessage | ClientMessage

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """The msgpack of one message; `OwnProblem` when a field cannot be packed."""
    try:
        return _ENCODER.encode(message)
    except (TypeError, OverflowError, UnicodeEncodeError) as error:
        raise OwnProblem(
            f"{type(message).__name__} cannot be packed: {error}", fix="mend the field"
        ) from None


def decode(body: bytes | memoryview) -> Message:
    """The message in these bytes; `PeerProblem` with the reason when they are not exactly one."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PeerProblem(
            f"a control message that cannot be read: {str(error)[:200]}", fix=SAME_VERSION
        ) from None
