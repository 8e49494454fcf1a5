"""A receiver of webhooks on this machine: keeps what it was sent, and answers as a test wants."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, kw_only=True)
class Got:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """What came in; `statuses` are answered in order, the last one for ever."""

    port: int
    statuses: list[int] = field(default_factory=lambda: [200])
    got: list[Got] = field(default_factory=list)

    def wait(self, count: int, seconds: float = 60) -> list[Got]:
        """What came in, once it is at least `count` requests; fails where they do not come."""
        until(lambda: len(self.got) >= count, seconds)
        return self.got


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Return once `condition` holds; fails where it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@contextmanager
def receiving(*statuses: int, location: str = "") -> Iterator[Receiver]:
    """A receiver on a free port of 127.0.0.1."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.got.append(Got(path=self.path, headers=headers, body=body))
            status = receiver.statuses[min(len(receiver.got), len(receiver.statuses)) - 1]
            self.send_response(status)
            if location:
                self.send_header("location", location)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing: a test prints for itself."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(port=server.server_address[1], statuses=list(statuses) or [200])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
