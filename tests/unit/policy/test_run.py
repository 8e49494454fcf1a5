from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aegis.config.compile import compile_policy
from aegis.config.compile_tools import compile_routes
from aegis.config.config import load_config, parse_config
from aegis.core.canonical import canonical
from aegis.core.finding import Finding, Patch, Report
from aegis.core.outcome import EvidencePolicy, Outcome, Reason, Risk, Verdict
from aegis.detect.facts import ReadLimits
from aegis.detect.rules.cache import default_cache_folder
from aegis.policy import policy as run
from aegis.policy.guards.base import Case, Guard, ResultCase, ResultGuard
from aegis.policy.guards.rate import Rate, RateGuard, Windows
from aegis.policy.model import Incoming, IncomingResult
from aegis.policy.policy import Policy
from support.cases import AGENT

STANDARD = compile_policy(load_config(), cache=default_cache_folder())


@dataclasses.dataclass
class Scripted:
    """A guard that answers what a test says."""

    name: str
    answer: Callable[[Any], Report]
    asked: int = 0

    def check(self, case: Case) -> Report:
        self.asked += 1
        return self.answer(case.arguments)

    def check_result(self, case: ResultCase) -> Report:
        self.asked += 1
        return self.answer(case.result)


def policy(
    *guards: Guard,
    observed: Sequence[str] = (),
    results: Sequence[ResultGuard] = (),
    evidence: EvidencePolicy = "fail-closed",
) -> Policy:
    return Policy(
        digest="sha-256:0",
        guards=[(guard, guard.name in observed) for guard in guards],
        result_guards=[(guard, guard.name in observed) for guard in results],
        routes=compile_routes(load_config().settings),
        limits=ReadLimits(),
        evidence=evidence,
        mode="enforce",
        scanner=STANDARD.scanner,
        windows=Windows(),
    )


def incoming(arguments: dict[str, Any] | None = None, **members: Any) -> Incoming:
    given: dict[str, Any] = {
        "tool": "tool", "server": None, "arguments": arguments or {}, "principal": AGENT, "agent": "bot",
        "session": "s", "call_id": "c", "now": 0,
    }  # fmt: skip
    return Incoming(**{**given, **members})


def incoming_result(result: Any) -> IncomingResult:
    return IncomingResult(tool="tool", server=None, result=result, principal=AGENT, agent="bot", session="s", now=0)


def says(name: str, **members: Any) -> Scripted:
    return Scripted(name, lambda _: Report(guard=name, **members))


def raising(name: str, error: BaseException) -> Scripted:
    def answer(_: Any) -> Report:
        raise error

    return Scripted(name, answer)


FOUND = Finding(guard="b", rule="r", category="pii", severity=Risk.HIGH, outcome=Outcome.BLOCK, evidence="secret")


def test_the_most_restrictive_guard_wins_and_every_guard_is_timed() -> None:
    evaluation = policy(says("a"), says("b", outcome=Outcome.BLOCK, reason=Reason.ATTACK_DETECTED)).evaluate(incoming())
    assert evaluation.combined.outcome is Outcome.BLOCK
    assert [time.guard for time in evaluation.times] == ["a", "b"]
    assert evaluation.canonical is None


@pytest.mark.parametrize("error", [ValueError("value"), RecursionError(), MemoryError(), BaseException("panic")])
def test_a_guard_that_raises_refuses_and_shows_no_value(error: BaseException) -> None:
    combined = policy(says("a"), raising("b", error)).evaluate(incoming()).combined
    assert (combined.outcome, combined.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)
    (finding,) = combined.findings
    assert finding.message == f"the guard failed: `{type(error).__name__}`"
    assert finding.evidence == ""


def test_an_interrupt_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt):
        policy(raising("a", KeyboardInterrupt())).evaluate(incoming())


@pytest.mark.parametrize(
    "report",
    [
        Report(guard="other"),
        Report(guard="a", outcome=Outcome.SANITIZE),
        Report(guard="a", patches=(Patch(path="/x", value=1),)),
        None,
    ],
)
def test_a_report_that_is_not_one_refuses(report: Any) -> None:
    combined = policy(Scripted("a", lambda _: report)).evaluate(incoming({"x": 2})).combined
    assert (combined.outcome, combined.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)


def test_facts_that_fail_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise OSError("disk")

    monkeypatch.setattr(run, "gather", broken)
    combined = policy(says("a")).evaluate(incoming()).combined
    assert (combined.outcome, combined.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)
    assert policy(says("a"), observed=["a"]).evaluate(incoming()).combined.outcome is Outcome.ALLOW


def test_no_guard_at_all_refuses() -> None:
    assert policy().evaluate(incoming()).combined.outcome is Outcome.BLOCK
    assert policy().evaluate_result(incoming_result("x")).combined.outcome is Outcome.BLOCK


@pytest.mark.parametrize(
    "guard",
    [
        says("b", outcome=Outcome.BLOCK, verdict=Verdict.VIOLATION, risk=Risk.HIGH, findings=(FOUND,)),
        says("b", outcome=Outcome.SANITIZE, patches=(Patch(path="/x", value="y"),)),
        says("b", missing=("/x",)),
        raising("b", ValueError("value")),
    ],
)
def test_an_observed_guard_is_recorded_and_changes_nothing_else(guard: Scripted) -> None:
    evaluation = policy(says("a"), guard, observed=["b"]).evaluate(incoming({"x": "z"}))
    combined = evaluation.combined
    assert (combined.outcome, combined.verdict, combined.reason, combined.risk) == (
        Outcome.ALLOW, Verdict.COMPLIANT, Reason.NONE, Risk.LOW,
    )  # fmt: skip
    assert (combined.patches, combined.missing, evaluation.arguments) == ((), (), {"x": "z"})
    assert combined.findings
    assert all(finding.outcome is Outcome.ALLOW for finding in combined.findings)


def test_an_observed_guard_says_what_it_would_have_done() -> None:
    guard = says("b", outcome=Outcome.BLOCK, reason=Reason.ATTACK_DETECTED, findings=(FOUND,))
    combined = policy(guard, observed=["b"]).evaluate(incoming()).combined
    assert [finding.rule for finding in combined.findings] == ["r", "observed"]
    assert combined.findings[1].message == "would have been `block` with reason `attack_detected`"


def masks(name: str = "mask") -> Scripted:
    def answer(arguments: dict[str, Any]) -> Report:
        if arguments.get("to") == "****":
            return Report(guard=name)
        return Report(
            guard=name, outcome=Outcome.SANITIZE, reason=Reason.SENSITIVE_DATA, findings=(FOUND,),
            patches=(Patch(path="/to", value="****"),),
        )  # fmt: skip

    return Scripted(name, answer)


def test_a_patched_call_is_analysed_again_and_is_what_would_run() -> None:
    seen: list[dict[str, Any]] = []

    def look(arguments: dict[str, Any]) -> Report:
        seen.append(arguments)
        return Report(guard="look")

    arguments = {"to": "a@example.com", "n": 1}
    evaluation = policy(masks(), Scripted("look", look)).evaluate(incoming(arguments))
    assert (evaluation.combined.outcome, evaluation.combined.reason) == (Outcome.SANITIZE, Reason.SENSITIVE_DATA)
    assert evaluation.arguments == {"to": "****", "n": 1}
    assert evaluation.canonical == canonical({"to": "****", "n": 1})
    assert [found["to"] for found in seen] == ["a@example.com", "****"]
    assert evaluation.combined.findings == (FOUND,)
    assert arguments["to"] == "a@example.com"


def test_what_a_patch_uncovers_blocks_with_the_call_as_it_was_submitted() -> None:
    def strict(arguments: dict[str, Any]) -> Report:
        wrong = arguments["to"] == "****"
        return Report(guard="s", outcome=Outcome.BLOCK if wrong else Outcome.ALLOW, reason=Reason.SCHEMA_INVALID)

    evaluation = policy(masks(), Scripted("s", strict)).evaluate(incoming({"to": "x"}))
    assert (evaluation.combined.outcome, evaluation.combined.reason) == (Outcome.BLOCK, Reason.SCHEMA_INVALID)
    assert (evaluation.arguments, evaluation.canonical) == ({"to": "x"}, None)


def test_what_was_demanded_before_a_patch_stays_demanded() -> None:
    def hold(arguments: dict[str, Any]) -> Report:
        held = arguments["to"] != "****"
        return Report(
            guard="h", outcome=Outcome.REQUIRE_APPROVAL if held else Outcome.ALLOW, reason=Reason.IRREVERSIBLE
        )

    evaluation = policy(masks(), Scripted("h", hold)).evaluate(incoming({"to": "x"}))
    assert (evaluation.combined.outcome, evaluation.combined.reason) == (
        Outcome.REQUIRE_APPROVAL, Reason.IRREVERSIBLE,
    )  # fmt: skip
    assert evaluation.arguments == {"to": "****"}


@pytest.mark.parametrize(
    "patch",
    [
        Patch(path="/nowhere/x", value=1),
        Patch(path="no-pointer", value=1),
        Patch(path="/to", value=object()),
        Patch(path="/to", value=float("nan")),
    ],
)
def test_a_patch_that_does_not_fit_blocks(patch: Patch) -> None:
    guard = says("a", outcome=Outcome.SANITIZE, patches=(patch,))
    combined = policy(guard).evaluate(incoming({"to": "x"})).combined
    assert combined.outcome is Outcome.BLOCK
    assert combined.findings[-1].rule == "patch-invalid"


def test_patches_that_do_not_converge_block() -> None:
    def grow(arguments: dict[str, Any]) -> Report:
        return Report(guard="g", outcome=Outcome.SANITIZE, patches=(Patch(path="/to", value=arguments["to"] + "x"),))

    combined = policy(Scripted("g", grow)).evaluate(incoming({"to": "x"})).combined
    assert combined.outcome is Outcome.BLOCK
    assert combined.findings[-1].rule == "patch-endless"


@pytest.mark.parametrize(("steps", "outcome"), [(4, Outcome.SANITIZE), (5, Outcome.BLOCK)])
def test_patches_have_four_rounds_to_converge(steps: int, outcome: Outcome) -> None:
    def count(arguments: dict[str, Any]) -> Report:
        if arguments["n"] == steps:
            return Report(guard="g")
        return Report(guard="g", outcome=Outcome.SANITIZE, patches=(Patch(path="/n", value=arguments["n"] + 1),))

    assert policy(Scripted("g", count)).evaluate(incoming({"n": 0})).combined.outcome is outcome


def test_a_patch_that_changes_nothing_is_still_a_patch() -> None:
    guard = says("a", outcome=Outcome.SANITIZE, patches=(Patch(path="/to", value="x"),))
    evaluation = policy(guard).evaluate(incoming({"to": "x"}))
    assert evaluation.combined.outcome is Outcome.SANITIZE
    assert evaluation.canonical == b'{"to":"x"}'


def test_a_patch_that_repeats_itself_has_converged() -> None:
    guard = says("a", outcome=Outcome.SANITIZE, patches=(Patch(path="/to", value="y"),))
    evaluation = policy(guard).evaluate(incoming({"to": "x"}))
    assert evaluation.combined.outcome is Outcome.SANITIZE
    assert evaluation.arguments == {"to": "y"}


def test_a_call_is_charged_once_however_often_it_is_analysed() -> None:
    made = policy(RateGuard(Rate(limit=2, seconds=60)), masks())
    assert made.evaluate(incoming({"to": "x"})).combined.outcome is Outcome.SANITIZE
    assert made.evaluate(incoming({"to": "x"})).combined.outcome is Outcome.SANITIZE
    refused = made.evaluate(incoming({"to": "x"})).combined
    assert (refused.outcome, refused.reason, refused.retry_after) == (Outcome.BLOCK, Reason.RATE_LIMITED, 60)


def test_a_known_call_that_is_looked_at_again_is_not_charged() -> None:
    made = policy(RateGuard(Rate(limit=1, seconds=60)), says("a"))
    made.evaluate(incoming())
    assert made.evaluate(incoming(charge=False)).combined.outcome is Outcome.ALLOW
    assert made.evaluate(incoming()).combined.outcome is Outcome.BLOCK


def test_what_a_call_would_do_before_it_was_patched_is_not_forgotten() -> None:
    def strip(arguments: dict[str, Any]) -> Report:
        if arguments["command"] == "ls":
            return Report(guard="a")
        return Report(guard="a", outcome=Outcome.SANITIZE, patches=(Patch(path="/command", value="ls"),))

    plain = policy(says("a")).evaluate(incoming({"command": "curl https://example.com"}, tool="bash"))
    evaluation = policy(Scripted("a", strip)).evaluate(incoming({"command": "curl https://example.com"}, tool="bash"))
    assert evaluation.effects >= plain.effects
    assert evaluation.tier >= plain.tier


def test_missing_evidence_is_answered_by_the_evidence_policy() -> None:
    guard = says("a", missing=("/x",))
    assert policy(guard).evaluate(incoming()).combined.outcome is Outcome.BLOCK
    attested = policy(guard, evidence="fail-open-with-attestation").evaluate(incoming()).combined
    assert (attested.outcome, attested.verdict) == (Outcome.ALLOW, Verdict.INSUFFICIENT_EVIDENCE)


def test_results_are_patched_and_analysed_again() -> None:
    def fence(result: Any) -> Report:
        if result["text"] == "fenced":
            return Report(guard="content")
        return Report(guard="content", outcome=Outcome.SANITIZE, patches=(Patch(path="/text", value="fenced"),))

    evaluation = policy(results=[Scripted("content", fence)]).evaluate_result(incoming_result({"text": "x"}))
    assert evaluation.combined.outcome is Outcome.SANITIZE
    assert evaluation.result == {"text": "fenced"}
    assert evaluation.canonical == b'{"text":"fenced"}'


def test_a_result_guard_that_raises_withholds_the_result() -> None:
    combined = policy(results=[raising("content", ValueError())]).evaluate_result(incoming_result(None)).combined
    assert (combined.outcome, combined.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)


def test_the_standard_profile_allows_honest_calls_and_blocks_attacks() -> None:
    honest = STANDARD.evaluate(incoming({"to": "a@example.com", "body": "see you at nine"}, tool="send_email"))
    assert honest.combined.outcome is Outcome.ALLOW
    attack = STANDARD.evaluate(incoming({"name": "x' OR '1'='1"}))
    assert (attack.combined.outcome, attack.combined.reason) == (Outcome.BLOCK, Reason.ATTACK_DETECTED)


def test_the_observe_profile_blocks_nothing_and_records_what_it_saw() -> None:
    made = compile_policy(parse_config("profile: observe"), cache=default_cache_folder())
    assert made.settings["mode"] == "observe"
    combined = made.evaluate(incoming({"name": "x' OR '1'='1"})).combined
    assert combined.outcome is Outcome.ALLOW
    assert any(finding.rule == "observed" for finding in combined.findings)


def test_the_strict_profile_blocks_unregistered_tools() -> None:
    made = compile_policy(
        parse_config("profile: strict\ntools: {read_file: {risk: low}, 'mcp:mail/*': {}}"), cache=default_cache_folder()
    )

    def reason(tool: str, server: str | None = None) -> Reason:
        return made.evaluate(incoming(tool=tool, server=server)).combined.reason

    assert reason("read_file") is Reason.NONE
    assert reason("send", "mcp:mail") is Reason.NONE
    assert reason("write_file") is Reason.UNREGISTERED_TOOL
    # An entry without a server registers the tool of no server, and still restricts it everywhere.
    assert reason("read_file", "mcp:files") is Reason.UNREGISTERED_TOOL
    assert reason("send", "mcp:other") is Reason.UNREGISTERED_TOOL


def test_restrictions_match_every_server_and_relaxations_only_the_exact_one() -> None:
    made = compile_policy(
        parse_config("tools: {pay: {risk: high, irreversible: true}, 'bank/*': {risk: low, effects: [network]}}"),
        cache=default_cache_folder(),
    )
    evaluation = made.evaluate(incoming(tool="pay", server="bank"))
    assert (evaluation.tier, evaluation.irreversible) == (Risk.HIGH, True)
    assert evaluation.effects >= {"network"}
    assert evaluation.entry is not None
    assert evaluation.entry.registered
    elsewhere = made.evaluate(incoming(tool="pay", server="shop"))
    assert elsewhere.combined.reason is Reason.IRREVERSIBLE
    assert elsewhere.entry is not None
    assert not elsewhere.entry.registered


def test_approvals_of_a_tool_are_laid_over_the_general_ones() -> None:
    made = compile_policy(
        parse_config("tools: {pay: {approvals: {timeout: 90s, always: true}}}\napprovals: {quorum: 2}"),
        cache=default_cache_folder(),
    )
    evaluation = made.evaluate(incoming(tool="pay"))
    assert evaluation.combined.reason is Reason.APPROVAL_REQUIRED
    assert evaluation.approval is not None
    assert (evaluation.approval.timeout_seconds, evaluation.approval.quorum) == (90, 2)
    assert made.approval_for(None, "other").timeout_seconds == 300
