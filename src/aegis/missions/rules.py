"""What a policy brings to missions: their guards, who may issue them, and what calls cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aegis.core.names import SelectorMap
from aegis.keys.jws import IssuerKey
from aegis.missions.budget import Quote
from aegis.policy.guards.base import Guard, ResultGuard


@dataclass(frozen=True, kw_only=True, slots=True)
class MissionRules:
    """The section `missions`, compiled. `issuers` are keys by their id, `tool_keys` public keys of 32 bytes;
    `signing` holds all of the latter.

    `required` refuses calls without a mission; the guards are asked about calls with one, and about
    every call where one is required.
    """

    guards: tuple[Guard, ...] = ()
    result_guards: tuple[ResultGuard, ...] = ()
    required: bool = False
    audience: str = "aegis"
    issuers: Mapping[str, IssuerKey] = field(default_factory=dict)
    quotes: SelectorMap[Quote] = field(default_factory=lambda: SelectorMap({}))
    tool_keys: SelectorMap[bytes] = field(default_factory=lambda: SelectorMap({}))
    signing: frozenset[bytes] = frozenset()
