"""Grants: one yes for the same tool and arguments again, in one session, for a while; revocable at any time.

A grant never widens anything: it answers only for a call that the policy would hold for a person, of
the very digest, under the very policy, that people agreed to.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Final, Literal

import msgspec
import orjson
from msgspec import Struct, structs

from aegis.approvals.values import MAX_OFFERED, Approval, OfferedGrant
from aegis.core.canonical import SALT_BYTES, payload_commitment
from aegis.core.outcome import Outcome
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import MICROS, rfc3339
from aegis.errors import InvalidCall, StoreConflict, StoreCorrupt
from aegis.policy.dataflow.judge import place_of_sink
from aegis.policy.model import Evaluation
from aegis.policy.policy import Policy

COLLECTION: Final = "approval_grants"
BY_CALL: Final = "approval_grants_by_call"

State = Literal["active", "revoked"]


class Grant(Struct, frozen=True, kw_only=True):
    """One grant as stored. Times are microseconds since the epoch; `approvers` are those who agreed.

    With `flow` it answers for no call: it is what the session's guard of data flow is told for the rest of the session.
    """

    id: str
    approval_id: str
    principal: str
    agent: str
    session: str
    tool: str
    server: str | None
    call_digest: str
    policy_digest: str
    identities: str | None
    approvers: tuple[str, ...]
    created_at: int
    expires_at: int
    state: State = "active"
    revoked_by: str | None = None
    flow: tuple[OfferedGrant, ...] = ()
    version: int = 1

    def holds(self, *, policy_digest: str, identities: str | None, now: int) -> bool:
        """Whether it still answers for the call at `now`."""
        return (
            self.state == "active"
            and now < self.expires_at
            and self.policy_digest == policy_digest
            and self.identities == identities
        )


def granted_by(approval: Approval, *, grant_id: str, seconds: int, now: int) -> Grant:
    """The grant that an approval opens, for `seconds` from `now`."""
    return Grant(
        id=grant_id,
        approval_id=approval.id,
        principal=approval.principal,
        agent=approval.agent,
        session=approval.session,
        tool=approval.tool,
        server=approval.server,
        call_digest=approval.call_digest,
        policy_digest=approval.policy_digest,
        identities=approval.identities,
        approvers=approval.voters,
        created_at=now,
        expires_at=now + seconds * MICROS,
    )


def offered(evaluation: Evaluation, policy: Policy, tool: str) -> tuple[OfferedGrant, ...]:
    """What of the session's data flow an approver may grant with this call."""
    if not policy.approval_rules.flow_grants:
        return ()
    found: list[OfferedGrant] = []
    for finding in evaluation.combined.findings:
        if finding.guard != "dataflow" or finding.outcome is not Outcome.REQUIRE_APPROVAL:
            continue
        if finding.rule == "unlicensed-deed":
            only = tool if finding.evidence == "other" else ""
            found.append(OfferedGrant(scope="deed", does=finding.evidence, tool=only))
        sink = place_of_sink(finding.path)
        for receipt, path in finding.origins:
            place = place_of_sink(path)
            found.append(
                OfferedGrant(scope="document", document=receipt, place=place, sink=sink, kind=finding.evidence)
            )
    return tuple(dict.fromkeys(found))[:MAX_OFFERED]


def write(transaction: Transaction, grant: Grant) -> None:
    """Store a grant; it takes the place of an earlier one for the same call."""
    transaction.put_document(_to_document(grant))
    if grant.flow:
        return
    key = _call_key(grant.principal, grant.session, grant.call_digest)
    known = transaction.document(BY_CALL, key)
    version = 1 if known is None else known.version + 1
    transaction.put_document(Document(collection=BY_CALL, key=key, version=version, body=grant.id.encode()))


def find(reader: Reader, grant_id: str) -> Grant | None:
    """The grant of that id."""
    document = reader.document(COLLECTION, grant_id)
    return None if document is None else from_document(document)


def stands(reader: Reader, grant_id: str, now: int) -> bool:
    """Whether a grant is neither revoked nor over."""
    grant = find(reader, grant_id)
    return grant is not None and grant.state == "active" and now < grant.expires_at


def find_for(reader: Reader, *, principal: str, session: str, call_digest: str) -> Grant | None:
    """The newest grant for exactly this call of this session."""
    document = reader.document(BY_CALL, _call_key(principal, session, call_digest))
    return None if document is None else find(reader, document.body.decode())


def revoke(transaction: Transaction, grant_id: str, *, by: str) -> Grant:
    """Take a grant back for good; raises `InvalidCall` (404, 409)."""
    grant = find(transaction, grant_id)
    if grant is None:
        raise InvalidCall("there is no such grant", code="not_found", status=404)
    if grant.state == "revoked":
        raise InvalidCall("this grant was revoked already", code="conflict", status=409)
    revoked = structs.replace(grant, state="revoked", revoked_by=by, version=grant.version + 1)
    transaction.put_document(_to_document(revoked))
    return revoked


def check_unchanged(transaction: Transaction, grant: Grant) -> None:
    """Guarantee that the grant is as it was read; raises `StoreConflict` otherwise."""
    stored = find(transaction, grant.id)
    if stored is None or stored.version != grant.version:
        raise StoreConflict("the grant changed meanwhile")


def from_document(document: Document) -> Grant:
    """The grant that a document holds; raises `StoreCorrupt` for anything else."""
    try:
        return structs.replace(_read.decode(document.body), version=document.version)
    except msgspec.DecodeError as error:
        raise StoreCorrupt("the record of a grant is damaged") from error


def _to_document(grant: Grant) -> Document:
    return Document(
        collection=COLLECTION, key=grant.id, version=grant.version, state=grant.state, body=msgspec.json.encode(grant)
    )


def _call_key(principal: str, session: str, call_digest: str) -> str:
    return hashlib.sha256(orjson.dumps([principal, session, call_digest])).hexdigest()


_read: Final = msgspec.json.Decoder(Grant)


def grant_receipt(grant: Grant, action: str, *, receipt_id: str, principal: str) -> Draft:
    """The receipt of a grant that was opened or revoked; what of data flow it covers is its payload."""
    members: dict[str, Any] = {
        "kind": "grant",
        "receipt_id": receipt_id,
        "principal": principal,
        "agent": grant.agent,
        "session": grant.session,
        "tool": grant.tool,
        "policy_digest": grant.policy_digest,
        "approval_id": grant.approval_id,
        "approvers": list(grant.approvers),
        "grant_id": grant.id,
        "expires": rfc3339(grant.expires_at),
        "action": action,
    }
    if grant.server is not None:
        members["server"] = grant.server
    if not grant.flow:
        return Draft(members=members)
    salt, payload = os.urandom(SALT_BYTES), orjson.dumps({"grants": [one.to_wire() for one in grant.flow]})
    return Draft(
        members={**members, "payload_commitment": payload_commitment(salt, payload)}, payload=payload, salt=salt
    )
