"""Cases for guards, as `aegis.testing` makes them for everybody."""

from __future__ import annotations

from typing import Any

from aegis.detect import gather
from aegis.detect.facts import Facts, FactSubject, ReadLimits
from aegis.policy.guards.base import Case
from aegis.testing.guards import AGENT, make_case, make_result_case

__all__ = ["AGENT", "facts_of", "make_case", "make_result_case", "read_case"]


def facts_of(tool: str, arguments: dict[str, Any]) -> Facts:
    """What a call says by its tool and arguments alone."""
    return gather(FactSubject(tool=tool, server=None, arguments=arguments, limits=ReadLimits()))


def read_case(tool: str, arguments: dict[str, Any], facts: Facts | None = None) -> Case:
    """A call as it is judged by what was read of it: tier and effects are those of its facts."""
    facts = facts or facts_of(tool, arguments)
    return make_case(
        tool=tool, arguments=arguments, facts=facts, tier=facts.tier, irreversible=facts.irreversible,
        effects=facts.effects,
    )  # fmt: skip
