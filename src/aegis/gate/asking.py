"""Opening an approval: what a held call is bound to, and who may not answer it."""

from __future__ import annotations

from aegis.approvals.model import Approval
from aegis.core.digest import call_digest
from aegis.core.outcome import Outcome
from aegis.core.times import MICROS
from aegis.gate.identities import identities_of
from aegis.gate.missions import Attended
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.gate.sessions import find_session
from aegis.pipeline.model import DEFAULT_TIMEOUT, Evaluation
from aegis.pipeline.run import Policy


def ask(
    parts: Parts,
    subject: Subject,
    evaluation: Evaluation,
    policy: Policy,
    attended: Attended | None,
    *,
    approval_id: str,
    decision_id: str,
) -> Approval:
    """The approval that `evaluation` asks for, pending and not yet stored."""
    asked, now = evaluation.approval, parts.clock()
    turn = (DEFAULT_TIMEOUT if asked is None else asked.timeout_seconds) * MICROS
    turns = 1 if asked is None else asked.turns
    call = subject.call
    return Approval(
        id=approval_id,
        state="pending",
        tool=call.tool,
        server=call.server,
        agent=subject.agent,
        principal=subject.principal.id,
        session=subject.session,
        call_id=subject.call_id,
        request_digest=subject.request_digest,
        call_digest=digest_of(subject, evaluation),
        policy_digest=policy.digest,
        created_at=now,
        expires_at=now + turn * turns,
        turn_micros=turn,
        decision_id=decision_id,
        quorum=1 if asked is None else asked.quorum,
        held_by=evaluation.held_by,
        barred=_owners(parts, subject, attended) if asked is not None and asked.separate_owner else (),
        reason_held=evaluation.combined.reason.value,
        risk=max(evaluation.combined.risk, evaluation.tier).word,
        effects=tuple(sorted(evaluation.effects)),
        irreversible=evaluation.irreversible,
        identities=bound_files(evaluation, policy),
    )


def digest_of(subject: Subject, evaluation: Evaluation) -> str:
    """The digest of the call as it would run."""
    runs = subject.canonical if evaluation.canonical is None else evaluation.canonical
    return call_digest(server=subject.call.server, tool=subject.call.tool, arguments=runs)


def bound_files(evaluation: Evaluation, policy: Policy) -> str | None:
    """The digest of the files that the call names, where the policy binds them."""
    if evaluation.combined.outcome is Outcome.BLOCK or not policy.approval_rules.bind_files:
        return None
    return identities_of(evaluation.arguments, policy.limits)


def _owners(parts: Parts, subject: Subject, attended: Attended | None) -> tuple[str, ...]:
    """For whom the session runs: the owner that its host named, and those who issued its missions."""
    if not subject.session:
        return ()
    with parts.store.reader() as reader:
        opened = find_session(parts, reader, subject.principal, subject.session)
    owners = {opened.owner} if opened is not None and opened.owner else set()
    if attended is not None:
        owners |= {one.iss for one in attended.lineage.declarations}
    return tuple(sorted(owners))
