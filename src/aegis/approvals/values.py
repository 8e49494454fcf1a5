"""An approval: what people decided about exactly one call under exactly one policy."""

from __future__ import annotations

import os
from typing import Any, Final, Literal

import msgspec
import orjson
from msgspec import Struct, structs

from aegis.context.sessions import find_surroundings, key_of_session
from aegis.core.canonical import call_digest
from aegis.core.combine import Combined
from aegis.core.outcome import Effect, Outcome, Reason
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.times import MICROS, rfc3339
from aegis.detect.fold import name_skeleton
from aegis.errors import InvalidCall, StoreCorrupt
from aegis.gate.identities import Bound, identities_of
from aegis.gate.participants import RecordRefused
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.gate.repeat import load_payload
from aegis.missions.deciding import Attended
from aegis.policy.model import Evaluation
from aegis.policy.policy import Policy

# What is counted about approvals: calls that wait, by principal, and answers of the last hour, by person.
#
# Counts change in the transaction of what they count, so that several processes share them exactly.

PENDING: Final = "approvals_pending"
ANSWERS: Final = "approver_answers"
HOUR_S: Final = 3_600


class TooManyPending(RecordRefused):
    """As many calls of this principal wait for people as may."""

    guard = "approvals"
    reason = Reason.RATE_LIMITED


def check_room(transaction: Transaction, principal: str, limit: int) -> None:
    """Guarantee that one more call of `principal` may wait; raises `TooManyPending` otherwise."""
    if _count(transaction, principal)[0] >= limit:
        raise TooManyPending("too many calls of this principal wait for an approval")


def count_pending(transaction: Transaction, principal: str, change: int) -> None:
    """Count one call of `principal` more (1) or less (-1) that waits."""
    count, version = _count(transaction, principal)
    body = orjson.dumps(max(0, count + change))
    transaction.put_document(Document(collection=PENDING, key=principal, version=version + 1, body=body))


def check_hour(transaction: Transaction, person: str, limit: int | None, now: int) -> None:
    """Guarantee that `person` may approve one more call this hour; raises `InvalidCall` (429) otherwise."""
    if limit is None:
        return
    recent, _ = _answers(transaction, person, now)
    if len(recent) >= limit:
        raise InvalidCall(
            f"you approved {limit} calls within an hour, which is as many as one person may",
            code="approver_limit",
            hint="the call waits for somebody else, or for you to come back later",
            status=429,
        )


def count_answer(transaction: Transaction, person: str, now: int) -> None:
    """Count one approval that `person` gave."""
    recent, version = _answers(transaction, person, now)
    body = orjson.dumps([*recent, now // MICROS])
    transaction.put_document(Document(collection=ANSWERS, key=name_skeleton(person), version=version + 1, body=body))


def _count(transaction: Transaction, principal: str) -> tuple[int, int]:
    document = transaction.document(PENDING, principal)
    return (0, 0) if document is None else (orjson.loads(document.body), document.version)


def _answers(transaction: Transaction, person: str, now: int) -> tuple[list[int], int]:
    """When `person` approved within the last hour, and the version of that record."""
    document = transaction.document(ANSWERS, name_skeleton(person))  # names that look alike are one person's
    if document is None:
        return [], 0
    since = now // MICROS - HOUR_S
    return [at for at in orjson.loads(document.body) if at > since], document.version


COLLECTION: Final = "approvals"

State = Literal["pending", "approved", "denied", "expired", "cancelled", "redeemed"]
Scope = Literal["once", "session", "document", "deed"]
# What a person may grant for the rest of a session; everything else is one call, or the same call again.
FLOW_SCOPES: Final[tuple[Scope, ...]] = ("document", "deed")
MAX_OFFERED: Final = 16  # grants that one approval offers


EVIDENCE: Final = "evidence"  # who resolved a deferral that no person answered
Resolution = Literal["pending", "evidence", "approver", "denied", "timeout", "cancelled", "replaced"]


class OfferedGrant(Struct, frozen=True, kw_only=True):
    """What an approver may grant beside one call: a document may name values of a kind at a sink, or a deed.

    `place` is the field of the document, without positions of lists, in which the approved value stood.
    A deed of no known kind is granted for one `tool`.
    """

    scope: Scope
    document: str = ""
    place: str = ""
    sink: str = ""
    kind: str = ""
    does: str = ""
    tool: str = ""

    def to_wire(self) -> dict[str, str]:
        """The JSON object of the contract."""
        if self.scope == "deed":
            only = {"tool": self.tool} if self.tool else {}
            return {"scope": self.scope, "does": self.does, **only}
        return {"scope": self.scope, "document": self.document, "sink": self.sink, "is": self.kind}


class Vote(Struct, frozen=True, kw_only=True):
    """One person's yes, at a moment in microseconds since the epoch."""

    by: str
    at: int
    scope: Scope = "once"


class Approval(Struct, frozen=True, kw_only=True):
    """One approval as stored. Times are microseconds since the epoch.

    `call_digest` is of what would run: of the narrowed arguments once somebody narrowed them, whose receipt is
    then `narrowed_by`, made at `narrowed_at`. `turn_micros` is how long each approver's turn lasts and `turn` the
    last one on record. `held_by` names the policies whose approvers count, `barred` who may not answer beside the
    requester. `identities` digests the files that the call names, of which relative ones start at `base` (empty
    where nobody knows the caller's working directory); `loose` says that there are some which it does not cover.
    `grant` is the grant that this approval opened, or by which it was answered; `grants` are those that it offers.
    `waiting_for` is what a deferral waits for, `chain` how many deferred calls wait for one another up to it, and
    `replaced_by` the id of the call that took its place.
    """

    id: str
    state: State
    tool: str
    server: str | None
    agent: str
    principal: str
    session: str
    call_id: str
    request_digest: str
    call_digest: str
    policy_digest: str
    created_at: int
    expires_at: int
    decision_id: str
    turn_micros: int
    turn: int = 0
    quorum: int = 1
    held_by: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()
    reason_held: str = "approval_required"
    risk: str = "high"
    effects: tuple[Effect, ...] = ()
    irreversible: bool = False
    identities: str | None = None
    base: str = ""
    loose: bool = False
    votes: tuple[Vote, ...] = ()
    narrowed_by: str | None = None
    narrowed_at: int | None = None
    grant: str | None = None
    grants: tuple[OfferedGrant, ...] = ()
    waiting_for: tuple[str, ...] = ()
    chain: int = 1
    replaced_by: str = ""
    fatigued: tuple[str, ...] = ()
    resolved_by: str | None = None
    resolved_at: int | None = None
    reason: str | None = None
    receipt_id: str | None = None
    version: int = 1

    @property
    def kind(self) -> Literal["approval", "deferral"]:
        """What a call waits for: people, or evidence."""
        return "deferral" if self.waiting_for else "approval"

    @property
    def by_evidence(self) -> bool:
        """Whether evidence ended the wait, and no person: a person's yes is a vote."""
        return self.state == "approved" and self.resolved_by == EVIDENCE and not self.votes

    @property
    def expires(self) -> str:
        """The end of the time in which it can be resolved, RFC 3339."""
        return rfc3339(self.expires_at)

    @property
    def held_at(self) -> int:
        """When the call became what it is."""
        return self.created_at if self.narrowed_at is None else self.narrowed_at

    @property
    def turns(self) -> int:
        """How many turns of approvers there are before it expires."""
        return max(1, (self.expires_at - self.created_at) // self.turn_micros)

    def turn_at(self, now: int) -> int:
        """Whose turn it is, from 0."""
        return min(max(0, now - self.created_at) // self.turn_micros, self.turns - 1)

    def state_at(self, now: int) -> State:
        """The state at `now`: a pending approval whose time is over has expired."""
        return "expired" if self.state == "pending" and now >= self.expires_at else self.state

    def seconds_left(self, now: int) -> float:
        """How long it can still be answered, in seconds."""
        return max(0.0, (self.expires_at - now) / MICROS)

    @property
    def voters(self) -> tuple[str, ...]:
        """Who said yes, in their order."""
        return tuple(vote.by for vote in self.votes)


def is_deferred(combined: Combined) -> bool:
    """Whether a call waits for evidence alone: people are asked about one that is held for another reason as well."""
    return combined.outcome is Outcome.REQUIRE_APPROVAL and combined.reason is Reason.DEFERRED


def deferral_members(approval: Approval, resolution: Resolution) -> dict[str, str]:
    """What a receipt says of a deferral: which kinds of evidence it waits for, how that ended, and since when."""
    kinds = dict.fromkeys(word.partition(":")[0] for word in approval.waiting_for)
    return {"reason": " ".join(kinds), "resolution": resolution, "time": rfc3339(approval.created_at)}


def resolution_of(approval: Approval) -> Resolution:
    """How the wait of a deferral ended, where it has."""
    if approval.by_evidence:
        return "evidence"
    if approval.state == "cancelled" and approval.replaced_by:
        return "replaced"
    return _RESOLUTIONS[approval.state]


_RESOLUTIONS: Final[dict[State, Resolution]] = {
    "pending": "pending",
    "approved": "approver",
    "redeemed": "approver",
    "denied": "denied",
    "expired": "timeout",
    "cancelled": "cancelled",
}


def to_document(approval: Approval) -> Document:
    """The stored form; the state is the word that the store lists by."""
    return Document(
        collection=COLLECTION,
        key=approval.id,
        version=approval.version,
        state=approval.state,
        body=msgspec.json.encode(approval),
    )


def from_document(document: Document) -> Approval:
    """The approval that a document holds; raises `StoreCorrupt` for anything else."""
    try:
        return structs.replace(_read.decode(document.body), version=document.version)
    except msgspec.DecodeError as error:
        raise StoreCorrupt("the record of an approval is damaged") from error


_read: Final = msgspec.json.Decoder(Approval)


# What an answer is bound to: the call as it would run, its digest, and the files that it names.

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
