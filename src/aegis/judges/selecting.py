"""Which validators a call is for, and whether its tool may go without any."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from aegis.core.judging import JudgeSelect, Validator
from aegis.core.names import glob_match, normalise_name
from aegis.core.outcome import Effect, Risk

# What a tool must not do to go without a judge.
HARMFUL: Final[frozenset[Effect]] = frozenset({"write", "exec", "external_send"})


@dataclass(frozen=True, kw_only=True, slots=True)
class About:
    """What selectors look at: the tool and what its call would do."""

    tool: str
    server: str | None
    category: str
    effects: frozenset[Effect]
    irreversible: bool
    tier: Risk
    registered: bool
    skip: bool
    unsafe_skip: bool


def selected(validators: Iterable[Validator], about: About) -> list[Validator]:
    """The validators that are about this call, in their order."""
    return [validator for validator in validators if _matches(validator.select, about)]


def skips(about: About) -> bool:
    """Whether the operator left the judges out for this tool, and this call does nothing that forbids it."""
    harmless = not about.irreversible and not about.effects & HARMFUL
    return about.skip and (harmless or about.unsafe_skip)


def _matches(select: JudgeSelect, about: About) -> bool:
    server = "" if about.server is None else normalise_name(about.server)
    return (
        (not select.tools or any(one.matches(about.server, about.tool) for one in select.tools))
        and (not select.servers or any(glob_match(normalise_name(one), server) for one in select.servers))
        and (select.category is None or select.category == about.category)
        and (select.effect is None or select.effect in about.effects)
        and (select.tier is None or about.tier >= select.tier)
        and (select.unregistered is None or select.unregistered is not about.registered)
    )
