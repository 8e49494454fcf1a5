"""MCP: every call that a client sends, and every call of a tool that a server of this process is about to handle.

What a client reads is decided like a tool's call: a resource as `read_resource`, a prompt as `get_prompt`.

Clients of all kinds send over one method of a session; servers of all kinds, those of `fastmcp` included, look up one
handler. Beneath it, a call that the server's middleware has changed is decided as what it became. A server's name is
its own word, so calls carry no server: what restricts a tool everywhere holds, and what is loosened for one server
does not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution
from aegis.enforce.scope import DECIDED, EnforcedScope, calling, current_scope
from aegis.enforce.tools import Ran, ToolGate, mcp_replaced, mcp_view
from aegis.enforce.witness import watch, witnessed
from aegis.errors import CallRefused

# Servers of MCP beneath the protocol: what a server's middleware made of a call, and calls that its process makes.
#
# A call that the handler of the protocol has decided passes as it is. One with another name or other arguments is
# another call. A mounted server has names of its own: what is handed on to it is still the same call.

# The servers of the package itself, in its two major versions.
_OWN: Final = {"mcp.server.mcpserver.server": "MCPServer", "mcp.server.fastmcp.server": "FastMCP"}


def hook_servers(gate: ToolGate, patches: Patches) -> None:
    """Hook every place where a server looks up the tool that it is going to run."""

    for package, name in _OWN.items():
        patches.methods(package, name, call_tool=lambda original: _own(gate, original))
    patches.methods("fastmcp.server.server", "FastMCP", call_tool=lambda original: _fast(gate, original))
    patches.methods(
        "fastmcp.server.providers.fastmcp_provider",
        "FastMCPProviderTool",
        run=calling(_handed_on),
        _run=calling(_handed_on),
    )


def _own(gate: ToolGate, original: Method) -> Method:
    async def call_tool(server: Any, name: str, arguments: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if current_scope().loop == DECIDED:
            return await original(server, name, arguments, *args, **kwargs)

        async def body(given: dict[str, Any]) -> Any:
            return await original(server, name, given, *args, **kwargs)

        ran = await gate.acall(_mcp_servers_execution(name, arguments), body, _view)
        return _replaced(ran) if ran.replaced else ran.result

    return call_tool


def _fast(gate: ToolGate, original: Method) -> Method:
    async def call_tool(server: Any, name: str, arguments: Any = None, **options: Any) -> Any:
        # The middleware runs first, and comes here again with what it made of the call.
        if options.get("run_middleware", True) or current_scope().loop == DECIDED:
            return await original(server, name, arguments, **options)

        async def body(given: dict[str, Any]) -> Any:
            return await original(server, name, given, **options)

        ran = await gate.acall(_mcp_servers_execution(name, arguments or {}), body, _view)
        if not ran.replaced:
            return ran.result
        from fastmcp.tools import ToolResult

        return ToolResult.from_mcp_result(_replaced(ran))

    return call_tool


def _handed_on(tool: Any, *_: Any, **__: Any) -> EnforcedScope:
    """The call of a mounted server's tool, under the name that it has there."""
    scope = current_scope()
    return scope if scope.decided is None else scope._replace(decided=(str(tool._original_name), scope.decided[1]))


def _mcp_servers_execution(name: str, arguments: dict[str, Any]) -> Execution:
    return Execution(tool=name, call_id="", answer_id=None, arguments=lambda: dict(arguments))


def _view(result: Any) -> Any:
    wire = _mcp_servers_wire(result)
    return mcp_view(wire) if "content" in wire else wire


def _replaced(ran: Ran) -> Any:
    """The result in place of what a server gave."""
    from mcp.types import CallToolResult

    wire = {} if ran.result is None else _mcp_servers_wire(ran.result)
    return CallToolResult.model_validate(mcp_replaced(wire, ran))


def _mcp_servers_wire(result: Any) -> dict[str, Any]:
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


DISTRIBUTION: Final = "mcp"
SUPPORTED: Final = ((1, 30), (3,))

_CALL: Final = "tools/call"
# The names that reading has, and the members of a request that are its arguments.
_READS: Final = {"resources/read": ("read_resource", "uri"), "prompts/get": ("get_prompt", "name")}
# Where servers of every kind run a tool's function, beneath the protocol.
_BODIES: Final = ("mcp.server.mcpserver.tools.base", "mcp.server.fastmcp.tools.base", "fastmcp.tools.function_tool")


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    gate = ToolGate(enforcer, memory)

    def client(module: Any) -> None:
        # Of the session itself since 2.0, of what it shares with servers before.
        owner = next((cls for cls in module.ClientSession.__mro__ if "send_request" in cls.__dict__), None)
        patches.replace(owner or module.ClientSession, "send_request", lambda original: _sending(gate, original))

    def server(module: Any) -> None:
        if "get_request_handler" in module.Server.__dict__:
            patches.replace(module.Server, "get_request_handler", lambda original: _handling(gate, original))
        else:
            patches.replace(module.Server, "_handle_request", lambda original: _handling_first(gate, original))

    witness = witnessed(enforcer, lambda tool, *_: str(tool.name))

    def bodies(module: Any) -> None:
        tool = module.FunctionTool if hasattr(module, "FunctionTool") else module.Tool
        patches.replace(tool, "run", witness)
        watch(enforcer, patches, tool, "fn", name_of=lambda one: str(one.name))

    for package in _BODIES:
        patches.when(package, bodies)
    patches.when("mcp.client.session", client)
    patches.when("mcp.server.lowlevel.server", server)
    hook_servers(gate, patches)
    return Seams(
        seams=("ClientSession.send_request", "the handler of a server", "MCPServer.call_tool", "FastMCP.call_tool"),
        uncovered=("a tool object of a server that its own process runs past the server (`tool.run`)",),
    )


def _sending(gate: ToolGate, original: Method) -> Method:
    async def send_request(session: Any, request: Any, result_type: Any, *args: Any, **kwargs: Any) -> Any:
        inner = getattr(request, "root", request)
        if inner.method in _READS:
            execution = _reading(inner)

            async def read(given: dict[str, Any]) -> Any:
                if given != execution.arguments():
                    raise CallRefused(f"`{execution.tool}` was not run: it cannot be asked for anything else")
                return await original(session, request, result_type, *args, **kwargs)

            return _read(await gate.acall(execution, read, _wire))
        if inner.method != _CALL:
            return await original(session, request, result_type, *args, **kwargs)

        async def send(given: dict[str, Any]) -> Any:
            changed = _with(inner, given)
            sent = changed if inner is request else type(request)(changed)
            return await original(session, sent, result_type, *args, **kwargs)

        return result_of(await gate.acall(_execution(inner.params), send, view_of))

    return send_request


def _reading(request: Any) -> Execution:
    """What a client reads, as the call that it is."""
    tool, member = _READS[request.method]
    asked: dict[str, Any] = request.params.model_dump(by_alias=True, mode="json", exclude_none=True)
    given = {name: value for name, value in asked.items() if name in (member, "arguments")}
    return Execution(tool=tool, call_id="", answer_id=None, arguments=lambda: given)


def _read(ran: Ran) -> Any:
    """What was read, as it may be seen; raises `CallRefused` where that is nothing."""
    seen = ran.output()
    return type(ran.result).model_validate(seen) if ran.changed else seen


def _with(request: Any, given: dict[str, Any]) -> Any:
    return request.model_copy(update={"params": request.params.model_copy(update={"arguments": given})})


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

        return result_of(await gate.acall(_execution(params), body, view_of))

    return handle


def _handling_first(gate: ToolGate, original: Method) -> Method:
    """The servers of the first major version: they look their handlers up themselves."""

    async def handle_request(server: Any, message: Any, request: Any, *args: Any) -> Any:
        handler = server.request_handlers.get(type(request))
        if request.method != _CALL or handler is None or current_scope().loop == DECIDED:
            return await original(server, message, request, *args)

        async def decided(asked: Any) -> Any:
            types: Any = import_module("mcp.types")

            async def body(given: dict[str, Any]) -> Any:
                return await handler(_with(asked, given))

            ran = await gate.acall(_execution(asked.params), body, view_of)
            return types.ServerResult(result_of(ran)) if ran.replaced else ran.result

        return await original(_Serving(server, {type(request): decided}), message, request, *args)

    return handle_request


class _Serving:
    """A server as it is, but for some of its handlers."""

    def __init__(self, server: Any, handlers: dict[Any, Any]) -> None:
        self._server = server
        self.request_handlers = {**server.request_handlers, **handlers}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


def _execution(params: Any) -> Execution:
    """The call; the protocol's own ids count requests and stand for nothing."""
    return Execution(tool=params.name, call_id="", answer_id=None, arguments=lambda: dict(params.arguments or {}))


def _wire(result: Any) -> dict[str, Any]:
    """A result as JSON, whatever a handler gave."""
    if isinstance(result, dict):
        return result
    wire: dict[str, Any] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return wire


def view_of(result: Any) -> Any:
    """What of a tool's result is judged."""
    wire = _wire(result)
    # What asks the user for more input is no result; it is judged as it is.
    return mcp_view(wire) if "content" in wire else wire


def result_of(ran: Ran) -> Any:
    """The result that a client is given: what the tool gave, or what stands in its place."""
    if not ran.replaced:
        return ran.result
    from mcp.types import CallToolResult

    return CallToolResult.model_validate(mcp_replaced({} if ran.result is None else _wire(ran.result), ran))
