"""Streamed results over connections of their own: threads go to and fro, event loops send and hear at once.

What the source of the chunks raises is raised as it is; what goes wrong on the wire cuts the stream.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote

from aegis.core.canonical import canonical
from aegis.core.decision import ResultDecision
from aegis.core.json import parse
from aegis.core.outcome import Reason
from aegis.core.pumping import pumped
from aegis.errors import InvalidCall, StreamCut
from aegis.sdk.client import wire
from aegis.sdk.client.http1 import HttpAnswer, WireError, request_head
from aegis.sdk.client.transport import AsyncTransport, SyncTransport, TransportError

# A streamed result at the gateway, without any I/O of its own: lines out, verdicts in, released bytes back.
#
# The gateway says how many bytes, from the first on, may be passed on; nothing else of the stream leaves here, and
# what ends in any other way than with a recorded permission is cut.

MAX_PIECE: Final = 524_288  # bytes that one line carries: the gateway takes lines of a mebibyte
MAX_AHEAD: Final = 1_048_576  # bytes sent and not yet answered: bounds what is kept here
_MEDIA: Final = "application/x-ndjson"


class StreamTalk:
    """One streamed result. Send `head()`, then what `pieces` and `end` give; hand what comes back to `feed`."""

    def __init__(self, decision_id: str, framing: str, *, host: str, headers: Mapping[str, str]):
        self._target = f"/v1/results/{quote(decision_id, safe='')}/stream?framing={quote(framing, safe='')}"
        self._host = host
        self._headers = {**headers, "content-type": _MEDIA, "transfer-encoding": "chunked"}
        self._answer = HttpAnswer()
        self._kept = bytearray()
        self._released = 0
        self._answered = 0
        self._sent = 0
        self.decision: ResultDecision | None = None

    @property
    def behind(self) -> int:
        """How many bytes were sent of which nothing was heard yet."""
        return self._sent - self._answered

    @property
    def holds(self) -> bool:
        """Whether the gateway holds back something that it may release in a silence."""
        return bool(self._kept)

    def head(self) -> bytes:
        """The head of the request."""
        return request_head("POST", self._target, self._host, self._headers)

    def pieces(self, chunk: bytes | str) -> Iterator[bytes]:
        """What to send for one chunk, each taken when it is sent; after each of them the gateway answers."""
        data = chunk.encode() if isinstance(chunk, str) else chunk
        for start in range(0, len(data), MAX_PIECE):
            part = data[start : start + MAX_PIECE]
            self._kept += part
            self._sent += len(part)
            yield _framed({"base64": base64.b64encode(part).decode("ascii")})

    def end(self, provenance: str | None) -> bytes:
        """What to send at the end, with the tool's signature over the whole where there is one."""
        return (b"" if provenance is None else _framed({"provenance": provenance})) + b"0\r\n\r\n"

    def feed(self, received: bytes) -> bytes:
        """The bytes that may be passed on now; `decision` is set with the last verdict.

        Raises `InvalidCall` where the gateway refuses the stream, and `WireError` for what is no verdict.
        """
        self._answer.feed(received)
        status = self._answer.status
        if status != 200:
            if self._answer.done and 400 <= status < 500 and status != 429:
                raise wire.read_error(self._answer.body, status)
            if self._answer.done:
                raise WireError("the gateway does not judge the stream")
            return b""
        passed = bytearray()
        body = self._answer.body
        while self.decision is None and (end := body.find(b"\n")) >= 0:
            line = bytes(body[:end])
            del body[: end + 1]
            passed += self._verdict(line)
        if self._answer.done and self.decision is None:
            raise WireError("the verdicts ended before the stream")
        return bytes(passed)

    def check(self) -> None:
        """Guarantee that the whole stream may be used; raises `StreamCut` otherwise."""
        if self.decision is None or not self.decision.allowed:
            raise StreamCut(self.decision or wire.withheld(Reason.UNAVAILABLE))

    def _verdict(self, line: bytes) -> bytes:
        try:
            value = parse(line)
            counts = (value["bytes"], value["released"])
            final = value["final"]
            if final is True:
                self.decision = wire.read_result(line)
        except (InvalidCall, KeyError, TypeError, wire.BadAnswer) as error:
            raise WireError("a verdict is malformed") from error
        taken, released = counts
        if any(type(count) is not int for count in counts) or type(final) is not bool:
            raise WireError("a verdict is malformed")
        if not self._released <= released <= taken <= self._sent:
            raise WireError("a verdict releases what was not sent")
        self._answered = taken
        passed = bytes(self._kept[: released - self._released])
        del self._kept[: len(passed)]
        self._released = released
        return passed


def _framed(value: dict[str, Any]) -> bytes:
    """One line as a chunk of the body (RFC 9112, 7.1)."""
    line = canonical(value) + b"\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


_READ: Final = 65_536
_LISTEN_S: Final = 0.01  # how often a gateway that holds something back is listened to while the source is silent
Provenance = Callable[[], str | None]


def stream(
    transport: SyncTransport,
    talk: StreamTalk,
    chunks: Iterable[bytes | str],
    seconds: float,
    provenance: Provenance | None,
) -> Generator[bytes]:
    """What of `chunks` may be used; each is answered before the next one is sent.

    The source of the chunks runs in a thread of its own: while it is silent the gateway is listened to.
    """
    try:
        with (
            closing(transport.connect(seconds)) as sock,
            closing(pumped(chunks, lambda: _LISTEN_S if talk.holds else None)) as pumping,
        ):
            sock.settimeout(seconds)
            _send(sock, talk.head())
            for chunk in pumping:
                if chunk is None:
                    if (heard := _heard(sock, seconds)) is not None and (passed := talk.feed(heard)):
                        yield passed
                    if talk.decision is not None:
                        break
                    continue
                for piece in talk.pieces(chunk):
                    _send(sock, piece)
                    while talk.behind and talk.decision is None:
                        if passed := talk.feed(_receive(sock)):
                            yield passed
                if talk.decision is not None:
                    break
            else:
                _send(sock, talk.end(None if provenance is None else provenance()))
            while talk.decision is None:
                if passed := talk.feed(_receive(sock)):
                    yield passed
    except (TransportError, WireError) as error:
        raise StreamCut(wire.withheld(Reason.UNAVAILABLE)) from error
    talk.check()


async def astream(
    transport: AsyncTransport,
    talk: StreamTalk,
    chunks: AsyncIterable[bytes | str],
    seconds: float,
    provenance: Provenance | None,
) -> AsyncGenerator[bytes]:
    """What of `chunks` may be used; verdicts are heard while the next chunk is waited for."""
    try:
        async with _Exchange(transport, talk, seconds) as exchange:
            exchange.begin(chunks, provenance)
            while talk.decision is None:
                if passed := await exchange.hear():
                    yield passed
    except (TransportError, WireError) as error:
        raise StreamCut(wire.withheld(Reason.UNAVAILABLE)) from error
    talk.check()


class _Exchange:
    """One connection on which a stream is sent while its verdicts are read."""

    def __init__(self, transport: AsyncTransport, talk: StreamTalk, seconds: float):
        self._transport = transport
        self._talk = talk
        self._seconds = seconds
        self._heard = asyncio.Event()
        self._tasks: set[asyncio.Future[Any]] = set()

    async def __aenter__(self) -> _Exchange:
        try:
            async with asyncio.timeout(self._seconds):
                self._reader, self._writer = await self._transport.connect()
        except OSError as error:
            raise TransportError("the gateway cannot be reached") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writer.close()

    def begin(self, chunks: AsyncIterable[bytes | str], provenance: Provenance | None) -> None:
        """Send, from now on, beside whatever is heard."""
        self._sending = asyncio.ensure_future(self._send(chunks, provenance))
        self._reading = asyncio.ensure_future(self._reader.read(_READ))
        self._tasks = {self._sending, self._reading}

    async def hear(self) -> bytes:
        """The bytes that the next words of the gateway release, if any."""
        sending = self._sending
        # A silent source is waited for; a gateway that owes an answer is not waited for for ever.
        owed = self._seconds if sending.done() or self._talk.behind else None
        waiting: set[asyncio.Future[Any]] = {self._reading} if sending.done() else {self._reading, sending}
        done, _ = await asyncio.wait(waiting, timeout=owed, return_when=asyncio.FIRST_COMPLETED)
        if not done and (sending.done() or self._talk.behind):
            raise TransportError("the gateway did not answer in time")
        passed = b""
        if self._reading.done():
            try:
                received = self._reading.result()
            except OSError as error:
                raise TransportError("the gateway went away") from error
            passed = self._talk.feed(received)
            self._heard.set()
            self._reading = asyncio.ensure_future(self._reader.read(_READ))
            self._tasks = {sending, self._reading}
        if sending.done() and self._talk.decision is None:
            sending.result()
        return passed

    async def _send(self, chunks: AsyncIterable[bytes | str], provenance: Provenance | None) -> None:
        await self._write(self._talk.head())
        async for chunk in chunks:
            for piece in self._talk.pieces(chunk):
                await self._write(piece)
                while self._talk.behind > MAX_AHEAD:
                    self._heard.clear()
                    await self._heard.wait()
        await self._write(self._talk.end(None if provenance is None else provenance()))

    async def _write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise TransportError("the gateway went away") from error


def _send(sock: socket.socket, data: bytes) -> None:
    try:
        sock.sendall(data)
    except OSError as error:
        raise TransportError("the gateway went away") from error


def _heard(sock: socket.socket, seconds: float) -> bytes | None:
    """What the gateway has said by now, if anything; the socket waits for `seconds` again afterwards."""
    sock.settimeout(0.0)
    try:
        return sock.recv(_READ)
    except (BlockingIOError, ssl.SSLWantReadError):
        return None
    except OSError as error:
        raise TransportError("the gateway went away") from error
    finally:
        sock.settimeout(seconds)


def _receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(_READ)
    except OSError as error:
        raise TransportError("the gateway went away") from error
