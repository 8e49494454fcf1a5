"""MCP: every tool call that a client sends, and every one that a server of this process is about to handle.

Clients of all kinds send over one method of a session; servers of all kinds, those of `fastmcp` included, look up one
handler. A server's name is its own word, so calls carry no server: what restricts a tool everywhere holds, and what is
loosened for one server does not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from aegis.adapters import _mcp_results
from aegis.adapters._enforce import Enforcer
from aegis.adapters._memory import Memory
from aegis.adapters._patch import Method, Patches
from aegis.adapters._runner import Execution
from aegis.adapters._scope import DECIDED, current_scope
from aegis.adapters._tools import Ran, ToolGate
from aegis.adapters.seams import Seams

DISTRIBUTION: Final = "mcp"
SUPPORTED: Final = ((2, 1), (3,))

_CALL: Final = "tools/call"


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    gate = ToolGate(enforcer, memory)
    patches.when(
        "mcp.client.session",
        lambda module: patches.replace(
            module.ClientSession, "send_request", lambda original: _sending(gate, module, original)
        ),
    )
    patches.when(
        "mcp.server.lowlevel.server",
        lambda module: patches.replace(
            module.Server, "get_request_handler", lambda original: _handling(gate, original)
        ),
    )
    return Seams(
        seams=("ClientSession.send_request", "Server.get_request_handler"),
        uncovered=("a server's tools that its own process calls past the protocol",),
    )


def _sending(gate: ToolGate, module: Any, original: Method) -> Method:
    async def send_request(session: Any, request: Any, result_type: Any, *args: Any, **kwargs: Any) -> Any:
        if request.method != _CALL:
            return await original(session, request, result_type, *args, **kwargs)

        async def send(given: dict[str, Any]) -> Any:
            params = request.params.model_copy(update={"arguments": given})
            return await original(session, request.model_copy(update={"params": params}), result_type, *args, **kwargs)

        ran = await gate.acall(_execution(request.params), send, _view)
        return _result(ran, module.types.CallToolResult)

    return send_request


def _handling(gate: ToolGate, original: Method) -> Method:
    def get_request_handler(server: Any, method: str) -> Any:
        entry = original(server, method)
        if entry is None or method != _CALL or current_scope().loop == DECIDED:
            return entry
        return replace(entry, handler=_handler(gate, entry.handler))

    return get_request_handler


def _handler(gate: ToolGate, handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def handle(context: Any, params: Any) -> Any:
        async def body(given: dict[str, Any]) -> Any:
            return await handler(context, params.model_copy(update={"arguments": given}))

        from mcp.types import CallToolResult

        return _result(await gate.acall(_execution(params), body, _view), CallToolResult)

    return handle


def _execution(params: Any) -> Execution:
    """The call; the protocol's own ids count requests and stand for nothing."""
    return Execution(tool=params.name, call_id="", answer_id=None, arguments=lambda: dict(params.arguments or {}))


def _wire(result: Any) -> dict[str, Any]:
    """A result as JSON, whatever a handler gave."""
    if isinstance(result, dict):
        return result
    wire: dict[str, Any] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return wire


def _view(result: Any) -> Any:
    wire = _wire(result)
    # What asks the user for more input is no result; it is judged as it is.
    return _mcp_results.view(wire) if "content" in wire else wire


def _result(ran: Ran, kind: Any) -> Any:
    if not ran.replaced:
        return ran.result
    return kind.model_validate(_mcp_results.replaced({} if ran.result is None else _wire(ran.result), ran))
