"""A mail server on this machine: keeps what it was handed, and answers as a test wants."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class MailHost:
    """What came in. `answers` overrides the answer to a command by its first word (`.` is the end of the data)."""

    port: int = 0
    answers: dict[str, bytes] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    mails: list[bytes] = field(default_factory=list)

    def answer(self, word: str, usual: bytes) -> bytes:
        return self.answers.get(word, usual)


@contextmanager
def mail_host(context: ssl.SSLContext | None = None, **answers: bytes) -> Iterator[MailHost]:
    """A running server on a free port of 127.0.0.1, with TLS from the first byte where a context is given."""
    host = MailHost(answers=dict(answers))

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                if context is not None:
                    self.request = context.wrap_socket(self.request, server_side=True)
                    self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb", 0)
                self._talk()
            except OSError:  # a client that ends the connection is what some tests are about
                return

        def _talk(self) -> None:
            self.wfile.write(host.answer("hello", b"220 here\r\n"))
            while line := self.rfile.readline(2_000):
                text = line.decode().rstrip("\r\n")
                host.said.append(text)
                word = text.partition(" ")[0].upper()
                usual = {"EHLO": b"250-here\r\n250 AUTH PLAIN\r\n", "AUTH": b"235 in\r\n", "DATA": b"354 go\r\n"}
                if word == "QUIT":
                    return
                answer = host.answer(word, usual.get(word, b"250 fine\r\n"))
                self.wfile.write(answer)
                if word == "DATA" and answer.startswith(b"354"):
                    lines = []
                    while (part := self.rfile.readline(2_000)) not in (b".\r\n", b""):
                        lines.append(part)
                    host.mails.append(b"".join(lines))
                    self.wfile.write(host.answer(".", b"250 taken\r\n"))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        host.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield host
        server.shutdown()
        thread.join()
