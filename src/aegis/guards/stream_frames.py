"""Streams of frames: server-sent events and MCP's lines of JSON, with the text that a reader sees of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

MAX_FRAME: Final = 1_048_576  # one frame that never ends is refused: bounds what is held
# An event ends with an empty line; lines end with LF, CR LF or CR (HTML, 9.2.5).
EVENT_ENDS: Final = (b"\n\n", b"\n\r\n", b"\r\r")
LINE_ENDS: Final = (b"\n",)
_DATA: Final = b"data"


class FrameTooLarge(ValueError):
    """A frame grew beyond `MAX_FRAME` bytes."""


class Frames:
    """Divides bytes into frames, byte for byte; what follows the last ending waits for more."""

    def __init__(self, endings: tuple[bytes, ...]):
        self._endings = endings
        self._overlap = max(len(one) for one in endings) - 1
        self._rest = bytearray()
        self._seen = 0  # bytes of the rest in which no ending begins

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Every frame that is complete now, its ending included."""
        self._rest += data
        while True:
            ends = [at + len(one) for one in self._endings if (at := self._rest.find(one, self._seen)) >= 0]
            if not ends:
                break
            end = min(ends)
            frame = bytes(self._rest[:end])
            del self._rest[:end]
            self._seen = 0
            yield frame
        self._seen = max(0, len(self._rest) - self._overlap)
        if len(self._rest) > MAX_FRAME:
            raise FrameTooLarge("a frame of the stream is too large")

    def rest(self) -> bytes:
        """What came after the last frame."""
        rest, self._rest, self._seen = bytes(self._rest), bytearray(), 0
        return rest


def event_texts(frame: bytes) -> dict[str, bytes]:
    """What one server-sent event says: its data, of JSON data every text by its place, and its other lines."""
    data: list[bytes] = []
    others: list[bytes] = []
    for line in frame.splitlines():
        name, _, value = line.partition(b":")
        (data if name == _DATA else others).append(value.removeprefix(b" ") if name == _DATA else line)
    texts = json_texts(b"\n".join(data))
    said = b"\n".join(one for one in others if one)
    return {**texts, ":": said} if said else texts


def json_texts(data: bytes) -> dict[str, bytes]:
    """Every string, number and name of JSON by its place, where items of a list share one; other data as it is.

    What a place says in one frame goes on in the next: an envelope around it divides nothing.
    """
    try:
        root = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {"": data}
    found: dict[str, list[str]] = {}
    stack: list[tuple[str, Any]] = [("", root)]
    while stack:
        place, value = stack.pop()
        if isinstance(value, str):
            found.setdefault(place, []).append(value)
        elif isinstance(value, dict):
            found.setdefault(f"{place}/", []).extend([f" {key} " for key in value])
            stack.extend([(f"{place}/{key}", inner) for key, inner in reversed(value.items())])
        elif isinstance(value, list):
            stack.extend([(place, inner) for inner in reversed(value)])
        elif value is not None and not isinstance(value, bool):
            found.setdefault(place, []).append(f" {value} ")
    return {place: "".join(parts).encode() for place, parts in found.items()}
