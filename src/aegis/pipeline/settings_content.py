"""The section `guards.content`: how the content guards answer what they find."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aegis.core.names import Selector
from aegis.core.outcome import outcome_of
from aegis.guards.options import ContentOptions, DlpPolicy, InjectedPolicy, RuleOverride
from aegis.pipeline.fields import Description, Mode, Moment, Name, Section

RuleOutcome = Literal["allow", "sanitize", "require_approval", "block"]


class ExceptionSettings(Section):
    """A rule that does not count for one tool (at one place); says why, and may expire."""

    rule: Name
    tool: Name = "*"
    path: str = ""
    reason: Description = Field(min_length=1)
    expires: Moment | None = None

    def compiled(self) -> RuleOverride:
        return RuleOverride(
            rule=self.rule,
            tool=Selector(self.tool),
            path=self.path,
            reason=self.reason,
            expires=self.expires,
        )


class OverrideSettings(ExceptionSettings):
    """A rule whose findings count for more or less on one tool (at one place)."""

    outcome: RuleOutcome

    def compiled(self) -> RuleOverride:
        return RuleOverride(
            rule=self.rule,
            tool=Selector(self.tool),
            path=self.path,
            reason=self.reason,
            expires=self.expires,
            outcome=outcome_of(self.outcome),
        )


class ContentSettings(Section):
    """Options of the content guards, for calls and results."""

    mode: Mode
    egress: DlpPolicy
    inside: DlpPolicy
    injected: InjectedPolicy
    inside_hosts: list[Name]
    exceptions: list[ExceptionSettings]
    overrides: list[OverrideSettings]

    def compiled(self) -> ContentOptions:
        return ContentOptions(
            egress=self.egress,
            inside=self.inside,
            injected=self.injected,
            inside_hosts=tuple(self.inside_hosts),
            overrides=tuple(item.compiled() for item in (*self.exceptions, *self.overrides)),
        )
