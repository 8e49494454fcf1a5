"""Why a call is made, in the decision on it: words against effects, changed reasoning, orders of others, and plans.

Nothing of it is believed: whatever a host brings, a decision comes out stricter or as it was. A call that brings
nothing, in a session without a plan, is not looked at: then the receipt has no row of this guard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from aegis.behaviour.deciding import may_change
from aegis.context.memory import MemoryPart
from aegis.context.sessions import session_key
from aegis.core.combine import combine
from aegis.core.finding import Finding, Report
from aegis.core.json import parse
from aegis.core.outcome import Category, Outcome, Reason, Risk, Verdict
from aegis.core.ports import Transaction
from aegis.core.reasoning import Reasoning, ReasoningRules, Weight
from aegis.core.receipt import Draft
from aegis.detect.gather import gather
from aegis.errors import StoreConflict
from aegis.gate.participants import DecisionAttempt, DecisionRecord, Part, Participant, Write
from aegis.gate.parts import Parts
from aegis.judges.access import is_judge
from aegis.policy.dataflow.declare import Does, does_with
from aegis.policy.dataflow.reading import SessionView
from aegis.policy.model import Evaluation, observed
from aegis.policy.policy import Policy
from aegis.reasoning.declaring import COLLECTION, PlanBook, PlanCall, load_plan, put_plan
from aegis.reasoning.plan import PlannedCall, Standing
from aegis.reasoning.stated import CHANGES, changes, denies_deed, promises_reading, repeated_order

GUARD: Final = "reasoning"
_METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})  # of HTTP, that change or send
_DEEDS: Final[frozenset[Does]] = frozenset(
    {"send", "post", "pay", "share", "account", "book", "create", "modify", "delete", "member"}
)
_READS: Final = frozenset({"read"})
_GRAVEST: Final = (Reason.UNLICENSED, Reason.APPROVAL_REQUIRED, Reason.INSUFFICIENT_EVIDENCE)


class ReasoningGuard(Participant):
    """Holds calls against the words that explain them, and against the plan of their session."""

    def __init__(self, parts: Parts):
        self._parts = parts

    def is_idle(self, policy: Policy) -> bool:
        rules = policy.behaviour.reasoning
        return rules.mode == "off" or rules.missing == "silent"

    def view(self, asked: DecisionAttempt) -> Part | Evaluation | None:
        """The refusal to loosen a plan without a person; else what finds the plan of the session, where it is asked."""
        subject = asked.subject
        if isinstance(subject.call, PlanCall):
            return _loosening(asked)
        if not subject.session or subject.worker is not None or asked.policy.behaviour.reasoning.mode == "off":
            return None
        return PlanPart(self._parts, session_key(subject.principal, subject.session))

    def weigh(self, asked: DecisionAttempt, evaluation: Evaluation, parts: Sequence[Part]) -> Sequence[Report]:
        """One report on a call that brings reasoning, lacks it where it is demanded, or belongs to a plan."""
        rules, call = asked.policy.behaviour.reasoning, asked.subject.call
        reasoning = call.reasoning
        if rules.mode == "off" or evaluation.combined.outcome is Outcome.BLOCK or isinstance(call, PlanCall):
            return ()
        if reasoning is None and rules.missing == "silent" and not asked.subject.session:
            return ()
        own = next((part for part in parts if isinstance(part, PlanPart)), None)
        memory = next((part for part in parts if isinstance(part, MemoryPart)), None)
        view = None if memory is None else memory.shown
        book = None if own is None else own.load(view)
        found = [*_found(asked, evaluation, reasoning, rules, view)]
        if own is not None and book is not None:
            found += _planned(asked, evaluation, own, book, rules)
        if reasoning is None and book is None and not found:
            return ()
        report = _report([finding for finding, _ in found], [reason for _, reason in found])
        return (observed(report) if rules.mode == "observe" else report,)


class PlanPart(Part):
    """The plan of one call's session, and the step that the call does."""

    __slots__ = ("_book", "_key", "_parts", "_watched", "step")

    def __init__(self, parts: Parts, key: str):
        self._parts = parts
        self._key = key
        self._book: PlanBook | None = None
        self._watched = False
        self.step = -1

    def load(self, view: SessionView | None) -> PlanBook | None:
        """The plan that binds the call; what the session remembers says whose it is."""
        if view is not None and not view.plan:
            return None  # whoever declares one moves what the session remembers
        if view is not None:
            self._key = view.plan
        self._watched = True
        with self._parts.store.reader() as reader:
            self._book = load_plan(self._parts, reader, self._key)
        return self._book

    def look(self, transaction: Transaction, record: DecisionRecord, *, last: bool) -> Write | None:
        """Count the step of a call that runs, under the very plan that it was held against."""
        if not self._watched or not record.runs:
            return None
        document = transaction.document(COLLECTION, self._key)
        book = self._book
        if (0 if document is None else document.version) != (0 if book is None else book.version):
            raise StoreConflict("the plan of the session moved meanwhile")
        if book is None or self.step < 0:
            return None
        counted = book.counted(self.step)

        def write(transaction: Transaction) -> Sequence[Draft]:
            put_plan(self._parts, transaction, self._key, counted)
            return ()

        return write


_Found = tuple[Finding, Reason]


def _found(
    asked: DecisionAttempt,
    evaluation: Evaluation,
    reasoning: Reasoning | None,
    rules: ReasoningRules,
    view: SessionView | None,
) -> Iterator[_Found]:
    """What the words of a call show, in the order in which people should read it."""
    if reasoning is None:
        if rules.missing != "silent" and may_change(evaluation) and not is_judge(asked.subject.principal):
            message = "no reasoning came with the call, so that nothing of it was compared"
            yield _finding("missing", rules.missing, "policy", message), Reason.INSUFFICIENT_EVIDENCE
        return
    if reasoning.changed:
        message = "signed reasoning of the conversation came back other than the model gave it"
        yield _finding("changed", rules.changed, "anomaly", message), Reason.APPROVAL_REQUIRED
    if not may_change(evaluation):
        return
    if view is not None:
        passage = repeated_order(reasoning, view)
        if passage:
            message = "an instruction out of an untrusted result stands word for word in the reasoning"
            finding = _finding("instructed", rules.instructed, "prompt_injection", message, passage)
            yield finding, Reason.UNLICENSED
    if promises_reading(reasoning) and _changes(asked, evaluation):
        message = "what is said of the call is that it only reads, and it changes or sends something"
        yield _finding("contradicts", rules.contradicts, "anomaly", message), Reason.APPROVAL_REQUIRED
    elif denies_deed(reasoning, asked.subject.call.tool, asked.subject.canonical):
        message = "what is said of the call is that it does not do what it does"
        yield _finding("contradicts", rules.contradicts, "anomaly", message), Reason.APPROVAL_REQUIRED


def _changes(asked: DecisionAttempt, evaluation: Evaluation) -> bool:
    """Whether a call surely changes or sends something; of what runs programs, by what the programs do."""
    call, arguments = asked.subject.call, parse(asked.subject.canonical)
    if "exec" in evaluation.effects:
        return changes(gather(asked.policy.subject(call.server, call.tool, arguments)))
    if any(str(arguments.get(name, "")).upper() in _METHODS for name in ("method", "http_method", "verb")):
        return True
    return not CHANGES.isdisjoint(evaluation.effects) or does_with(call.tool, arguments) in _DEEDS


def _planned(
    asked: DecisionAttempt, evaluation: Evaluation, own: PlanPart, book: PlanBook, rules: ReasoningRules
) -> Iterator[_Found]:
    """What a call is to the plan; nothing where it is the next of its steps."""
    call = asked.subject.call
    arguments = parse(evaluation.canonical or asked.subject.canonical)
    planned = PlannedCall(call.tool, call.server, arguments, frozenset(evaluation.effects))
    standing, step = book.plan.place(planned, book.done)
    if standing == "next":
        own.step = step
        return
    if standing == "outside" and rules.reads == "allow" and evaluation.effects and evaluation.effects <= _READS:
        return
    finding = _finding(f"plan-{standing}", "hold", "scope", _words(book, standing, step))
    yield finding, Reason.UNLICENSED


def _words(book: PlanBook, standing: Standing, step: int) -> str:
    """Where a call stands in a plan, for the person who is asked."""
    steps = book.plan.steps
    following = book.plan.following(book.done)
    done = sum(1 for count in book.done if count)
    state = f"{done} of {len(steps)} steps are done"
    if following < len(steps):
        state += f", step {following + 1}, `{steps[following].tool}`, comes next"
    if standing == "order":
        return f"the plan of the session has this call as step {step + 1}, out of its order: {state}"
    if standing == "done":
        return f"the plan of the session has this call as step {step + 1}, as often as it was made already: {state}"
    return f"the plan of the session has no step for this call: {state}"


def _finding(name: str, weight: Weight, category: Category, message: str, evidence: str = "") -> Finding:
    return Finding(
        guard=GUARD,
        rule=f"reasoning-{name}",
        category=category,
        severity=Risk.HIGH if weight == "hold" else Risk.MEDIUM,
        outcome=Outcome.REQUIRE_APPROVAL if weight == "hold" else Outcome.ALLOW,
        message=message,
        evidence=evidence,
    )


def _report(findings: Sequence[Finding], reasons: Sequence[Reason]) -> Report:
    holding = {
        reason for finding, reason in zip(findings, reasons, strict=True) if finding.outcome is Outcome.REQUIRE_APPROVAL
    }
    if not holding:
        return Report(guard=GUARD, findings=tuple(findings))
    reason = min(holding, key=_GRAVEST.index)
    lacks = reason is Reason.INSUFFICIENT_EVIDENCE
    return Report(
        guard=GUARD,
        outcome=Outcome.REQUIRE_APPROVAL,
        verdict=Verdict.INSUFFICIENT_EVIDENCE if lacks else Verdict.VIOLATION,
        reason=reason,
        risk=Risk.HIGH,
        findings=tuple(findings),
    )


def _loosening(asked: DecisionAttempt) -> Evaluation:
    """The evaluation of a plan that lets more through: a person says yes or no, and no policy is asked."""
    call = asked.subject.call
    message = "the host of the session declares a plan that lets more through than the one in force"
    report = _report([_finding("plan-loosened", "hold", "scope", message)], [Reason.APPROVAL_REQUIRED])
    return Evaluation(
        combined=combine((report,), (GUARD,), "fail-closed"),
        arguments=parse(asked.subject.canonical),
        canonical=None,
        tier=Risk.HIGH,
        irreversible=False,
        effects=frozenset(),
        times=(),
        entry=None,
        approval=asked.policy.approval_for(call.server, call.tool),
    )
