"""One wrapped server, put together: the process, the pipes, who decides, and what the tools may say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.core.decider import Decider
    from aegis.core.outcome import Reason
    from aegis.detect.rules.scanner import Scanner
    from aegis.proxies.mcp.judge import Refused, Resolve
    from aegis.proxies.mcp.messages import ServerEnd


@dataclass(frozen=True, kw_only=True, slots=True)
class Wrapping:
    """How a server is wrapped: a command, or where `upstream` is given the server at that URL, with `headers`.

    `resolve` answers approvals with an approver's key, where the host was given one.
    """

    name: str
    command: Sequence[str]
    decider: Decider
    scanner: Scanner
    pins: Path
    only_pinned: bool
    session: str
    wait_seconds: float
    resolve: Resolve | None = None
    upstream: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def run_wrapped(wrapping: Wrapping) -> int:
    """Run the server behind the proxy until one side ends; its exit code, or 1 where a signal ended it."""
    code = asyncio.run(_run(wrapping))
    return code if 0 <= code < 256 else 1


async def _run(wrapping: Wrapping) -> int:
    from aegis.enforce.context import Session
    from aegis.enforce.enforcement import Enforcer
    from aegis.policy.guards.descriptions import DescriptionScanner
    from aegis.proxies.mcp.judge import AskingDecider
    from aegis.proxies.mcp.judge import McpJudge as Judge
    from aegis.proxies.mcp.messages import standard_streams
    from aegis.proxies.mcp.stdio import Wrapped
    from aegis.proxies.mcp.tools import PinFile, ToolBook

    server_end = await _server(wrapping)
    try:
        connection = Wrapped(await standard_streams(), server_end)
        decider = wrapping.decider
        if wrapping.resolve is not None:
            decider = AskingDecider(decider, connection.elicit, wrapping.resolve)
        server = f"mcp:{wrapping.name}"
        connection.judged_by(
            Judge(
                server=server,
                enforcer=Enforcer(decider, approval_timeout=wrapping.wait_seconds),
                tools=ToolBook(
                    server,
                    DescriptionScanner(wrapping.scanner),
                    PinFile(wrapping.pins),
                    only_pinned=wrapping.only_pinned,
                ),
                ask=connection.ask_server,
                session=Session(name=wrapping.session) if wrapping.session else None,
                refused=_recorder(wrapping),
            )
        )
        await connection.run()
    finally:
        code = await server_end.stop()
    return code


async def _server(wrapping: Wrapping) -> ServerEnd:
    """The server's end of the connection, started or about to be asked."""
    from aegis.outbound.client import Egress
    from aegis.outbound.values import EgressPolicy
    from aegis.proxies.mcp.messages import ProcessEnd
    from aegis.proxies.mcp.remote import IDLE_S, MAX_ANSWER_BYTES, TOTAL_S, HttpEnd

    if not wrapping.upstream:
        return await ProcessEnd.start(wrapping.command)
    try:
        parts = urlsplit(wrapping.upstream)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise InvalidCall("the server's address is not a URL", code="upstream") from error
    # Whoever names the address here means it, be it on this machine or inside of a network.
    policy = EgressPolicy(
        private=frozenset({f"{parts.hostname}:{port}"}),
        total_seconds=TOTAL_S,
        idle_seconds=IDLE_S,
        max_bytes=MAX_ANSWER_BYTES,
    )
    return HttpEnd(wrapping.upstream, wrapping.headers, Egress(policy))


def _recorder(wrapping: Wrapping) -> Refused | None:
    """Records what is refused undecided, in the log of this home; a gateway elsewhere takes no such receipts."""
    from aegis.gate import Gate
    from aegis.gate.events import refused_tool

    gate = wrapping.decider
    if not isinstance(gate, Gate):
        return None

    async def refused(tool: str, reason: Reason) -> None:
        session, server = wrapping.session or None, f"mcp:{wrapping.name}"
        unit = refused_tool(tool, server=server, reason=reason, session=session, principal=gate.principal)
        await gate.arecord(unit)

    return refused
