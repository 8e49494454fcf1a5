"""Server-sent events (WHATWG HTML, section 9.2), incrementally and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from aegis.errors import ForeignAnswer
from aegis.wire.model import WireEvent

MAX_EVENT_BYTES: Final = 33_554_432  # an event that never ends would fill the memory


class EventReader(Protocol):
    """Bytes in, events out; raises `ForeignAnswer` for what is none."""

    @property
    def at_rest(self) -> bool: ...

    def feed(self, chunk: bytes) -> list[WireEvent]: ...

    def end(self) -> list[WireEvent]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Framing:
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


SSE: Final = Framing(
    media="text/event-stream", reader=SseReader, encode=sse_bytes, alive=b": a call is being decided\n\n"
)
