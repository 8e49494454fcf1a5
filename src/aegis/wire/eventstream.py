"""Amazon's event streams (`application/vnd.amazon.eventstream`), incrementally and in bounded memory.

A message is its length, the length of its headers, a CRC of both, headers, payload, and a CRC of all (Amazon Event
Stream Specification). Headers are text; of them the name of the event is kept.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Final

from aegis.errors import ForeignAnswer
from aegis.wire.model import WireEvent
from aegis.wire.sse import Framing

MEDIA: Final = "application/vnd.amazon.eventstream"
MAX_MESSAGE_BYTES: Final = 25_165_824  # the specification's own bound of a message, with its headers
_PRELUDE: Final = struct.Struct(">III")
_TEXT: Final = 7  # the type of a header whose value is text
_CRC_BYTES: Final = 4


class MessageReader:
    """Bytes in, events out: the name of an event is its `:event-type`, or `:exception-type` where it failed."""

    def __init__(self) -> None:
        self._partial = b""

    @property
    def at_rest(self) -> bool:
        """Whether the next byte begins a new message."""
        return not self._partial

    def feed(self, chunk: bytes) -> list[WireEvent]:
        """The events that `chunk` completes; raises `ForeignAnswer` for bytes that are no message."""
        self._partial += chunk
        events: list[WireEvent] = []
        while len(self._partial) >= _PRELUDE.size:
            total, named, crc = _PRELUDE.unpack_from(self._partial)
            if crc != zlib.crc32(self._partial[:8]) or not 16 + named <= total <= MAX_MESSAGE_BYTES:
                raise ForeignAnswer("a message of the stream has no sound beginning")
            if len(self._partial) < total:
                break
            message, self._partial = self._partial[:total], self._partial[total:]
            if struct.unpack(">I", message[-_CRC_BYTES:])[0] != zlib.crc32(message[:-_CRC_BYTES]):
                raise ForeignAnswer("a message of the stream was changed on its way")
            events.append(_event(message[_PRELUDE.size : _PRELUDE.size + named], message[_PRELUDE.size + named : -4]))
        return events

    def end(self) -> list[WireEvent]:
        """Nothing: a message that was cut off is none."""
        return []


def _event(headers: bytes, payload: bytes) -> WireEvent:
    found: dict[str, str] = {}
    try:
        while headers:
            size = headers[0]
            name, kind = headers[1 : 1 + size].decode(), headers[1 + size]
            if kind != _TEXT:
                raise ForeignAnswer("a header of the stream is no text")
            length = int.from_bytes(headers[2 + size : 4 + size], "big")
            found[name] = headers[4 + size : 4 + size + length].decode()
            headers = headers[4 + size + length :]
        data = payload.decode()
    except (IndexError, UnicodeDecodeError) as error:
        raise ForeignAnswer("a message of the stream cannot be read") from error
    return WireEvent(event=found.get(":event-type") or found.get(":exception-type", ""), data=data)


def message_bytes(event: WireEvent) -> bytes:
    """One event as a message; what failed is an exception."""
    failed = event.event.endswith("Exception")
    kind = ":exception-type" if failed else ":event-type"
    headers = b"".join(
        bytes([len(name)]) + name.encode() + bytes([_TEXT]) + len(value.encode()).to_bytes(2, "big") + value.encode()
        for name, value in (
            (kind, event.event),
            (":content-type", "application/json"),
            (":message-type", "exception" if failed else "event"),
        )
    )
    payload = event.data.encode()
    total = _PRELUDE.size + len(headers) + len(payload) + _CRC_BYTES
    head = struct.pack(">II", total, len(headers))
    whole = head + struct.pack(">I", zlib.crc32(head)) + headers + payload
    return whole + struct.pack(">I", zlib.crc32(whole))


def failure(error: dict[str, str]) -> WireEvent:
    """The event that ends a stream which failed."""
    return WireEvent(event="internalServerException", data=json.dumps(error))


EVENT_STREAM: Final = Framing(media=MEDIA, reader=MessageReader, encode=message_bytes)
