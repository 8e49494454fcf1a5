"""A load generator for the gateway: raw HTTP/1.1 over keep-alive connections, one request in flight on each.

It parses as little of an answer as it can, because it shares the machine with what it measures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

READ_BYTES: Final = 65_536


@dataclass(kw_only=True)
class Load:
    """What a run measured. `latencies` are seconds, one for each request that was answered."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds if self.seconds else 0.0

    def percentile(self, share: float) -> float:
        """The latency in seconds below which `share` of all requests stayed."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    def to_json(self) -> dict[str, object]:
        """The figures, latencies in milliseconds."""
        return {
            "requests": len(self.latencies),
            "seconds": round(self.seconds, 3),
            "per_second": round(self.per_second, 1),
            "p50_ms": round(self.percentile(0.5) * 1e3, 3),
            "p95_ms": round(self.percentile(0.95) * 1e3, 3),
            "p99_ms": round(self.percentile(0.99) * 1e3, 3),
            "mean_ms": round(statistics.fmean(self.latencies) * 1e3, 3),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
        }


def request(key: str, body: bytes, path: str = "/v1/decisions") -> bytes:
    """One request as bytes."""
    return (
        b"POST %s HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (path.encode(), key.encode(), len(body))
    ) + body


class _Connection(asyncio.Protocol):
    """Sends the same request again as soon as its answer is complete."""

    def __init__(self, data: bytes, load: Load, done: asyncio.Event):
        self._data = data
        self._load = load
        self._done = done
        self._buffer = b""
        self._sent = 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's own class is no subclass
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._buffer.find(b"content-length: ", 0, head)
        end = self._buffer.find(b"\r\n", at)
        if len(self._buffer) < head + 4 + int(self._buffer[at + 16 : end]):
            return
        self._load.latencies.append(time.perf_counter() - self._sent)
        self._load.statuses[int(self._buffer[9:12])] += 1
        self._buffer = b""
        if not self._done.is_set():
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None

    def _send(self) -> None:
        if self.transport is not None:
            self._sent = time.perf_counter()
            self.transport.write(self._data)


async def run(address: tuple[str, int] | Path, data: bytes, *, connections: int, seconds: float) -> Load:
    """Send `data` over `connections` keep-alive connections for `seconds`; `address` is TCP or a Unix socket."""
    load, done, loop = Load(), asyncio.Event(), asyncio.get_running_loop()
    protocols: list[_Connection] = []
    for _ in range(connections):
        if isinstance(address, Path):
            _, protocol = await loop.create_unix_connection(lambda: _Connection(data, load, done), str(address))
        else:
            connection = socket.create_connection(address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _, protocol = await loop.create_connection(lambda: _Connection(data, load, done), sock=connection)
        protocols.append(protocol)
    started = time.perf_counter()
    await asyncio.sleep(seconds)
    load.seconds = time.perf_counter() - started
    done.set()
    for protocol in protocols:
        if protocol.transport is not None:
            protocol.transport.close()
    return load


def main() -> None:
    """Measure a gateway that runs already and print the figures as JSON."""
    import uvloop

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8787)
    parser.add_argument("--unix", type=Path)
    parser.add_argument("--key", required=True)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--body", default='{"tool":"read_file","arguments":{"path":"notes/today.txt"}}')
    given = parser.parse_args()
    data = request(given.key, given.body.encode())
    address = given.unix or (given.host, given.port)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        load = runner.run(run(address, data, connections=given.connections, seconds=given.seconds))
    json.dump(load.to_json(), sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
