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


def event_text(frame: bytes) -> bytes:
    """What one server-sent event says: its data, and of JSON data every string value in order."""
    lines = [line[5:].lstrip(b" ") for line in frame.splitlines() if line.startswith(b"data:")]
    return json_text(b"\n".join(lines))


def json_text(data: bytes) -> bytes:
    """Every string value of JSON, joined without anything between; other data as it is."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return data
    return "".join(_strings(value)).encode()


def _strings(root: Any) -> list[str]:
    out: list[str] = []
    stack = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            out.append(value)
        elif isinstance(value, dict):
            stack.extend(reversed(value.values()))
        elif isinstance(value, list):
            stack.extend(reversed(value))
    return out
