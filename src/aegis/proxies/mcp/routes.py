"""`/mcp/NAME`: MCP servers over streamable HTTP, behind the gateway's credentials.

One message a request, or a batch in the one version of the protocol that has them (2025-03-26). Requests are judged
before they go on, answers before they go back, whether they come whole or in a stream of events; everything else
passes, ids of events included. A held call asks the person at the client, where an approver's key came with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from aegis.config.config import Config
from aegis.core.bounded import Bounded
from aegis.core.outcome import Reason
from aegis.core.principal import Principal
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.scope import Session
from aegis.errors import EgressError, ForeignAnswer, InvalidCall
from aegis.gate.events import refused_tool
from aegis.gate.gate import Acting
from aegis.proxies.mcp.exchange import McpExchange, People, asked, check_page, elicit_now, resolve_now
from aegis.proxies.mcp.judge import AskingDecider, McpJudge, Rounds
from aegis.proxies.mcp.messages import Message
from aegis.proxies.mcp.remote import Upstream, Upstreams
from aegis.proxies.models.routes import session_in
from aegis.server.admission import PROXY, permit_running
from aegis.server.http import Disconnected, error_response, read_body
from aegis.server.services import Services

MAX_MESSAGE_BYTES: Final = 33_554_432
MAX_JUDGES: Final = 10_000  # sessions whose open requests are remembered
SEND_S: Final = 60.0
_log = logging.getLogger("aegis.server.mcp")


class McpProxies:
    """The MCP servers of one gateway."""

    def __init__(self, services: Services, home: Path):
        self.services = services
        self._home = home
        self._in_force: tuple[Config, Upstreams] | None = None
        self._replaced: list[Upstreams] = []
        self.people = People(services)
        self._judges: Bounded[tuple[str, str, str], McpJudge] = Bounded(MAX_JUDGES, MAX_JUDGES)
        self._rounds: Bounded[tuple[str, str], Rounds] = Bounded(MAX_JUDGES, MAX_JUDGES)

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

    def judge(self, principal: Principal, server: Upstream, headers: Headers, upstreams: Upstreams) -> McpJudge:
        """Who judges a request: one for each session of the protocol, a new one where there is no session."""
        session = headers.get("mcp-session-id", "")
        key = (principal.id, server.name, session)
        known = self._judges.get(key) if session else None
        if known is not None:
            return known
        services = self.services
        wait = float(services.policy.config.settings.proxies.wait)
        acting = Acting(services.gate, principal, services.decide)
        enforcer = Enforcer(AskingDecider(acting, elicit_now, resolve_now), approval_timeout=wait)
        name = session_in(headers)

        async def ask(method: str, params: Message) -> Message:
            return await asked(upstreams, server, headers, method, params)

        async def refused(tool: str, reason: Reason) -> None:
            unit = refused_tool(
                tool, server=f"mcp:{server.name}", reason=reason, session=name or None, principal=principal
            )
            await services.gate.arecord(unit)

        made = McpJudge(
            server=f"mcp:{server.name}",
            enforcer=enforcer,
            tools=server.tools,
            ask=ask,
            session=Session(name=name) if name else None,
            refused=refused,
            rounds=self._rounds_of(principal, server),
        )
        if session:
            self._judges.put(key, made)
        return made

    def _rounds_of(self, principal: Principal, server: Upstream) -> Rounds:
        """The rounds that are open between the two: a request of the stateless protocol has no other bond."""
        key = (principal.id, server.name)
        found = self._rounds.get(key)
        if found is None:
            found = Rounds()
            self._rounds.put(key, found)
        return found

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
            check_page(headers, scope["scheme"])
            given = headers.getlist("authorization")
            credential = given[0].encode("latin-1") if len(given) == 1 else b"" if given else None
            principal = await self._proxies.services.principal(credential)
            await permit_running(principal, PROXY, self._proxies.services.gate)
            upstreams = self._proxies.upstreams()
            server = upstreams.named(scope["path_params"]["name"])
            body = await read_body(scope, receive, MAX_MESSAGE_BYTES) if scope["method"] == "POST" else b""
        except Disconnected:
            return
        except Exception as error:
            await error_response(error, scope["aegis.request_id"])(scope, receive, send)
            return
        exchange = McpExchange(
            self._proxies.judge(principal, server, headers, upstreams),
            self._proxies.people,
            principal,
            server,
            headers,
            upstreams,
            put,
        )
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


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _refusal(error: Exception) -> Exception:
    if isinstance(error, EgressError | ForeignAnswer):
        return InvalidCall("the MCP server's answer was not understood", code="upstream_failed", status=502)
    return error
