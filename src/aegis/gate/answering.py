"""A person's answer to a held call, as steps.

    (1) what they were shown is what is held
    (2) they did not ask for it themselves, and the session is not theirs where that is barred
    (3) the policy in force names them, and it is their turn
    (4) other arguments are analysed again, and never do more than what was held
    (5) the answer is counted on what is stored at that moment, together with its receipt

Nothing in the call or in the answer's body can name an approver: who answers is the credential's word.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from aegis.approvals.machine import check_pending
from aegis.approvals.model import Approval, Scope
from aegis.approvals.queue import Ballot, Narrowed, answered, fatigued, find
from aegis.audit.writer import Unit
from aegis.core.approval import ApprovalPolicy
from aegis.core.call import ToolCall
from aegis.core.canonical import canonical
from aegis.core.digest import SALT_BYTES, call_commitment, payload_commitment
from aegis.core.outcome import Outcome, risk_of
from aegis.core.principal import Principal
from aegis.core.receipt import Recorded
from aegis.errors import InvalidCall, StoreConflict
from aegis.gate.announcing import announced
from aegis.gate.asking import bound_files, digest_of
from aegis.gate.control import Control
from aegis.gate.decide import Decisions
from aegis.gate.events import Event, notify
from aegis.gate.ids import new_id
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.gate.repeat import load_payload, look_up
from aegis.keys.holders import holders
from aegis.pipeline.run import Policy

Steps = Generator[Unit, tuple[Recorded, ...], Approval]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a person sends. The digests are those that they were shown; `arguments` narrow the call."""

    decision: Literal["approve", "deny"]
    reason: str | None = None
    scope: Scope = "once"
    arguments: dict[str, Any] | None = None
    call_digest: str | None = None
    policy_digest: str | None = None


class Answering:
    """Takes people's answers over the parts of one deployment."""

    def __init__(self, parts: Parts, control: Control, decisions: Decisions):
        self._parts = parts
        self._control = control
        self._decisions = decisions

    def steps(self, principal: Principal, approval_id: str, answer: Answer) -> Steps:
        """The approval once the answer counted; raises `InvalidCall` where it does not."""
        parts = self._parts
        approval = self._found(approval_id)
        policy, now = parts.policy.current, parts.clock()
        # (1)
        for name in ("call_digest", "policy_digest"):
            shown = getattr(answer, name)
            if shown is not None and shown != getattr(approval, name):
                raise InvalidCall(
                    "what was shown is not what is held", code="conflict", hint="load the approval again", status=409
                )
        asked = policy.approval_for(approval.server, approval.tool, approval.held_by)
        check_may_answer(principal, approval, asked, policy, now)  # (2), (3)
        check_pending(approval, now)
        # (4)
        narrowed: Narrowed | None = None
        if answer.arguments is not None:
            if answer.decision == "deny":
                raise InvalidCall("a denied call has no arguments")
            narrowed = self._narrow(approval, answer.arguments, policy)
        if answer.scope == "session" and answer.decision == "approve":
            _check_session_scope(approval, asked)
        # (5)
        ballot = Ballot(
            by=principal.id,
            approves=answer.decision == "approve",
            now=now,
            quorum=asked.quorum,
            hourly_limit=policy.approval_rules.hourly_limit,
            grant_seconds=asked.session_grant_seconds,
            scope=answer.scope,
            reason=answer.reason,
            narrowed=narrowed,
        )
        try:
            recorded = yield announced(policy, approval, answered(approval, ballot, new_id), now)
        except InvalidCall as refusal:
            if refusal.code == "approver_limit":
                yield from self._flag(approval_id, principal.id)
            raise
        found = self._found(approval_id)
        members = {"approval_id": approval.id, "tool": approval.tool, "action": found.state}
        notify(parts.listeners, Event(kind="approval", members=members, recorded=recorded[-1]))
        return found

    def _flag(self, approval_id: str, person: str) -> Generator[Unit, tuple[Recorded, ...], None]:
        with suppress(StoreConflict):  # it is flagged already, or was answered meanwhile
            receipt_id = new_id()
            recorded = yield fatigued(approval_id, person=person, receipt_id=receipt_id)
            members = {"approval_id": approval_id, "action": "approver_fatigue", "approvers": [person]}
            notify(self._parts.listeners, Event(kind="alarm", members=members, recorded=recorded[0]))

    def _found(self, approval_id: str) -> Approval:
        with self._parts.store.reader() as reader:
            approval = find(reader, approval_id)
        if approval is None:
            raise InvalidCall("there is no such approval", code="not_found", status=404)
        return approval

    def _narrow(self, approval: Approval, arguments: dict[str, Any], policy: Policy) -> Narrowed | None:
        """The narrowed call, or `None` where nothing would change; raises `InvalidCall` where it may not be."""
        subject = self._subject(approval, arguments)
        state = self._control.current()
        known = look_up(self._parts, (approval.principal, approval.session, approval.call_id))
        _, evaluation = self._decisions.judge(policy, subject, state, known, charge=False)
        if evaluation.combined.outcome is Outcome.BLOCK:
            raise InvalidCall(
                f"the policy blocks these arguments (`{evaluation.combined.reason.value}`)", code="narrowing_blocked"
            )
        wider = (
            max(evaluation.combined.risk, evaluation.tier) > risk_of(approval.risk)
            or not evaluation.effects <= frozenset(approval.effects)
            or (evaluation.irreversible and not approval.irreversible)
        )
        if wider:
            raise InvalidCall(
                "these arguments would do more than the call that is held",
                code="not_narrower",
                hint="deny the call; its agent can ask for another one",
            )
        digest = digest_of(subject, evaluation)
        if digest == approval.call_digest:
            return None
        runs = subject.canonical if evaluation.canonical is None else evaluation.canonical
        salt = os.urandom(SALT_BYTES)
        payload = orjson.dumps({"arguments": orjson.Fragment(runs), "call_digest": digest})
        return Narrowed(
            call_digest=digest,
            identities=bound_files(evaluation, policy),
            call_commitment=call_commitment(salt, approval.request_digest, digest),
            payload_commitment=payload_commitment(salt, payload),
            payload=payload,
            salt=salt,
        )

    def _subject(self, approval: Approval, arguments: dict[str, Any]) -> Subject:
        """The held call with other arguments, as if its own caller had made it."""
        with self._parts.store.reader() as reader:
            entry = reader.entry_by_id(approval.decision_id)
            payload = None if entry is None else load_payload(self._parts, reader, entry.index)[0]
            principal = holders(reader).get(approval.principal)
        if payload is None:
            raise InvalidCall("the call was erased, so it cannot be narrowed", code="erased", status=409)
        if principal is None or "agent" not in principal.roles:  # the agent of this process holds no key
            principal = Principal(id=approval.principal, roles=frozenset({"agent"}), agent=approval.agent)
        claimed = payload.get("claimed", {})
        call = ToolCall(
            tool=approval.tool,
            server=approval.server,
            arguments=arguments,
            call_id=approval.call_id,
            session=approval.session or None,
            task=claimed.get("task"),
            proof=payload.get("proof"),
        )
        return Subject(
            call=call,
            call_id=approval.call_id,
            principal=principal,
            agent=approval.agent,
            session=approval.session,
            canonical=canonical(arguments),
            request_digest=approval.request_digest,
            generated=False,
        )


def may_answer(principal: Principal, approval: Approval, asked: ApprovalPolicy, policy: Policy, now: int) -> bool:
    """Whether this principal may answer `approval` at `now`."""
    try:
        check_may_answer(principal, approval, asked, policy, now)
        check_pending(approval, now)
    except InvalidCall:
        return False
    return True


def check_may_answer(principal: Principal, approval: Approval, asked: ApprovalPolicy, policy: Policy, now: int) -> None:
    """Guarantee that this principal may answer `approval` at `now`; raises `InvalidCall` (403) otherwise."""
    if approval.principal == principal.id or (principal.agent is not None and principal.agent == approval.agent):
        raise InvalidCall("nobody answers a call of their own", code="own_call", status=403)
    if principal.id in approval.barred:
        raise InvalidCall("the owner of a session answers none of its calls", code="own_session", status=403)
    if not asked.names(principal, policy.approval_rules.groups, approval.turn_at(now)):
        wanted = ", ".join(f"`{name}`" for names in (asked.approvers, *asked.also) for name in names)
        message = "the configuration names other approvers for this tool"
        if asked.names(principal, policy.approval_rules.groups, asked.turns):
            message = "others are asked first, and their time is not over"
        raise InvalidCall(message, code="forbidden", hint=wanted, status=403)


def _check_session_scope(approval: Approval, asked: ApprovalPolicy) -> None:
    if not approval.session:
        raise InvalidCall("this call belongs to no session", code="no_session", hint="approve it once")
    if not asked.session_grant_seconds:
        raise InvalidCall(
            "the policy lets this call be approved only once at a time",
            code="scope_not_allowed",
            hint="approve it once",
        )
