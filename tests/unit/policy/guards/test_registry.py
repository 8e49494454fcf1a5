from __future__ import annotations

import pytest

from aegis.core.outcome import Outcome, Reason, Risk
from aegis.policy.guards.base import ToolEntry
from aegis.policy.guards.registry import RegistryGuard, RegistryRules, Unregistered
from support.cases import make_case


def rules(
    unregistered: Unregistered = "scan",
    ceiling: Risk = Risk.HIGH,
    critical: bool = False,
    threshold: Risk = Risk.HIGH,
) -> RegistryRules:
    return RegistryRules(
        unregistered=unregistered, max_allowed_tier=ceiling, allow_critical=critical, escalation_threshold=threshold
    )


KNOWN = ToolEntry(name="tool")


@pytest.mark.parametrize(
    ("tier", "irreversible", "given", "outcome", "reason"),
    [
        (Risk.LOW, False, rules(), Outcome.ALLOW, Reason.NONE),
        (Risk.HIGH, False, rules(), Outcome.ALLOW, Reason.NONE),
        (Risk.MEDIUM, True, rules(), Outcome.ALLOW, Reason.NONE),
        (Risk.HIGH, True, rules(), Outcome.REQUIRE_APPROVAL, Reason.IRREVERSIBLE),
        (Risk.MEDIUM, True, rules(threshold=Risk.MEDIUM), Outcome.REQUIRE_APPROVAL, Reason.IRREVERSIBLE),
        (Risk.CRITICAL, False, rules(), Outcome.BLOCK, Reason.RISK_CEILING),
        (Risk.HIGH, False, rules(ceiling=Risk.MEDIUM), Outcome.BLOCK, Reason.RISK_CEILING),
        (Risk.CRITICAL, False, rules(ceiling=Risk.CRITICAL), Outcome.BLOCK, Reason.RISK_CEILING),
        (Risk.CRITICAL, False, rules(ceiling=Risk.CRITICAL, critical=True), Outcome.ALLOW, Reason.NONE),
        (
            Risk.CRITICAL,
            True,
            rules(ceiling=Risk.CRITICAL, critical=True),
            Outcome.REQUIRE_APPROVAL,
            Reason.IRREVERSIBLE,
        ),
    ],
)
@pytest.mark.parametrize("entry", [KNOWN, None])
def test_tiers_decide_registered_and_scanned_tools_alike(
    tier: Risk, irreversible: bool, given: RegistryRules, outcome: Outcome, reason: Reason, entry: ToolEntry | None
) -> None:
    report = RegistryGuard(given).check(make_case(entry=entry, tier=tier, irreversible=irreversible))
    assert (report.outcome, report.reason, report.risk) == (outcome, reason, tier)


@pytest.mark.parametrize("entry", [None, ToolEntry(name="tool", registered=False)])
def test_unregistered_tools_get_what_the_operator_chose(entry: ToolEntry | None) -> None:
    blocked = RegistryGuard(rules("block")).check(make_case(entry=entry))
    assert (blocked.outcome, blocked.reason) == (Outcome.BLOCK, Reason.UNREGISTERED_TOOL)
    held = RegistryGuard(rules("require_approval")).check(make_case(entry=entry))
    assert (held.outcome, held.reason) == (Outcome.REQUIRE_APPROVAL, Reason.UNREGISTERED_TOOL)
    assert RegistryGuard(rules("scan")).check(make_case(entry=entry)).outcome is Outcome.ALLOW


def test_the_ceiling_still_blocks_an_unregistered_call_that_would_only_be_held() -> None:
    report = RegistryGuard(rules("require_approval")).check(make_case(tier=Risk.CRITICAL))
    assert (report.outcome, report.reason) == (Outcome.BLOCK, Reason.RISK_CEILING)


def test_a_tool_that_always_asks_is_held_whatever_its_risk() -> None:
    report = RegistryGuard(rules()).check(make_case(entry=ToolEntry(name="tool", always_ask=True)))
    assert (report.outcome, report.reason) == (Outcome.REQUIRE_APPROVAL, Reason.APPROVAL_REQUIRED)


@pytest.mark.parametrize("name", ["SEND_EMAIL", "send_\u200bemail", "ｓｅｎｄ_email"])
def test_another_spelling_of_a_registered_name_is_a_finding_and_holds_nothing(name: str) -> None:
    report = RegistryGuard(rules(), names=["mail/send_email"]).check(make_case(tool=name))
    assert report.outcome is Outcome.ALLOW
    assert [finding.rule for finding in report.findings] == ["look-alike-name"]


def test_the_registered_name_itself_and_other_names_are_no_finding() -> None:
    guard = RegistryGuard(rules(), names=["send_email", "run_*"])
    assert not guard.check(make_case(tool="send_email")).findings
    assert not guard.check(make_case(tool="read_file")).findings


@pytest.mark.parametrize("name", ["send_\u0435mail", "s\u0435nd_em\u0430il"])
def test_a_name_of_look_alike_letters_is_a_grave_finding(name: str) -> None:
    (finding,) = RegistryGuard(rules(), names=["send_email"]).check(make_case(tool=name)).findings
    assert (finding.severity, finding.category, finding.outcome) == (Risk.HIGH, "obfuscation", Outcome.ALLOW)
