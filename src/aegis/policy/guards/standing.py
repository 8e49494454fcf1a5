"""Standing approvals: a person's yes, given once for calls of one shape and until a day, in place of one yes a call."""

from __future__ import annotations

from typing import Final

import jsonschema_rs
from msgspec import Struct, structs

from aegis.core.finding import Finding, Report
from aegis.core.outcome import Category, Outcome, Reason, Risk, Verdict
from aegis.policy.guards.base import Case, Guard, is_idle

# What a standing approval may stand in for: a person who is asked about a deed. Signs of an attack, secrets, values
# from documents and what nobody could look at are a person's to see each time.
GUARDS: Final = ("registry", "schema", "content")
REASONS: Final = frozenset({Reason.APPROVAL_REQUIRED, Reason.IRREVERSIBLE})
CATEGORIES: Final[frozenset[Category]] = frozenset({"policy", "destructive", "supply_chain", "sensitive_file"})


class StandingApproval(Struct, frozen=True, kw_only=True):
    """One entry of `approvals.standing`: every member must hold. `expires` is microseconds since the epoch."""

    server: str | None
    tool: str
    agent: str
    principal: str
    rules: frozenset[str]
    arguments: jsonschema_rs.Validator
    expires: int

    def covers(self, case: Case, rules: frozenset[str]) -> bool:
        """Whether nobody needs to be asked about a call that `rules` hold."""
        return (
            case.now < self.expires
            and (case.server, case.tool) == (self.server, self.tool)
            and (case.agent, case.principal.id) == (self.agent, self.principal)
            and rules <= self.rules
            and self.arguments.is_valid(case.arguments)
        )


class StandingGuard:
    """Reports what the guard inside of it reports, without the holds that a standing approval covers whole."""

    def __init__(self, guard: Guard, approvals: tuple[StandingApproval, ...]):
        self.name = guard.name
        self.idle = is_idle(guard)
        self._guard = guard
        self._approvals = approvals

    def check(self, case: Case) -> Report:
        """Give the report; a hold that is covered stays in it as a note."""
        report = self._guard.check(case)
        if report.outcome is not Outcome.REQUIRE_APPROVAL or report.patches or report.missing or report.awaits:
            return report
        held = [one for one in report.findings if one.outcome is not Outcome.ALLOW]
        if not held or report.reason not in REASONS or any(one.category not in CATEGORIES for one in held):
            return report
        rules = frozenset(one.rule for one in held)
        if not any(one.covers(case, rules) for one in self._approvals):
            return report
        note = Finding(
            guard=self.name,
            rule="standing-approval",
            category="policy",
            severity=Risk.LOW,
            outcome=Outcome.ALLOW,
            message="a standing approval covers what would have been held",
        )
        return structs.replace(
            report,
            outcome=Outcome.ALLOW,
            verdict=Verdict.COMPLIANT,
            reason=Reason.NONE,
            findings=(*(structs.replace(one, outcome=Outcome.ALLOW) for one in report.findings), note),
        )
