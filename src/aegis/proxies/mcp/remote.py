"""A server over streamable HTTP as the far end of a wrapped connection, whose near end are standard streams.

Requests are posted side by side; what a server streams in answer, and on a stream of its own once the client is ready,
is passed on as it comes. A stream that breaks off is taken up again by the id of its last event. The session that the
server opened is named in every request and closed at the end. (Protocol 2025-03-26 to 2025-11-25, and the stateless one
of 2026-07-28, in which closing a request is what cancels it.)
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Final

from aegis.dialects.sse import SseReader
from aegis.egress import Egress, Request, Streamed
from aegis.errors import EgressError, ForeignAnswer, InvalidCall
from aegis.proxies.mcp.messages import (
    Id,
    Message,
    id_of,
    is_answer,
    is_modern,
    is_request,
    params_of,
    read_messages,
    rpc_error,
    version_of,
    written,
)

CANCELLED: Final = "notifications/cancelled"
READY: Final = "notifications/initialized"
RETRY_S: Final = 1.0  # where the server does not say when to come back
MAX_RETRY_S: Final = 60.0
MAX_BREAKS: Final = 5  # in a row without a single event: a server that only closes would be asked for ever
END_S: Final = 5.0
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_log = logging.getLogger("aegis.mcp")


class HttpEnd:
    """The server at `url`; `headers` go with every request, and are its credential."""

    def __init__(self, url: str, headers: Mapping[str, str], egress: Egress):
        self._url = url
        self._own = dict(headers)
        self._egress = egress
        self._queue: asyncio.Queue[Message | None] = asyncio.Queue()
        self._requests: dict[Id, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._session = ""
        self._version = ""
        self._modern = False

    async def send(self, message: Message) -> None:
        if is_request(message):
            self._modern = is_modern(message)
            request_id: Id = message["id"]
            task = self._requests[request_id] = self._start(self._request(message))
            task.add_done_callback(lambda _: self._requests.pop(request_id, None))
            return
        if self._modern and message.get("method") == CANCELLED:
            cancelled = params_of(message).get("requestId")
            task_of = self._requests.get(cancelled) if isinstance(cancelled, str | int) else None
            if task_of is not None:
                task_of.cancel()
            return
        try:
            async with self._egress.stream(self._posted(message)) as answer:
                if answer.status >= 400:
                    _log.warning("the server took a message with status %d", answer.status)
        except EgressError as error:
            _log.warning("a message did not reach the server: %s", error)
        if message.get("method") == READY:
            self._start(self._listen())

    async def received(self) -> AsyncIterator[Message]:
        while (message := await self._queue.get()) is not None:
            yield message

    async def finish(self) -> None:
        if self._requests:  # what was asked before is still answered
            await asyncio.wait(set(self._requests.values()), timeout=END_S)
        self._queue.put_nowait(None)

    async def stop(self) -> int:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session:
            try:
                async with asyncio.timeout(END_S), self._egress.stream(self._asked("DELETE")):
                    pass
            except (EgressError, TimeoutError) as error:
                _log.warning("the server's session could not be closed: %s", error)
        await self._egress.aclose()
        return 0

    async def _request(self, message: Message) -> None:
        """One request, to its answer or to the error that stands for it."""
        request_id: Id = message["id"]
        try:
            request: Request | None = self._posted(message)
            breaks = 0
            while request is not None:
                async with self._egress.stream(request) as answer:
                    if message["method"] == "initialize":
                        self._session = answer.headers.get("mcp-session-id", "")
                    seen = await self._taken(answer, message)
                if seen.answered:
                    return
                # The stream broke off, or the server closed it to be asked again later (SEP-1699).
                breaks = 0 if seen.events else breaks + 1
                request = self._again(seen) if breaks < MAX_BREAKS else None
                if request is not None:
                    await asyncio.sleep(seen.retry)
            failure = "the server did not answer"
        except EgressError as error:
            failure = f"the server cannot be spoken to: {error}"
        except ForeignAnswer as error:
            failure = str(error)
        except InvalidCall as error:
            failure = f"the server's answer was not understood: {error}"
        self._queue.put_nowait(rpc_error(request_id, failure))

    async def _taken(self, answer: Streamed, message: Message) -> _Seen:
        """Pass on what an answer holds."""
        seen = _Seen(greeting=message["method"] == "initialize")
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream" and answer.status == 200:
            await self._events(answer, seen, message["id"])
            return seen
        body = b"".join([chunk async for chunk in answer.chunks()])
        if answer.status in (401, 403):
            raise ForeignAnswer(f"the server refused the credential (status {answer.status})")
        if kind == "application/json" and body.strip():
            for one in read_messages(body):
                refused = answer.status >= 400 and is_answer(one)
                self._pass({**one, "id": message["id"]} if refused else one, message["id"], seen)
        if not seen.answered:
            raise ForeignAnswer(f"the server gave no answer (status {answer.status})")
        return seen

    async def _events(self, answer: Streamed, seen: _Seen, request_id: Id | None) -> None:
        reader = SseReader()
        try:
            async for chunk in answer.chunks():
                for event in reader.feed(chunk):
                    seen.event_id = event.id or seen.event_id
                    if event.retry.isascii() and event.retry.isdigit() and len(event.retry) < 9:
                        seen.retry = min(MAX_RETRY_S, int(event.retry) / 1_000)
                    for one in read_messages(event.data.encode()) if event.data.strip() else ():
                        seen.events = True
                        self._pass(one, request_id, seen)
                if seen.answered:
                    return
        except EgressError as error:
            _log.warning("a stream of the server broke off: %s", error)

    def _pass(self, message: Message, request_id: Id | None, seen: _Seen) -> None:
        if is_answer(message) and id_of(message) == request_id and request_id is not None:
            seen.answered = True
            result = message.get("result")
            version = result.get("protocolVersion") if seen.greeting and isinstance(result, dict) else None
            if isinstance(version, str) and version.isascii() and version.isprintable():
                self._version = version
        self._queue.put_nowait(message)

    async def _listen(self) -> None:
        """The server's own stream, as long as it offers one."""
        if not self._session:
            return
        seen, breaks = _Seen(), 0
        while breaks < MAX_BREAKS:
            seen.events = False
            try:
                async with self._egress.stream(self._asked("GET", seen.event_id)) as answer:
                    if answer.status != 200:
                        return  # it has none (405), or does not know the session any more
                    await self._events(answer, seen, None)
            except (EgressError, ForeignAnswer, InvalidCall) as error:
                _log.warning("the server's own stream failed: %s", error)
            breaks = 0 if seen.events else breaks + 1
            await asyncio.sleep(seen.retry)

    def _again(self, seen: _Seen) -> Request | None:
        return self._asked("GET", seen.event_id) if seen.event_id and not self._modern else None

    def _posted(self, message: Message) -> Request:
        headers = {**self._common(), "content-type": "application/json"}
        if is_modern(message):  # what the envelope says stands in headers too
            headers["mcp-protocol-version"] = version_of(message)
            headers["mcp-method"] = str(message.get("method"))
            named = params_of(message).get(_NAMED.get(str(message.get("method")), ""))
            if isinstance(named, str):
                headers["mcp-name"] = _header(named)
        return Request(method="POST", url=self._url, headers=headers, body=written(message))

    def _asked(self, method: str, event_id: str = "") -> Request:
        again = {"last-event-id": event_id} if event_id else {}
        return Request(method=method, url=self._url, headers={**self._common(), **again})

    def _common(self) -> dict[str, str]:
        headers = {"accept": "application/json, text/event-stream", "user-agent": "aegis", **self._own}
        if self._session:
            headers["mcp-session-id"] = self._session
        if self._version:
            headers["mcp-protocol-version"] = self._version
        return headers

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Seen:
    """What came of one answer so far."""

    def __init__(self, *, greeting: bool = False) -> None:
        self.greeting = greeting
        self.answered = False
        self.events = False
        self.event_id = ""
        self.retry = RETRY_S


def _header(value: str) -> str:
    """A value of the body as the protocol has it in a header (2026-07-28, transports, custom headers)."""
    if value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'surrogatepass')).decode('ascii')}?="
