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
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from aegis.config.config import Config
from aegis.detect.rules.scanner import Scanner
from aegis.errors import ConfigError, EgressError, ForeignAnswer, InvalidCall, KeyFileError
from aegis.keys.references import Secret, read_secret
from aegis.outbound.client import Egress, EgressPolicy, Request, Streamed
from aegis.policy.guards.descriptions import DescriptionScanner
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
from aegis.proxies.mcp.tools import PinFile, ToolBook
from aegis.wire.sse import SseReader

# MCP servers over streamable HTTP: where they are, and what crosses the line to and from them.

MAX_ANSWER_BYTES: Final = 67_108_864
TOTAL_S: Final = 3_600.0  # a stream is opened anew after this, as the protocol provides for
IDLE_S: Final = 900.0  # a stream on which nothing comes is cut; the client comes back with its last id
PINS: Final = "tool-pins.json"

# The headers of the protocol (2025-11-25 and 2026-07-28), and nothing else of the client's.
_TOLD: Final = ("accept", "mcp-session-id", "mcp-protocol-version", "last-event-id", "mcp-method", "mcp-name")
_PARAMETERS: Final = "mcp-param-"
_PASSED: Final = ("content-type", "mcp-session-id", "mcp-protocol-version", "retry-after", "allow")


@dataclass(frozen=True, kw_only=True, slots=True)
class Upstream:
    """One server, ready to be asked."""

    name: str
    url: str
    secret: Secret | None = field(repr=False)
    tools: ToolBook

    def headers(self, told: Mapping[str, str], *, patched: bool = False) -> dict[str, str]:
        """The headers of a request to it; those that repeat arguments are left out where arguments were changed."""
        headers = {name: told[name] for name in _TOLD if name in told}
        if not patched:
            headers |= {name: value for name, value in told.items() if name.startswith(_PARAMETERS)}
        headers["content-type"] = "application/json"
        headers["user-agent"] = "aegis"
        if self.secret is not None:
            headers["authorization"] = f"Bearer {self.secret.reveal()}"
        return headers

    def told(self, headers: Mapping[str, str]) -> dict[str, str]:
        """What of its answer's headers the client is told."""
        return {
            name: self.clean(headers[name].encode()).decode()
            for name in _PASSED
            if name in headers and headers[name].isascii() and headers[name].isprintable()
        }

    def clean(self, data: bytes) -> bytes:
        """`data` without the server's own credential."""
        return data if self.secret is None else self.secret.redacted(data)


class Upstreams:
    """The servers of one configuration, over one client for everything that goes out."""

    def __init__(self, servers: Sequence[Upstream], egress: Egress):
        self._servers = {one.name: one for one in servers}
        self._egress = egress

    @classmethod
    def of(cls, config: Config, scanner: Scanner, home: Path) -> Upstreams:
        """Those that the configuration names; raises `ConfigError` for a key that cannot be had."""
        problems = []
        found: list[Upstream] = []
        private: set[str] = set()
        for name, one in config.settings.proxies.mcp.items():
            secret = None
            try:
                secret = None if one.key is None else read_secret(one.key)
            except KeyFileError as error:
                where = ("proxies", "mcp", name, "key")
                problems.append(config.problem(where, f"the key of the MCP server `{name}` cannot be had: {error}"))
                continue
            if one.private:
                parts = urlsplit(one.url)
                private.add(f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}")
            book = ToolBook(
                f"mcp:{name}", DescriptionScanner(scanner), PinFile(home / PINS), only_pinned=one.only_pinned
            )
            found.append(Upstream(name=name, url=one.url, secret=secret, tools=book))
        if problems:
            raise ConfigError(tuple(problems))
        policy = EgressPolicy(
            private=frozenset(private), total_seconds=TOTAL_S, idle_seconds=IDLE_S, max_bytes=MAX_ANSWER_BYTES
        )
        return cls(found, Egress(policy))

    def named(self, name: str) -> Upstream:
        """The server of that name; raises `InvalidCall` (404) where there is none."""
        found = self._servers.get(name)
        if found is None:
            raise InvalidCall("there is no MCP server of this name", code="not_found", status=404)
        return found

    @asynccontextmanager
    async def ask(
        self, server: Upstream, method: str, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[Streamed]:
        """The server's answer once its head is here; raises `InvalidCall` (502) where none comes."""
        request = Request(method=method, url=server.url, headers=headers, body=body)
        try:
            async with self._egress.stream(request) as answer:
                yield answer
        except EgressError as error:
            raise InvalidCall(
                f"the MCP server `{server.name}` did not answer as it should", code="upstream_failed", status=502
            ) from error

    async def aclose(self) -> None:
        """Close every connection."""
        await self._egress.aclose()


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
