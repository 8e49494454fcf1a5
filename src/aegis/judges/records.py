"""Judge runs on record: a receipt when one starts, a receipt when it ends, and what was spent.

A start is durable before the judge runs. An end goes on record with whatever this call has recorded next: the start
of another judge, or the decision. A run that was started stands in the store until then; whatever a crash left there
is ended as `lost` once its time is over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from msgspec import Struct, structs

from aegis.core.canonical import SALT_BYTES, payload_commitment
from aegis.core.decision import Decision, GuardTime
from aegis.core.finding import Finding, Report
from aegis.core.judging import Ceiling, JudgeRules, JudgeSpec, Validator
from aegis.core.outcome import MESSAGES, Outcome, Reason, Risk, Verdict
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft, Recorded
from aegis.core.times import MICROS
from aegis.detect.rules import Scanner
from aegis.errors import StoreError
from aegis.gate.commits import Commits
from aegis.gate.events import new_id
from aegis.gate.participants import DecisionRecord, Part, Write
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.judges.values import ESCALATED, REJECTED, JudgeRan, Reviewed, Spent
from aegis.log.writer import Unit
from aegis.policy.guards.outflow import mask_spans
from aegis.policy.model import IncomingResult, observed
from aegis.policy.policy import Policy

# How judge runs ended, until it is recorded: with the decision that they led to, or by itself where there is none.
#
# A run that was started stands in the store until its end is on record. Its end is written once: what was ended as
# `lost` meanwhile, or in another transaction, is not ended again.

End = Callable[[Transaction], Sequence[Draft]]
Submit = Callable[[Any], Future[Any]]


def with_ends(unit: Unit, ends: Sequence[End]) -> Unit:
    """`unit` with the ends before it, all in one transaction; the unit's own refusal comes before any write."""
    if not ends:
        return unit
    first, drafts = unit.apply, unit.drafts

    def apply(transaction: Transaction) -> Sequence[Draft]:
        more = () if first is None else first(transaction)
        return [*(draft for end in ends for draft in end(transaction)), *drafts, *more]

    return structs.replace(unit, drafts=(), apply=apply)


class JudgeEnds(Part):
    """The ends that wait for the record of one call's decision; what it does not take is recorded by itself."""

    leads = True
    puts = False

    def __init__(self, commits: Commits, submit: Submit):
        self._commits = commits
        self._submit = submit
        self._kept: list[End] = []

    def keep(self, end: End) -> None:
        """Wait with this end."""
        self._kept.append(end)

    def take(self) -> list[End]:
        """Every end that waits, for a unit that will be recorded now."""
        taken, self._kept = self._kept, []
        return taken

    async def flush(self) -> None:
        """Record what waits by itself; raises `StoreError`."""
        ends = self.take()
        if ends:
            await self._commits.append(with_ends(Unit(), ends))

    def look(self, transaction: Transaction, record: DecisionRecord, *, last: bool) -> Write | None:
        """The ends are written before the decision, and refuse nothing."""
        kept = tuple(self._kept)

        def write(transaction: Transaction) -> Sequence[Draft]:
            return [draft for end in kept for draft in end(transaction)]

        return write if kept else None

    def release(self, decision: Decision, recorded: Sequence[Recorded], record: DecisionRecord) -> Decision:
        """They went on record with the decision."""
        self._kept = []
        return decision

    def drop(self) -> None:
        """Record by itself what still waits."""
        if self._kept:
            self._submit(self._alone())

    async def _alone(self) -> None:
        try:
            await self.flush()
        except StoreError:  # the runs stand in the store, and are ended as `lost` once it is back
            return


# From what judges said to a report, to what the receipt says, and to what the agent is told.

GUARD: Final = "judge"
_AWAY: Final = frozenset({"breaker", "provider", "unavailable", "sandbox", "timeout"})


class Feedback(Struct, frozen=True, kw_only=True):
    """What the agent is told of a review; empty where the reason's own sentence says enough."""

    message: str = ""

    def time(self, outcome: Outcome, us: int) -> GuardTime:
        return GuardTime(guard=GUARD, outcome=outcome, us=us)


def report_of(rules: JudgeRules, reviewed: Reviewed) -> Report:
    """The report that a review amounts to."""
    cause = reviewed.cause
    if cause == "passed":
        return Report(guard=GUARD)
    if cause in ESCALATED or (cause in _AWAY and rules.on_unavailable == "require_approval"):
        outcome, reason, verdict = Outcome.REQUIRE_APPROVAL, Reason.APPROVAL_REQUIRED, Verdict.COMPLIANT
        if cause in _AWAY:
            verdict = Verdict.INSUFFICIENT_EVIDENCE
    elif cause in REJECTED:
        outcome, reason, verdict = Outcome.BLOCK, Reason.JUDGE_REJECTED, Verdict.VIOLATION
    else:
        outcome, reason, verdict = Outcome.BLOCK, Reason.JUDGE_FAILED, Verdict.INSUFFICIENT_EVIDENCE
    message = f"the review ended with `{cause}`" + (f" at `{reviewed.validator}`" if reviewed.validator else "")
    finding = Finding(
        guard=GUARD, rule=f"judge-{cause}", category="policy", severity=Risk.HIGH, outcome=outcome, message=message
    )
    report = Report(guard=GUARD, outcome=outcome, verdict=verdict, reason=reason, risk=Risk.MEDIUM, findings=(finding,))
    return observed(report) if rules.mode == "observe" else report


def feedback_of(policy: Policy, subject: Subject, rules: JudgeRules, reviewed: Reviewed, now: int) -> Feedback:
    """What the agent reads as its call's result: the judge's reasoning, after it was looked at like any result."""
    if rules.mode == "observe" or reviewed.cause not in REJECTED:
        return Feedback()
    sentence = MESSAGES[Reason.JUDGE_REJECTED]
    if rules.feedback == "code" or not reviewed.reasoning:
        return Feedback(message=sentence)
    seen = policy.evaluate_result(
        IncomingResult(
            tool=GUARD,
            server=GUARD,
            result=reviewed.reasoning,
            principal=subject.principal,
            agent=subject.agent,
            session=subject.session,
            now=now,
        )
    )
    if seen.combined.outcome is Outcome.BLOCK or not isinstance(seen.result, str):
        return Feedback(message=sentence)
    return Feedback(message=f"{sentence}: {seen.result}")


def judge_members(reviewed: Reviewed) -> dict[str, Any]:
    """What the decision's receipt says of its review: the cause, the runs, and the files that were seen."""
    members: dict[str, Any] = {"state": "judged", "cause": reviewed.cause}
    runs = [run.run_id for run in reviewed.runs if run.run_id]
    if runs:
        members["runs"] = runs
    if any(run.cached for run in reviewed.runs):
        members["reused"] = sum(run.cached for run in reviewed.runs)
    if reviewed.workspace:
        members["workspace"] = reviewed.workspace
    return members


class Masker(Struct, frozen=True):
    """Masks secrets in a text that goes to a provider."""

    scanner: Scanner

    def __call__(self, text: str) -> str:
        found = self.scanner.scan(text, "content")
        rules = {hit.rule.id: hit.rule for hit in found if hit.rule.category == "secret"}
        spans = [(start, end, rule.id) for rule in rules.values() for start, end in self.scanner.spans(rule, text)]
        return mask_spans(text, spans) if spans else text

    def is_quiet(self, together: str) -> bool:
        """Whether no rule at all finds something in these lines."""
        return self.scanner.is_quiet(together)


RUNS: Final = "judge-runs"
SPENT: Final = "judge-costs"
GRACE_S: Final = 5.0  # beyond its deadline: how long a run may take to put its end on record
_DAY: Final = 86_400 * MICROS


@dataclass(frozen=True, kw_only=True)
class JudgeRecords:
    """Records the runs about one call; `about` are the members that name the call. Used on the judges' loop."""

    parts: Parts
    commits: Commits
    about: dict[str, Any]
    policy_digest: str
    ends: JudgeEnds
    running: set[str] = field(default_factory=set)

    async def started(self, validator: Validator, judge: JudgeSpec, payload: dict[str, Any]) -> str:
        """Record the start and return the run's id; raises `StoreError`."""
        run_id, now = new_id(), self.parts.clock()
        until = now + int((min(validator.seconds, judge.limits.seconds) + GRACE_S) * MICROS)
        members = {**self._members("started", judge, validator), "receipt_id": run_id}
        kept = {"until": until, "members": {**members, "parent": run_id}}
        document = Document(collection=RUNS, key=run_id, version=1, state="running", body=orjson.dumps(kept))

        def apply(transaction: Transaction) -> Sequence[Draft]:
            transaction.put_document(document)
            return ()

        unit = Unit(drafts=(_sealed(members, payload),), apply=apply)
        await self.commits.append(with_ends(unit, self.ends.take()))
        self.running.add(run_id)
        return run_id

    async def ended(self, validator: Validator, judge: JudgeSpec, ran: JudgeRan) -> str:
        """Record the end with what was said and spent, at once where others of the panel still run.

        Returns the id of its receipt; raises `StoreError`.
        """
        receipt_id = new_id()
        members = {**self._members("ended", judge, validator), "receipt_id": receipt_id, "parent": ran.run_id}
        members["judge"] = {**members["judge"], **_came_to(ran)}
        payload = {
            "detail": ran.detail,
            "result": None if ran.result is None else ran.result.to_wire(),
            "transcript": list(ran.transcript),
        }
        keys = spending_keys(judge.name, self.about)
        day = self.parts.clock() // _DAY

        draft = _sealed(members, payload)

        def end(transaction: Transaction) -> Sequence[Draft]:
            if transaction.document(RUNS, ran.run_id) is None:  # it was ended as lost meanwhile
                return ()
            transaction.delete_document(RUNS, ran.run_id)
            for key in keys if ran.spent != Spent() else ():
                _spend(transaction, key, day, ran.spent)
            return (draft,)

        self.ends.keep(end)
        self.running.discard(ran.run_id)
        if self.running or ran.cause == "cancelled":
            await self.ends.flush()
        return receipt_id

    def _members(self, action: str, judge: JudgeSpec, validator: Validator) -> dict[str, Any]:
        named = {"name": judge.name, "version": judge.version, "validator": validator.name}
        return {
            "kind": "judge",
            "action": action,
            "policy_digest": self.policy_digest,
            "judge": named,
            **self.about,
        }


def spending_keys(judge: str, about: dict[str, Any]) -> tuple[str, ...]:
    """Under which names tokens and cost of a run are counted."""
    session = [f"session:{orjson.dumps([about['principal'], about['session']]).decode()}"] if "session" in about else []
    return (f"judge:{judge}", f"agent:{about['agent']}", *session)


def is_spent_out(parts: Parts, reader: Reader, rules: JudgeRules, judge: str, about: dict[str, Any]) -> bool:
    """Whether a ceiling for today is reached."""
    day = parts.clock() // _DAY
    for key in spending_keys(judge, about):
        kind = key.partition(":")[0]
        ceiling = next((one for name, one in rules.ceilings.items() if name == kind), Ceiling())
        if ceiling == Ceiling():
            continue
        document = reader.document(SPENT, key)
        spent = {} if document is None else orjson.loads(document.body)
        if spent.get("day") != day:
            continue
        if ceiling.tokens is not None and spent["tokens_in"] + spent["tokens_out"] >= ceiling.tokens:
            return True
        if ceiling.cost is not None and spent["cost"] >= ceiling.cost:
            return True
    return False


def end_lost(run: Document, now: int) -> Unit | None:
    """The unit that ends a run which a crash left behind, or `None` while it may still end by itself."""
    kept = orjson.loads(run.body)
    if now < kept["until"]:
        return None
    members = {**kept["members"], "action": "ended", "receipt_id": new_id()}
    members["judge"] = {**members["judge"], "cause": "lost"}

    def apply(transaction: Transaction) -> Sequence[Draft]:
        if transaction.document(RUNS, run.key) is None:  # somebody else ended it meanwhile
            return ()
        transaction.delete_document(RUNS, run.key)
        return (Draft(members=members),)

    return Unit(apply=apply)


def _spend(transaction: Transaction, key: str, day: int, spent: Spent) -> None:
    document = transaction.document(SPENT, key)
    before = {} if document is None else orjson.loads(document.body)
    same_day = before.get("day") == day
    body = {"day": day}
    for name in ("tokens_in", "tokens_out", "cost"):
        body[name] = (before[name] if same_day else 0) + getattr(spent, name)
    version = 1 if document is None else document.version + 1
    transaction.put_document(Document(collection=SPENT, key=key, version=version, body=orjson.dumps(body)))


def _came_to(ran: JudgeRan) -> dict[str, Any]:
    """Of floats, a receipt holds their thousandths."""
    came: dict[str, Any] = {
        "cause": ran.cause,
        "ms": round(ran.seconds * 1_000),
        "tokens_in": ran.spent.tokens_in,
        "tokens_out": ran.spent.tokens_out,
        "cost": ran.spent.cost,
    }
    if ran.result is not None:
        came["score"] = round(ran.result.score * 1_000)
        came["confidence"] = round(ran.result.confidence * 1_000)
    return came


def _sealed(members: dict[str, Any], payload: dict[str, Any]) -> Draft:
    salt, data = os.urandom(SALT_BYTES), json.dumps(payload).encode("utf-8")  # integers may have any size
    return Draft(members={**members, "payload_commitment": payload_commitment(salt, data)}, payload=data, salt=salt)
