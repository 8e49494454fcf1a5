"""HTTP/1.1 as uvicorn speaks it, with limits: connections, header size, and time for a request to arrive.

A client that sends its request byte by byte, or never, holds a connection for a bounded time alone.
"""

from __future__ import annotations

import asyncio
from asyncio.events import TimerHandle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from aegis.errors import InvalidCall
from aegis.server.body import is_too_long, too_large
from aegis.server.errors import error_body, error_headers
from aegis.server.request_id import request_id_of
from aegis.server.wire import SLOW_BODY, WHOLE_ANSWER

MAX_CONNECTIONS: Final = 1_024  # each one costs a descriptor and some memory
MAX_HEADER_BYTES: Final = 32_768  # request line and headers together
MAX_HEADERS: Final = 100
ARRIVAL_S: Final = 30.0  # from the first byte of a request to its last (slow loris, slow body)
SILENCE_S: Final = 300.0  # between two pieces of a body that is streamed
KEEP_ALIVE_S: Final = 75  # how long an idle connection is kept

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """What one listener grants. `peers` restricts who may connect over TCP; empty is everybody."""

    connections: int = MAX_CONNECTIONS
    header_bytes: int = MAX_HEADER_BYTES
    arrival_seconds: float = ARRIVAL_S
    peers: tuple[Network, ...] = ()


class LimitedProtocol(HttpToolsProtocol):
    """One connection under the limits of its listener."""

    limits = ConnectionLimits()

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._header_bytes = 0
        self._arriving = self._in_headers = self._begun_now = False
        self._arrival: TimerHandle | None = None
        self._streams = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        if self.limits.peers and isinstance(peer, tuple) and not _inside(peer[0], self.limits.peers):
            transport.abort()
            return
        if len(self.connections) > self.limits.connections:
            self._refuse(InvalidCall("too many connections", code="unavailable", hint="try again later", status=503))
            return
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._begun_now = False
        super().data_received(data)
        if not self._arriving:  # a request that came in one piece never needs a timer
            return
        if self._streams and not self.cycle.response_complete:
            self._request_arrived()
            self._arrival = self.loop.call_later(SILENCE_S, self._too_slow)
        elif self._arrival is None:
            self._expect_request()
        if self._in_headers:  # those that are complete were measured; these could go on for ever
            self._header_bytes = 0 if self._begun_now else self._header_bytes + len(data)
            if self._header_bytes > self.limits.header_bytes:
                self._refuse(_headers_too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._arriving = self._in_headers = self._begun_now = True
        self._streams = False

    def on_headers_complete(self) -> None:
        self._in_headers = False
        size = len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
        if size > self.limits.header_bytes or len(self.headers) > MAX_HEADERS:
            self._refuse(_headers_too_large())
            raise _Refused
        # A client that waits for leave to send a body gets none for one that is too large.
        if self.expect_100_continue and any(
            name == b"content-length" and is_too_long(value) for name, value in self.headers
        ):
            self._refuse(too_large())
            raise _Refused
        super().on_headers_complete()
        # Set by assignment: the type of ASGI scopes knows extensions that are dictionaries alone.
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope["extensions"] = {WHOLE_ANSWER: partial(self._answer_whole, self.cycle), SLOW_BODY: self._take_time}

    def on_message_complete(self) -> None:
        self._arriving = False
        self._request_arrived()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            self._refuse(InvalidCall("this is not HTTP/1.1 as the gateway speaks it", code="bad_request", status=400))

    async def _answer_whole(self, cycle: RequestResponseCycle, status: int, headers: bytes, body: bytes) -> None:
        """What two `send`s would do, as one write to the socket: the ASGI extension `WHOLE_ANSWER`."""
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.message_event.set()
        content = [STATUS_LINE[status]]
        for name, value in cycle.default_headers:
            content += (name, b": ", value, b"\r\n")
        content.append(headers)
        content.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
        content.append(body)
        cycle.transport.write(b"".join(content))
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()

    def _take_time(self) -> None:
        """The body of this request is a stream: it ends when it ends (the ASGI extension `SLOW_BODY`)."""
        if self._arriving:
            self._streams = True
            self._request_arrived()
            self._arrival = self.loop.call_later(SILENCE_S, self._too_slow)

    def _expect_request(self) -> None:
        self._arrival = self.loop.call_later(self.limits.arrival_seconds, self._too_slow)

    def _request_arrived(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _too_slow(self) -> None:
        self._arrival = None
        if self.cycle is not None and self.cycle.response_started:
            self.transport.abort()
        else:
            self._refuse(InvalidCall("the request did not arrive in time", code="timeout", status=408))

    def _refuse(self, refusal: InvalidCall) -> None:
        body = error_body(refusal, request_id_of(None))
        content = [
            STATUS_LINE[refusal.status],
            b"content-type: application/json\r\ncache-control: no-store\r\nconnection: close\r\n",
            b"content-length: %d\r\n" % len(body),
            *(b"%s: %s\r\n" % (name.encode(), value.encode()) for name, value in error_headers(refusal.status).items()),
            b"\r\n",
            body,
        ]
        self.transport.write(b"".join(content))
        self.transport.close()


def _headers_too_large() -> InvalidCall:
    return InvalidCall("the request line and headers are too large", code="too_large", status=431)


class _Refused(Exception):
    """Ends the parsing of a request that was already refused."""


def limited(limits: ConnectionLimits) -> type[LimitedProtocol]:
    """The protocol class of a listener with `limits`."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})


def _inside(host: str, networks: Sequence[Network]) -> bool:
    address = ip_address(host.partition("%")[0])
    return any(address in network for network in networks)
