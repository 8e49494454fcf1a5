"""Events of streamed answers, incrementally and in bounded memory: server-sent events, and those of Amazon."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from aegis.errors import ForeignAnswer
from aegis.wire.model import WireEvent

MAX_EVENT_BYTES: Final = 33_554_432  # an event that never ends would fill the memory


class EventReader(Protocol):
    """Bytes in, events out; raises `ForeignAnswer` for what is none."""

    @property
    def at_rest(self) -> bool: ...

    def feed(self, chunk: bytes) -> list[WireEvent]: ...

    def end(self) -> list[WireEvent]: ...


class Framing(Struct, frozen=True, kw_only=True):
    """How the events of a stream are told apart. `alive` says nothing, and keeps a silent connection open."""

    media: str
    reader: Callable[[], EventReader]
    encode: Callable[[WireEvent], bytes]
    alive: bytes = b""


class SseReader:
    """Bytes in, events out. Comments and unknown fields are dropped."""

    def __init__(self) -> None:
        self._partial = bytearray()
        self._after_cr = False
        self._size = 0
        self._name = ""
        self._id = ""
        self._retry = ""
        self._data: list[str] = []

    @property
    def at_rest(self) -> bool:
        """Whether the next byte begins a new event, whatever went before."""
        return not (self._partial or self._after_cr or self._size)

    def feed(self, chunk: bytes) -> list[WireEvent]:
        """The events that `chunk` completes; raises `ForeignAnswer` for an event too large or not UTF-8."""
        events: list[WireEvent] = []
        if self._after_cr:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if not chunk:
            return events
        # A line ends with CR, LF or CR LF; the LF of a pair may come with the next chunk.
        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, last = chunk.split(b"\n")
        if lines and self._partial:
            lines[0] = bytes(self._partial + lines[0])
            self._partial.clear()
        for line in lines:
            self._line(line, events)
        self._partial += last
        if self._size + len(self._partial) > MAX_EVENT_BYTES:
            raise ForeignAnswer("an event of the stream is too large")
        return events

    def end(self) -> list[WireEvent]:
        """The event that stands at the end of the stream without a blank line, if there is one."""
        events: list[WireEvent] = []
        if self._partial:
            self._line(bytes(self._partial), events)
            self._partial.clear()
        self._line(b"", events)
        return events

    def _line(self, raw: bytes, events: list[WireEvent]) -> None:
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            raise ForeignAnswer("the stream is not UTF-8") from error
        if not line:
            if self._data or self._name or self._id or self._retry:
                data = "\n".join(self._data)
                events.append(WireEvent(event=self._name, data=data, id=self._id, retry=self._retry))
            self._name, self._id, self._retry, self._data, self._size = "", "", "", [], 0
            return
        self._size += len(raw)
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        elif field == "id":
            self._id = value
        elif field == "retry":
            self._retry = value


def sse_bytes(event: WireEvent) -> bytes:
    """One event as it goes over the wire."""
    if not (event.id or event.retry or "\n" in event.data):
        name = f"event: {event.event}\n" if event.event else ""
        return f"{name}data: {event.data}\n\n".encode()
    fields = (("id", event.id), ("retry", event.retry), ("event", event.event))
    head = "".join(f"{name}: {value}\n" for name, value in fields if value)
    body = "".join(f"data: {line}\n" for line in event.data.split("\n"))
    return f"{head}{body}\n".encode()


# WHATWG HTML, section 9.2.
SSE: Final = Framing(
    media="text/event-stream", reader=SseReader, encode=sse_bytes, alive=b": a call is being decided\n\n"
)


# Amazon's event streams (`application/vnd.amazon.eventstream`), incrementally and in bounded memory.
#
# A message is its length, the length of its headers, a CRC of both, headers, payload, and a CRC of all (Amazon Event
# Stream Specification). Headers are text; of them the name of the event is kept.

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
