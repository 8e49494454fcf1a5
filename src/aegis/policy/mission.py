"""A mission as the guards see it: compiled once, with what the store says about it at this call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, Literal

from msgspec import Struct

from aegis.core.finding import Finding, Report
from aegis.core.mission import Declaration, Recourse
from aegis.core.names import Selector
from aegis.core.outcome import Category, Effect, EvidencePolicy, Outcome, Reason, Risk, Verdict
from aegis.core.times import MICROS
from aegis.detect.touch.touch import CompiledScope, compile_scope

Status = Literal["active", "suspended", "revoked", "unknown"]
Proof = Literal["none", "valid", "invalid"]
Cost = Mapping[str, int]
Coverage = Literal["allowed", "forbidden", "unknown"]
_REMEMBERED: Final = 4_096  # names looked up once: bounds memory against made-up names


class CompiledMission(Struct, frozen=True, kw_only=True, dict=True):
    """One mission of a lineage, ready to be asked. It begins and ends at microseconds since the epoch."""

    declaration: Declaration
    begins: int
    ends: int
    is_timed: bool  # whether a budget counts seconds
    allow: tuple[Selector, ...]
    forbid: tuple[Selector, ...]
    effects: frozenset[Effect]
    scope: CompiledScope
    classes: tuple[tuple[str, tuple[Selector, ...]], ...]
    rules: Mapping[tuple[str, str], bool]

    def covers(self, server: str | None, tool: str) -> Coverage:
        """Whether the mission covers a tool, looked up once for each name; what is forbidden wins."""
        known = self._covered.get((server, tool))
        if known is None:
            # A restriction counts on every server: a name that is forbidden somewhere is forbidden here.
            if any(one.matches(server, tool) for one in self.forbid):
                known = "forbidden"
            else:
                known = "allowed" if any(one.matches(server, tool) for one in self.allow) else "unknown"
            if len(self._covered) >= _REMEMBERED:
                self._covered.clear()
            self._covered[(server, tool)] = known
        return known

    @cached_property
    def _covered(self) -> dict[tuple[str | None, str], Coverage]:
        return {}

    def classes_of(self, server: str | None, tool: str) -> frozenset[str]:
        """The flow classes that a tool belongs to."""
        if not self.classes:
            return frozenset()
        return frozenset(
            name for name, tools in self.classes if any(selector.matches(server, tool) for selector in tools)
        )


class Balance(Struct, frozen=True, kw_only=True):
    """One ledger of counted ceilings, and what was taken from it; `name` is its key in the store."""

    name: str
    ceilings: Cost
    used: Cost

    def exceeded(self, cost: Cost) -> str | None:
        """The first ceiling that `cost` would pass, or `None`."""
        for name, ceiling in self.ceilings.items():
            wanted = cost.get(name, 0)
            if wanted and self.used.get(name, 0) + wanted > ceiling:
                return name
        return None


class MissionView(Struct, frozen=True, kw_only=True):
    """The mission of a session, from the root of its lineage (first) to the one that acts (last).

    `opened_at` is microseconds since the epoch; `evidence` is the strictest evidence policy of the
    lineage; `recourse` is what failed results led to; `seen` are the flow classes whose data the session
    holds; `manifest` is the digest of the tools that the host offered, where it said so. `for_judge` says that the
    call is a judge's own, made while it looks at a call of the session.
    """

    lineage: tuple[CompiledMission, ...]
    status: Status
    opened_at: int
    evidence: EvidencePolicy = "fail-closed"
    recourse: frozenset[Recourse] = frozenset()
    seen: frozenset[str] = frozenset()
    denials: int = 0
    proof: Proof = "none"
    session_proof: bool = False
    task: bool = False
    manifest: str | None = None
    balances: tuple[Balance, ...] = ()
    for_judge: bool = False

    @property
    def acting(self) -> Declaration:
        """The mission that the agent acts under."""
        return self.lineage[-1].declaration

    @property
    def attests(self) -> bool:
        """Whether findings are recorded and refuse nothing."""
        return self.acting.mode == "attest"


class Quote(Struct, frozen=True, kw_only=True):
    """What one call of a tool costs at worst, as the operator was told: money in minor units by currency."""

    money: Mapping[str, int]
    tokens: int = 0


def compile_mission(declaration: Declaration) -> CompiledMission:
    """The mission, ready to be asked; raises `ValueError` for an entry that cannot be read."""
    return CompiledMission(
        declaration=declaration,
        begins=declaration.iat * MICROS,
        ends=declaration.exp * MICROS,
        is_timed=(declaration.budgets.seconds, declaration.session_budgets.seconds) != (None, None),
        allow=tuple(Selector(one) for one in declaration.tools.allow),
        forbid=tuple(Selector(one) for one in declaration.tools.forbid),
        effects=frozenset(declaration.effects),
        scope=compile_scope(declaration.scope, declaration.forbidden_scope),
        classes=tuple(
            (name, tuple(Selector(one) for one in members.tools)) for name, members in declaration.flow.classes.items()
        ),
        rules={(rule.source, rule.sink): rule.action == "allow" for rule in declaration.flow.rules},
    )


def refusal(
    guard: str,
    rule: str,
    reason: Reason,
    message: str,
    *,
    path: str = "",
    category: Category = "policy",
    outcome: Outcome = Outcome.BLOCK,
    verdict: Verdict = Verdict.VIOLATION,
    missing: tuple[str, ...] = (),
) -> Report:
    """A report with one finding."""
    return Report(
        guard=guard,
        outcome=outcome,
        verdict=verdict,
        reason=reason,
        risk=Risk.HIGH,
        missing=missing,
        findings=(
            Finding(
                guard=guard,
                rule=rule,
                category=category,
                severity=Risk.HIGH,
                outcome=outcome,
                path=path,
                message=message,
            ),
        ),
    )


def attested(report: Report) -> Report:
    """What a report says where the mission only attests: the verdict stands, and nothing is refused."""
    findings = tuple(
        Finding(
            guard=one.guard,
            rule=one.rule,
            category=one.category,
            severity=one.severity,
            outcome=Outcome.ALLOW,
            path=one.path,
            message=one.message,
        )
        for one in report.findings
    )
    verdict = max(report.verdict, Verdict.INSUFFICIENT_EVIDENCE) if report.missing else report.verdict
    return Report(guard=report.guard, verdict=verdict, risk=report.risk, findings=findings)
