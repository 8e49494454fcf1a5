"""Streams of frames: server-sent events and MCP's lines of JSON, with the text that a reader sees of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

MAX_FRAME: Final = 1_048_576  # one frame that never ends is refused: bounds what is held


class FrameTooLarge(ValueError):
    """A frame grew beyond `MAX_FRAME` bytes."""


class Frames:
    """Divides bytes into frames that end with `ending`; what follows the last one waits for more."""

    def __init__(self, ending: bytes):
        self._ending = ending
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Every frame that is complete now, its ending included."""
        self._rest += data.replace(b"\r\n", b"\n")
        while True:
            frame, found, rest = self._rest.partition(self._ending)
            if not found:
                break
            self._rest = rest
            yield frame + found
        if len(self._rest) > MAX_FRAME:
            raise FrameTooLarge("a frame of the stream is too large")

    def rest(self) -> bytes:
        """What came after the last frame."""
        rest, self._rest = self._rest, b""
        return rest


def event_texts(frame: bytes) -> dict[str, bytes]:
    """What one server-sent event says: its data, and of JSON data every string by its place."""
    lines = [line[5:].removeprefix(b" ") for line in frame.splitlines() if line.startswith(b"data:")]
    return json_texts(b"\n".join(lines))


def json_texts(data: bytes) -> dict[str, bytes]:
    """Every string of JSON by its place, where items of a list share one; other data as it is.

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
            stack.extend([(f"{place}/{key}", inner) for key, inner in reversed(value.items())])
        elif isinstance(value, list):
            stack.extend([(place, inner) for inner in reversed(value)])
    return {place: "".join(parts).encode() for place, parts in found.items()}
