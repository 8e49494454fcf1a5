"""The result descriptor: what one process says, told apart from what its children say by the kernel's word.

The descriptor is one end of a socket pair. The kernel attaches the sender's process id to every
message (`SCM_CREDENTIALS`, unix(7)), so a child that got hold of the descriptor cannot speak for its
parent: what it writes is not taken, and is reported.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

MAX_MESSAGE: Final = 1_048_576  # bytes of one result: bounds what a program can make us hold
_CREDENTIALS: Final = struct.Struct("3i")
_CHUNK: Final = 65_536


class Channel:
    """Our end, and the end that a program inherits; `speaker` is the process that may write, set once it is known."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.ours.setblocking(False)
        self.message = bytearray()
        self.forged = False
        self.speaker = 0

    def handed_over(self) -> None:
        """Close our copy of the program's end, so that its end is seen."""
        self.theirs.close()

    def read(self) -> bool:
        """Take what is there; false once nothing more can come."""
        try:
            data, extra, _, _ = self.ours.recvmsg(_CHUNK, socket.CMSG_SPACE(_CREDENTIALS.size))
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        sender = 0
        for level, kind, value in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                sender = _CREDENTIALS.unpack(value[: _CREDENTIALS.size])[0]
        if sender != self.speaker or sender == 0:
            self.forged = True
        elif len(self.message) <= MAX_MESSAGE:
            self.message += data
        return True

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()
