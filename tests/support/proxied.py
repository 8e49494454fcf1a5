"""A gateway between the official clients and a scripted provider."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Self

from aegis.cli.demo.provider import ScriptedProvider, Turn
from support.served import Served, served
from support.worlds import World

PROVIDER_KEY = "sk-provider-0123456789abcdef"
ALLOW = "send_email: {risk: low, effects: [external_send]}"
BLOCK = "send_email: {risk: critical}"
HOLD = "send_email: {risk: high, irreversible: true, effects: [external_send]}"


def config(url: str, anthropic_url: str, *, tool: str = ALLOW, proxies: str = "", more: str = "") -> str:
    """A configuration whose two providers are at these addresses."""
    return f"""
version: 1
limits: {{rate: unlimited}}
tools:
  read_file: {{risk: low, effects: [read]}}
  {tool}
proxies:
  {proxies or "on_approval: wait"}
  providers:
    one: {{dialect: openai, url: "{url}", key: "${{env:TEST_PROVIDER_KEY}}", private: true}}
    two: {{dialect: anthropic, url: "{anthropic_url}", key: "${{env:TEST_PROVIDER_KEY}}", private: true}}
{more}
"""


@contextmanager
def proxied(
    home: Path, *turns: Turn, tool: str = ALLOW, proxies: str = "", more: str = ""
) -> Iterator[tuple[World, Served]]:
    """A world whose clients talk to a gateway, and the gateway, whose providers say `turns`."""
    os.environ["TEST_PROVIDER_KEY"] = PROVIDER_KEY
    with ScriptedProvider(turns) as provider:
        text = config(provider.url, provider.anthropic_url, tool=tool, proxies=proxies, more=more)
        with served(home, text) as gateway:
            key = gateway.credentials.text("bot")
            yield World(provider=provider, key=key, door=f"http://127.0.0.1:{gateway.port}"), gateway


class _Relay(ScriptedProvider):
    """A provider that stays where it is, and says what the one that is behind it says."""

    behind: ScriptedProvider

    def next_answer(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Any:
        return self.behind.next_answer(path, headers, body)


class Gateways:
    """Gateways for many worlds: one for every policy on `send_email`, and in it an agent of its own for every world."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._running: dict[str, tuple[_Relay, Served]] = {}
        self._names = (f"agent-{number}" for number in count())
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def proxied(self, *turns: Turn, tool: str = ALLOW) -> Iterator[tuple[World, Served]]:
        """A world whose clients talk to a gateway as an agent of this world, and the gateway."""
        if tool not in self._running:
            os.environ["TEST_PROVIDER_KEY"] = PROVIDER_KEY
            relay = self._stack.enter_context(_Relay(()))
            text = config(relay.url, relay.anthropic_url, tool=tool)
            home = self._folder / str(len(self._running))
            self._running[tool] = relay, self._stack.enter_context(served(home, text))
        relay, gateway = self._running[tool]
        name = next(self._names)
        gateway.credentials.add(name, "agent", agent=name)
        with ScriptedProvider(turns) as relay.behind:
            door = f"http://127.0.0.1:{gateway.port}"
            yield World(provider=relay.behind, key=gateway.credentials.text(name), door=door), gateway
