"""A server over standard input and output, wrapped: the host speaks to us as to the server, and the server to us.

Everything that is not judged passes at once and as it is, in both directions: notifications, progress, cancellation,
sampling, elicitation and roots keep their ids. The server gets none of our own environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Final

from aegis.errors import AegisError, InvalidCall
from aegis.proxies.mcp.judge import JUDGED, Judge
from aegis.proxies.mcp.messages import (
    PARSE_ERROR,
    Id,
    Message,
    id_of,
    is_answer,
    is_request,
    params_of,
    read_messages,
    rpc_error,
    written,
)

MAX_LINE: Final = 67_108_864  # one message; more would fill the memory
ASK_S: Final = 30.0  # how long the server may take to announce its tools
GRACE_S: Final = 5.0  # from the end of its input to the end of the server
CANCELLED: Final = "notifications/cancelled"
_log = logging.getLogger("aegis.mcp")


class Pipes:
    """The four ends between a client and a server; lines out are whole or not at all."""

    def __init__(
        self,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ):
        self.from_client = from_client
        self.from_server = from_server
        self._to_client = to_client
        self._to_server = to_server

    async def client(self, message: Message) -> None:
        """Send one message to the client."""
        self._to_client.write(written(message))
        await self._to_client.drain()

    async def server(self, message: Message) -> None:
        """Send one message to the server."""
        self._to_server.write(written(message))
        await self._to_server.drain()

    def close_server(self) -> None:
        """Tell the server that nothing more comes."""
        self._to_server.close()


class Wrapped:
    """One connection through the proxy."""

    def __init__(self, pipes: Pipes):
        self._pipes = pipes
        self._judge: Judge | None = None
        self._deciding: dict[Id, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._own: dict[str, asyncio.Future[Message]] = {}
        self.client_capabilities: Message = {}

    def judged_by(self, judge: Judge) -> None:
        """Have `judge` look at what is more than passed on."""
        self._judge = judge

    async def run(self) -> None:
        """Pass messages until one side ends."""
        client = asyncio.ensure_future(self._read_client())
        server = asyncio.ensure_future(self._read_server())
        try:
            await asyncio.wait({client, server}, return_when=asyncio.FIRST_COMPLETED)
            if client.done():
                # What was asked before is still answered: the server has time to end by itself.
                await self._settle()
                self._pipes.close_server()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(server), GRACE_S)
            await self._settle()
        finally:
            for task in (client, server, *self._tasks):
                task.cancel()
            ended = await asyncio.gather(client, server, *self._tasks, return_exceptions=True)
        for one in ended:
            if isinstance(one, Exception):
                raise one

    async def ask_server(self, method: str, params: Message) -> Message:
        """Put a request of our own to the server."""
        async with asyncio.timeout(ASK_S):
            return await self._ask(self._pipes.server, method, params)

    async def elicit(self, params: Message) -> Message | None:
        """Put an elicitation to the client; `None` where it cannot show one, or fails to."""
        if "elicitation" not in self.client_capabilities:
            return None
        answer = await self._ask(self._pipes.client, "elicitation/create", params)
        result = answer.get("result")
        return result if isinstance(result, dict) else None

    async def _ask(self, send: Callable[[Message], Awaitable[None]], method: str, params: Message) -> Message:
        name = f"aegis-{secrets.token_hex(12)}"
        future = self._own[name] = asyncio.get_running_loop().create_future()
        try:
            message = {"jsonrpc": "2.0", "id": name, "method": method, "params": params}
            await send(message)
            answer: Message = await future
            return answer
        finally:
            del self._own[name]

    async def _read_client(self) -> None:
        async for line in _lines(self._pipes.from_client):
            try:
                messages = read_messages(line)
            except InvalidCall as error:
                await self._pipes.client(rpc_error(None, error.message, PARSE_ERROR))
                continue
            for message in messages:
                await self._from_client(message)

    async def _from_client(self, message: Message) -> None:
        if self._own_answer(message):
            return
        if message.get("method") == "initialize":
            capabilities = params_of(message).get("capabilities")
            self.client_capabilities = capabilities if isinstance(capabilities, dict) else {}
        if is_request(message) and message["method"] in JUDGED:
            task = self._start(self._judged_request(message))
            request_id: Id = message["id"]
            self._deciding[request_id] = task
            task.add_done_callback(lambda _: self._deciding.pop(request_id, None))
            if message["method"] == "initialize":  # nothing else may overtake it
                await asyncio.wait({task})
            return
        if message.get("method") == CANCELLED:
            cancelled = params_of(message).get("requestId")
            if isinstance(cancelled, str | int):
                deciding = self._deciding.pop(cancelled, None)
                if deciding is not None and not deciding.done():
                    deciding.cancel()  # the server has never heard of it
                    return
                if self._judge is not None:
                    self._judge.forget(cancelled)
        await self._pipes.server(message)

    async def _judged_request(self, message: Message) -> None:
        judge = self._judge
        try:
            if judge is None:
                raise InvalidCall("nobody judges this connection")
            verdict = await judge.request(message)
        except (AegisError, TimeoutError) as error:
            _log.warning("a request was refused: %s", error)
            await self._pipes.client(rpc_error(id_of(message), "the call could not be checked, so it was not made"))
            return
        if verdict.reply is not None:
            await self._pipes.client(verdict.reply)
        elif verdict.forward is not None:
            # From here on a cancellation is the server's affair.
            self._deciding.pop(message["id"], None)
            await self._pipes.server(verdict.forward)

    async def _read_server(self) -> None:
        async for line in _lines(self._pipes.from_server):
            try:
                messages = read_messages(line)
            except InvalidCall:
                _log.warning("a line of the server that is no message was dropped")
                continue
            for message in messages:
                await self._from_server(message)

    async def _from_server(self, message: Message) -> None:
        if self._own_answer(message):
            return
        if is_answer(message):
            self._start(self._judged_answer(message))
            return
        if self._judge is not None:
            self._judge.notified(message)
        await self._pipes.client(message)

    async def _judged_answer(self, message: Message) -> None:
        try:
            seen = message if self._judge is None else await self._judge.answer(message)
        except AegisError as error:
            _log.warning("an answer was withheld: %s", error)
            seen = rpc_error(id_of(message), "the answer was withheld: it could not be checked")
        await self._pipes.client(seen)

    def _own_answer(self, message: Message) -> bool:
        request_id = id_of(message)
        future = self._own.get(request_id) if isinstance(request_id, str) and is_answer(message) else None
        if future is None:
            return False
        if not future.done():
            future.set_result(message)
        return True

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _settle(self) -> None:
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=GRACE_S)


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
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


async def standard_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Our own standard input and output as streams."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


async def start_server(command: Sequence[str]) -> asyncio.subprocess.Process:
    """The server's process, in a session of its own, without our keys in its environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AEGIS_")}
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
        limit=MAX_LINE,
        start_new_session=True,
    )


async def stop_server(process: asyncio.subprocess.Process) -> int:
    """End the server's whole group, gently first; its exit code."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(process.wait(), GRACE_S if number is signal.SIGKILL else 0.2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
    return await process.wait()
