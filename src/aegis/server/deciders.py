"""The front and the processes that decide beside it: what is in force, what was counted, and what only the front does.

Over one Unix socket of the home the front tells each decider the configuration in force and waits until it is taken;
a decider that does not take it in time is ended, so that nobody decides under one that was replaced. A decider whose
front is gone decides nothing until there is one again. Lines of JSON, each way.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httptools
import orjson
from starlette.types import Receive, Scope, Send

from aegis.config.reload import PolicyHolder
from aegis.errors import InvalidCall
from aegis.server.http import request_id_of, send_error
from aegis.server.telemetry import Metrics

TAKEN_S: Final = 20.0  # how long a decider may take to compile a configuration
COUNTED_S: Final = 1.0  # how long counters of a decider are waited for
MAX_LINE: Final = 16_777_216  # a configuration with its names of protected files
DOOR_HEADER: Final = b"x-aegis-door"  # the scheme under which the decider was asked; believed of the inner socket alone
_CHUNK: Final = 65_536
_HOPS: Final = frozenset(  # RFC 9110, 7.6.1: what is between two programs and not for the one behind
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect")
)
_log = logging.getLogger("aegis.server")


class _Link:
    """The front's end of one decider's line."""

    def __init__(self, pid: int, writer: asyncio.StreamWriter):
        self.pid = pid
        self.counted: dict[str, Any] = {}  # what it counted when it was last asked
        self._writer = writer
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()

    async def ask(self, what: str, value: object, seconds: float) -> Any:
        """The decider's answer; raises `TimeoutError` or `ConnectionError`."""
        number = next(self._numbers)
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[number] = answered
        try:
            self._writer.write(orjson.dumps({"id": number, "do": what, "value": value}) + b"\n")
            return await asyncio.wait_for(answered, seconds)
        finally:
            del self._open[number]

    def heard(self, line: bytes) -> None:
        """Take one answer."""
        said = orjson.loads(line)
        waiting = self._open.get(said["id"])
        if waiting is not None and not waiting.done():
            waiting.set_result(said["value"])

    def lost(self) -> None:
        """Let nobody wait for one that is gone."""
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_exception(ConnectionResetError("the process is gone"))


class Deciders:
    """Those that decide beside this front."""

    def __init__(self, policy: PolicyHolder, metrics: Metrics):
        self._policy = policy
        self._links: set[_Link] = set()
        self._ended = Metrics(is_own=False)  # of processes that are gone: a counter does not fall
        self._own = metrics
        self._loop: asyncio.AbstractEventLoop | None = None
        policy.tell = self._tell

    def __len__(self) -> int:
        return len(self._links)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one decider until it is gone; what changes from here on is told to it as well."""
        self._loop = asyncio.get_running_loop()
        link: _Link | None = None
        try:
            hello = orjson.loads(await reader.readline())
            link = _Link(int(hello["pid"]), writer)
            self._links.add(link)
            first = asyncio.ensure_future(self._put(link, *self._policy.in_force))
            while line := await reader.readline():
                link.heard(line)
            await first
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("a process that decides was not understood", extra={"error": type(error).__name__})
        finally:
            if link is not None:
                self._links.discard(link)
                link.lost()
                if link.counted:
                    self._ended.add(link.counted)
            writer.close()

    async def counted(self) -> Metrics:
        """The counters of every process, as one."""
        await asyncio.gather(*map(self._count, tuple(self._links)))
        found = Metrics(is_own=False)
        for counted in (self._own.counted(), self._ended.counted(), *(link.counted for link in self._links)):
            if counted:
                found.add(counted)
        return found

    async def _count(self, link: _Link) -> None:
        with contextlib.suppress(TimeoutError, ConnectionError):
            link.counted = await link.ask("count", None, COUNTED_S)

    async def _put(self, link: _Link, text: str | None, protected: tuple[Path, ...]) -> None:
        try:
            taken = await link.ask("policy", {"text": text, "protected": [str(path) for path in protected]}, TAKEN_S)
        except ConnectionError:  # it is gone, and the one after it is told when it comes
            return
        except TimeoutError:
            taken = False
        if not taken:
            _log.error("a process did not take the configuration and is ended", extra={"pid": link.pid})
            with contextlib.suppress(ProcessLookupError):
                os.kill(link.pid, signal.SIGKILL)

    async def _put_all(self, text: str | None, protected: tuple[Path, ...]) -> None:
        await asyncio.gather(*(self._put(link, text, protected) for link in tuple(self._links)))

    def _tell(self, text: str | None, protected: tuple[Path, ...]) -> None:
        """Return once every decider has taken it or is gone; from any thread but the loop's."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._put_all(text, protected), loop).result()


class FrontLine:
    """A decider's end of the line: it takes what is in force, and knows whether there is a front."""

    def __init__(self, path: Path):
        self._path = path
        self.attached = asyncio.Event()

    def wait(self) -> tuple[socket.socket, str | None, tuple[Path, ...], int]:
        """Wait for the front: the line, the configuration in force, what is protected, the number of the message."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.connect(str(self._path))
        line.sendall(_hello())
        data = bytearray()
        while not data.endswith(b"\n"):
            more = line.recv(_CHUNK)
            if not more:
                raise ConnectionResetError("the front is gone")
            data += more
        said = orjson.loads(data)
        return line, said["value"]["text"], tuple(map(Path, said["value"]["protected"])), said["id"]

    async def follow(self, first: tuple[socket.socket, int], take: Callable[[str, Any], Any]) -> None:
        """Do what the front says, for as long as this process lives; `take` is called in a thread."""
        line: socket.socket | None = first[0]
        number: int | None = first[1]
        while True:
            writer: asyncio.StreamWriter | None = None
            try:
                if line is None:
                    reader, writer = await asyncio.open_unix_connection(str(self._path), limit=MAX_LINE)
                    writer.write(_hello())
                else:
                    line.setblocking(False)
                    reader, writer = await asyncio.open_unix_connection(sock=line, limit=MAX_LINE)
                if number is not None:  # what it started with is in force here
                    self._answer(writer, number, True)
                    self.attached.set()
                while text := await reader.readline():
                    said = orjson.loads(text)
                    value = await asyncio.to_thread(take, said["do"], said["value"])
                    self._answer(writer, said["id"], value)
                    self.attached.set()
            except (OSError, ValueError):
                _log.debug("the front is gone")
            finally:
                self.attached.clear()
                line = number = None
                if writer is not None:
                    writer.close()
            await asyncio.sleep(0.02)

    @staticmethod
    def _answer(writer: asyncio.StreamWriter, number: int, value: object) -> None:
        writer.write(orjson.dumps({"id": number, "value": value}) + b"\n")


def _hello() -> bytes:
    return orjson.dumps({"pid": os.getpid()}) + b"\n"


class Forward:
    """Has the front answer a request: an ASGI application."""

    def __init__(self, path: Path):
        self._path = str(path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer()
        writer: asyncio.StreamWriter | None = None
        sending: asyncio.Task[None] | None = None
        try:
            reader, writer = await asyncio.open_unix_connection(self._path)
            writer.write(_head(scope))
            sending = asyncio.ensure_future(_send_body(scope, receive, writer))
            while True:
                reading = asyncio.ensure_future(reader.read(_CHUNK))
                await asyncio.wait({reading, sending}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():  # the client is gone
                    reading.cancel()
                    return
                data = await reading
                for message in answer.read(data):
                    await send(message)
                if answer.is_complete or not data:
                    break
        except (OSError, httptools.HttpParserError) as error:
            _log.warning("the front did not answer", extra={"error": type(error).__name__})
        finally:
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            if writer is not None:
                writer.close()
        if answer.is_complete:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif not answer.has_begun:
            gone = InvalidCall("the gateway starts again", code="unavailable", hint="try again", status=503)
            await send_error(send, gone, request_id_of(None))
        else:  # what began is never taken for whole
            raise ConnectionResetError("the front went away in the middle of an answer")


class _Answer:
    """The front's answer as it arrives, as ASGI messages; `httptools` calls its `on_` methods."""

    def __init__(self) -> None:
        self.has_begun = self.is_complete = False
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._messages: list[dict[str, Any]] = []

    def read(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that `data` completes; no data is the end of the connection."""
        if data:
            self._parser.feed_data(data)
        elif self.has_begun and not any(name == b"content-length" for name, _ in self._headers):
            self.is_complete = True
        messages, self._messages = self._messages, []
        return messages

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in _HOPS and name.lower() != b"date":  # this server writes its own
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.has_begun = True
        status = self._parser.get_status_code()
        self._messages.append({"type": "http.response.start", "status": status, "headers": self._headers})

    def on_body(self, body: bytes) -> None:
        self._messages.append({"type": "http.response.body", "body": body, "more_body": True})

    def on_message_complete(self) -> None:
        self.is_complete = True


def _head(scope: Scope) -> bytes:
    target: bytes = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    lines = [b"%s %s HTTP/1.1" % (scope["method"].encode("ascii"), target)]
    names = set()
    for name, value in scope["headers"]:
        names.add(name)
        if name not in _HOPS and name != DOOR_HEADER:
            lines.append(b"%s: %s" % (name, value))
    if b"host" not in names:  # HTTP/1.0
        lines.append(b"host: gateway")
    if b"transfer-encoding" in names:
        lines.append(b"transfer-encoding: chunked")
    lines += [b"%s: %s" % (DOOR_HEADER, scope["scheme"].encode("ascii")), b"connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _send_body(scope: Scope, receive: Receive, writer: asyncio.StreamWriter) -> None:
    """Pass the body on as it arrives; returns when the client is gone."""
    is_chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
    ends = False
    while (message := await receive())["type"] == "http.request":
        body = message.get("body", b"")
        if body:
            writer.write(b"%x\r\n%s\r\n" % (len(body), body) if is_chunked else body)
        if not message.get("more_body", False) and not ends:
            ends = True
            if is_chunked:
                writer.write(b"0\r\n\r\n")
        await writer.drain()
