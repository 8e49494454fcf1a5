"""Streamed results over connections of their own: threads go to and fro, event loops send and hear at once.

What the source of the chunks raises is raised as it is; what goes wrong on the wire cuts the stream.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable
from contextlib import closing
from typing import Any, Final

from aegis.client import wire
from aegis.client.async_transport import AsyncTransport
from aegis.client.http1 import WireError
from aegis.client.streams import MAX_AHEAD, StreamTalk
from aegis.client.sync_transport import SyncTransport, TransportError
from aegis.core.outcome import Reason
from aegis.core.pumping import pumped
from aegis.errors import StreamCut

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
