"""HTTP/1.1 as uvicorn speaks it, with limits: connections, header size, and time for a request to arrive.

A client that sends its request byte by byte, or never, holds a connection for a bounded time alone. What two servers
could read as different requests is refused (RFC 9112, 3.2 and 6.1): no `Host` or two, a transfer coding other than
`chunked`, a target that names another authority. Nothing that follows a refused request is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import sys
from asyncio.events import TimerHandle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from aegis.errors import ConfigError, InvalidCall, Problem, is_exhausted
from aegis.server.deciders import DOOR_HEADER
from aegis.server.http import MAX_BODY_BYTES, error_body, error_headers, is_too_long, request_id_of, too_large
from aegis.server.wire import SLOW_BODY, WHOLE_ANSWER

# The two doors of a gateway: TCP on an address that was chosen with care, and a Unix socket of its owner's.

BACKLOG: Final = 1_024
MAX_PATH_BYTES: Final = 104  # the shortest `sun_path` among the supported systems


def bind_tcp(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises `ConfigError` where the address is taken or not this machine's."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise _problem(f"`{host}` is not an address of this machine") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise _problem(
                f"port {port} is taken", hint="is a gateway already running? choose another `--port`"
            ) from error
        raise _problem(f"cannot listen on `{host}`, port {port}: {error.strerror}") from error
    return listener


class SocketTaken(ConfigError):
    """Another gateway of the same home listens on its socket."""


def bind_unix(path: Path) -> socket.socket:
    """Return a listening Unix socket with mode 0600; a socket file that nobody listens on any more is replaced.

    Raises `SocketTaken` where another gateway listens there, and `ConfigError` where `path` is something else.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise _problem(f"the path of the Unix socket is over {MAX_PATH_BYTES} bytes", hint="choose a shorter `--home`")
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _only_owner():
            listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _problem(f"cannot listen on the Unix socket: {error.strerror}", file=path) from error
    return listener


def unlink_unix(path: Path, inode: int) -> None:
    """Remove the socket file, if it still is the one that was bound."""
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_ino == inode:
            path.unlink()


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise _problem("something that is no socket is in the way of the Unix socket", file=path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise _problem(f"the Unix socket cannot be asked: {error.strerror}", file=path) from error
    raise SocketTaken((Problem(message="another gateway listens on the Unix socket", file=str(path)),))


@contextlib.contextmanager
def _only_owner() -> Iterator[None]:
    """Between `bind` and `chmod` nobody else may connect either."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def _problem(message: str, *, file: Path | None = None, hint: str = "") -> ConfigError:
    return ConfigError((Problem(message=message, file="" if file is None else str(file), hint=hint),))


MAX_CONNECTIONS: Final = 1_024  # each one costs a descriptor and some memory
MAX_HEADER_BYTES: Final = 32_768  # request line and headers together
MAX_HEADERS: Final = 100
ARRIVAL_S: Final = 30.0  # from the first byte of a request to its last (slow loris, slow body)
SILENCE_S: Final = 300.0  # between two pieces of a body that is streamed
KEEP_ALIVE_S: Final = 75  # how long an idle connection is kept

_CHUNK_OVERHEAD: Final = 16  # bytes that a chunk of one byte may take; beyond it they are padding
_AUTHORITY: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_~:[]%!$&'()*+;="

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """What one listener grants. `peers` restricts who may connect over TCP; empty is everybody.

    `inner` is the socket between the processes of one gateway: who asks says under which scheme it was asked.
    """

    connections: int = MAX_CONNECTIONS
    header_bytes: int = MAX_HEADER_BYTES
    arrival_seconds: float = ARRIVAL_S
    peers: tuple[Network, ...] = ()
    inner: bool = False


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
        self._idle_since = 0.0
        self._deaf = False  # nothing more is read: what arrives belongs to no request that is answered
        self._active: RequestResponseCycle | None = None
        self._received = 0  # of the request that arrives, whose body has so many bytes:
        self._body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        if self.limits.peers and isinstance(peer, tuple) and not _inside(peer[0], self.limits.peers):
            transport.abort()
            return
        self._idle_since = self.loop.time()
        if len(self.connections) > self.limits.connections and not self._make_room():
            self._refuse(_too_many())
            return
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf or self.transport.is_closing():
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
        else:
            # Sizes of chunks, their extensions and trailers are no body: they end too (RFC 9112, 7.1.1).
            self._received += len(data)
            if self._received - self._body_bytes * _CHUNK_OVERHEAD > MAX_BODY_BYTES or len(self.headers) > MAX_HEADERS:
                self._refuse(_headers_too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._arriving = self._in_headers = self._begun_now = True
        self._streams = False
        self._received = self._body_bytes = 0

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
        if size > self.limits.header_bytes or len(self.headers) > MAX_HEADERS:
            self._refuse(_headers_too_large())
            raise _Refused
        refusal = ambiguity(self.parser.get_http_version(), self.url, self.headers)
        upgrades = self.parser.should_upgrade()
        if refusal is None and upgrades and self._has_body():
            # The parser hands the body of such a request over as bytes of another protocol: they would be read again.
            refusal = _ambiguous("a request with a body asks for another protocol", "leave `Upgrade` out")
        if refusal is not None:
            self._refuse(refusal)
            raise _Refused
        self._in_headers = False
        # A client that waits for leave to send a body gets none for one that is too large.
        if self.expect_100_continue and any(
            name == b"content-length" and is_too_long(value) for name, value in self.headers
        ):
            self._refuse(too_large())
            raise _Refused
        super().on_headers_complete()
        # Set by assignment: the type of ASGI scopes knows extensions that are dictionaries alone.
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        if self.limits.inner:
            scope["scheme"] = next((value.decode() for name, value in self.headers if name == DOOR_HEADER), "http")
        scope["extensions"] = {WHOLE_ANSWER: partial(self._answer_whole, self.cycle), SLOW_BODY: self._take_time}
        self.headers = []  # trailers are no headers of the request (RFC 9110, 6.5.1), and nobody reads them
        if upgrades:  # it is answered in this protocol, and nothing after it is read in any
            self.cycle.keep_alive = False
            self._deaf = True

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._arriving = False
        self._request_arrived()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self.transport.is_closing():
            return
        error = sys.exc_info()[1]
        if error is not None and any(
            map(is_exhausted, (error, error.__context__ or error))
        ):  # it is not the caller's fault
            self._refuse(InvalidCall("the gateway has too little left to read this", code="unavailable", status=503))
        else:
            self._refuse(InvalidCall("this is not HTTP/1.1 as the gateway speaks it", code="bad_request", status=400))

    async def _answer_whole(self, cycle: RequestResponseCycle, status: int, headers: bytes, body: bytes) -> None:
        """Do what two `send`s would, as one write to the socket: the ASGI extension `WHOLE_ANSWER`."""
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
        """Let the body of this request be a stream: it ends when it ends (the ASGI extension `SLOW_BODY`)."""
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

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()

    @property
    def is_served(self) -> bool:
        """Whether a request that arrived whole is being answered."""
        return not self._arriving and self._active is not None and not self._active.response_complete

    def _make_room(self) -> bool:
        """End the connection that has gone longest without a whole request, whoever holds it; false where none has."""
        idle = [one for one in self.connections if isinstance(one, LimitedProtocol) and not one.is_served]
        oldest = min((one for one in idle if one is not self), key=lambda one: one._idle_since, default=None)
        if oldest is None:
            return False
        self.connections.discard(oldest)
        oldest._refuse(_too_many())
        return True

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, app)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: a request that asks for another protocol is answered in this one."""

    def _has_body(self) -> bool:
        return any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0"))
            for name, value in self.headers
        )

    def _refuse(self, refusal: InvalidCall) -> None:
        if (self._in_headers or self.pipeline) and self._active is not None and not self._active.response_complete:
            # A request before it is being answered: its answer is the last one, and no other stands in its place.
            self._deaf = True
            self._request_arrived()
            self.pipeline.clear()
            self._active.keep_alive = False
            return
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


def ambiguity(version: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> InvalidCall | None:
    """Return the refusal of a request that two servers could read differently; names of headers are in lower case."""
    hosts: list[bytes] = []
    codings: list[bytes] = []
    sized = False
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            codings.append(value)
        elif name == b"content-length":
            sized = True
        elif name == b"expect" and value.lower() != b"100-continue":
            return InvalidCall("an expectation is not known", code="expectation_failed", status=417)
    # RFC 9112, 3.2: one `Host`, of the characters that an authority has.
    if len(hosts) > 1 or (not hosts and version != "1.0"):
        return _ambiguous("a request has exactly one `Host`", "name the gateway in `Host`")
    if hosts and hosts[0].translate(None, _AUTHORITY):
        return _ambiguous("`Host` is no host and port", "name the gateway in `Host`")
    # RFC 9112, 6.1: `chunked` alone is known, and it stands beside no length.
    if codings and (len(codings) > 1 or codings[0].lower() != b"chunked" or sized or version == "1.0"):
        return _ambiguous("the transfer coding is not known", "`chunked`, or a `Content-Length`")
    # RFC 9112, 3.2.2: a target may name this server, and no other one; this is no proxy.
    if not target.startswith(b"/") and target != b"*":
        scheme, _, rest = target.partition(b"://")
        if scheme.lower() not in (b"http", b"https") or rest.partition(b"/")[0].lower() != b"".join(hosts).lower():
            return _ambiguous("the target is not one of this server", "write the path alone")
    return None


def _too_many() -> InvalidCall:
    return InvalidCall("too many connections", code="unavailable", hint="try again later", status=503)


def _ambiguous(message: str, hint: str) -> InvalidCall:
    return InvalidCall(message, code="bad_request", hint=hint, status=400)


def _headers_too_large() -> InvalidCall:
    return InvalidCall("the request line and headers are too large", code="too_large", status=431)


class _Refused(Exception):
    """Ends the parsing of a request that was already refused."""


def limited(limits: ConnectionLimits) -> type[LimitedProtocol]:
    """Return the protocol class of a listener with `limits`."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})


def _inside(host: str, networks: Sequence[Network]) -> bool:
    address = ip_address(host.partition("%")[0])
    return any(address in network for network in networks)
