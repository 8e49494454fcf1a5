"""A person's answer to a held call, as steps.

    (1) what they were shown is what is held
    (2) they did not ask for it themselves, and the session is not theirs where that is barred
    (3) the policy in force names them, and it is their turn
    (4) other arguments only take away from what is held, and are analysed again
    (5) the answer is counted on what is stored at that moment, together with its receipt

Nothing in the call or in the answer's body can name an approver: who answers is the credential's word.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal

import orjson
from msgspec import Struct

from aegis.approvals.lifecycle import end_wait, said_before
from aegis.approvals.narrowing import check_narrower
from aegis.approvals.queue import Ballot, Narrowed, answered, check_pending, fatigued, load
from aegis.approvals.values import (
    COLLECTION,
    FLOW_SCOPES,
    Approval,
    OfferedGrant,
    Scope,
    bound_files,
    digest_of,
    from_document,
    is_deferred,
    payload_of,
    running,
)
from aegis.approvals.view import announced
from aegis.context.heads import note_grant
from aegis.core.approval import ApprovalPolicy
from aegis.core.call import ToolCall
from aegis.core.canonical import SALT_BYTES, call_commitment, canonical, payload_commitment
from aegis.core.json import parse
from aegis.core.outcome import Outcome, risk_of
from aegis.core.principal import Principal
from aegis.core.receipt import Recorded
from aegis.detect.fold import name_skeleton
from aegis.errors import InvalidCall, StoreConflict
from aegis.gate.control import Control
from aegis.gate.events import Event, new_id, notify
from aegis.gate.identities import check_leads_below
from aegis.gate.participants import DecisionAttempt, Doing, Evaluator
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.gate.repeat import look_up
from aegis.keys.api import holders
from aegis.log.writer import Unit
from aegis.policy.model import Evaluation
from aegis.policy.policy import Policy

PAGE: Final = 500  # approvals read at once

# An approver's other arguments for a held call.
#
# (1) they are judged as the call itself was, and would do no more
# (2) they only take away from what is held now
# (3) a path leads, through every link, to where the held call leads
# (4) what would run is bound like the call itself: digest, files, commitments


class Narrowing:
    """Narrows held calls over the parts of one deployment."""

    def __init__(self, parts: Parts, control: Control, judge: Evaluator):
        self._parts = parts
        self._control = control
        self._judge = judge

    def narrowed(self, approval: Approval, arguments: dict[str, Any], policy: Policy) -> Doing[Narrowed | None]:
        """The narrowed call, or `None` where nothing would change; raises `InvalidCall` where it may not be."""
        subject, held = _held_subject(self._parts, approval, arguments)
        # (1)
        state = self._control.current()
        known = look_up(self._parts, (approval.principal, approval.session, approval.call_id))
        now = self._parts.clock()
        asked = DecisionAttempt(subject=subject, policy=policy, state=state, now=now, known=known, charge=False)
        _, evaluation = yield from self._judge.judge(asked)
        _check_does_no_more(approval, evaluation)
        # (2)
        narrow = dict(policy.approval_for(approval.server, approval.tool).narrow)
        check_narrower(policy.subject(approval.server, approval.tool, held), parse(subject.canonical), narrow)
        digest = digest_of(subject, evaluation)
        if digest == approval.call_digest:
            return None
        # (3)
        if policy.approval_rules.bind_files:
            check_leads_below(held, evaluation.arguments, policy.limits, approval.base)
        # (4)
        runs = subject.canonical if evaluation.canonical is None else evaluation.canonical
        salt = os.urandom(SALT_BYTES)
        payload = orjson.dumps({"arguments": orjson.Fragment(runs), "call_digest": digest})
        return Narrowed(
            call_digest=digest,
            identities=bound_files(evaluation, policy, approval.base).digest,
            call_commitment=call_commitment(salt, approval.request_digest, digest),
            payload_commitment=payload_commitment(salt, payload),
            payload=payload,
            salt=salt,
        )


def _held_subject(
    parts: Parts, approval: Approval, arguments: dict[str, Any] | None = None
) -> tuple[Subject, dict[str, Any]]:
    """The held call as if its own caller had made it, perhaps with other arguments; and the arguments held now."""
    with parts.store.reader() as reader:
        payload = payload_of(parts, reader, approval.decision_id)
        held = running(parts, reader, approval)
        principal = holders(reader).get(approval.principal)
    if payload is None or held is None:
        raise InvalidCall("the call was erased, so it cannot be narrowed", code="erased", status=409)
    if principal is None or "agent" not in principal.roles:  # the agent of this process holds no key
        principal = Principal(id=approval.principal, roles=frozenset({"agent"}), agent=approval.agent)
    given = payload["arguments"] if arguments is None else arguments
    call = ToolCall(
        tool=approval.tool,
        server=approval.server,
        arguments=given,
        call_id=approval.call_id,
        session=approval.session or None,
        task=payload.get("claimed", {}).get("task"),
        parent=payload.get("claimed", {}).get("parent"),
        proof=payload.get("proof"),
    )
    subject = Subject(
        call=said_before(call, payload) if approval.waiting_for else call,
        call_id=approval.call_id,
        principal=principal,
        agent=approval.agent,
        session=approval.session,
        canonical=canonical(given),
        request_digest=approval.request_digest,
    )
    return subject, held


# Evidence that came: waiting calls are judged again, and one that would not wait any more waits no more.


def waiting_in(parts: Parts, principal: str, session: str) -> list[Approval]:
    """The deferred calls of a session that wait now."""
    now, after = parts.clock(), ""
    found: list[Approval] = []
    with parts.store.reader() as reader:
        while True:
            documents = reader.documents(COLLECTION, state="pending", after=after, limit=PAGE)
            found += [
                one
                for one in map(from_document, documents)
                if one.waiting_for and (one.principal, one.session) == (principal, session)
            ]
            if len(documents) < PAGE:
                return [one for one in found if one.state_at(now) == "pending"]
            after = documents[-1].key


def settle(parts: Parts, control: Control, judge: Evaluator, principal: str, session: str) -> Doing[None]:
    """The steps that end the wait of the deferred calls of a session for which the evidence came."""
    if not parts.policy.current.approval_rules.defers:
        return
    for approval in waiting_in(parts, principal, session):
        try:
            subject, _ = _held_subject(parts, approval)
            known = look_up(parts, (approval.principal, approval.session, approval.call_id))
            asked = DecisionAttempt(
                subject=subject, policy=parts.policy.current, state=control.current(), now=parts.clock(), known=known,
                charge=False,
            )  # fmt: skip
            _, evaluation = yield from judge.judge(asked)
            if not is_deferred(evaluation.combined):
                yield from end_wait(parts, approval, evaluation)
        except (InvalidCall, StoreConflict):  # it was erased, or answered meanwhile
            continue


def _check_does_no_more(approval: Approval, evaluation: Evaluation) -> None:
    if evaluation.combined.outcome is Outcome.BLOCK:
        raise InvalidCall(
            f"the policy blocks these arguments (`{evaluation.combined.reason.value}`)", code="narrowing_blocked"
        )
    more = (
        max(evaluation.combined.risk, evaluation.tier) > risk_of(approval.risk)
        or not evaluation.effects <= frozenset(approval.effects)
        or (evaluation.irreversible and not approval.irreversible)
    )
    if more:
        raise InvalidCall(
            "these arguments would do more than the call that is held",
            code="not_narrower",
            hint="deny the call; its agent can ask for another one",
        )


Steps = Doing[Approval]


class Answer(Struct, frozen=True, kw_only=True):
    """What a person sends. The digests are those that they were shown; `arguments` narrow the call."""

    decision: Literal["approve", "deny"]
    reason: str | None = None
    scope: Scope = "once"
    arguments: dict[str, Any] | None = None
    call_digest: str | None = None
    policy_digest: str | None = None


class Answering:
    """Takes people's answers over the parts of one deployment."""

    def __init__(self, parts: Parts, control: Control, judge: Evaluator):
        self._parts = parts
        self._narrowing = Narrowing(parts, control, judge)

    def steps(self, principal: Principal, approval_id: str, answer: Answer) -> Steps:
        """The approval once the answer counted; raises `InvalidCall` where it does not."""
        parts = self._parts
        with parts.store.reader() as reader:
            approval = load(reader, approval_id)
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
        granted: tuple[OfferedGrant, ...] = ()
        if answer.scope in FLOW_SCOPES and answer.decision == "approve":
            granted = tuple(one for one in approval.grants if one.scope == answer.scope)
            if not granted:
                raise InvalidCall(
                    "this approval does not offer that scope",
                    code="scope_not_allowed",
                    hint="its `grants` are those that it offers",
                )
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
            granted=granted,
            tell=partial(note_grant, parts),
        )
        became: list[Approval] = []
        unit = answered(approval, ballot, new_id, became.append)
        try:
            recorded = yield announced(policy, approval, unit, now)
        except InvalidCall as refusal:
            if refusal.code == "approver_limit":
                yield from self._flag(approval_id, principal.id)
            raise
        found = became[-1]
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
    turn = asked.turns if approval.waiting_for else approval.turn_at(now)
    if not asked.names(principal, policy.approval_rules.groups, turn):
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
