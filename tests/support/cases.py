"""Cases for guards, with every member that a test does not speak about filled in."""

from __future__ import annotations

from typing import Any

from aegis.core.outcome import Effect, Risk
from aegis.core.principal import Principal
from aegis.detect import extract, gather
from aegis.detect.facts import Facts, FactSubject, ReadLimits
from aegis.policy.guards.base import Case, ResultCase, ToolEntry

AGENT = Principal(id="key-1", roles=frozenset({"agent"}), agent="bot")


def make_case(
    *,
    tool: str = "tool",
    server: str | None = None,
    arguments: dict[str, Any] | None = None,
    principal: Principal = AGENT,
    agent: str = "bot",
    entry: ToolEntry | None = None,
    facts: Facts | None = None,
    tier: Risk = Risk.LOW,
    irreversible: bool = False,
    effects: frozenset[Effect] = frozenset(),
    now: int = 0,
    size: int = 0,
) -> Case:
    """A call as the guards see it; facts are gathered from the arguments unless given."""
    arguments = {} if arguments is None else arguments
    if facts is None:
        facts = gather(FactSubject(tool=tool, server=server, arguments=arguments, limits=ReadLimits()))
    return Case(
        tool=tool, server=server, arguments=arguments, principal=principal, agent=agent, session="s", call_id="c",
        entry=entry, facts=facts, tier=tier, irreversible=irreversible, effects=effects, now=now, size=size,
    )  # fmt: skip


def make_result_case(result: Any, *, tool: str = "tool", entry: ToolEntry | None = None) -> ResultCase:
    """A result as the result guards see it."""
    return ResultCase(
        tool=tool, server=None, result=result, texts=extract(result, ReadLimits()), principal=AGENT, agent="bot",
        session="s", entry=entry, now=0,
    )  # fmt: skip
