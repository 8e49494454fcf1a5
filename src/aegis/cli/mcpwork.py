"""One wrapped server, put together: the process, the pipes, who decides, and what the tools may say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.core.decider import Decider
    from aegis.core.outcome import Reason
    from aegis.proxies.mcp.judge import Refused
    from aegis.rules.scanner import Scanner


@dataclass(frozen=True, kw_only=True, slots=True)
class Wrapping:
    """How a server is wrapped. `resolve` answers approvals with an approver's key, where the host was given one."""

    name: str
    command: Sequence[str]
    decider: Decider
    scanner: Scanner
    pins: Path
    only_pinned: bool
    session: str
    wait_seconds: float
    resolve: Callable[[str, str], Awaitable[None]] | None = None


def run_wrapped(wrapping: Wrapping) -> int:
    """Run the server behind the proxy until one side ends; its exit code, or 1 where a signal ended it."""
    code = asyncio.run(_run(wrapping))
    return code if 0 <= code < 256 else 1


async def _run(wrapping: Wrapping) -> int:
    from aegis.adapters._enforce import Enforcer
    from aegis.adapters.context import Session
    from aegis.guards.descriptions import DescriptionScanner
    from aegis.proxies.mcp.judge import Judge
    from aegis.proxies.mcp.people import AskingDecider
    from aegis.proxies.mcp.pins import PinFile
    from aegis.proxies.mcp.stdio import Pipes, Wrapped, standard_streams, start_server, stop_server
    from aegis.proxies.mcp.tools import ToolBook

    try:
        process = await start_server(wrapping.command)
    except OSError as error:
        raise InvalidCall(f"`{wrapping.command[0]}` cannot be started: {error.strerror}", code="command") from error
    if process.stdin is None or process.stdout is None:
        raise InvalidCall("the server has no standard streams", code="command")
    try:
        reader, writer = await standard_streams()
        connection = Wrapped(Pipes(reader, writer, process.stdout, process.stdin))
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
        code = await stop_server(process)
    return code


def _recorder(wrapping: Wrapping) -> Refused | None:
    """Records what is refused undecided, in the log of this home; a gateway elsewhere takes no such receipts."""
    from aegis.gate import Gate
    from aegis.gate.alarms import refused_tool

    gate = wrapping.decider
    if not isinstance(gate, Gate):
        return None

    async def refused(tool: str, reason: Reason) -> None:
        session, server = wrapping.session or None, f"mcp:{wrapping.name}"
        unit = refused_tool(tool, server=server, reason=reason, session=session, principal=gate.principal)
        await gate.arecord(unit)

    return refused
