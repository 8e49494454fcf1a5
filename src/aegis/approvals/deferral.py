"""Calls that wait for evidence: what they depend on, and how far such chains go.

(1) what a call depends on is looked up: it gave a result, it runs, it waits itself, or it never ran
(2) a call that waits for evidence is an approval of the kind `deferral`, and a chain of them has an end
(3) a call that `resolves` a waiting one takes its place

`answering.settle` ends the wait where evidence came; people answer a deferral like every approval, and time ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
from msgspec import structs

from aegis.approvals.queue import changed, ended, find
from aegis.approvals.values import Approval, deferral_members, is_deferred
from aegis.core.call import ToolCall
from aegis.core.finding import Finding, Report
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.core.ports import Entry, Reader, Transaction
from aegis.errors import InvalidCall
from aegis.gate.events import new_id
from aegis.gate.observe import COLLECTION as RESULTS
from aegis.gate.participants import DecisionAttempt, DecisionRecord, Part, Participant, Write
from aegis.gate.parts import Parts
from aegis.log.records import RELEASED
from aegis.policy.guards.base import Dependence
from aegis.policy.model import Evaluation
from aegis.policy.policy import Policy

GUARD: Final = "deferral"
MAX_DECISIONS: Final = 32  # of one call that are looked at for a result, the newest first
_LIVING: Final = frozenset({"pending", "approved", "redeemed"})  # held calls that may still give a result
MAX_TAKEN: Final = 1_000  # calls that took one another's place: as long as a chain can be configured


class Deferrals(Participant):
    """Tells guards what a call depends on, and blocks what would make a chain of deferred calls too long."""

    def __init__(self, parts: Parts):
        self._parts = parts

    def is_idle(self, policy: Policy) -> bool:
        return True  # a call that depends on nothing makes no chain

    def view(self, asked: DecisionAttempt) -> Part | None:
        call, subject = asked.subject.call, asked.subject
        before = None if asked.known is None or asked.known.decision is None else asked.known.decision.approval
        if not call.depends_on and call.resolves is None and (before is None or not before.waiting_for):
            return None
        now = self._parts.clock()
        with self._parts.store.reader() as reader:
            look = _Look(reader, subject.principal.id, subject.session, now)
            dependence, chain = look.dependence(call.depends_on)
            taken = None if call.resolves is None else look.resolved(call)
            held = None if before is None else find(reader, before.id)
        if taken is not None:
            chain = max(chain, taken.chain + 1)
        return DeferralPart(now, dependence, chain, taken, None if held is None or not held.by_evidence else held)

    def weigh(self, asked: DecisionAttempt, evaluation: Evaluation, parts: Sequence[Part]) -> Iterable[Report]:
        longest = asked.policy.approval_rules.deferred_chain
        if not is_deferred(evaluation.combined) or chain_of(parts) <= longest:
            return ()
        finding = Finding(
            guard=GUARD,
            rule="chain-too-long",
            category="resource_limit",
            severity=Risk.MEDIUM,
            outcome=Outcome.BLOCK,
            message=f"more than {longest} deferred calls would wait for one another",
        )
        return (
            Report(
                guard=GUARD,
                outcome=Outcome.BLOCK,
                verdict=Verdict.INSUFFICIENT_EVIDENCE,
                reason=Reason.CHAIN_BLOCKED,
                risk=Risk.MEDIUM,
                findings=(finding,),
            ),
        )


class DeferralPart(Part):
    """One call that depends on others, takes the place of one, or waited for evidence before."""

    __slots__ = ("_dependence", "_now", "_taken", "_waited", "chain")

    def __init__(
        self, now: int, dependence: Dependence | None, chain: int, taken: Approval | None, waited: Approval | None
    ):
        self.chain = chain
        self._now = now
        self._dependence = dependence
        self._taken = taken
        self._waited = waited

    def shows(self) -> Mapping[str, Any]:
        return {} if self._dependence is None else {"dependence": self._dependence}

    def members(self, evaluation: Evaluation) -> Mapping[str, Any]:
        return {} if self._waited is None else {"deferral": deferral_members(self._waited, "evidence")}

    def look(self, transaction: Transaction, record: DecisionRecord, *, last: bool) -> Write | None:
        """Cancel the deferred call whose place this one takes, unless nobody looked at this one at all."""
        taken, call_id = self._taken, record.asked.subject.call_id
        stored = None if taken is None or record.evaluation.unread else find(transaction, taken.id)
        if stored is None or stored.state_at(self._now) != "pending":
            return None

        def leave(_: Transaction, found: Approval) -> Any:
            return ended(
                structs.replace(found, replaced_by=call_id), "cancelled", receipt_id=new_id(), principal="gate"
            )

        return changed(stored.id, leave).apply


def chain_of(parts: Sequence[Part]) -> int:
    """How many deferred calls would wait for one another, this one included."""
    return max((part.chain for part in parts if isinstance(part, DeferralPart)), default=1)


class _Look:
    """Finds out what became of other calls of one session."""

    def __init__(self, reader: Reader, principal: str, session: str, now: int):
        self._reader = reader
        self._principal = principal
        self._session = session
        self._now = now

    def dependence(self, names: Sequence[str]) -> tuple[Dependence | None, int]:
        """What is not there of the calls `names`, and the chain that a call makes which waits with them.

        Raises `InvalidCall` (422) for a call that nobody knows.
        """
        missing: list[str] = []
        deferred: list[str] = []
        gone: list[str] = []
        chain = 1
        for name in dict.fromkeys(names):
            entry = self._entry(name, "depends_on")
            body = orjson.loads(entry.body)
            if self._gave_result(entry, body):
                continue
            approval = self._approval(body)
            for _ in range(MAX_TAKEN):  # another call took its place, perhaps
                if approval is None or not approval.replaced_by:
                    break
                entry = self._entry(approval.replaced_by, "depends_on")
                body = orjson.loads(entry.body)
                approval = self._approval(body)
            if self._gave_result(entry, body):
                continue
            state = None if approval is None else approval.state_at(self._now)
            if approval is not None and approval.kind == "deferral" and state in {"pending", "approved"}:
                deferred.append(name)
                chain = max(chain, approval.chain + 1)
            elif state in _LIVING or (approval is None and body["decision"] in RELEASED):
                missing.append(name)
            else:
                gone.append(name)
        if not (missing or deferred or gone):
            return None, chain
        return Dependence(missing=tuple(missing), deferred=tuple(deferred), ended=tuple(gone)), chain

    def resolved(self, call: ToolCall) -> Approval:
        """The deferral whose place `call` takes; raises `InvalidCall` (422) where it names no such call."""
        entry = self._entry(call.resolves or "", "resolves")
        body = orjson.loads(entry.body)
        approval = self._approval(body)
        if approval is None or approval.kind != "deferral":
            raise InvalidCall("`resolves` names a call that was not deferred", code="not_deferred")
        if (approval.tool, approval.server) != (call.tool, call.server):
            raise InvalidCall("`resolves` names a call of another tool", code="not_deferred")
        return approval

    def _entry(self, name: str, member: str) -> Entry:
        index = self._reader.latest_call(self._principal, self._session, name)
        entry = None if index is None else self._reader.entry(index)
        if entry is None:
            raise InvalidCall(f"`{member}` names no call of this session", code="unknown_call")
        return entry

    def _approval(self, body: Mapping[str, Any]) -> Approval | None:
        return find(self._reader, body["approval_id"]) if "approval_id" in body else None

    def _gave_result(self, entry: Entry, body: Mapping[str, Any]) -> bool:
        """Whether any decision of the call has a result."""
        for _ in range(MAX_DECISIONS):
            if self._reader.document(RESULTS, entry.receipt_id) is not None:
                return True
            before = None if "parent" not in body else self._reader.entry_by_id(body["parent"])
            if before is None or before.call_id != entry.call_id:
                return False
            entry, body = before, orjson.loads(before.body)
        return False
