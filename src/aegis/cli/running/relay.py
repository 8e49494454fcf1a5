"""A TCP port on the loopback that leads to a Unix socket, for programs that know no other way to a gateway.

This module loads nothing beside the standard library: it runs inside the sandbox of `aegis run --strict-network` too.
"""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import suppress
from typing import Final

CHUNK: Final = 65_536
# How a request begins that wants to be passed on to another host (RFC 9110, section 7.1 and 9.3.6).
_FOR_OTHERS: Final = (b"CONNECT ", b"GET http:", b"POST http:", b"PUT http:", b"HEAD http:", b"DELETE http:")
_WORDS: Final = b"aegis run --strict-network: nothing but the gateway can be reached from here\n"
REFUSAL: Final = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_WORDS), _WORDS)
)


class Relay:
    """Passes connections on until it is closed; what asks for another host is refused."""

    def __init__(self, target: str, *, port: int = 0):
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", port))

    @property
    def port(self) -> int:
        """The port that it listens on."""
        number: int = self._listener.getsockname()[1]
        return number

    def start(self) -> None:
        """Begin to pass connections on, in threads that end with the process.

        They take no signal: the first process of a sandbox would lose one that came to them before it has handlers.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            threading.Thread(target=self._accept, daemon=True).start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def close(self) -> None:
        """Take no further connection."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        gateway = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with client, gateway, suppress(OSError):
            first = client.recv(CHUNK)
            if first.startswith(_FOR_OTHERS):
                client.sendall(REFUSAL)
                return
            gateway.connect(self._target)
            gateway.sendall(first)
            back = threading.Thread(target=_copy, args=(gateway, client), daemon=True)
            back.start()
            _copy(client, gateway)
            back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Pass bytes on until the source ends, and say so to the sink."""
    with suppress(OSError):
        while chunk := source.recv(CHUNK):
            sink.sendall(chunk)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
