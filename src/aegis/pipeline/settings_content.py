"""The section `guards.content`: how the content guards answer what they find."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aegis.core.names import Selector
from aegis.core.outcome import outcome_of
from aegis.guards.options import ContentOptions, DlpPolicy, InjectedPolicy, RuleOverride
from aegis.pipeline.fields import Description, Mode, Moment, Name, Section
from aegis.pipeline.settings_previews import Folder

RuleOutcome = Literal["allow", "sanitize", "require_approval", "block"]


class ExceptionSettings(Section):
    """A rule that does not count for one tool (at one place); says why, and may expire."""

    rule: Name
    """The id of a rule, or several with `*`; not most of them at once."""
    tool: Name
    """The tool, as a selector; `*` is every tool."""
    path: str = ""
    """The place in the arguments, as a JSON pointer; empty is everywhere."""
    reason: Description = Field(min_length=1)
    """Why, for the next reader."""
    expires: Moment | None = None
    """When it ends."""

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
    """What its findings demand instead."""

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
    """Whether its reports count, are only recorded, or are never asked for."""
    egress: DlpPolicy
    """Secrets and personal data that leave: masked, held for an approval, or noted."""
    inside: DlpPolicy
    """The same where they stay inside."""
    injected: InjectedPolicy
    """Instructions found in results: block the result, remove them, or fence them in."""
    inside_hosts: list[Name]
    """Hosts that count as inside, with `*`."""
    workspaces: list[Folder]
    """Folders of this machine that agents work in: a link that leads out of them is blocked; relative paths start at
    the first."""
    exceptions: list[ExceptionSettings]
    """Rules that do not count somewhere."""
    overrides: list[OverrideSettings]
    """Rules that count for more or less somewhere."""

    def compiled(self) -> ContentOptions:
        return ContentOptions(
            egress=self.egress,
            inside=self.inside,
            injected=self.injected,
            inside_hosts=tuple(self.inside_hosts),
            overrides=tuple(item.compiled() for item in (*self.exceptions, *self.overrides)),
        )
