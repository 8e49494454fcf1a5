"""Servers of MCP beneath the protocol: what a server's middleware made of a call, and calls that its process makes.

A call that the handler of the protocol has decided passes as it is. One with another name or other arguments is
another call. A mounted server has names of its own: what is handed on to it is still the same call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aegis.adapters import _mcp_results
from aegis.adapters._patch import Method, Patches
from aegis.adapters._runner import Execution
from aegis.adapters._scope import DECIDED, current_scope, scoped
from aegis.adapters._tools import Ran, ToolGate

# The servers of the package itself, in its two major versions.
_OWN: Final = {"mcp.server.mcpserver.server": "MCPServer", "mcp.server.fastmcp.server": "FastMCP"}


def hook(gate: ToolGate, patches: Patches) -> None:
    """Hook every place where a server looks up the tool that it is going to run."""

    def own(name: str) -> Any:
        return lambda module: patches.replace(getattr(module, name), "call_tool", lambda original: _own(gate, original))

    for package, name in _OWN.items():
        patches.when(package, own(name))
    patches.when(
        "fastmcp.server.server",
        lambda module: patches.replace(module.FastMCP, "call_tool", lambda original: _fast(gate, original)),
    )

    def mounted(module: Any) -> None:
        for method in ("run", "_run"):
            patches.replace(module.FastMCPProviderTool, method, _handed_on)

    patches.when("fastmcp.server.providers.fastmcp_provider", mounted)


def _own(gate: ToolGate, original: Method) -> Method:
    async def call_tool(server: Any, name: str, arguments: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if current_scope().loop == DECIDED:
            return await original(server, name, arguments, *args, **kwargs)

        async def body(given: dict[str, Any]) -> Any:
            return await original(server, name, given, *args, **kwargs)

        ran = await gate.acall(_execution(name, arguments), body, _view)
        return _replaced(ran) if ran.replaced else ran.result

    return call_tool


def _fast(gate: ToolGate, original: Method) -> Method:
    async def call_tool(server: Any, name: str, arguments: Any = None, **options: Any) -> Any:
        # The middleware runs first, and comes here again with what it made of the call.
        if options.get("run_middleware", True) or current_scope().loop == DECIDED:
            return await original(server, name, arguments, **options)

        async def body(given: dict[str, Any]) -> Any:
            return await original(server, name, given, **options)

        ran = await gate.acall(_execution(name, arguments or {}), body, _view)
        if not ran.replaced:
            return ran.result
        from fastmcp.tools import ToolResult

        return ToolResult.from_mcp_result(_replaced(ran))

    return call_tool


def _handed_on(original: Method) -> Method:
    """The call of a mounted server's tool, under the name that it has there."""

    async def run(tool: Any, arguments: dict[str, Any]) -> Any:
        scope = current_scope()
        if scope.decided is None:
            return await original(tool, arguments)
        with scoped(scope._replace(decided=(str(tool._original_name), scope.decided[1]))):
            return await original(tool, arguments)

    return run


def _execution(name: str, arguments: dict[str, Any]) -> Execution:
    return Execution(tool=name, call_id="", answer_id=None, arguments=lambda: dict(arguments))


def _view(result: Any) -> Any:
    wire = _wire(result)
    return _mcp_results.view(wire) if "content" in wire else wire


def _replaced(ran: Ran) -> Any:
    """The result in place of what a server gave."""
    from mcp.types import CallToolResult

    wire = {} if ran.result is None else _wire(ran.result)
    return CallToolResult.model_validate(_mcp_results.replaced(wire, ran))


def _wire(result: Any) -> dict[str, Any]:
    """A result as JSON, in whatever form a server has it."""
    if hasattr(result, "to_mcp_result"):
        result = result.to_mcp_result()
    if isinstance(result, tuple):
        return {"content": _content(result[0]), "structuredContent": result[1]}
    if isinstance(result, dict):
        return {"content": [], "structuredContent": result}
    if isinstance(result, Sequence):
        return {"content": _content(result)}
    wire: dict[str, Any] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return wire


def _content(blocks: Sequence[Any]) -> list[Any]:
    return [block.model_dump(by_alias=True, mode="json", exclude_none=True) for block in blocks]
