"""A person's answer to a held call, as steps.

    (1) what they were shown is what is held
    (2) they did not ask for it themselves, and the session is not theirs where that is barred
    (3) the policy in force names them, and it is their turn
    (4) other arguments only take away from what is held, and are analysed again
    (5) the answer is counted on what is stored at that moment, together with its receipt

Nothing in the call or in the answer's body can name an approver: who answers is the credential's word.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from aegis.approvals.machine import check_pending
from aegis.approvals.model import Approval, Scope
from aegis.approvals.queue import Ballot, Narrowed, answered, fatigued, load
from aegis.audit.writer import Unit
from aegis.core.approval import ApprovalPolicy
from aegis.core.principal import Principal
from aegis.core.receipt import Recorded
from aegis.errors import InvalidCall, StoreConflict
from aegis.facts.fold import name_skeleton
from aegis.gate.announcing import announced
from aegis.gate.control import Control
from aegis.gate.decide import Decisions, Doing
from aegis.gate.events import Event, notify
from aegis.gate.ids import new_id
from aegis.gate.narrowing import Narrowing
from aegis.gate.parts import Parts
from aegis.pipeline.run import Policy

Steps = Doing[Approval]


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
        self._narrowing = Narrowing(parts, control, decisions)

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
            narrowed = yield from self._narrowing.narrowed(approval, answer.arguments, policy)
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
        if narrowed is not None and found.narrowed_by is not None:
            members["narrowed_by"] = found.narrowed_by
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
            return load(reader, approval_id)


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
    for own, asking in ((principal.id, approval.principal), (principal.agent, approval.agent)):
        if own is None or name_skeleton(own) != name_skeleton(asking):
            continue
        raise InvalidCall("nobody answers a call of their own", code="own_call", status=403)
    if name_skeleton(principal.id) in map(name_skeleton, approval.barred):
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
