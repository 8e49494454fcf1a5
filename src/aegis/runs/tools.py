"""Tools of runs: the servers that have them, and one call of one: decided, claimed, run, observed."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import orjson
from mcp import Client, MCPError, StdioServerParameters
from msgspec import Struct, structs

from aegis.config.models import ToolServerSettings
from aegis.core.call import ToolCall, ToolResult
from aegis.core.canonical import canonical
from aegis.core.decision import ApprovalRef
from aegis.core.json import parse
from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from aegis.errors import AegisError, InvalidCall
from aegis.gate import Gate
from aegis.runs.masking import reveal_value
from aegis.runs.records import Claim, Claims, GuardRow
from aegis.runs.state import GuardContext, RunGuard, RunReport, RunView
from aegis.wire.tool_lists import ToolDescription, read_tools

# Servers whose tools runs use: MCP servers of the configuration, and those of installed packages.

_log = logging.getLogger("aegis.runs")

GROUP: Final = "aegis.run_tools"
START_SECONDS: Final = 60.0  # a package manager may have to fetch the server first
MAX_PAGES: Final = 1_000


class ToolFailed(AegisError):
    """A tool's server is gone, slow, or does not speak the protocol; whether the tool acted is not known."""


class ToolServer(Protocol):
    """Tools that runs may use. Whatever `call` raises means that there is no result, and that nobody knows what was
    done."""

    async def tools(self) -> Sequence[ToolDescription]: ...

    async def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> Any:
        """The tool's result as JSON, within `seconds`."""
        ...

    async def aclose(self) -> None: ...


class ToolServers:
    """The servers by name. Used from one event loop; `aclose` ends every one."""

    def __init__(self, servers: Mapping[str, ToolServer]) -> None:
        self._servers = servers

    async def tools(self, server: str) -> tuple[ToolDescription, ...]:
        """What the server announces, under the server's name. Raises `ToolFailed`."""
        try:
            async with asyncio.timeout(START_SECONDS):
                found = await self._servers[server].tools()
            return tuple(structs.replace(tool, server=server) for tool in found)
        except ToolFailed:
            raise
        except Exception as error:
            raise ToolFailed(f"the tool server `{server}` did not start: {type(error).__name__}") from error

    async def call(self, server: str, tool: str, arguments: dict[str, Any], seconds: float) -> Any:
        """The tool's result as JSON. Raises `ToolFailed`."""
        try:
            async with asyncio.timeout(seconds):
                result = await self._servers[server].call(tool, arguments, seconds)
            canonical(result)
        except ToolFailed:
            raise
        except Exception as error:
            raise ToolFailed(f"the tool `{tool}` of `{server}` gave no result: {type(error).__name__}") from error
        return result

    async def aclose(self) -> None:
        """Ends every server, whatever one of them does."""
        ends = await asyncio.gather(*(server.aclose() for server in self._servers.values()), return_exceptions=True)
        for name, end in zip(self._servers, ends, strict=True):
            if isinstance(end, Exception):
                _log.error("a tool server did not end", extra={"server": name, "error": type(end).__name__})


_Started = tuple[Client, tuple[ToolDescription, ...], asyncio.Event]


class _Session(Struct, frozen=True, kw_only=True):
    client: Client
    stop: asyncio.Event
    owner: asyncio.Task[None]
    tools: tuple[ToolDescription, ...]


class StdioServer:
    """An MCP server over its standard input and output: started at the first need, again when it died."""

    def __init__(self, name: str, settings: ToolServerSettings) -> None:
        self._name = name
        self._settings = settings
        self._session: _Session | None = None
        self._starting = asyncio.Lock()

    async def tools(self) -> tuple[ToolDescription, ...]:
        """What the server announces. Raises `ToolFailed`."""
        return (await self._ready()).tools

    async def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> Any:
        """The tool's structured content, or its content blocks. Raises what the protocol's client raises."""
        session = await self._ready()
        try:
            async with asyncio.timeout(seconds):
                result = await session.client.call_tool(tool, arguments)
        finally:
            if session.owner.done() and self._session is session:
                self._session = None
        answer = result.model_dump(by_alias=True, exclude_none=True, mode="json")
        content = answer.get("structuredContent", answer.get("content", []))
        return {"error": content} if answer.get("isError") else content

    async def aclose(self) -> None:
        """Ends the session and its program."""
        session, self._session = self._session, None
        if session is not None:
            session.stop.set()
            await asyncio.gather(session.owner, return_exceptions=True)

    async def _ready(self) -> _Session:
        async with self._starting:
            if self._session is not None and not self._session.owner.done():
                return self._session
            ready: asyncio.Future[_Started] = asyncio.get_running_loop().create_future()
            owner = asyncio.create_task(self._own(ready))
            try:
                async with asyncio.timeout(START_SECONDS):
                    client, tools, stop = await asyncio.shield(ready)
            except (TimeoutError, ToolFailed):
                owner.cancel()
                raise ToolFailed(f"the tool server `{self._name}` did not start") from None
            self._session = _Session(client=client, stop=stop, owner=owner, tools=tools)
            return self._session

    async def _own(self, ready: asyncio.Future[_Started]) -> None:
        """The task that a session lives in: the protocol's client is entered and left by one task."""
        settings, stop = self._settings, asyncio.Event()
        handed = {name: os.environ[name] for name in ("PATH", *settings.environment) if name in os.environ}
        parameters = StdioServerParameters(command=settings.command[0], args=settings.command[1:], env=handed)
        try:
            async with Client(parameters) as client:
                ready.set_result((client, await _list(client, self._name), stop))
                await stop.wait()
        except (OSError, MCPError, InvalidCall, ToolFailed, ExceptionGroup) as error:
            if not ready.done():
                ready.set_exception(ToolFailed(f"`{self._name}` did not start: {type(error).__name__}"))


async def _list(client: Client, server: str) -> tuple[ToolDescription, ...]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return read_tools(found, server=server)
    raise ToolFailed(f"the tool server `{server}` lists its tools on more than {MAX_PAGES} pages")


class Offer(Struct, frozen=True, kw_only=True):
    """The tools that a model is shown, by the name that it is shown."""

    by_name: Mapping[str, ToolDescription]

    @classmethod
    def of(cls, tools: Sequence[ToolDescription]) -> Offer:
        """Every tool under its own name; where two servers share one, under `server__name`."""
        names = [tool.name for tool in tools]
        return cls(
            by_name={
                (tool.name if names.count(tool.name) == 1 else _function_name(f"{tool.server}__{tool.name}")): tool
                for tool in tools
            }
        )

    def wire(self) -> list[dict[str, Any]]:
        """The `tools` member of a request in the shape of chat completions."""
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": tool.description,
                    "parameters": tool.input_schema or {"type": "object"},
                },
            }
            for name, tool in self.by_name.items()
        ]


def _function_name(text: str) -> str:
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign in "_-") else "_" for sign in text)[:64]


# One tool call of a run: decided, claimed, run, observed.

# One stage: its guards in order, each shown what the one before it left, until one blocks or holds.


Ask = Callable[[RunGuard, RunReport, RunView], Awaitable[tuple[bool, Reason]]]
"""Asks a person to let the run go on; answers whether it may, and why not. Does not return while nobody answered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageResult:
    """What a stage came to: the view as its guards left it, and one row for every guard that was asked."""

    view: RunView
    outcome: Outcome = Outcome.ALLOW
    reason: Reason = Reason.NONE
    message: str = ""
    rows: tuple[GuardRow, ...] = field(default=())


async def run_stage(guards: Sequence[RunGuard], view: RunView, context: GuardContext, ask: Ask) -> StageResult:
    """Ask the guards in order.

    (1) A guard that raises, or answers anything but a report, blocks.
    (2) `block` ends the stage.
    (3) `require_approval` goes on only after a person said so.
    (4) `sanitize` and labels change what the next guard sees.
    """
    rows: list[GuardRow] = []
    strictest = Outcome.ALLOW
    for guard in guards:
        report = await _report(guard, view, context)
        rows.append(
            {
                "guard": guard.name,
                "outcome": report.outcome.word,
                "rules": sorted(set(report.rules)),
                "reason": report.reason.value,
            }
        )
        if report.outcome is Outcome.BLOCK:
            return _ended(view, report.reason, report.message, rows)
        if report.outcome is Outcome.REQUIRE_APPROVAL:
            allowed, reason = await ask(guard, report, view)
            if not allowed:
                return _ended(view, reason, "nobody let this run go on", rows)
        if report.outcome is Outcome.SANITIZE:
            strictest = Outcome.SANITIZE
        view = replace(
            view,
            messages=view.messages if report.messages is None else report.messages,
            documents=view.documents if report.documents is None else report.documents,
            output=view.output if report.output is None else report.output,
            labels={**view.labels, **report.labels},
            vault={**view.vault, **report.vault},
        )
    return StageResult(view=view, outcome=strictest, rows=tuple(rows))


async def _report(guard: RunGuard, view: RunView, context: GuardContext) -> RunReport:
    try:
        answered: Any = guard.check(view, context)
        if inspect.isawaitable(answered):
            answered = await answered
    except Exception:
        # The text of a guard's own error may hold what it looked at, so it is logged by name alone.
        _log.error("a guard of a run failed", extra={"guard": guard.name})
        return _failed("the guard failed")
    if not isinstance(answered, RunReport):
        return _failed("the guard gave no report")
    changed = (answered.messages, answered.documents, answered.output) != (None, None, None)
    if changed is not (answered.outcome is Outcome.SANITIZE):
        return _failed("the guard changed something without saying so, or said so and changed nothing")
    return answered


def _failed(message: str) -> RunReport:
    return RunReport(outcome=Outcome.BLOCK, reason=Reason.UNAVAILABLE, message=message)


def _ended(view: RunView, reason: Reason, message: str, rows: list[GuardRow]) -> StageResult:
    return StageResult(view=view, outcome=Outcome.BLOCK, reason=reason, message=message, rows=tuple(rows))


UNKNOWN: Final = "the outcome of this call is not known; it was not made again"
_OUTSIDE: Final = frozenset({"network", "external_send"})


class Done(Struct, frozen=True, kw_only=True):
    """What the model hears of a call. `held` is set while a person has to answer; `untrusted` marks a tool's words."""

    content: str = ""
    outcome: str = "allow"
    reason: str = "none"
    untrusted: bool = False
    held: ApprovalRef | None = None


class Executor:
    """Runs the calls of one route's runs."""

    def __init__(self, gate: Gate, claims: Claims, servers: ToolServers, seconds: float) -> None:
        self._gate = gate
        self._claims = claims
        self._servers = servers
        self._seconds = seconds

    async def run(
        self,
        run_id: str,
        principal: Principal,
        offer: Offer,
        wire: dict[str, Any],
        call_id: str,
        vault: dict[str, str],
    ) -> Done:
        """Decide the call `wire` (chat completions' shape) and run it where it may run, at most once."""
        # (1) What the model wrote, strictly read.
        name = wire["function"]["name"]
        tool = offer.by_name.get(name)
        if tool is None:
            return Done(content=f"there is no tool `{name}`", outcome="block", reason="unregistered_tool")
        arguments = _arguments(wire["function"]["arguments"])
        if arguments is None:
            return Done(content="the arguments are not a JSON object", outcome="block", reason="schema_invalid")
        # (2) What was claimed before is not run again, whatever became of it.
        claim = await asyncio.to_thread(self._claims.find, run_id, call_id)
        if claim is not None:
            return await self._seen(principal, claim)
        # (3) Placeholders are resolved for tools that stay inside, never for those that send something out.
        if vault and not self._leaves(tool, arguments):
            arguments = reveal_value(arguments, vault)
        # (4) The decision; a repeat of this id gets the current state of the call.
        call = ToolCall(tool=tool.name, server=tool.server, arguments=arguments, session=run_id, call_id=call_id)
        decision = await self._gate.adecide(call, principal=principal)
        if decision.outcome is Outcome.REQUIRE_APPROVAL and decision.approval is not None:
            return Done(held=decision.approval)
        if not decision.allowed:
            return Done(content=decision.message, outcome=decision.outcome.word, reason=decision.reason.value)
        # (5) The claim, then the tool.
        if not await asyncio.to_thread(self._claims.take, run_id, call_id, decision.decision_id):
            return Done(content=UNKNOWN, outcome="block", reason="unavailable")
        result = await self._call(tool, decision.arguments if decision.arguments is not None else arguments)
        await asyncio.to_thread(self._claims.finish, run_id, call_id, decision.decision_id, result)
        return await self._seen(principal, Claim(decision_id=decision.decision_id, ended=True, result=result))

    async def _seen(self, principal: Principal, claim: Claim) -> Done:
        """(6) The result, judged before the model sees it."""
        if not claim.ended:
            return Done(content=UNKNOWN, outcome="block", reason="unavailable")
        seen = await self._gate.aobserve(
            ToolResult(decision_id=claim.decision_id, result=claim.result), principal=principal
        )
        if not seen.allowed:
            return Done(content=seen.message, outcome="block", reason=seen.reason.value)
        given = seen.result if seen.outcome is Outcome.SANITIZE else claim.result
        return Done(content=given if isinstance(given, str) else orjson.dumps(given).decode(), untrusted=True)

    def _leaves(self, tool: ToolDescription, arguments: dict[str, Any]) -> bool:
        """Whether the call could carry its arguments out of this deployment; one that is not known could."""
        effects = self._gate.parts.policy.current.effects(tool.server, tool.name, arguments)
        return not effects or not effects.isdisjoint(_OUTSIDE)

    async def _call(self, tool: ToolDescription, arguments: dict[str, Any]) -> Any:
        try:
            return await self._servers.call(tool.server or "", tool.name, arguments, self._seconds)
        except ToolFailed as error:
            return {"error": str(error)}


def _arguments(text: str) -> dict[str, Any] | None:
    """What the model wrote as arguments, strictly read; `None` where it is not a JSON object."""
    try:
        value = parse(text.encode("utf-8", "replace") or b"{}")
    except InvalidCall:
        return None
    return value if isinstance(value, dict) else None
