"""A server that answers HTTP requests with exactly the bytes a test gives it, on TCP or a Unix socket."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request as it arrived; `connection` counts the connections of the server from 0."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


# The bytes to send, or `None` to close the connection without a word.
Handler = Callable[[Received], bytes | None]


@dataclass
class RawServer:
    """Serves until `close`; keeps what it received."""

    handler: Handler
    path: Path | None = None
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    _threads: list[threading.Thread] = field(default_factory=list)
    _open: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.path is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
        else:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(str(self.path))
            self._listener.listen()
        self._start(self._accept)

    @property
    def url(self) -> str:
        if self.path is not None:
            return f"unix://{self.path}"
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        for sock in [self._listener, *self._open]:
            # Closing alone does not wake a thread that waits on the socket.
            for step in (lambda s: s.shutdown(socket.SHUT_RDWR), socket.socket.close):
                try:
                    step(sock)
                except OSError:
                    continue
        for thread in self._threads:
            thread.join(5)

    def quiet(self) -> None:
        """Return once every connection that was begun has ended; the runner's own time-out is the only clock."""
        while len(self._threads) == 1:  # the one that accepts
            time.sleep(0.01)
        for thread in self._threads[1:]:
            thread.join()

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        self._threads.append(thread)  # whoever finds it here may join it

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connected)
            self.connections += 1
            self._start(self._serve, connected, self.connections - 1)

    def _serve(self, connected: socket.socket, number: int) -> None:
        with connected, connected.makefile("rb") as stream:
            try:
                while (request := _read(stream, number)) is not None:
                    self.received.append(request)
                    answer = self.handler(request)
                    if answer is None:
                        return
                    connected.sendall(answer)
                    if b"connection: close" in answer.partition(b"\r\n\r\n")[0].lower():
                        return
            except OSError:
                return


def _read(stream: Any, number: int) -> Received | None:
    first = stream.readline()
    if not first:
        return None
    method, target, _ = first.decode("latin-1").split(" ")
    headers: dict[str, str] = {}
    while line := stream.readline().decode("latin-1").rstrip("\r\n"):
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", "0")))
    return Received(method=method, target=target, headers=headers, body=body, connection=number)


@contextmanager
def serving(handler: Handler, path: Path | None = None) -> Iterator[RawServer]:
    """A running server for the block."""
    server = RawServer(handler, path)
    try:
        yield server
    finally:
        server.close()


def answer(status: int, body: Any, *headers: str) -> bytes:
    """An HTTP answer with a JSON body (bytes are sent as they are)."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Said", "content-type: application/json", f"content-length: {len(data)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + data
