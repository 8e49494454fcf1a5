"""What the proxy of a model API costs: the same requests to one provider, directly and through a gateway, in turns.

Run it as `python -m benchmarks.proxies` (with `--quick` for a look). The gateway and the provider have processes of
their own; the client is a bare socket, so that what it costs is small beside what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import openai

from benchmarks.deployments import CONFIG, cpu_seconds, resident_mib, running

Section = dict[str, Any]
STREAMS: Final = 500
_PROVIDER: Final = """proxies:
  providers:
    bench: {{dialect: openai, url: "http://127.0.0.1:{port}/v1", key: "${{env:AEGIS_BENCH_KEY}}", private: true}}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Door:
    """Where requests go: the provider itself, or the gateway before it."""

    port: int
    key: str

    def request(self, path: str, body: dict[str, Any]) -> bytes:
        data = json.dumps(body).encode()
        return (
            b"POST %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % (path.encode(), self.key.encode(), len(data))
        ) + data

    def chat(self, model: str, *, stream: bool) -> bytes:
        messages = [{"role": "user", "content": "what does the note say"}]
        return self.request("/v1/chat/completions", {"model": model, "stream": stream, "messages": messages})


def proxies(folder: Path, quick: bool) -> Section:
    """First token, streamed tokens, a call of a tool, and many streams at once."""
    with provider() as port, behind(folder, port) as (gateway, pid):
        direct = Door(port=port, key="none")
        return {
            "first_token_ms": first_token(direct, gateway, 50 if quick else 400),
            "tokens": {
                "full_speed": tokens(direct, gateway, "text-2000-0", 2_000, 4 if quick else 20, pid, _streamed),
                "paced": tokens(direct, gateway, "text-300-5", 300, 2 if quick else 6, pid, _streamed),
                "official": tokens(direct, gateway, "text-2000-0", 2_000, 2 if quick else 10, pid, Official().streamed),
            },
            "tool_call_ms": tool_call(direct, gateway, 50 if quick else 400),
            "streams": asyncio.run(streams(gateway, pid, 100 if quick else STREAMS)),
        }


def first_token(direct: Door, gateway: Door, count: int) -> Section:
    """Milliseconds to the first token, one request at a time."""
    times = _in_turns(
        {
            "direct": lambda: _once(direct.port, direct.chat("text-3-0", stream=True), until=b'"content"'),
            "proxied": lambda: _once(gateway.port, gateway.chat("text-3-0", stream=True), until=b'"content"'),
        },
        count,
    )
    return {**times, "later": _beyond(times["proxied"], times["direct"])}


def tokens(
    direct: Door, gateway: Door, model: str, count: int, rounds: int, pid: int, read: Callable[[Door, str], float]
) -> Section:
    """Tokens a second of one stream, and the gateway's processor time for each; `read` gives the stream's seconds."""
    spent = cpu_seconds(pid)
    times = _in_turns(
        {
            "direct": lambda: read(direct, model),
            "proxied": lambda: read(gateway, model),
        },
        rounds,
    )
    spent = cpu_seconds(pid) - spent
    return {
        "direct_per_second": round(count / times["direct"]["median"] * 1e3),
        "proxied_per_second": round(count / times["proxied"]["median"] * 1e3),
        "share_of_direct": {
            name: round(times["direct"][name] / times["proxied"][name], 3) for name in ("median", "least")
        },
        "gateway_cpu_us_per_token": round(spent / (count * (rounds + _WARM)) * 1e6, 1),
    }


def _streamed(door: Door, model: str) -> float:
    """A stream read by a bare socket."""
    return _once(door.port, door.chat(model, stream=True), until=b"[DONE]")


class Official:
    """Streams read by the vendor's own client, which keeps its connections."""

    def __init__(self) -> None:
        self._clients: dict[int, openai.OpenAI] = {}

    def streamed(self, door: Door, model: str) -> float:
        """Seconds to the end of a stream."""
        if door.port not in self._clients:
            base = f"http://127.0.0.1:{door.port}/v1"
            self._clients[door.port] = openai.OpenAI(base_url=base, api_key=door.key, max_retries=0)
        began = time.perf_counter()
        messages: Any = [{"role": "user", "content": "what does the note say"}]
        for _ in self._clients[door.port].chat.completions.create(model=model, messages=messages, stream=True):
            pass
        return time.perf_counter() - began


def tool_call(direct: Door, gateway: Door, count: int) -> Section:
    """Milliseconds of whole answers with a call and without one, and of the same decision over HTTP."""
    call = {"tool": "read_file", "arguments": {"path": "reports/2026/summary.md"}}
    times = _in_turns(
        {
            "direct_text": lambda: _once(direct.port, direct.chat("say", stream=False)),
            "proxied_text": lambda: _once(gateway.port, gateway.chat("say", stream=False)),
            "proxied_call": lambda: _once(gateway.port, gateway.chat("call", stream=False)),
            "decision": lambda: _once(gateway.port, gateway.request("/v1/decisions", call)),
        },
        count,
    )
    beyond = _beyond(times["proxied_call"], times["proxied_text"], times["decision"])
    return {**times, "beyond_the_decision": beyond}


async def streams(gateway: Door, pid: int, count: int) -> Section:
    """Many streams at the same time: how many came to their end, and what the gateway holds meanwhile."""
    before = resident_mib(pid)
    data = gateway.chat("text-40-250", stream=True)
    ends = asyncio.gather(*(_stream(gateway.port, data) for _ in range(count)))
    most = before
    while not ends.done():
        most = max(most, resident_mib(pid))
        await asyncio.wait({ends}, timeout=0.1)
    return {"at_once": count, "whole": sum(await ends), "resident_before_mib": before, "resident_most_mib": most}


async def _stream(port: int, data: bytes) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return b"[DONE]" in await reader.readuntil(b"\r\n0\r\n\r\n")
    finally:
        writer.close()


_WARM: Final = 2


Spread = dict[str, float]
"""Milliseconds: the `median`, and the `least`, which a machine that does other things besides changes little."""


def _in_turns(works: dict[str, Callable[[], float]], count: int) -> dict[str, Spread]:
    """How long each takes, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for number in range(count + _WARM):
        for name, work in works.items():
            spent = work()
            if number >= _WARM:
                times[name].append(spent * 1e3)
    return {
        name: {"median": round(statistics.median(found), 3), "least": round(min(found), 3)}
        for name, found in times.items()
    }


def _beyond(whole: Spread, *parts: Spread) -> Spread:
    return {name: round(whole[name] - sum(part[name] for part in parts), 3) for name in whole}


_kept: dict[int, socket.socket] = {}


def _once(port: int, data: bytes, until: bytes = b"") -> float:
    """Seconds until `until` is there, or the whole answer; the connection is kept for the next one."""
    connection = _kept.get(port)
    if connection is None:
        connection = _kept[port] = socket.create_connection(("127.0.0.1", port), timeout=60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    began, seen, seconds = time.perf_counter(), bytearray(), 0.0
    connection.sendall(data)
    while True:
        read = connection.recv(262_144)
        if not read:
            raise RuntimeError(f"the answer broke off: {bytes(seen[:200])!r}")
        seen += read
        if until and not seconds and until in seen[-len(read) - 512 :]:
            seconds = time.perf_counter() - began
        if _complete(seen):
            return seconds or time.perf_counter() - began


def _complete(seen: bytearray) -> bool:
    if seen.endswith(b"\r\n0\r\n\r\n"):
        return True
    head = seen.find(b"\r\n\r\n", 0, 4_096)
    at = seen.lower().find(b"content-length: ", 0, head) if head >= 0 and len(seen) < 16_384 else -1
    return at >= 0 and len(seen) >= head + 4 + int(seen[at + 16 : seen.find(b"\r\n", at)])


@contextmanager
def provider() -> Iterator[int]:
    """A provider in a process of its own: its port."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.provider"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


@contextmanager
def behind(folder: Path, port: int) -> Iterator[tuple[Door, int]]:
    """A gateway whose provider is at this port, and its process id."""
    os.environ["AEGIS_BENCH_KEY"] = "sk-bench"  # handed on to the gateway
    with running(folder / "home", CONFIG.format(durability="fsync") + _PROVIDER.format(port=port)) as (
        _, open_port, key, pid,
    ):  # fmt: skip
        try:
            yield Door(port=open_port, key=key), pid
        finally:
            while _kept:
                _kept.popitem()[1].close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter runs; not for quoting")
    with tempfile.TemporaryDirectory(prefix="aegis-bench-") as folder:
        print(json.dumps(proxies(Path(folder), parser.parse_args().quick), indent=1))


if __name__ == "__main__":
    main()
