"""What an answer is bound to: the call as it would run, its digest, and the files that it names."""

from __future__ import annotations

import os
from typing import Any, Final

from aegis.approvals.values import Approval
from aegis.context.sessions import find_surroundings, key_of_session
from aegis.core.canonical import call_digest
from aegis.core.outcome import Outcome
from aegis.core.ports import Reader
from aegis.gate.identities import Bound, identities_of
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.gate.repeat import load_payload
from aegis.missions.deciding import Attended
from aegis.policy.model import Evaluation
from aegis.policy.policy import Policy

_CWD: Final = frozenset({"cwd", "workdir", "workingdir", "workingdirectory"})  # arguments that say where a call runs


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


def running(parts: Parts, reader: Reader, approval: Approval) -> dict[str, Any] | None:
    """The arguments that `approval` is for, as submitted, patched or narrowed; `None` where they were erased."""
    payload = payload_of(parts, reader, approval.narrowed_by or approval.decision_id)
    if payload is None:
        return None
    arguments: dict[str, Any] = payload.get("patched", payload["arguments"])
    return arguments


def payload_of(parts: Parts, reader: Reader, receipt_id: str) -> dict[str, Any] | None:
    """The payload beside a receipt; `None` where there is none any more."""
    entry = reader.entry_by_id(receipt_id)
    return None if entry is None else load_payload(parts, reader, entry)[0]
