"""How a hook and the gateway of its home speak over a Unix socket of their own, `hook.sock` in the home.

(1) the hook says which configuration it was to decide by, and as which agent; (2) the gateway says whether it is the
one; (3) the hook hands over the host's event; (4) the gateway says how the hook's process is to end, and with which
words. Every message is its length and JSON, the event is as the host wrote it. The kernel says who is on the other end.

This module loads nothing beside the standard library: a hook loads it at every call of a tool.
"""

from __future__ import annotations

import json
from typing import Any, Final

SOCKET: Final = "hook.sock"
LENGTH: Final = 8  # bytes, big-endian
MAX_EVENT: Final = 33_554_432  # a result can hold a file; bounds what a host can make us read
MAX_HELLO: Final = 65_536
MAX_ANSWER: Final = 67_108_864  # a result that is given back changed, escaped


def framed(data: bytes) -> bytes:
    """`data` as one message."""
    return len(data).to_bytes(LENGTH, "big") + data


def message(value: dict[str, Any]) -> bytes:
    """`value` as one message."""
    return framed(json.dumps(value).encode())


def read_object(data: bytes) -> dict[str, Any]:
    """The object of one message; raises `ValueError` or `TypeError` for anything else."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError("a message is not an object")
    return value
