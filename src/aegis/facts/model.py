"""The values that fact extraction gives to the guards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from aegis.core.finding import Finding
from aegis.core.outcome import Effect, Risk

TextRole = Literal["command", "sql", "path", "url", "query_fragment", "code", "content", "identifier", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """One string of a call: where it stands, whether it is a key, and what it is for.

    `confidence` (0 to 100) says how sure the role is; `declared` roles have 100.
    """

    path: str
    value: str
    is_key: bool = False
    role: TextRole = "unknown"
    confidence: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Texts:
    """A bounded walk over a JSON value. `limits` names each bound that was exceeded, with its place."""

    strings: tuple[Text, ...] = ()
    total_bytes: int = 0
    limits: tuple[Finding, ...] = ()
    unresolved: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What a call would do. `findings` are what analysers saw on the way (destructive SQL, SSRF...).

    `unparsed` names pointers of strings that would be executed and could not be read: missing
    evidence. `tier` and `irreversible` follow from the facts alone; they never lower a registered
    tier.
    """

    texts: Texts
    effects: frozenset[Effect] = frozenset()
    irreversible: bool = False
    tier: Risk = Risk.LOW
    findings: tuple[Finding, ...] = ()
    unparsed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How far one value is walked; going over any bound is a finding, never a plain allow."""

    max_depth: int = 32
    max_strings: int = 10_000
    max_bytes: int = 1_048_576


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """What facts are computed from. `roles` are declared by the operator, by argument name or pointer."""

    tool: str
    server: str | None
    arguments: dict[str, Any]
    limits: Limits
    schema: Mapping[str, Any] | None = None
    roles: Mapping[str, TextRole] = field(default_factory=dict)
    unresolved: tuple[str, ...] = ()
