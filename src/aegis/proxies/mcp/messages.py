"""JSON-RPC 2.0 messages as MCP uses them, read strictly, and the answers that the proxy gives by itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Protocol

from aegis.core.json import parse
from aegis.errors import InvalidCall

Message = dict[str, Any]
Id = str | int

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
BATCHING: Final = "2025-03-26"  # the one version of the protocol that has batches
UNSUPPORTED: Final = "unsupported"
REFUSED: Final = -32003  # in the range that JSON-RPC leaves to implementations
_MODERN: Final = "io.modelcontextprotocol/protocolVersion"


def read_messages(line: bytes) -> list[Message]:
    """The messages of one line, of which a batch holds several (protocol 2025-03-26).

    Raises `InvalidCall` for what two parsers could read differently.
    """
    value = parse(line)
    messages = value if isinstance(value, list) else [value]
    if not messages or not all(isinstance(message, dict) for message in messages):
        raise InvalidCall("a message is not a JSON object")
    return messages


def asked_of(line: bytes, version: str) -> list[Message]:
    """What a client says in one line under a version of the protocol; raises `InvalidCall` as `read_messages` does,
    and (400) for a batch where the version has none."""
    messages = read_messages(line)
    if is_batch(line) and version != BATCHING:
        raise InvalidCall(f"batches are part of protocol {BATCHING} alone", code=UNSUPPORTED, status=400)
    return messages


def is_batch(line: bytes) -> bool:
    """Whether a line holds a list of messages."""
    return line.lstrip()[:1] == b"["


def written(message: Message) -> bytes:
    """One message as a line; text inside of it cannot end the line."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"


def id_of(message: Message) -> Id | None:
    """The id of a request or an answer; `None` where there is none that could be matched."""
    given = message.get("id")
    return given if isinstance(given, str) or type(given) is int else None


def is_request(message: Message) -> bool:
    """Whether an answer is expected."""
    return isinstance(message.get("method"), str) and id_of(message) is not None


def is_answer(message: Message) -> bool:
    """Whether this answers a request."""
    return "method" not in message and ("result" in message or "error" in message)


def params_of(message: Message) -> Message:
    """The parameters of a request; empty where there are none."""
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def tool_error(request: Message, text: str) -> Message:
    """The answer to a `tools/call` that did not run: an error that the model reads, as the protocol has it."""
    result: Message = {"content": [{"type": "text", "text": text}], "isError": True}
    if is_modern(request):
        result["resultType"] = "complete"
    return {"jsonrpc": "2.0", "id": request.get("id"), "result": result}


def rpc_error(request_id: Id | None, text: str, code: int = REFUSED) -> Message:
    """The answer to a request that failed here."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}


def is_modern(request: Message) -> bool:
    """Whether a request carries the envelope of the stateless protocol (2026-07-28 and later)."""
    meta = params_of(request).get("_meta")
    return isinstance(meta, dict) and _MODERN in meta


def version_of(request: Message) -> str:
    """The version of the protocol that a request of the stateless one names; empty in others."""
    meta = params_of(request).get("_meta")
    named = meta.get(_MODERN) if isinstance(meta, dict) else None
    return named if isinstance(named, str) and named.isascii() and named.isprintable() else ""


def envelope(request: Message) -> Message:
    """The part of a request's `_meta` that another request of the same client has to carry too."""
    meta = params_of(request).get("_meta")
    if not isinstance(meta, dict):
        return {}
    kept = {name: value for name, value in meta.items() if name.startswith("io.modelcontextprotocol/")}
    return {"_meta": kept} if kept else {}


# The two ends of a wrapped connection: the client's on our own standard streams, the server's at a process of ours.
#
# A message goes out whole or not at all. The server's process gets none of our own environment.

MAX_LINE: Final = 67_108_864  # one message; more would fill the memory
GRACE_S: Final = 5.0  # from the end of its input to the end of the server
_log = logging.getLogger("aegis.mcp")


class ServerEnd(Protocol):
    """The server, wherever it is."""

    async def send(self, message: Message) -> None:
        """Give it one message."""
        ...

    def received(self) -> AsyncIterator[Message]:
        """What it says, until it ends."""
        ...

    async def finish(self) -> None:
        """Tell it that nothing more comes."""
        ...

    async def stop(self) -> int:
        """End it, gently first; its exit code."""
        ...


class ClientEnd:
    """The client, on a pair of streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader = reader
        self._writer = writer

    async def send(self, message: Message) -> None:
        """Give it one message."""
        self._writer.write(written(message))
        await self._writer.drain()

    def lines(self) -> AsyncIterator[bytes]:
        """The lines that it says, until it ends."""
        return lines_of(self._reader)


class ProcessEnd:
    """A server that is a process of ours, in a session of its own."""

    def __init__(self, process: asyncio.subprocess.Process):
        if process.stdin is None or process.stdout is None:
            raise InvalidCall("the server has no standard streams", code="command")
        self._process = process
        self._input = process.stdin
        self._output = process.stdout

    @classmethod
    async def start(cls, command: Sequence[str]) -> ProcessEnd:
        """Start it without our keys in its environment; raises `InvalidCall` where it cannot be."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AEGIS_")}
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environment,
                limit=MAX_LINE,
                start_new_session=True,
            )
        except OSError as error:
            raise InvalidCall(f"`{command[0]}` cannot be started: {error.strerror}", code="command") from error
        return cls(process)

    async def send(self, message: Message) -> None:
        self._input.write(written(message))
        await self._input.drain()

    async def received(self) -> AsyncIterator[Message]:
        async for line in lines_of(self._output):
            try:
                messages = read_messages(line)
            except InvalidCall:
                _log.warning("a line of the server that is no message was dropped")
                continue
            for message in messages:
                yield message

    async def finish(self) -> None:
        self._input.close()

    async def stop(self) -> int:
        process = self._process
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(process.wait(), GRACE_S if number is signal.SIGKILL else 0.2)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        return await process.wait()


async def lines_of(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream; one that is too long ends it."""
    while True:
        try:
            line = await reader.readline()
        except ValueError:
            _log.exception("a message is too large; the connection ends")
            return
        if not line:
            return
        if line.strip():
            yield line


async def standard_streams() -> ClientEnd:
    """The client on our own standard input and output."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    return ClientEnd(reader, asyncio.StreamWriter(transport, protocol, None, loop))
