"""The guard protocol and the case that a guard reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from aegis.core.finding import Report
from aegis.core.outcome import Effect, Risk
from aegis.core.principal import Principal
from aegis.facts.model import Facts, Texts


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolEntry:
    """What the registry says about one tool, compiled. `effects` is `None` where nothing was declared.

    `registered` is false where the tool is known from another server only: what restricts it counts
    (restrictions match every server), and nothing that loosens does. `always_ask` holds every call.
    """

    name: str
    risk: Risk = Risk.MEDIUM
    irreversible: bool = False
    effects: frozenset[Effect] | None = None
    category: str = ""
    skip_judge: bool = False
    always_ask: bool = False
    registered: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One call as the guards see it: a private copy of its arguments and what we computed from it.

    `tier` is the higher of the registered tier and what the facts say. `now` is microseconds since
    the epoch. `session` is empty for a call without one.
    """

    tool: str
    server: str | None
    arguments: dict[str, Any]
    principal: Principal
    agent: str
    session: str
    call_id: str
    entry: ToolEntry | None
    facts: Facts
    tier: Risk
    irreversible: bool
    effects: frozenset[Effect]
    now: int
    task: str | None = None


class Guard(Protocol):
    """Decides nothing: reads a case and reports. Synchronous, bounded, and free of I/O."""

    @property
    def name(self) -> str: ...

    def check(self, case: Case) -> Report: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultCase:
    """One tool result as the result guards see it."""

    tool: str
    server: str | None
    result: Any
    texts: Texts
    principal: Principal
    agent: str
    session: str
    entry: ToolEntry | None
    now: int


class ResultGuard(Protocol):
    """Reads a result and reports; patches point into the result."""

    @property
    def name(self) -> str: ...

    def check_result(self, case: ResultCase) -> Report: ...
