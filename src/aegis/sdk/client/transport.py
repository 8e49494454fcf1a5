"""Keep-alive connections to the gateway: for threads, safe to carry over a fork, and for event loops."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping
from typing import Final
from weakref import WeakKeyDictionary

from msgspec import Struct

from aegis.sdk.client.endpoint import GatewayEndpoint
from aegis.sdk.client.http1 import HttpAnswer, WireError, request_bytes

MAX_IDLE: Final = 16  # idle connections kept; more callers at once open their own for one request
_READ: Final = 65_536


class TransportError(Exception):
    """No answer: the gateway is gone, slow, counterfeit, or does not speak HTTP/1.1."""


class _Idle(Struct, frozen=True):
    sock: socket.socket
    pid: int


class SyncTransport:
    """Sends one request, and gives back one whole answer or raises `TransportError`.

    `timeout` (seconds) bounds the whole exchange, connecting included, not single reads. A request
    is repeated once, on a new connection, only if an idle one turned out stale before any byte of
    an answer came: decisions are idempotent by call id.
    """

    def __init__(self, endpoint: GatewayEndpoint):
        self._endpoint = endpoint
        self._tls: ssl.SSLContext | None = None
        self._idle: deque[_Idle] = deque(maxlen=MAX_IDLE)

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> HttpAnswer:
        """The gateway's answer; raises `TransportError`."""
        deadline = time.monotonic() + timeout
        data = request_bytes(method, target, self._endpoint.host_header, headers, body)
        idle = self._take()
        try:
            if idle is not None:
                answer = self._exchange(idle, data, deadline, may_be_stale=True)
                if answer is not None:
                    return answer
            fresh = self._exchange(self._connect(deadline), data, deadline, may_be_stale=False)
        except (OSError, WireError, ValueError) as error:
            raise TransportError("the gateway gave no answer") from error
        if fresh is None:
            raise TransportError("the gateway gave no answer")
        return fresh

    def connect(self, timeout: float) -> socket.socket:
        """A connection that is the caller's alone, and is closed by it; raises `TransportError`."""
        try:
            return self._connect(time.monotonic() + timeout)
        except OSError as error:
            raise TransportError("the gateway cannot be reached") from error

    def close(self) -> None:
        """Close the idle connections; one that is in use closes itself afterwards."""
        while (idle := self._take()) is not None:
            idle.close()

    def _take(self) -> socket.socket | None:
        pid = os.getpid()
        while True:
            try:
                idle = self._idle.pop()
            except IndexError:
                return None
            if idle.pid == pid:
                return idle.sock
            # After a fork the connection is the parent's: two writers would mix their requests.
            idle.sock.close()

    def _connect(self, deadline: float) -> socket.socket:
        endpoint = self._endpoint
        if endpoint.uds is not None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(_left(deadline))
                sock.connect(endpoint.uds)
                endpoint.check_peer(sock)
            except BaseException:
                sock.close()
                raise
            return sock
        sock = socket.create_connection((endpoint.host, endpoint.port), timeout=_left(deadline))
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                self._tls = endpoint.tls()
            if self._tls is not None:
                sock.settimeout(_left(deadline))
                sock = self._tls.wrap_socket(sock, server_hostname=endpoint.host)
        except BaseException:
            sock.close()
            raise
        return sock

    def _exchange(self, sock: socket.socket, data: bytes, deadline: float, *, may_be_stale: bool) -> HttpAnswer | None:
        """One exchange; `None` where an idle connection was stale and nothing was answered."""
        answer = HttpAnswer()
        kept = False
        try:
            sock.settimeout(_left(deadline))
            sock.sendall(data)
            while not answer.done:
                sock.settimeout(_left(deadline))
                received = sock.recv(_READ)
                if not received and may_be_stale and not answer.started:
                    return None
                answer.feed(received)
            if answer.reusable and len(self._idle) < MAX_IDLE:
                self._idle.append(_Idle(sock, os.getpid()))
                kept = True
            return answer
        except (BrokenPipeError, ConnectionResetError, ConnectionAbortedError, ssl.SSLEOFError):
            if may_be_stale and not answer.started:
                return None
            raise
        finally:
            if not kept:
                sock.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the gateway did not answer in time")
    return left


# Keep-alive connections to the gateway for event loops; each loop has its own.


_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class AsyncTransport:
    """The async twin of `SyncTransport`, with the same promises; a cancelled exchange closes its connection."""

    def __init__(self, endpoint: GatewayEndpoint):
        self._endpoint = endpoint
        self._tls: ssl.SSLContext | None = None
        self._pid = os.getpid()
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[_Connection]] = WeakKeyDictionary()

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, seconds: float
    ) -> HttpAnswer:
        """The gateway's answer; raises `TransportError`."""
        data = request_bytes(method, target, self._endpoint.host_header, headers, body)
        try:
            async with asyncio.timeout(seconds):
                pool = self._pool()
                if pool:
                    answer = await self._exchange(pool, pool.pop(), data, may_be_stale=True)
                    if answer is not None:
                        return answer
                fresh = await self._exchange(pool, await self.connect(), data, may_be_stale=False)
        except (OSError, WireError, ValueError) as error:
            raise TransportError("the gateway gave no answer") from error
        if fresh is None:
            raise TransportError("the gateway gave no answer")
        return fresh

    def close(self) -> None:
        """Close the idle connections of the running loop; those of other loops end with their loops."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._pools.clear()
            return
        for _, writer in self._pools.pop(loop, deque()):
            writer.close()

    def _pool(self) -> deque[_Connection]:
        pid = os.getpid()
        if pid != self._pid:
            # After a fork the connections are the parent's: two writers would mix their requests.
            self._pid, self._pools = pid, WeakKeyDictionary()
        return self._pools.setdefault(asyncio.get_running_loop(), deque(maxlen=MAX_IDLE))

    async def connect(self) -> _Connection:
        """A connection to the gateway, checked as far as its address allows; raises `OSError`."""
        endpoint = self._endpoint
        if endpoint.uds is None:
            if self._tls is None:
                self._tls = endpoint.tls()
            name = endpoint.host if self._tls is not None else None
            return await asyncio.open_connection(endpoint.host, endpoint.port, ssl=self._tls, server_hostname=name)
        reader, writer = await asyncio.open_unix_connection(endpoint.uds)
        try:
            endpoint.check_peer(writer.get_extra_info("socket"))
        except BaseException:
            writer.close()
            raise
        return reader, writer

    async def _exchange(
        self, pool: deque[_Connection], connection: _Connection, data: bytes, *, may_be_stale: bool
    ) -> HttpAnswer | None:
        """One exchange; `None` where an idle connection was stale and nothing was answered."""
        reader, writer = connection
        answer = HttpAnswer()
        kept = False
        try:
            writer.write(data)
            await writer.drain()
            while not answer.done:
                received = await reader.read(_READ)
                if not received and may_be_stale and not answer.started:
                    return None
                answer.feed(received)
            if answer.reusable and len(pool) < MAX_IDLE:
                pool.append(connection)
                kept = True
            return answer
        except (BrokenPipeError, ConnectionResetError, ConnectionAbortedError, ssl.SSLEOFError):
            if may_be_stale and not answer.started:
                return None
            raise
        finally:
            if not kept:
                writer.close()
