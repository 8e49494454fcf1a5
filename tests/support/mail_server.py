"""Mail servers on this machine: a real one, and one that answers as a test wants."""

from __future__ import annotations

import asyncio
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


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


@dataclass(kw_only=True)
class MailBox:
    """What a real server took: who it is from, whom it is for, and the message."""

    port: int = 0
    taken: list[Envelope] = field(default_factory=list)
    signed_in: list[bytes] = field(default_factory=list)

    async def handle_DATA(self, _: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - its name there
        self.taken.append(envelope)
        return "250 taken"


@contextmanager
def real_mail_server(
    context: ssl.SSLContext | None = None, *, password: str = "", auth: tuple[str, ...] = ("PLAIN", "LOGIN")
) -> Iterator[MailBox]:
    """`aiosmtpd` on a free port of 127.0.0.1; with a password it asks everybody to sign in with it."""
    box, loop = MailBox(), asyncio.new_event_loop()
    others = [one for one in ("PLAIN", "LOGIN") if one not in auth]

    def signs_in(_: SMTP, __: Session, ___: Envelope, ____: str, given: object) -> AuthResult:
        assert isinstance(given, LoginPassword)
        box.signed_in.append(given.login)
        return AuthResult(success=given.password == password.encode(), handled=False)

    def talk() -> SMTP:
        return SMTP(
            box,
            authenticator=signs_in,
            auth_required=bool(password),
            auth_require_tls=False,  # it takes TLS from the first byte for none
            auth_exclude_mechanism=others,
            loop=loop,
        )

    server = loop.run_until_complete(loop.create_server(talk, "127.0.0.1", 0, ssl=context))
    box.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield box
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        talks = asyncio.all_tasks(loop)
        for one in talks:
            one.cancel()
        if talks:
            loop.run_until_complete(asyncio.wait(talks))
        loop.close()
