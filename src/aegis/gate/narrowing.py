"""An approver's other arguments for a held call.

(1) they are judged as the call itself was, and would do no more
(2) they only take away from what is held now
(3) a path leads, through every link, to where the held call leads
(4) what would run is bound like the call itself: digest, files, commitments
"""

from __future__ import annotations

import os
from typing import Any

import orjson

from aegis.approvals.model import Approval
from aegis.approvals.narrowing import check_narrower
from aegis.approvals.queue import Narrowed
from aegis.core.call import ToolCall
from aegis.core.canonical import canonical
from aegis.core.digest import SALT_BYTES, call_commitment, payload_commitment
from aegis.core.outcome import Outcome, risk_of
from aegis.core.principal import Principal
from aegis.core.strict_json import parse
from aegis.errors import InvalidCall
from aegis.gate.asking import bound_files, digest_of
from aegis.gate.control import Control
from aegis.gate.decide import Decisions, Doing
from aegis.gate.identities import check_leads_below
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.gate.repeat import look_up
from aegis.gate.running import payload_of, running
from aegis.keys.holders import holders
from aegis.pipeline.model import Evaluation
from aegis.pipeline.run import Policy


class Narrowing:
    """Narrows held calls over the parts of one deployment."""

    def __init__(self, parts: Parts, control: Control, decisions: Decisions):
        self._parts = parts
        self._control = control
        self._decisions = decisions

    def narrowed(self, approval: Approval, arguments: dict[str, Any], policy: Policy) -> Doing[Narrowed | None]:
        """The narrowed call, or `None` where nothing would change; raises `InvalidCall` where it may not be."""
        subject, held = self._subject(approval, arguments)
        # (1)
        state = self._control.current()
        known = look_up(self._parts, (approval.principal, approval.session, approval.call_id))
        _, evaluation = yield from self._decisions.judge(policy, subject, state, known, charge=False)
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

    def _subject(self, approval: Approval, arguments: dict[str, Any]) -> tuple[Subject, dict[str, Any]]:
        """The held call with other arguments, as if its own caller had made it; and the arguments held now."""
        with self._parts.store.reader() as reader:
            payload = payload_of(self._parts, reader, approval.decision_id)
            held = running(self._parts, reader, approval)
            principal = holders(reader).get(approval.principal)
        if payload is None or held is None:
            raise InvalidCall("the call was erased, so it cannot be narrowed", code="erased", status=409)
        if principal is None or "agent" not in principal.roles:  # the agent of this process holds no key
            principal = Principal(id=approval.principal, roles=frozenset({"agent"}), agent=approval.agent)
        call = ToolCall(
            tool=approval.tool,
            server=approval.server,
            arguments=arguments,
            call_id=approval.call_id,
            session=approval.session or None,
            task=payload.get("claimed", {}).get("task"),
            parent=payload.get("claimed", {}).get("parent"),
            proof=payload.get("proof"),
        )
        subject = Subject(
            call=call,
            call_id=approval.call_id,
            principal=principal,
            agent=approval.agent,
            session=approval.session,
            canonical=canonical(arguments),
            request_digest=approval.request_digest,
            generated=False,
        )
        return subject, held


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
