"""The client: one pool of connections of one event loop, over addresses that were checked."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, cast
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from aegis.core.addresses import is_public
from aegis.errors import EgressError, EgressFailed, EgressRefused

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult


from dataclasses import dataclass, field

# What goes out, what comes back, and what is allowed.

DEFAULT_MAX_BYTES = 4 * 1024 * 1024
"""An answer is read up to this many bytes: a webhook's receiver must not fill our memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request. `headers` are sent as given, beside those that HTTP itself needs."""

    method: str
    url: str = field(repr=False)  # a webhook's path is its credential
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """A whole answer. `headers` have lower-case names; of a repeated name the values are joined by a comma."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class EgressPolicy(Struct, frozen=True, kw_only=True):
    """Where requests may go, and how long and large they may be.

    private   hosts, `name` or `name:port`, that the operator allows on private addresses and without TLS
    ca_file   PEM file of further certificate authorities
    connect_seconds, total_seconds, idle_seconds   limits of connecting, of a whole exchange, and between two chunks
    max_bytes   bytes read of an answer (of a stream: of all its chunks)
    max_connections   connections at a time; further requests wait within their `total_seconds`
    """

    private: frozenset[str] = frozenset()
    ca_file: str | None = None
    connect_seconds: float = 5.0
    total_seconds: float = 30.0
    idle_seconds: float = 30.0
    max_bytes: int = DEFAULT_MAX_BYTES
    max_connections: int = 1000

    def names(self, host: str, port: int) -> bool:
        """Whether the operator named this host, or this host with this port."""
        bare = host.strip("[]").lower().rstrip(".")
        return bare in self.private or f"{bare}:{port}" in self.private


# Resolving that hands out checked addresses only, so that what was checked is what is connected to.


class CheckedResolver:
    """An `AbstractResolver` of the client that refuses a host of which any address is private, unless it was named.

    One private address among public ones is enough: which of them is used is the other side's choice (rebinding).
    """

    def __init__(self, policy: EgressPolicy) -> None:
        self._policy = policy

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        results: list[ResolveResult] = []
        for kind, _, proto, _, address in found:
            numeric = str(address[0])
            if not self._policy.names(host, port) and not is_public(numeric):
                raise EgressRefused(f"`{host}` resolves to a private address; add it to the allow-list if meant")
            results.append(
                {
                    "hostname": host,
                    "host": numeric,
                    "port": port,
                    "family": kind,
                    "proto": proto,
                    "flags": socket.AI_NUMERICHOST,
                }
            )
        return results

    async def close(self) -> None:
        """Nothing is held."""


_PLAIN = frozenset(map(chr, range(0x21, 0x7F))) - {"\\"}
KEEP_ALIVE_SECONDS = 4.0
"""Shorter than common servers hold a connection, so that a request rarely meets one that they just closed."""
_REFUSED_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "upgrade"}
)
"""Framing and routing are the client's: a header that contradicts them is request smuggling (CWE-444)."""


class Streamed:
    """An answer that is still arriving; its head is here, its chunks come from `chunks()`, once."""

    def __init__(self, answer: aiohttp.ClientResponse, max_bytes: int) -> None:
        self.status = answer.status
        self.headers: Mapping[str, str] = _headers(answer)
        self._answer = answer
        self._max_bytes = max_bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Raises `EgressFailed` when it stalls, breaks off or grows over the limit."""
        taken = 0
        try:
            async for chunk in self._answer.content.iter_any():
                taken += len(chunk)
                if taken > self._max_bytes:
                    raise EgressFailed(f"the answer is longer than {self._max_bytes} bytes")
                yield chunk
        except _failures() as error:
            raise _failed(self._answer.url.host or "", error) from error


class Egress:
    """Sends requests that the policy lets out. Used from one event loop; `aclose` (or `async with`) ends it."""

    def __init__(self, policy: EgressPolicy | None = None) -> None:
        self._policy = policy or EgressPolicy()
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes every connection. A later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def send(
        self, request: Request, *, total_seconds: float | None = None, max_bytes: int | None = None
    ) -> Response:
        """The whole answer, whatever its status. Raises `EgressRefused` or `EgressFailed`."""
        async with self.stream(request, total_seconds=total_seconds, max_bytes=max_bytes) as answer:
            body = b"".join([chunk async for chunk in answer.chunks()])
            return Response(status=answer.status, headers=answer.headers, body=body)

    @asynccontextmanager
    async def stream(
        self, request: Request, *, total_seconds: float | None = None, max_bytes: int | None = None
    ) -> AsyncIterator[Streamed]:
        """The answer once its head is here; leaving the block ends the exchange. Raises as `send` does."""
        session = await self._open()
        target = _checked(request, self._policy)
        from aiohttp import ClientTimeout
        from yarl import URL

        limits = ClientTimeout(
            total=self._policy.total_seconds if total_seconds is None else total_seconds,
            sock_connect=self._policy.connect_seconds,
            sock_read=self._policy.idle_seconds,
        )
        try:
            answer = await session.request(
                request.method,
                URL(request.url, encoded=True),
                headers={**request.headers, "Accept-Encoding": "identity"},
                data=request.body or None,
                allow_redirects=False,
                timeout=limits,
            )
        except EgressRefused:
            raise
        except _failures() as error:
            raise _failed(target.hostname or "", error) from error
        try:
            if answer.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
                raise EgressFailed("the answer is compressed though none was asked for")
            yield Streamed(answer, self._policy.max_bytes if max_bytes is None else max_bytes)
        finally:
            # An answer that was read to its end gives its connection back; any other one is cut.
            answer.close()

    async def _open(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is not None and self._loop is loop:
            return self._session
        if self._session is not None and self._loop is not None and not self._loop.is_closed():
            raise EgressError("this client belongs to another event loop; make one for each")
        await self.aclose()  # what a loop left behind that has ended
        try:  # the library is an extra, and half a hundred milliseconds: whoever sends nothing needs neither
            import aiohttp
        except ImportError as error:
            raise EgressRefused("requests that leave need the package `aiohttp`: pip install aiohttp") from error
        context = ssl.create_default_context(cafile=self._policy.ca_file)
        self._loop = loop
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=cast("AbstractResolver", CheckedResolver(self._policy)),
                ssl=context,
                limit=self._policy.max_connections,
                keepalive_timeout=KEEP_ALIVE_SECONDS,
                ttl_dns_cache=10,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Content-Type"),
        )
        return self._session


def _checked(request: Request, policy: EgressPolicy) -> SplitResult:
    from yarl import URL

    # (0) Two parsers read the address, this one and the client's: what they could read differently is refused.
    if not _PLAIN.issuperset(request.url):
        raise EgressRefused("the address holds blanks, a backslash or characters outside ASCII")
    try:
        target = urlsplit(request.url)
        port = target.port or (443 if target.scheme == "https" else 80)
        seen = URL(request.url, encoded=True)
    except ValueError as error:
        raise EgressRefused("the address is not a URL") from error
    host = target.hostname
    if host != seen.host or port != seen.port:
        raise EgressRefused("the address can be read in two ways")
    if target.scheme not in ("http", "https") or not host:
        raise EgressRefused("only `https` addresses are allowed, and `http` for hosts in the allow-list")
    if target.username is not None or target.password is not None:
        raise EgressRefused("an address may not carry a user name or password")
    named = policy.names(host, port)
    if target.scheme == "http" and not named:
        raise EgressRefused(f"`{host}` would be spoken to without TLS; use `https`, or name it in the allow-list")
    # A numeric host never reaches the resolver, so it is checked here; an odd spelling (`0x7f.1`) is not numeric to
    # us and is resolved, and checked, there.
    if not named and _is_numeric(host) and not is_public(host):
        raise EgressRefused(f"`{host}` is a private address; name it in the allow-list if that is meant")
    for name, value in request.headers.items():
        if name.lower() in _REFUSED_HEADERS:
            raise EgressRefused(f"the header `{name}` is set by the client itself")
        if any(ord(sign) < 32 and sign != "\t" for sign in name + value):
            raise EgressRefused(f"the header `{name.encode('unicode_escape').decode()}` holds a control character")
    return target


def _is_numeric(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _failures() -> tuple[type[Exception], ...]:
    """What the client raises when the other side is not as it should be."""
    from aiohttp import ClientError

    return (TimeoutError, ClientError, OSError, ValueError)


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in answer.headers.items():
        key = name.lower()
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return joined


def _failed(host: str, error: Exception) -> EgressError:
    # The resolver's own refusal arrives wrapped in the client's connection error.
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, EgressRefused):
            return cause
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, TimeoutError):
        return EgressFailed(f"`{host}` did not answer in time")
    return EgressFailed(f"`{host}` could not be spoken to: {type(error).__name__}")
