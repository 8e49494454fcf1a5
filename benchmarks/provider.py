"""A provider of models that streams as it is told, in a process of its own; `-m benchmarks.provider` prints its port.

The model's name is the script: `text-TOKENS-MILLISECONDS` streams so many tokens with that pause between them (0: one
write a token, as fast as they go), `say` answers whole, `call` answers whole with one call of `read_file`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from typing import Any, Final, cast

import uvloop

_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n"


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._buffer = b""
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        kind, *numbers = json.loads(rest[:length])["model"].split("-")
        if kind == "text":
            self._task = asyncio.create_task(self._stream(int(numbers[0]), int(numbers[1]) / 1_000))
        else:
            self._write(_whole(call=kind == "call"))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    async def _stream(self, tokens: int, pause: float) -> None:
        self._write(_HEAD % b"text/event-stream" + b"Transfer-Encoding: chunked\r\n\r\n")
        for number in range(tokens):
            delta: dict[str, Any] = (
                {"content": f" word{number % 10}"} if number else {"role": "assistant", "content": ""}
            )
            self._write(_chunk(_event(delta, None)))
            await asyncio.sleep(pause)
        self._write(_chunk(_event({}, "stop")) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def _event(delta: dict[str, Any], reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    chunk = {"id": "chatcmpl-BenchBenchBenchBench", "object": "chat.completion.chunk", "created": 1_700_000_000,
             "model": "bench", "service_tier": "default", "system_fingerprint": "fp_0123456789", "choices": [choice],
             "usage": None}  # fmt: skip
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _whole(*, call: bool) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": "the note says hello", "refusal": None}
    if call:
        function = {"name": "read_file", "arguments": '{"path":"reports/2026/summary.md"}'}
        message |= {"content": None, "tool_calls": [{"id": f"call_{secrets.token_hex(12)}", "type": "function",
                                                     "function": function}]}  # fmt: skip
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls" if call else "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    body = {"id": f"chatcmpl-{secrets.token_hex(12)}", "object": "chat.completion", "created": 1_700_000_000,
            "model": "bench", "choices": [choice], "usage": usage}  # fmt: skip
    data = json.dumps(body).encode()
    return _HEAD % b"application/json" + b"Content-Length: %d\r\n\r\n" % len(data) + data


async def main() -> None:
    """Serve until the process ends."""
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0, backlog=1_024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
