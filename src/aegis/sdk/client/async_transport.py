"""Keep-alive connections to the gateway for event loops; each loop has its own."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Final
from weakref import WeakKeyDictionary

from aegis.sdk.client.endpoint import GatewayEndpoint
from aegis.sdk.client.http1 import HttpAnswer, WireError, request_bytes
from aegis.sdk.client.sync_transport import MAX_IDLE, TransportError

_READ: Final = 65_536

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
