"""The sections about agents over time: `containment`, and the guards `loops` and `behaviour`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from aegis.config.fields import Section, Tier, Timeout, written
from aegis.core.behaviour import MAX_COUNT, MEASURES, ContainmentRule, Measure
from aegis.core.outcome import Reason, Risk, risk_of
from aegis.core.text import visible
from aegis.core.times import MICROS

MAX_RULES = 32
DEFAULT_SECONDS = 3_600  # a suspension without `for` ends after an hour


def _reason(value: str) -> str:
    known = [one.value for one in Reason if one is not Reason.NONE]
    if value not in known:
        raise ValueError(f"there is no reason `{visible(value)}`; reasons are {', '.join(f'`{one}`' for one in known)}")
    return value


ReasonWord = Annotated[str, AfterValidator(_reason), written("a reason, such as `attack_detected`")]
_Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]


class WhenSettings(Section):
    """What has to come together for one subject within a time; everything that is named, at once."""

    blocked: _Count | None = None
    """Calls that were blocked; those that were refused for being too many, or stopped already, count only by name."""
    held: _Count | None = None
    """Calls that were held for people."""
    denied: _Count | None = None
    """Held calls that people denied."""
    alarms: _Count | None = None
    """Alarms."""
    categories: _Count | None = None
    """Different kinds of attack in its calls."""
    canary: _Count | None = None
    """Touches of a canary."""
    undecided: _Count | None = None
    """Bodies of tools that ran without a decision."""
    budget: _Count | None = None
    """Calls that were refused or held because a budget was used up."""
    reason: ReasonWord | None = None
    """Only decisions with this reason count as blocked or held."""
    severity: Tier | None = None
    """Only decisions with a finding at least as severe count as blocked or held, or name categories."""
    within: Timeout
    """The time within which it comes together."""

    @model_validator(mode="after")
    def _counts_something(self) -> Self:
        if not self.counts:
            raise ValueError(f"`when` counts something: {', '.join(f'`{name}`' for name in MEASURES)}")
        return self

    @property
    def counts(self) -> dict[Measure, int]:
        """What is counted, and how often it takes."""
        given: dict[Measure, int | None] = {name: getattr(self, name) for name in MEASURES}
        return {name: count for name, count in given.items() if count is not None}


class ContainmentSettings(Section):
    """One condition, and what follows once it holds. The first entry that holds wins."""

    when: WhenSettings
    """The condition."""
    does: Literal["alert", "hold", "suspend", "revoke"] = Field(alias="do")
    """`alert` only says so; `hold` asks a person before every call that may change anything; `suspend` refuses
    every call for a time; `revoke` until a person ends it."""
    for_: Timeout | None = Field(alias="for", default=None)
    """How long it is held or suspended; an hour where nothing is said."""
    of: Literal["agent", "session", "mission", "tool"] = "agent"
    """For whom is counted, and who is contained; a mission is the root of a lineage."""

    @model_validator(mode="after")
    def _lasts_where_it_ends(self) -> Self:
        if self.for_ is not None and self.does in ("alert", "revoke"):
            raise ValueError(f"`{self.does}` takes no `for`")
        return self

    def compiled(self) -> ContainmentRule:
        lasts = (self.for_ or DEFAULT_SECONDS) if self.does in ("hold", "suspend") else 0
        return ContainmentRule(
            counts=self.when.counts,
            within=self.when.within * MICROS,
            of=self.of,
            does=self.does,
            lasts=lasts * MICROS,
            reason=self.when.reason or "",
            severity=Risk.LOW if self.when.severity is None else risk_of(self.when.severity),
        )
