"""The guard protocol and the case that a guard reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

from msgspec import Struct, field

from aegis.core.finding import Finding, Patch, Report
from aegis.core.outcome import Category, Effect, Outcome, Reason, Risk, Verdict
from aegis.core.principal import Principal
from aegis.detect.facts import Facts, Texts
from aegis.detect.touch.touch import Touched
from aegis.policy.dataflow.declare import NOTHING, ToolFlow
from aegis.policy.dataflow.reading import SessionView
from aegis.policy.mission import Cost, MissionView

# What a value is by its size alone: found out without looking at more than that.

_LONGEST_NAME: Final = 12


def holds_at_most(root: Any, limit: int) -> bool:
    """Whether a JSON value holds at most `limit` values, itself and containers included."""
    waiting, count = [root], 1
    while waiting:
        value = waiting.pop()
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        count += len(inner)
        if count > limit:
            return False
        waiting.extend(inner)
    return True


def is_name(value: str) -> bool:
    """Whether a string is one word of at most twelve ASCII letters and digits, of which no rule speaks."""
    return len(value) <= _LONGEST_NAME and value.isascii() and value.isalnum()


# From findings to a report: the outcome is the most restrictive finding's, with its reason.

_REASONS: Final[dict[Category, Reason]] = {
    "secret": Reason.SENSITIVE_DATA,
    "pii": Reason.SENSITIVE_DATA,
    "data_exfiltration": Reason.EXFILTRATION,
    "resource_limit": Reason.POLICY_DENIED,
}


def report_of(
    guard: str, findings: Sequence[Finding], *, patches: Sequence[Patch] = (), missing: Sequence[str] = ()
) -> Report:
    """The report that `findings` amount to.

    A resource limit is missing evidence that nothing may cover: it blocks by itself with verdict
    `insufficient_evidence`. Every other finding that restricts is a violation.
    """
    outcome, reason, risk, verdict = Outcome.ALLOW, Reason.NONE, Risk.LOW, Verdict.COMPLIANT
    for finding in findings:
        if finding.outcome is Outcome.ALLOW:
            continue
        is_limit = finding.category == "resource_limit"
        verdict = max(verdict, Verdict.INSUFFICIENT_EVIDENCE if is_limit else Verdict.VIOLATION)
        risk = max(risk, finding.severity)
        better = finding.outcome == outcome and reason is Reason.POLICY_DENIED
        if finding.outcome > outcome or better:
            outcome = finding.outcome
            # What a person is asked about is no attack until that person says so.
            other = Reason.APPROVAL_REQUIRED if outcome is Outcome.REQUIRE_APPROVAL else Reason.ATTACK_DETECTED
            reason = _REASONS.get(finding.category, other)
    return Report(
        guard=guard,
        outcome=outcome,
        verdict=verdict,
        reason=reason,
        risk=risk,
        findings=tuple(findings),
        patches=tuple(patches) if outcome is not Outcome.BLOCK else (),
        missing=tuple(missing),
    )


# Whose word a result is: a tool's own signature holds, does not hold, or is not there.
Provenance = Literal["valid", "invalid", "unsigned"]


class ToolEntry(Struct, frozen=True, kw_only=True):
    """What the registry says about one tool, compiled. `effects` is `None` where nothing was declared.

    `registered` is false where the tool is known from another server only: what restricts it counts
    (restrictions match every server), and nothing that loosens does. `always_ask` holds every call;
    `permit` says that the tool demands a permit.
    """

    name: str
    risk: Risk = Risk.MEDIUM
    irreversible: bool = False
    effects: frozenset[Effect] | None = None
    category: str = ""
    skip_judge: bool = False
    unsafe_skip_judge: bool = False
    always_ask: bool = False
    registered: bool = True
    permit: bool = False


class Dependence(Struct, frozen=True, kw_only=True):
    """What a call depends on and is not there: ids of calls without a result, of deferred ones, of ones that ended."""

    missing: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


class Case(Struct, frozen=True, kw_only=True):
    """One call as the guards see it: a private copy of its arguments and what we computed from it.

    `tier` is the higher of the registered tier and what the facts say. `now` is microseconds since
    the epoch. `session` is empty for a call without one. `mission` is the mission of the session, where
    it has one; then `touched` is what the call names, and `cost` what it takes from budgets. `orphan` says that
    the call names a parent, and the log knows no such call of its principal. `size` are the bytes of the arguments as
    they were sent. `context` is what the session said and read, and `flow` what is declared of the tool's data flow.
    `dependence` is what is not there of the calls that this one depends on.
    `trust` is the agent's, 0 to 100: who did nothing yet stands in the middle.
    """

    tool: str
    server: str | None
    arguments: dict[str, Any]
    principal: Principal
    agent: str
    session: str
    call_id: str
    entry: ToolEntry | None
    facts: Facts
    tier: Risk
    irreversible: bool
    effects: frozenset[Effect]
    now: int
    task: str | None = None
    mission: MissionView | None = None
    touched: Touched | None = None
    cost: Cost = field(default_factory=dict)
    orphan: bool = False
    size: int = 0
    context: SessionView | None = None
    flow: ToolFlow = NOTHING
    dependence: Dependence | None = None
    trust: int = 50


def effects_of(entry: ToolEntry | None, facts: Facts) -> frozenset[Effect]:
    """The effects that a mission is asked about: the operator's word with what the strings show.

    Where the operator said nothing, the verbs of the tool's name count as well.
    """
    if entry is not None and entry.registered and entry.effects is not None:
        return entry.effects | facts.shown
    declared: frozenset[Effect] = frozenset() if entry is None or entry.effects is None else entry.effects
    return declared | facts.effects


class Guard(Protocol):
    """Decides nothing: reads a case and reports. Synchronous, bounded, and free of I/O."""

    @property
    def name(self) -> str: ...

    def check(self, case: Case) -> Report: ...


def is_idle(guard: object) -> bool:
    """Whether nothing in the configuration lets a guard speak about any call: it says so itself, as `idle`."""
    return bool(getattr(guard, "idle", False))


class ResultCase(Struct, frozen=True, kw_only=True):
    """One tool result as the result guards see it; `mission` is that of the session, where it has one.

    `workspace` says that a coding agent read it from the folder that it works in.
    """

    tool: str
    server: str | None
    result: Any
    texts: Texts
    principal: Principal
    agent: str
    session: str
    entry: ToolEntry | None
    now: int
    mission: MissionView | None = None
    provenance: Provenance = "unsigned"
    must_sign: bool = False
    workspace: bool = False


class ResultGuard(Protocol):
    """Reads a result and reports; patches point into the result."""

    @property
    def name(self) -> str: ...

    def check_result(self, case: ResultCase) -> Report: ...
