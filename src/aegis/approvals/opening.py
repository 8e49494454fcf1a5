"""Opening an approval: what a held call is bound to, and who may not answer it."""

from __future__ import annotations

import os
from typing import Any, Final

from aegis.approvals.values import Approval
from aegis.context.sessions import find_session, key_of_session
from aegis.core.canonical import call_digest
from aegis.core.outcome import Outcome
from aegis.core.times import MICROS
from aegis.gate.identities import Bound, identities_of
from aegis.gate.parts import Parts
from aegis.gate.record import Subject, find_surroundings
from aegis.missions.deciding import Attended
from aegis.policy.model import DEFAULT_TIMEOUT, Evaluation
from aegis.policy.policy import Policy

_CWD: Final = frozenset({"cwd", "workdir", "workingdir", "workingdirectory"})  # arguments that say where a call runs


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
    base = base_of(parts, subject, policy, evaluation.arguments, attended)
    bound = bound_files(evaluation, policy, base)
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
        identities=bound.digest,
        base=base,
        loose=not bound.complete,
    )


def digest_of(subject: Subject, evaluation: Evaluation) -> str:
    """The digest of the call as it would run."""
    runs = subject.canonical if evaluation.canonical is None else evaluation.canonical
    return call_digest(server=subject.call.server, tool=subject.call.tool, arguments=runs)


def bound_files(evaluation: Evaluation, policy: Policy, base: str) -> Bound:
    """The files that the call names, where the policy binds them; relative ones start at `base`."""
    if evaluation.combined.outcome is Outcome.BLOCK or not policy.approval_rules.bind_files:
        return Bound(None, complete=False)
    return identities_of(evaluation.arguments, policy.limits, base)


def base_of(
    parts: Parts, subject: Subject, policy: Policy, arguments: dict[str, Any], attended: Attended | None
) -> str:
    """Where the relative paths of a call start; empty where nobody knows.

    The call's own argument says it, else its mission, the first folder that its session was opened with, the working
    directory of this process where the caller is in it, or the workspace that the operator configured.
    """
    named = next((value for name, value in arguments.items() if _plain(name) in _CWD and isinstance(value, str)), "")
    if named.startswith(("/", "~/")):
        return named
    known = _known_base(parts, subject, policy, attended)
    return f"{known}/{named}" if known and named else "" if named else known


def _known_base(parts: Parts, subject: Subject, policy: Policy, attended: Attended | None) -> str:
    if attended is not None and attended.view.acting.scope.base:
        return attended.view.acting.scope.base
    if subject.session:
        with parts.store.reader() as reader:
            mounts = find_surroundings(reader, key_of_session(subject.principal.id, subject.session)).mounts
        if mounts:
            return mounts[0]
    if subject.principal.id == parts.local:
        return os.getcwd()  # noqa: PTH109 - the text, links and all
    return policy.previews.rules.workspace


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


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
