"""A small world for the contract of adapters: tools that note what they did, and a scripted provider."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aegis.adapters import anthropic as anthropic_adapter
from aegis.adapters import openai as openai_adapter
from aegis.cli.demo.provider import Call, ProviderRequest, ScriptedProvider, Turn
from aegis.core.decider import Decider
from aegis.enforce.enforcement import Enforcer, OnApproval
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Patches
from support.answers import DIALECTS
from support.decider import ScriptedDecider

MAIL = Call(tool="send_email", arguments={"to": "a@example.com"}, id="call_mail_0123456789")
READ = Call(tool="read_file", arguments={"path": "notes.txt"}, id="call_read_0123456789")
SCHEMAS: dict[str, dict[str, Any]] = {
    "send_email": {"to": {"type": "string"}, "subject": {"type": "string"}},
    "read_file": {"path": {"type": "string"}},
}
REQUIRED = {"send_email": ["to"], "read_file": ["path"]}


@dataclass
class World:
    """What one agent has: a provider to ask, and tools whose runs are noted."""

    provider: ScriptedProvider
    ran: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=lambda: {"send_email": "sent", "read_file": "text"})

    key: str = "k"
    door: str = ""

    @property
    def url(self) -> str:
        """The base URL with a version, as the OpenAI SDK takes it."""
        return f"{self.door}/v1" if self.door else self.provider.url

    @property
    def anthropic_url(self) -> str:
        """The base URL without a version, as the Anthropic SDK takes it."""
        return self.door or self.provider.anthropic_url

    def run(self, tool: str, arguments: dict[str, Any]) -> str:
        """The body of every tool."""
        self.ran.append((tool, arguments))
        return self.results[tool]

    @property
    def asked(self) -> list[ProviderRequest]:
        return self.provider.asked

    def calls_sent(self, request: int) -> list[str]:
        """The ids of the calls that the conversation of a request holds, in order."""
        asked = self.asked[request]
        if asked.format == "chat":
            calls = [call for message in asked.body["messages"] for call in message.get("tool_calls") or []]
            return [call["id"] for call in calls]
        if asked.format == "responses":
            items = asked.body["input"] if isinstance(asked.body["input"], list) else []
            return [item["call_id"] for item in items if item.get("type") == "function_call"]
        blocks = [b for m in asked.body["messages"] if isinstance(m["content"], list) for b in m["content"]]
        return [block["id"] for block in blocks if block.get("type") == "tool_use"]

    def results_sent(self, request: int) -> dict[str, Any]:
        """The tool results that a request carries, by call id."""
        asked = self.asked[request]
        return {one.call_id: text_in(one.value) for one in DIALECTS[asked.format].outputs(asked.body)}


# Drives an agent to the end of its run over one way of the SDK; gives back the last text.
Path = Callable[[World, Sequence[str]], str]


@contextmanager
def world(*turns: Turn) -> Iterator[World]:
    """A world whose provider says `turns`, one a request."""
    with ScriptedProvider(turns) as provider:
        yield World(provider=provider)


@contextmanager
def hooked(decider: Decider, *, on_approval: OnApproval = "wait") -> Iterator[Memory]:
    """Both SDKs hooked to a decider for the block."""
    host = decider if isinstance(decider, ScriptedDecider) else None
    enforcer, memory, patches = Enforcer(decider, on_approval=on_approval, host=host), Memory(), Patches()
    try:
        openai_adapter.hook(enforcer, memory, patches, bar=True)
        anthropic_adapter.hook(enforcer, memory, patches, bar=True)
        yield memory
    finally:
        patches.undo()


def scripted(**rules: Any) -> ScriptedDecider:
    """A decider with these rules, by tool."""
    return ScriptedDecider(rules=rules)


def text_in(value: Any) -> Any:
    """The text of a result, whatever parts it is made of."""
    if isinstance(value, list):
        return "".join(part.get("text", "") for part in value)
    return value


def loads(text: str) -> dict[str, Any]:
    """Arguments as an agent's own code reads them."""
    arguments: dict[str, Any] = json.loads(text)
    return arguments
