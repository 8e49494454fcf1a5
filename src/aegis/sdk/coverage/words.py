"""Whether the user's words arrive: each framework's entry is called with a canary, and no run begins.

The host that is told the canary ends the call there and then; an entry that is not heard ends by itself, since it is
given no agent that could run.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

from aegis.core.decision import SaidTurn
from aegis.enforce.scope import Session, session_context

PATH: Final = "the user's words"


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
