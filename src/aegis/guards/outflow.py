"""Secrets and personal data in a call: masked or held where they leave for outside, noted where they stay.

A rule of these families says what was found; where the call takes it decides what happens.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from aegis.core.finding import Finding, Patch
from aegis.core.names import glob_match
from aegis.core.outcome import Outcome
from aegis.core.pointer import resolve
from aegis.guards.base import Case
from aegis.guards.encoded import encoded_spans
from aegis.guards.options import ContentOptions, DlpPolicy
from aegis.rules.scanner import DATA, Checks, Scanner

_OUTCOMES: Final[dict[DlpPolicy, Outcome]] = {
    "mask": Outcome.SANITIZE,
    "hold": Outcome.REQUIRE_APPROVAL,
    "note": Outcome.ALLOW,
}
MOST_MASKED: Final = 250  # findings of data that are masked in one call; a call with more is held
_LONGEST_MASKED: Final = 262_144  # characters of one value that are masked in place; longer ones are held


def answer_data(
    findings: list[Finding], case: Case, options: ContentOptions, scanner: Scanner
) -> tuple[list[Finding], list[Patch]]:
    """The findings with the outcome that the policy gives to secrets and personal data, and the patches."""
    if not any(finding.category in DATA and finding.outcome is not Outcome.ALLOW for finding in findings):
        return findings, []
    policy = options.egress if leaves(case, options) else options.inside
    count = sum(finding.category in DATA and finding.outcome is not Outcome.ALLOW for finding in findings)
    if policy == "mask" and count > MOST_MASKED:
        policy = "hold"
    answered: list[Finding] = []
    checks = Checks()
    spans: dict[str, list[tuple[int, int, str]]] = {}
    for finding in findings:
        if finding.category not in DATA or finding.outcome is Outcome.ALLOW:
            answered.append(finding)
            continue
        outcome = _OUTCOMES[policy]
        if outcome is Outcome.SANITIZE:
            found = _spans(finding, case.arguments, scanner, checks)
            if found:
                spans.setdefault(finding.path, []).extend(found)
            else:
                outcome = Outcome.REQUIRE_APPROVAL  # it stands in an encoding, so nothing is masked in place
        answered.append(finding if finding.outcome is outcome else replace(finding, outcome=outcome))
    patches = [
        Patch(path=path, value=mask_spans(resolve(case.arguments, path), found)) for path, found in spans.items()
    ]
    return answered, patches


def leaves(case: Case, options: ContentOptions) -> bool:
    """Whether the call takes its content outside: by its effects, unless every host it names is inside."""
    if (
        "external_send" not in case.effects
        and "network" not in case.effects
        and "external_send" not in case.facts.effects
    ):
        return False
    if not options.inside_hosts:
        return True
    hosts = [host for text in case.facts.texts.strings for host in _hosts(text.value)]
    return not hosts or any(not _inside(host, options.inside_hosts) for host in hosts)


def mask_spans(text: str, spans: list[tuple[int, int, str]]) -> str:
    """The text with every span replaced by the name of the rule that found it."""
    out: list[str] = []
    at = 0
    for start, end, rule in sorted(spans):
        if start < at:
            continue
        out.append(f"{text[at:start]}[masked: {rule}]")
        at = end
    out.append(text[at:])
    return "".join(out)


def _spans(finding: Finding, root: Any, scanner: Scanner, checks: Checks) -> list[tuple[int, int, str]]:
    try:
        value = resolve(root, finding.path)
    except LookupError:
        return []
    rule = scanner.rules.by_id.get(finding.rule)
    if not isinstance(value, str) or len(value) > _LONGEST_MASKED or rule is None:
        return []
    found = [(start, end, rule.id) for start, end in scanner.spans(rule, value, checks=checks)]
    return [] if found and encoded_spans(rule, value, scanner) else found


def _hosts(value: str) -> list[str]:
    """The host of an address or URL, where the whole value is one."""
    if len(value) > 2_048 or " " in value:
        return []
    if "://" in value:
        return [value.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0].lower()]
    local, at, domain = value.rpartition("@")
    return [domain.lower()] if at and local and "." in domain else []


def _inside(host: str, patterns: tuple[str, ...]) -> bool:
    return any(glob_match(pattern.lower(), host) for pattern in patterns)
