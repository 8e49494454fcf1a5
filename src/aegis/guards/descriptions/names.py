"""Names that take another tool's place: look-alikes, doubles across servers, and descriptions that speak of others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import re2

from aegis.core.finding import Finding
from aegis.core.names import normalise_name
from aegis.core.outcome import Category, Outcome, Risk
from aegis.core.tool_description import ToolDescription
from aegis.facts.fold import skeleton

_WORD: Final = re2.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+")
"""A name of two words or more: one word (`search`) is also plain English."""


def confusions(
    tools: Sequence[ToolDescription], known: Sequence[ToolDescription]
) -> Iterator[tuple[ToolDescription, Finding]]:
    """For each of `tools`, how its name or text takes the place of another tool's, here or among `known`."""
    everything = [*tools, *known]
    spellings: dict[str, set[str]] = defaultdict(set)
    servers: dict[str, set[str | None]] = defaultdict(set)
    for tool in everything:
        spellings[skeleton(normalise_name(tool.name))].add(tool.name)
        servers[normalise_name(tool.name)].add(tool.server)
    for tool in tools:
        others = spellings[skeleton(normalise_name(tool.name))] - {tool.name}
        if others or not tool.name.isascii():
            yield (
                tool,
                _finding("tool-name-look-alike", "obfuscation", "a name that looks like another tool's", tool.name),
            )
        if len(servers[normalise_name(tool.name)]) > 1:
            yield (
                tool,
                _finding(
                    "tool-name-twice", "policy", "another server has a tool of this name", tool.name, Outcome.ALLOW
                ),
            )
        for word in dict.fromkeys(match.group() for match in _WORD.finditer(tool.description)):
            elsewhere = servers.get(normalise_name(word), set()) - {tool.server}
            if elsewhere and tool.server not in servers[normalise_name(word)]:
                yield (
                    tool,
                    _finding(
                        "tool-speaks-of-another",
                        "prompt_injection",
                        "its text speaks of a tool of another server",
                        word,
                    ),
                )


def _finding(
    rule: str, category: Category, message: str, evidence: str, outcome: Outcome = Outcome.REQUIRE_APPROVAL
) -> Finding:
    return Finding(
        guard="descriptions",
        rule=rule,
        category=category,
        severity=Risk.LOW if outcome is Outcome.ALLOW else Risk.HIGH,
        outcome=outcome,
        path="/description" if rule == "tool-speaks-of-another" else "/name",
        message=message,
        evidence=evidence,
    )
