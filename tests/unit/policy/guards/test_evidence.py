from __future__ import annotations

from aegis.core.outcome import Outcome, Reason, Verdict
from aegis.detect import extract
from aegis.detect.facts import Facts, ReadLimits, Texts
from aegis.policy.guards.evidence import EvidenceGuard
from support.cases import make_case


def test_unresolved_values_are_missing_evidence() -> None:
    facts = Facts(texts=Texts(unresolved=("/to",)))
    report = EvidenceGuard(alone=False).check(make_case(facts=facts))
    assert (report.outcome, report.missing) == (Outcome.ALLOW, ("/to",))


def test_beside_a_content_guard_it_says_nothing_twice() -> None:
    facts = Facts(texts=extract({"a": ["x"] * 5}, ReadLimits(max_strings=2)), unparsed=("/a",))
    report = EvidenceGuard(alone=False).check(make_case(facts=facts))
    assert (report.outcome, report.missing) == (Outcome.ALLOW, ())


def test_alone_it_blocks_what_is_beyond_the_limits_and_names_what_was_not_parsed() -> None:
    guard = EvidenceGuard(alone=True)
    beyond = guard.check(make_case(facts=Facts(texts=extract({"a": ["x"] * 5}, ReadLimits(max_strings=2)))))
    assert (beyond.outcome, beyond.reason, beyond.verdict) == (
        Outcome.BLOCK, Reason.POLICY_DENIED, Verdict.INSUFFICIENT_EVIDENCE,
    )  # fmt: skip
    assert beyond.findings[0].category == "resource_limit"
    assert guard.check(make_case(facts=Facts(texts=Texts(), unparsed=("/a",)))).missing == ("/a",)
    assert guard.check(make_case()).missing == ()
