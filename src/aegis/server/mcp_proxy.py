"""`/mcp/NAME`: MCP servers over streamable HTTP, behind the gateway's credentials.

One message a request, as the protocol has it since 2025-06-18. Requests are judged before they go on, answers before
they go back, whether they come whole or in a stream of events; everything else passes, ids of events included.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from aegis.adapters._enforce import Enforcer
from aegis.adapters._memory import Bounded
from aegis.adapters.context import Session
from aegis.core.outcome import Reason
from aegis.core.principal import Principal
from aegis.dialects.model import Event
from aegis.dialects.sse import SseReader, sse_bytes
from aegis.egress import Streamed
from aegis.errors import AegisError, EgressError, ForeignAnswer, InvalidCall
from aegis.gate.acting import Acting
from aegis.gate.alarms import refused_tool
from aegis.pipeline.config import Config
from aegis.proxies.mcp.judge import JUDGED, LIST, Judge
from aegis.proxies.mcp.messages import Message, id_of, is_answer, is_request, read_messages, rpc_error, written
from aegis.proxies.mcp.upstreams import Upstream, Upstreams
from aegis.server.body import Disconnected, read_body
from aegis.server.credentials import principal_of
from aegis.server.errors import error_response
from aegis.server.model_proxy import session_in
from aegis.server.permissions import DECIDE, permit
from aegis.server.services import Services

MAX_MESSAGE_BYTES: Final = 33_554_432
MAX_JUDGES: Final = 10_000  # sessions whose open requests are remembered
SEND_S: Final = 60.0
Put = Callable[[Mapping[str, object]], Awaitable[None]]
_log = logging.getLogger("aegis.server.mcp")


class McpProxies:
    """The MCP servers of one gateway."""

    def __init__(self, services: Services, home: Path):
        self.services = services
        self._home = home
        self._in_force: tuple[Config, Upstreams] | None = None
        self._replaced: list[Upstreams] = []
        self._judges: Bounded[tuple[str, str, str], Judge] = Bounded(MAX_JUDGES, MAX_JUDGES)

    def routes(self) -> list[BaseRoute]:
        """The endpoint of every server."""
        return [Route("/mcp/{name}", McpProxy(self), methods=["POST", "GET", "DELETE"])]

    def upstreams(self) -> Upstreams:
        """The servers of the configuration in force; raises `ConfigError` for a key that cannot be had."""
        services = self.services
        config = services.policy.config
        if self._in_force is None or self._in_force[0].settings.proxies.mcp != config.settings.proxies.mcp:
            fresh = Upstreams.of(config, services.policy.current.scanner, self._home)
            if self._in_force is not None:
                self._replaced.append(self._in_force[1])
            self._in_force = (config, fresh)
        return self._in_force[1]

    def judge(self, principal: Principal, server: Upstream, headers: Headers, upstreams: Upstreams) -> Judge:
        """Who judges a request: one for each session of the protocol, a new one where there is no session."""
        session = headers.get("mcp-session-id", "")
        key = (principal.id, server.name, session)
        known = self._judges.get(key) if session else None
        if known is not None:
            return known
        services = self.services
        wait = float(services.policy.config.settings.proxies.wait)
        enforcer = Enforcer(Acting(services.gate, principal, services.decide), approval_timeout=wait)
        name = session_in(headers)

        async def ask(method: str, params: Message) -> Message:
            return await _asked(upstreams, server, headers, method, params)

        async def refused(tool: str, reason: Reason) -> None:
            unit = refused_tool(
                tool, server=f"mcp:{server.name}", reason=reason, session=name or None, principal=principal
            )
            await services.gate.arecord(unit)

        made = Judge(
            server=f"mcp:{server.name}",
            enforcer=enforcer,
            tools=server.tools,
            ask=ask,
            session=Session(name=name) if name else None,
            refused=refused,
        )
        if session:
            self._judges.put(key, made)
        return made

    async def aclose(self) -> None:
        """Close every connection to a server."""
        open_ones = [*self._replaced, *([self._in_force[1]] if self._in_force else [])]
        self._in_force, self._replaced = None, []
        for one in open_ones:
            await one.aclose()


class McpProxy:
    """The endpoint of every server."""

    def __init__(self, proxies: McpProxies):
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def put(message: Mapping[str, object]) -> None:
            nonlocal begun
            begun = True
            await asyncio.wait_for(send(dict(message)), SEND_S)

        try:
            headers = Headers(scope=scope)
            given = headers.getlist("authorization")
            credential = given[0].encode("latin-1") if len(given) == 1 else b"" if given else None
            principal = principal_of(credential, self._proxies.services.keys)
            permit(principal, DECIDE)
            upstreams = self._proxies.upstreams()
            server = upstreams.named(scope["path_params"]["name"])
            body = await read_body(scope, receive, MAX_MESSAGE_BYTES) if scope["method"] == "POST" else b""
        except Disconnected:
            return
        except Exception as error:
            await error_response(error, scope["aegis.request_id"])(scope, receive, send)
            return
        exchange = _Exchange(self._proxies, principal, server, headers, upstreams, put)
        work = asyncio.ensure_future(exchange.run(scope["method"], body))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not work.done():
                work.cancel()
            (failure, _) = await asyncio.gather(work, gone, return_exceptions=True)
        if isinstance(failure, Exception):
            _log.warning("an MCP exchange failed", extra={"error": type(failure).__name__})
            if not begun:
                refusal = _refusal(failure)
                await error_response(refusal, scope["aegis.request_id"])(scope, receive, send)
            else:
                raise failure


class _Exchange:
    """One request to a server and its answer."""

    def __init__(
        self,
        proxies: McpProxies,
        principal: Principal,
        server: Upstream,
        headers: Headers,
        upstreams: Upstreams,
        put: Put,
    ):
        self._server = server
        self._headers = headers
        self._upstreams = upstreams
        self._put = put
        self._replayed = False
        self._judge = proxies.judge(principal, server, headers, upstreams)

    async def run(self, method: str, body: bytes) -> None:
        """Answer the request."""
        patched = False
        self._replayed = method == "GET"
        if method == "POST":
            messages = read_messages(body)
            if len(messages) != 1:
                raise InvalidCall("batches are not proxied", code="unsupported", status=400)
            (message,) = messages
            if is_request(message) and message["method"] in JUDGED:
                verdict = await self._judge.request(message)
                if verdict.reply is not None:
                    await self._whole(200, written(verdict.reply), {"content-type": "application/json"})
                    return
                patched = verdict.forward is not message
                body = written(verdict.forward or message)
        headers = self._server.headers(self._headers, patched=patched)
        async with self._upstreams.ask(self._server, method, headers, body) as answer:
            await self._relay(answer)

    async def _relay(self, answer: Streamed) -> None:
        headers = self._server.told(answer.headers)
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status in (401, 403):  # its words are about our credential
            raise InvalidCall(
                f"the MCP server `{self._server.name}` rejected the gateway", code="upstream_credential", status=502
            )
        if kind == "text/event-stream" and answer.status == 200:
            await self._stream(answer, headers)
            return
        body = b"".join([chunk async for chunk in answer.chunks()])
        if body.strip() and kind == "application/json":
            (message,) = read_messages(body)
            body = written(await self._seen(message))
        elif body.strip() and answer.status < 400:
            raise ForeignAnswer("an answer of the MCP server is neither JSON nor a stream of events")
        await self._whole(answer.status, self._server.clean(body), headers)

    async def _stream(self, answer: Streamed, headers: Mapping[str, str]) -> None:
        await self._put({"type": "http.response.start", "status": 200, "headers": _listed(headers)})
        reader = SseReader()
        async for events in _events(reader, answer):
            for event in events:
                body = self._server.clean(sse_bytes(await self._event(event)))
                await self._put({"type": "http.response.body", "body": body, "more_body": True})
        await self._put({"type": "http.response.body", "body": b""})

    async def _event(self, event: Event) -> Event:
        if not event.data.strip():
            return event  # a priming event has an id alone
        (message,) = read_messages(event.data.encode())
        seen = written(await self._seen(message)).decode().rstrip("\n")
        return Event(event=event.event, data=seen, id=event.id, retry=event.retry)

    async def _seen(self, message: Message) -> Message:
        if not is_answer(message):
            self._judge.notified(message)
            return message
        if self._replayed and not self._judge.expects(message):
            # An answer that comes again after a break, to a question that this gateway does not remember.
            return rpc_error(id_of(message), "the answer was withheld: it belongs to no request known here")
        try:
            return await self._judge.answer(message)
        except AegisError as error:
            _log.warning("an answer was withheld", extra={"error": type(error).__name__})
            return rpc_error(id_of(message), "the answer was withheld: it could not be checked")

    async def _whole(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        listed = [*_listed(headers), (b"content-length", b"%d" % len(body))]
        await self._put({"type": "http.response.start", "status": status, "headers": listed})
        await self._put({"type": "http.response.body", "body": body})


async def _asked(upstreams: Upstreams, server: Upstream, told: Headers, method: str, params: Message) -> Message:
    """Put a request of our own to a server, as its client would."""
    request: Message = {"jsonrpc": "2.0", "id": "aegis-list", "method": LIST, "params": params}
    headers = {**server.headers(told, patched=True), "accept": "application/json, text/event-stream"}
    if "mcp-method" in headers:
        headers["mcp-method"] = method
        headers.pop("mcp-name", None)
    async with upstreams.ask(server, "POST", headers, written(request)) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            async for events in _events(SseReader(), answer):
                for event in events:
                    for message in read_messages(event.data.encode()) if event.data.strip() else ():
                        if message.get("id") == request["id"]:
                            return message
            return {}
        body = b"".join([chunk async for chunk in answer.chunks()])
    if answer.status != 200:
        return {}
    (message,) = read_messages(body)
    return message


async def _events(reader: SseReader, answer: Streamed) -> AsyncIterator[list[Event]]:
    async for chunk in answer.chunks():
        yield reader.feed(chunk)
    yield reader.end()


def _listed(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _refusal(error: Exception) -> Exception:
    if isinstance(error, EgressError | ForeignAnswer):
        return InvalidCall("the MCP server's answer was not understood", code="upstream_failed", status=502)
    return error
