"""A scripted model provider on loopback: the wire protocols of OpenAI and Anthropic, without a model.

It answers `POST /v1/chat/completions`, `/v1/responses` and `/v1/messages`, whole or streamed, with
the next turn of its script, and records what it was asked. It stands for a provider wherever calls
have to be real and words do not: in the demonstration, in examples and in tests.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from aegis.cli.demo.wire import EVENTS, Event, Turn, answer

FORMATS: Final = {"/chat/completions": "chat", "/responses": "responses", "/messages": "anthropic"}
LAST: Final = Turn(text="done")


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One request as the provider received it."""

    format: str
    body: dict[str, Any]
    headers: dict[str, str]


@dataclass
class ScriptedProvider:
    """Serves a script of turns, one a request, until it is closed; after the last it says `done`.

    Use it as a context manager. `url` is the base URL for the OpenAI SDK, `anthropic_url` for
    Anthropic's.
    """

    script: Iterable[Turn]
    asked: list[Asked] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._turns = deque(self.script)
        self._lock = threading.Lock()
        self._count = 0
        self._server = _Server(("127.0.0.1", 0), _handler(self.next_answer))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def anthropic_url(self) -> str:
        """The base URL without a version, as the Anthropic SDK takes it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The base URL with a version, as the OpenAI SDK takes it."""
        return f"{self.anthropic_url}/v1"

    def next_answer(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> dict[str, Any] | Iterator[Event]:
        """The next turn in the format of `path`: an object, or events where a stream was asked for."""
        format_ = next(name for end, name in FORMATS.items() if path.partition("?")[0].endswith(end))
        with self._lock:
            self.asked.append(Asked(format=format_, body=body, headers=headers))
            turn = self._turns.popleft() if self._turns else LAST
            self._count += 1
            number = self._count
        whole = answer(format_, turn, number, str(body.get("model", "scripted")))
        return EVENTS[format_](turn, whole) if body.get("stream") else whole


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news; anything else is told."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


_Answer = Callable[[str, dict[str, str], dict[str, Any]], "dict[str, Any] | Iterator[Event]"]


def _handler(respond: _Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", "0"))))
            headers = {name.lower(): value for name, value in self.headers.items()}
            try:
                found = respond(self.path, headers, body)
            except StopIteration:
                self._whole(404, {"error": {"message": "unknown path"}})
                return
            if isinstance(found, dict):
                self._whole(200, found)
            else:
                self._stream(found)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing: requests are recorded, and a server in a test has no console."""

        def _whole(self, status: int, found: dict[str, Any]) -> None:
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, events: Iterator[Event]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            try:
                for name, data in events:
                    head = f"event: {name}\n" if name else ""
                    chunk = f"{head}data: {data}\n\n".encode()
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the reader has seen enough

    return Handler
