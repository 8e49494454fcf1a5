"""Judging what a tool gave back, as steps like those of a decision.

(1) the result belongs to a call that this principal was allowed to make; that of a stopped agent is withheld
(2) the same result again gets the same answer; another one is refused, unless it says that it is a further text
(3) the result guards evaluate
(4) a receipt chained to the call is recorded; only then the answer is released
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson
from msgspec import Struct, structs

from aegis.core.call import ReadResult, ToolResult
from aegis.core.canonical import SALT_BYTES, canonical, payload_commitment, sha256
from aegis.core.combine import combine
from aegis.core.decision import ReceiptRef, ResultDecision
from aegis.core.finding import Finding, Report
from aegis.core.json import parse
from aegis.core.mission import Postcondition, stricter
from aegis.core.names import Selector
from aegis.core.outcome import Outcome, Reason, Risk, Verdict, outcome_of, verdict_of
from aegis.core.ports import Document, Entry, Reader, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft, Recorded, agent_signer
from aegis.errors import InvalidCall, StoreConflict, StoreUnavailable
from aegis.gate.control import Control, ControlState, stopped_agent
from aegis.gate.events import Event, new_id, notify
from aegis.gate.participants import Participant, ResultAttempt, ResultPart, ResultRecord, asked_of
from aegis.gate.parts import Parts, Slow
from aegis.gate.record import finding_record, findings_of, guard_members
from aegis.gate.repeat import arguments_of, load_payload
from aegis.log.writer import ControlMoved, Unit
from aegis.policy.guards.base import Provenance
from aegis.policy.mission import MissionView
from aegis.policy.model import IncomingResult, ResultEvaluation
from aegis.policy.policy import Policy

if TYPE_CHECKING:  # of a gateway alone: whoever decides once loads none of it
    from aegis.gate.workers import Workers

# What a streamed result is judged by: its conditions, whether it is signed, and what follows missing evidence.


class StreamTerms(Struct, frozen=True, kw_only=True):
    """The conditions of a stream; whether its tool `signs`; whether it `opens` where a condition cannot be judged.

    `agent` is whose call the result is of.
    """

    agent: str
    conditions: tuple[Postcondition, ...] = ()
    signs: bool = False
    opens: bool = False


def terms_of(
    policy: Policy, view: MissionView | None, server: str | None, tool: str, *, agent: str, signs: bool
) -> StreamTerms:
    """The terms of a result of `tool`; a mission that only attests cuts nothing."""
    if view is None:
        return StreamTerms(agent=agent, signs=signs)
    conditions = _conditions(view, server, tool)
    if view.attests:
        conditions = tuple(structs.replace(one, recourse=()) for one in conditions)
    opens = view.attests or stricter(policy.evidence, view.evidence) == "fail-open-with-attestation"
    return StreamTerms(agent=agent, conditions=conditions, signs=signs, opens=opens)


def signed_or_not(
    report: Report,
    view: MissionView | None,
    server: str | None,
    tool: str,
    *,
    provenance: Provenance,
    must_sign: bool,
) -> Report:
    """`report` with what the signature over the whole says: a stream that must be signed and is not may not be used.

    Under a mission that only attests, what it wants is noted and what is missing refuses nothing.
    """
    wanted = () if view is None else tuple(one.id for one in _conditions(view, server, tool) if one.check == "signed")
    if view is not None and any("signed_results" in one.declaration.evidence for one in view.lineage):
        wanted = (*wanted, "signed-results")
    attests = view is not None and view.attests
    if provenance == "invalid" or (must_sign and provenance != "valid"):
        report = _unsigned(report, (*wanted, "signed-results"), Outcome.BLOCK)
    elif wanted and provenance != "valid":
        report = _unsigned(report, wanted, Outcome.ALLOW if attests else Outcome.BLOCK)
    if attests and report.missing:
        report = structs.replace(report, missing=(), verdict=max(report.verdict, Verdict.INSUFFICIENT_EVIDENCE))
    return report


def _conditions(view: MissionView, server: str | None, tool: str) -> tuple[Postcondition, ...]:
    return tuple(
        condition
        for compiled in view.lineage
        for condition in compiled.declaration.postconditions
        if any(Selector(one).matches(server, tool) for one in condition.tools)
    )


def _unsigned(report: Report, names: tuple[str, ...], outcome: Outcome) -> Report:
    findings = tuple(
        Finding(
            guard=report.guard,
            rule=f"postcondition-{name}",
            category="policy",
            severity=Risk.HIGH,
            outcome=outcome,
            message="the stream is not signed as it must be",
        )
        for name in dict.fromkeys(names)
    )
    return structs.replace(
        report,
        outcome=max(report.outcome, outcome),
        verdict=Verdict.VIOLATION,
        reason=Reason.POSTCONDITION_FAILED if outcome is Outcome.BLOCK else report.reason,
        risk=Risk.HIGH,
        findings=(*report.findings, *findings),
    )


COLLECTION: Final = "results"
ATTEMPTS: Final = 3

T = TypeVar("T")
Doing = Generator[Unit | Slow[Any], tuple[Recorded, ...], T]
Steps = Doing[ResultDecision]


class _Made(Struct, frozen=True, kw_only=True):
    entry: Entry
    tool: str
    server: str | None
    session: str
    body: dict[str, Any]


class Results:
    """Judges tool results over the parts of one deployment."""

    def __init__(self, parts: Parts, control: Control, participants: Sequence[Participant]):
        self.workers: Workers | None = None  # of a gateway: who evaluates what is heavy
        self.settle: Callable[[str, str], Doing[None]] | None = None  # calls of that session that waited for a result
        self._parts = parts
        self._control = control
        self._result = asked_of(participants, "result")
        self._let_run = asked_of(participants, "let_run")

    def steps(self, principal: Principal, result: ToolResult) -> Steps:
        """The steps of one result; raises `InvalidCall` for a result that nobody asked for."""
        data = result.canonical if isinstance(result, ReadResult) else canonical(result.result)
        digest = sha256(data)
        place = f"{result.decision_id}/{digest}" if result.further else result.decision_id
        state = self._control.latest()
        for _ in range(ATTEMPTS):
            with self._parts.store.reader() as reader:
                call = self._call(reader, principal, result.decision_id)  # (1)
                earlier = self._earlier(reader, place, digest)  # (2)
            if earlier is not None:
                return _revoked(earlier) if self._control.current().stops(call.entry.agent) else earlier
            try:
                return (yield from self._judge(principal, call, data, result, place, state))
            except StoreConflict:
                state = self._control.current()
        raise StoreUnavailable("the result could not be recorded")

    def _call(self, reader: Reader, principal: Principal, decision_id: str) -> _Made:
        entry = reader.entry_by_id(decision_id)
        if entry is None or entry.kind != "decision" or entry.principal != principal.id:
            raise InvalidCall("`decision_id` names no decision of this principal", code="not_found", status=404)
        body = orjson.loads(entry.body)
        allowed = outcome_of(body["decision"]) <= Outcome.SANITIZE
        if not allowed and "approval_id" in body:
            allowed = any(let_run(reader, body) for let_run in self._let_run)
        if not allowed:
            raise InvalidCall("the call of this result was not allowed to run", code="not_allowed", status=409)
        return _Made(
            entry=entry, tool=body["tool"], server=body.get("server"), session=body.get("session", ""), body=body
        )

    def _earlier(self, reader: Reader, place: str, digest: str) -> ResultDecision | None:
        document = reader.document(COLLECTION, place)
        if document is None:
            return None
        entry = reader.entry_by_id(document.body.decode())
        if entry is None:
            raise StoreUnavailable("a recorded result is not readable")
        payload, _ = load_payload(self._parts, reader, entry)
        if payload is None or payload["digest"] != digest:
            raise InvalidCall("another result was already given for this call", code="conflict", status=409)
        body = orjson.loads(entry.body)
        outcome, reason = outcome_of(body["decision"]), Reason(body["reason"])
        return ResultDecision(
            outcome=outcome,
            verdict=verdict_of(body["verdict"]),
            reason=reason,
            message=result_message(outcome, reason),
            result=payload.get("patched"),
            receipt=ReceiptRef(id=entry.receipt_id, index=entry.index, leaf_hash=entry.leaf_hash.hex()),
            findings=findings_of(payload),
        )

    def _judge(
        self, principal: Principal, call: _Made, data: bytes, given: ToolResult, place: str, state: ControlState
    ) -> Steps:
        parts = self._parts
        policy = parts.policy.current
        wait = policy.wait_for_result(principal, parts.clock(), len(data))
        if wait:
            return withheld(Reason.RATE_LIMITED, retry_after=wait)
        further = place != call.entry.receipt_id  # the result itself settles what its mission counts
        asked = _attempt(principal, policy, call, data, given.provenance, further=further, failed=given.failed)
        parts_of = self._parts_of(asked)
        # (3)
        incoming = _shown(
            IncomingResult(
                tool=call.tool,
                server=call.server,
                principal=principal,
                agent=call.entry.agent,
                session=call.session,
                now=parts.clock(),
            ),
            parts_of,
        )
        if state.stops(call.entry.agent):
            evaluation: ResultEvaluation | None = _withheld_from_stopped()
        else:
            evaluation = yield from self._evaluated(policy, incoming, data)
            blocked = evaluation is not None and evaluation.combined.outcome is Outcome.BLOCK
            # A file that a coding agent's command prints gets the answer that it has through a tool that reads it.
            if blocked and policy.prints_files(call.server, call.tool, lambda: arguments_of(parts, call.entry)):
                evaluation = yield from self._evaluated(policy, structs.replace(incoming, workspace=True), data)
        if evaluation is None:
            return withheld()
        return (yield from self._record(asked, call, evaluation, parts_of, place, state))

    def _evaluated(self, policy: Policy, incoming: IncomingResult, data: bytes) -> Doing[ResultEvaluation | None]:
        if self.workers is None:
            return policy.evaluate_result(incoming, data)
        return (yield from self.workers.result(policy, incoming, data))

    def _parts_of(self, asked: ResultAttempt) -> tuple[ResultPart, ...]:
        return tuple(part for part in (result(asked) for result in self._result) if part is not None)

    def opened_stream(self, principal: Principal, decision_id: str) -> StreamTerms:
        """What a result that will be streamed is judged by.

        Raises `InvalidCall` for one that nobody asked for.
        """
        with self._parts.store.reader() as reader:
            call = self._call(reader, principal, decision_id)
            if self._control.current().stops(call.entry.agent):
                raise stopped_agent()
            if reader.document(COLLECTION, decision_id) is not None:
                raise InvalidCall("a result was already given for this call", code="conflict", status=409)
        policy = self._parts.policy.current
        asked = _attempt(principal, policy, call, b"", None)
        view = _shown(_blank(asked, call), self._parts_of(asked)).mission
        signs = policy.missions.tool_keys.find(call.server, call.tool) is not None
        return terms_of(policy, view, call.server, call.tool, agent=call.entry.agent, signs=signs)

    def stream_steps(
        self, principal: Principal, decision_id: str, report: Report, data: bytes, token: str | None = None
    ) -> Steps:
        """The one attestation of a streamed result: `report` is what its judge found, `data` what it came to."""
        parts, policy = self._parts, self._parts.policy.current
        with parts.store.reader() as reader:
            call = self._call(reader, principal, decision_id)
        wait = policy.wait_for_result(principal, parts.clock(), len(data))
        if wait:
            return withheld(Reason.RATE_LIMITED, retry_after=wait)
        asked = _attempt(principal, policy, call, data, token)
        parts_of = self._parts_of(asked)
        shown = _shown(_blank(asked, call), parts_of)
        view = shown.mission
        report = signed_or_not(
            report, view, call.server, call.tool, provenance=shown.provenance, must_sign=shown.must_sign
        )
        evidence = policy.evidence if view is None else stricter(policy.evidence, view.evidence)
        evaluation = ResultEvaluation(
            combined=combine((report,), (report.guard,), evidence),
            result=parse(data),
            canonical=None,
            times=(),
        )
        place = call.entry.receipt_id
        for _ in range(ATTEMPTS):
            state = self._control.current()
            if state.stops(call.entry.agent):
                evaluation = _withheld_from_stopped()
            try:
                return (yield from self._record(asked, call, evaluation, parts_of, place, state))
            except ControlMoved:
                continue
        raise StoreUnavailable("the result could not be recorded")

    def _record(
        self,
        asked: ResultAttempt,
        call: _Made,
        evaluation: ResultEvaluation,
        parts_of: Sequence[ResultPart],
        place: str,
        state: ControlState,
    ) -> Steps:
        # (4)
        parts = self._parts
        parts.introduce(call.entry.agent)  # another machine may have decided the call, with a key of its own
        settings: Mapping[str, str] = asked.policy.settings
        members: dict[str, Any] = {}
        for part in parts_of:
            settings = part.settings(settings)
            members.update(part.members(evaluation))
        draft = self._draft(asked.principal, call, asked.data, evaluation, asked.policy.digest, settings)
        draft.members["execution"] = "failed" if asked.failed else "ok"
        draft.members.update(members)
        receipt_id = draft.members["receipt_id"]
        document = Document(collection=COLLECTION, key=place, version=1, body=receipt_id.encode())
        record = ResultRecord(asked=asked, evaluation=evaluation, receipt_id=receipt_id)

        def apply(transaction: Transaction) -> Sequence[Draft]:
            writes = [part.look(transaction, record) for part in parts_of]
            transaction.put_document(document)
            for write in writes:
                if write is not None:
                    write(transaction)
            return ()

        try:
            recorded = (yield Unit(drafts=(draft,), apply=apply, epoch=state.epoch))[0]
        except BaseException:
            for part in parts_of:
                part.drop()
            raise
        notify(parts.listeners, Event(kind="result", members=draft.members, recorded=recorded))
        if self.settle is not None:
            yield from self.settle(asked.principal.id, asked.session)
        combined = evaluation.combined
        return ResultDecision(
            outcome=combined.outcome,
            verdict=combined.verdict,
            reason=combined.reason,
            message=result_message(combined.outcome, combined.reason),
            result=evaluation.result if combined.outcome is Outcome.SANITIZE else None,
            receipt=ReceiptRef(id=recorded.receipt_id, index=recorded.index, leaf_hash=recorded.leaf_hash.hex()),
            findings=combined.findings,
        )

    @staticmethod
    def _draft(
        principal: Principal,
        call: _Made,
        data: bytes,
        evaluation: ResultEvaluation,
        policy_digest: str,
        settings: Mapping[str, str],
    ) -> Draft:
        combined = evaluation.combined
        salt = os.urandom(SALT_BYTES)
        value: dict[str, Any] = {"digest": sha256(data), "result": orjson.Fragment(data)}
        if combined.outcome is Outcome.SANITIZE:
            value["patched"] = orjson.Fragment(canonical(evaluation.result))
        if combined.findings:
            value["findings"] = [finding_record(finding) for finding in combined.findings]
        payload = orjson.dumps(value)
        members: dict[str, Any] = {
            "kind": "result",
            "receipt_id": new_id(),
            "parent": call.entry.receipt_id,
            "agent": call.entry.agent,
            "principal": principal.id,
            "roles": sorted(principal.roles),
            "call_id": call.body["call_id"],
            "tool": call.tool,
            "call_commitment": call.body["call_commitment"],
            "payload_commitment": payload_commitment(salt, payload),
            "decision": combined.outcome.word,
            "verdict": combined.verdict.word,
            "reason": combined.reason.value,
            "guards": guard_members(combined),
            "policy_digest": policy_digest,
            "settings": settings,
        }
        if call.session:
            members["session"] = call.session
        if call.server is not None:
            members["server"] = call.server
        return Draft(members=members, signer=agent_signer(call.entry.agent), payload=payload, salt=salt)


def _attempt(
    principal: Principal,
    policy: Policy,
    call: _Made,
    data: bytes,
    token: str | None,
    *,
    further: bool = False,
    failed: bool = False,
) -> ResultAttempt:
    return ResultAttempt(
        principal=principal,
        policy=policy,
        decision_id=call.entry.receipt_id,
        body=call.body,
        data=data,
        token=token,
        further=further,
        failed=failed,
    )


def _blank(asked: ResultAttempt, call: _Made) -> IncomingResult:
    """The result of a stream: it is judged on the way, and nothing of it is read here."""
    return IncomingResult(
        tool=call.tool,
        server=call.server,
        principal=asked.principal,
        agent=call.entry.agent,
        session=call.session,
        now=0,
    )


def _shown(incoming: IncomingResult, parts_of: Sequence[ResultPart]) -> IncomingResult:
    """`incoming` with what participants show result guards."""
    for part in parts_of:
        shown = part.shows()
        if shown:
            incoming = structs.replace(incoming, **shown)
    return incoming


def result_message(outcome: Outcome, reason: Reason) -> str:
    """The sentence that stands for a result which the model may not see as it is."""
    if outcome is Outcome.ALLOW:
        return "the result may be used"
    if outcome is Outcome.SANITIZE:
        return "the result may be used as changed"
    return _WITHHELD.get(reason, "the result of this call was withheld")


def _withheld_from_stopped() -> ResultEvaluation:
    """What is made of a result whose agent was stopped: on the record, and nothing to read."""
    report = Report(
        guard="revocation",
        outcome=Outcome.BLOCK,
        verdict=Verdict.VIOLATION,
        reason=Reason.REVOKED,
        risk=Risk.HIGH,
    )
    combined = combine((report,), (report.guard,), "fail-closed")
    return ResultEvaluation(combined=combined, result=None, canonical=None, times=())


def _revoked(earlier: ResultDecision) -> ResultDecision:
    """The answer to a result that was judged before its agent was stopped."""
    return replace(
        earlier,
        outcome=Outcome.BLOCK,
        verdict=Verdict.VIOLATION,
        reason=Reason.REVOKED,
        message=result_message(Outcome.BLOCK, Reason.REVOKED),
        result=None,
        findings=(),
    )


_WITHHELD: Final = {
    Reason.ATTACK_DETECTED: "the result of this call looks like an attack on you and was withheld",
    Reason.REVOKED: "this agent was stopped, so the result of the call was withheld",
    Reason.UNAVAILABLE: "the result of this call could not be checked, so it was withheld",
    Reason.RATE_LIMITED: "the result of this call came too soon after others, so it was withheld",
}


def withheld(reason: Reason = Reason.UNAVAILABLE, *, retry_after: int | None = None) -> ResultDecision:
    """The block that stands where a result could not be judged or recorded; nothing of it is on record."""
    return ResultDecision(
        outcome=Outcome.BLOCK,
        verdict=Verdict.INSUFFICIENT_EVIDENCE,
        reason=reason,
        message=result_message(Outcome.BLOCK, reason),
        retry_after=retry_after,
    )
