"""The first major version of `mcp`, which some frameworks still bring: clients and servers are decided."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import pytest

from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Patches
from aegis.enforce.scope import DECIDED, looping, scoped
from support.decider import ScriptedDecider, blocked, changed, sanitized
from support.worlds import scripted

memory: Any = import_module("mcp.shared.memory")
FastMCP: Any = import_module("mcp.server.fastmcp").FastMCP


def call(decider: ScriptedDecider, *, at_server: bool) -> tuple[list[str], Any]:
    """What ran, and the result of one call, decided where it is sent or where it is handled."""
    ran: list[str] = []
    server = FastMCP("office")

    def send_email(to: str) -> str:
        """Send a mail."""
        ran.append(to)
        return "sent"

    server.add_tool(send_email)

    async def go() -> Any:
        with nullcontext() if at_server else scoped(looping(DECIDED)):
            connected = memory.create_connected_server_and_client_session(server._mcp_server)
            async with connected as session:
                return await session.call_tool("send_email", {"to": "a@example.com"})

    patches = Patches()
    try:
        import_module("aegis.adapters.mcp").hook(Enforcer(decider), Memory(), patches, bar=True)
        return ran, asyncio.run(go())
    finally:
        patches.undo()


@pytest.mark.parametrize("at_server", [False, True])
def test_a_blocked_call_does_not_run_and_the_caller_is_told(at_server: bool) -> None:
    ran, result = call(scripted(send_email=blocked), at_server=at_server)
    assert ran == []
    assert result.isError
    assert "`send_email` was not run" in result.content[0].text


@pytest.mark.parametrize("at_server", [False, True])
def test_an_allowed_call_runs_once_and_its_result_is_judged(at_server: bool) -> None:
    decider = scripted()
    decider.inspect = lambda value: changed("[masked]")
    ran, result = call(decider, at_server=at_server)
    assert ran == ["a@example.com"]
    assert result.content[0].text == "[masked]"
    assert len(decider.decided) == 1 + at_server


def test_sanitised_arguments_are_what_runs() -> None:
    ran, _ = call(scripted(send_email=sanitized(to="safe@example.com")), at_server=False)
    assert ran == ["safe@example.com"]


def test_a_server_decides_what_a_client_from_elsewhere_sends() -> None:
    def second(one: Any) -> Any:
        return blocked(one) if len(decider.decided) == 2 else sanitized(**one.arguments)(one)

    decider = ScriptedDecider(rules={"send_email": second})
    ran, result = call(decider, at_server=True)
    assert ran == []
    assert result.isError
