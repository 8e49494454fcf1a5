"""A gateway between the official clients and a scripted provider."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
