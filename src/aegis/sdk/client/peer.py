"""Who holds the other end of a Unix socket. Loads nothing beside: a hook asks this at every call of a tool."""

from __future__ import annotations

import socket
import struct
import sys
from typing import Final, Protocol

_XUCRED: Final = "=IIh2x16I"  # struct xucred of macOS, <sys/ucred.h>
_LOCAL_PEERCRED: Final = 1


class PeerSocket(Protocol):
    """A connected socket, as far as its peer is asked for: `socket.socket` and asyncio's wrapper of one."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...


def peer_uid(connected: PeerSocket) -> int:
    """The user on the other end of a connected Unix socket, as the kernel knows it (unix(7), SO_PEERCRED)."""
    if sys.platform == "darwin":
        raw = connected.getsockopt(0, _LOCAL_PEERCRED, struct.calcsize(_XUCRED))
        return int(struct.unpack(_XUCRED, raw)[1])
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", raw)[1])
