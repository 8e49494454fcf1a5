"""The two ends of a wrapped connection: the client's on our own standard streams, the server's at a process of ours.

A message goes out whole or not at all. The server's process gets none of our own environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

from aegis.errors import InvalidCall
from aegis.proxies.mcp.messages import Message, read_messages, written

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
