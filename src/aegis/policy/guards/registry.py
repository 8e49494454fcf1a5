"""The registry guard: what the tier of a call allows, and what happens to tools nobody registered."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal

from msgspec import Struct

from aegis.core.finding import Finding, Report
from aegis.core.names import normalise_name, split_selector
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.detect.fold import skeleton
from aegis.policy.guards.base import Case

Unregistered = Literal["scan", "block", "require_approval"]

_QUIET: Final = tuple(Report(guard="registry", risk=tier) for tier in Risk)


class RegistryRules(Struct, frozen=True, kw_only=True):
    """What the operator lets tiers do."""

    unregistered: Unregistered
    max_allowed_tier: Risk
    allow_critical: bool
    escalation_threshold: Risk


class RegistryGuard:
    """Demands what the tier, the reversibility and the registration of a call demand together."""

    name = "registry"

    def __init__(self, rules: RegistryRules, *, names: Iterable[str] = ()):
        self._rules = rules
        self._names = LookAlikes(names)

    def check(self, case: Case) -> Report:
        """The most restrictive of the demands below; the first of equals gives the reason."""
        rules = self._rules
        outcome, reason, message = Outcome.ALLOW, Reason.NONE, ""
        # (1) A tool that nobody registered for this server.
        entry = case.entry
        if (entry is None or not entry.registered) and rules.unregistered != "scan":
            outcome = Outcome.BLOCK if rules.unregistered == "block" else Outcome.REQUIRE_APPROVAL
            reason, message = Reason.UNREGISTERED_TOOL, "the tool is not registered"
        # (2) The ceiling of this deployment, and critical calls, which are off unless switched on.
        if outcome < Outcome.BLOCK:
            if case.tier > rules.max_allowed_tier:
                outcome, reason = Outcome.BLOCK, Reason.RISK_CEILING
                message = "the risk of the call is above the highest tier that may run"
            elif case.tier is Risk.CRITICAL and not rules.allow_critical:
                outcome, reason = Outcome.BLOCK, Reason.RISK_CEILING
                message = "critical calls are switched off"
        # (3) What cannot be undone, from the threshold on, needs a person.
        if outcome < Outcome.REQUIRE_APPROVAL:
            if case.irreversible and case.tier >= rules.escalation_threshold:
                outcome, reason = Outcome.REQUIRE_APPROVAL, Reason.IRREVERSIBLE
                message = "the effect of the call cannot be undone"
            elif entry is not None and entry.always_ask:
                outcome, reason = Outcome.REQUIRE_APPROVAL, Reason.APPROVAL_REQUIRED
                message = "every call of the tool needs an approval"
        # (4) A name that only looks like a registered one is pointed out; names alone hold nothing.
        look_alike = None if case.tool in self._names.exact else self._names.find(case.tool)
        if outcome is Outcome.ALLOW and look_alike is None:
            return _QUIET[case.tier]
        findings = [] if look_alike is None else [look_alike]
        if outcome is not Outcome.ALLOW:
            findings.append(
                Finding(
                    guard=self.name,
                    rule=reason.value.replace("_", "-"),
                    category="policy",
                    severity=case.tier,
                    outcome=outcome,
                    message=message,
                )
            )
        return Report(
            guard=self.name,
            outcome=outcome,
            verdict=Verdict.VIOLATION if outcome is Outcome.BLOCK else Verdict.COMPLIANT,
            reason=reason,
            risk=case.tier,
            findings=tuple(findings),
        )


class LookAlikes:
    """Finds names that look like a registered tool's (UTS 39) and are spelled otherwise."""

    def __init__(self, names: Iterable[str]):
        tools = [split_selector(name)[1] for name in names if "*" not in name]
        self.exact = frozenset(tools)
        self._normal = frozenset(normalise_name(tool) for tool in tools)
        self._skeletons = frozenset(skeleton(normalise_name(tool)) for tool in tools)
        self._look = lru_cache(maxsize=1_024)(self._compare)

    def find(self, tool: str) -> Finding | None:
        """The finding that `tool` looks like a registered name, or `None`."""
        if tool in self.exact or not self.exact:
            return None
        return self._look(tool)

    def _compare(self, tool: str) -> Finding | None:
        name = normalise_name(tool)
        if name in self._normal:
            severity, message = Risk.LOW, "the name of a registered tool, in another spelling"
        elif skeleton(name) in self._skeletons:
            severity, message = Risk.HIGH, "a name that looks like a registered tool's"
        else:
            return None
        return Finding(
            guard="registry",
            rule="look-alike-name",
            category="obfuscation",
            severity=severity,
            outcome=Outcome.ALLOW,
            message=message,
        )
