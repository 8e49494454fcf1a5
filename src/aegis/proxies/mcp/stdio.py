"""A server over standard input and output, wrapped: the host speaks to us as to the server, and the server to us.

Everything that is not judged passes at once and as it is, in both directions: notifications, progress, cancellation,
sampling, elicitation and roots keep their ids. The server is a process of ours, or is spoken to over HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

from aegis.errors import AegisError, InvalidCall
from aegis.proxies.mcp.judge import JUDGED, McpJudge
from aegis.proxies.mcp.messages import (
    GRACE_S,
    INVALID_REQUEST,
    PARSE_ERROR,
    UNSUPPORTED,
    ClientEnd,
    Id,
    Message,
    ServerEnd,
    asked_of,
    id_of,
    is_answer,
    is_request,
    params_of,
    rpc_error,
)

ASK_S: Final = 30.0  # how long the server may take to announce its tools
CANCELLED: Final = "notifications/cancelled"
_log = logging.getLogger("aegis.mcp")


class Wrapped:
    """One connection through the proxy."""

    def __init__(self, client: ClientEnd, server: ServerEnd):
        self._client = client
        self._server = server
        self._judge: McpJudge | None = None
        self._deciding: dict[Id, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._own: dict[str, asyncio.Future[Message]] = {}
        self._greeting: Id | None = None
        self._version = ""
        self.client_capabilities: Message = {}

    def judged_by(self, judge: McpJudge) -> None:
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
                await self._server.finish()
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
            return await self._ask(self._server.send, method, params)

    async def elicit(self, params: Message) -> Message | None:
        """Put an elicitation to the client; `None` where it cannot show one, or fails to."""
        if "elicitation" not in self.client_capabilities:
            return None
        answer = await self._ask(self._client.send, "elicitation/create", params)
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
        async for line in self._client.lines():
            try:
                messages = asked_of(line, self._version)
            except InvalidCall as error:
                code = INVALID_REQUEST if error.code == UNSUPPORTED else PARSE_ERROR
                await self._client.send(rpc_error(None, error.message, code))
                continue
            for message in messages:
                await self._from_client(message)

    async def _from_client(self, message: Message) -> None:
        if self._own_answer(message):
            return
        if message.get("method") == "initialize":
            capabilities = params_of(message).get("capabilities")
            self.client_capabilities = capabilities if isinstance(capabilities, dict) else {}
            self._greeting = id_of(message)
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
        await self._server.send(message)

    async def _judged_request(self, message: Message) -> None:
        judge = self._judge
        try:
            if judge is None:
                raise InvalidCall("nobody judges this connection")
            verdict = await judge.request(message)
        except (AegisError, TimeoutError) as error:
            _log.warning("a request was refused: %s", error)
            await self._client.send(rpc_error(id_of(message), "the call could not be checked, so it was not made"))
            return
        if verdict.reply is not None:
            await self._client.send(verdict.reply)
        elif verdict.forward is not None:
            # From here on a cancellation is the server's affair.
            self._deciding.pop(message["id"], None)
            await self._server.send(verdict.forward)

    async def _read_server(self) -> None:
        async for message in self._server.received():
            await self._from_server(message)

    async def _from_server(self, message: Message) -> None:
        if self._own_answer(message):
            return
        if is_answer(message):
            result = message.get("result")
            if self._greeting is not None and id_of(message) == self._greeting and isinstance(result, dict):
                self._version, self._greeting = str(result.get("protocolVersion")), None
            self._start(self._judged_answer(message))
            return
        if self._judge is not None:
            self._judge.notified(message)
        await self._client.send(message)

    async def _judged_answer(self, message: Message) -> None:
        try:
            seen = message if self._judge is None else await self._judge.answer(message)
        except AegisError as error:
            _log.warning("an answer was withheld: %s", error)
            seen = rpc_error(id_of(message), "the answer was withheld: it could not be checked")
        await self._client.send(seen)

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
