"""Fires the canaries: hooked to a decider that refuses all, with a witness in place of every body.

Whether the user's words arrive is told likewise: each framework's entry is called with a canary, and no run begins. The
host that is told it ends the call there and then; an entry that is not heard ends by itself, since it is given no agent
that could run.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

from aegis.core.call import ToolCall, ToolResult
from aegis.core.canonical import call_digest, canonical
from aegis.core.decision import Decision, ResultDecision, SaidTurn
from aegis.core.outcome import Outcome, Reason, Risk, Verdict, message_for
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Patches
from aegis.enforce.scope import Session, session_context
from aegis.enforce.witness import trapping
from aegis.errors import CallRefused
from aegis.sdk.coverage.canaries import CANARIES, FUNCTION_CANARIES, Canary, Covered, State
from aegis.sdk.hooking import installed_adapters

_log: Final = logging.getLogger("aegis")

PATH: Final = "the user's words"

ALL_CANARIES: Final = CANARIES | FUNCTION_CANARIES


class Refusing:
    """A decider that refuses every call and counts what it was asked; it records nothing."""

    outcome = Outcome.BLOCK
    reason = Reason.POLICY_DENIED

    def __init__(self) -> None:
        self.asked = 0

    def decide(self, call: ToolCall) -> Decision:
        self.asked += 1
        digest = call_digest(server=call.server, tool=call.tool, arguments=canonical(call.arguments))
        return Decision(
            outcome=self.outcome,
            verdict=Verdict.COMPLIANT if self.outcome is Outcome.ALLOW else Verdict.VIOLATION,
            risk=Risk.LOW,
            reason=self.reason,
            message=message_for(self.outcome, self.reason),
            decision_id=f"canary-{self.asked}",
            call_id=call.call_id or "",
            request_digest=digest,
            call_digest=digest,
            policy_digest="",
            salt="",
        )

    async def adecide(self, call: ToolCall) -> Decision:
        return self.decide(call)

    def observe(self, result: ToolResult) -> ResultDecision:
        return ResultDecision(
            outcome=Outcome.ALLOW,
            verdict=Verdict.COMPLIANT,
            reason=Reason.NONE,
            message=message_for(Outcome.ALLOW, Reason.NONE),
        )

    async def aobserve(self, result: ToolResult) -> ResultDecision:
        return self.observe(result)

    def wait(self, call: ToolCall, decision: Decision, timeout: float | None = None) -> Decision:
        return decision

    async def await_decision(
        self,
        call: ToolCall,
        decision: Decision,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Decision:
        return decision

    def close(self) -> None:
        """Hold nothing."""


class Allowing(Refusing):
    """A decider for tests of a host's own tools: it allows every call."""

    outcome = Outcome.ALLOW
    reason = Reason.NONE


def coverage(modules: Sequence[str] = ()) -> list[Covered]:
    """Fire a canary over every path of every tool that the modules register; no body runs.

    Raises `ImportError` where a module cannot be imported, and `UnhookedFramework`.
    """
    decider, patches = Refusing(), Patches()
    try:
        # All of them, and before the modules, as in a program that begins with `auto()`: what a module then does to
        # its tools is not hooked over again.
        hooked = hook_installed(Enforcer(decider, host=Listening()), patches, bar=True)
        for module in modules:
            import_module(module)
        fired = [
            _fired(hooked[name], canary, decider)
            for name, canaries in ALL_CANARIES.items()
            if name in hooked
            for canary in canaries()
        ]
        return [*fired, *(_heard(name, framework) for name, framework in hooked.items())]
    finally:
        patches.undo()


def _heard(name: str, framework: str) -> Covered:
    """Whether the user's words arrive over a framework; where they do not, the host says them."""
    heard = is_heard(name)
    state: State = "host says them" if heard is None else "covered" if heard else "UNCOVERED"
    return Covered(framework=framework, tool="", path=PATH, state=state)


def hook_installed(enforcer: Enforcer, patches: Patches, *, bar: bool) -> dict[str, str]:
    """Hook every framework that is installed; gives their distributions by the name of the adapter's module.

    Raises `UnhookedFramework`.
    """
    hooked: dict[str, str] = {}
    for adapter in installed_adapters():
        adapter.module.hook(enforcer, Memory(), patches, bar=bar)
        hooked[adapter.name] = adapter.module.DISTRIBUTION
    return hooked


def _fired(framework: str, canary: Canary, decider: Refusing) -> Covered:
    before = decider.asked
    with trapping() as caught, canary.body():
        try:
            canary.fire()
        except CallRefused:
            _log.debug("a canary was refused, as it should be")
        except Exception as error:
            _log.info("a canary of `%s` ended with %s", canary.tool, type(error).__name__)
    state: State = "UNCOVERED" if caught else "covered" if decider.asked > before else "not reached"
    return Covered(framework=framework, tool=canary.tool, path=canary.path, state=state)


class _WordsHeard(BaseException):
    """The canary arrived; nothing of a framework catches it."""


class Listening:
    """A host that records nothing and ends what told it the canary."""

    def add_turn(self, session: str, text: str, *, documents: Sequence[str] = ()) -> SaidTurn:
        """End the entry that was heard."""
        raise _WordsHeard(text)

    async def aadd_turn(self, session: str, text: str, *, documents: Sequence[str] = ()) -> SaidTurn:
        """`add_turn` for event loops."""
        raise _WordsHeard(text)


def is_heard(name: str) -> bool | None:
    """Whether the words of a run of this framework arrive; `None` where Aegis hears none of it."""
    enter = _ENTRIES.get(name)
    if enter is None:
        return None
    canary = f"canary {secrets.token_hex(8)}"
    try:
        with session_context(Session(name="canary")), suppress(Exception):
            enter(canary)
    except _WordsHeard as heard:
        return str(heard) == canary
    return False


def _openai(text: str) -> None:
    client: Any = import_module("openai").OpenAI(base_url="http://127.0.0.1:9/v1", api_key="canary", max_retries=0)
    tool = {"type": "function", "function": {"name": "canary", "parameters": {"type": "object"}}}
    client.chat.completions.create(model="canary", messages=[{"role": "user", "content": text}], tools=[tool])


def _anthropic(text: str) -> None:
    client: Any = import_module("anthropic").Anthropic(base_url="http://127.0.0.1:9", api_key="canary", max_retries=0)
    tool = {"name": "canary", "input_schema": {"type": "object"}}
    said = [{"role": "user", "content": text}]
    client.messages.create(model="canary", max_tokens=1, messages=said, tools=[tool])


def _langchain(text: str) -> None:
    graph: Any = import_module("langgraph.pregel.main").Pregel
    graph.stream(SimpleNamespace(nodes={}), {"messages": [{"role": "user", "content": text}]})


def _openai_agents(text: str) -> None:
    import_module("agents.run").AgentRunner().run_sync(None, text)


def _pydantic_ai(text: str) -> None:
    agent: Any = import_module("pydantic_ai").Agent("test")

    async def enter() -> None:
        async with agent.iter(text):
            """Nothing of the run is asked for."""

    asyncio.run(enter())


def _google_adk(text: str) -> None:
    runner: Any = import_module("google.adk.runners").Runner
    types: Any = import_module("google.genai.types")
    message = types.Content(role="user", parts=[types.Part(text=text)])

    async def enter() -> None:
        await anext(runner.run_async(None, user_id="canary", session_id="canary", new_message=message))

    asyncio.run(enter())


def _llama_index(text: str) -> None:
    module: Any = import_module("llama_index.core.agent.workflow.base_agent")
    module.BaseWorkflowAgent.run(None, user_msg=text)


def _crewai(text: str) -> None:
    crew = SimpleNamespace(tasks=[SimpleNamespace(description=text)])
    import_module("crewai.crew").Crew.kickoff(crew)


class _Query:
    """As much of a conversation with the program as its hooks are registered on."""

    def __init__(self) -> None:
        self.sdk_mcp_servers: dict[str, Any] = {}
        self.hooks: dict[str, Any] = {}
        self.can_use_tool = None


def _claude_agent(text: str) -> None:
    query: Any = _Query()
    with suppress(Exception):
        asyncio.run(import_module("claude_agent_sdk._internal.query").Query.initialize(query))
    asyncio.run(query.hooks["UserPromptSubmit"][-1]["hooks"][0]({"prompt": text}, None, None))


_ENTRIES: Final[Mapping[str, Callable[[str], None]]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "langchain": _langchain,
    "openai_agents": _openai_agents,
    "pydantic_ai": _pydantic_ai,
    "google_adk": _google_adk,
    "llama_index": _llama_index,
    "crewai": _crewai,
    "claude_agent": _claude_agent,
}
