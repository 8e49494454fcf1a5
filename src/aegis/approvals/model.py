"""An approval: one person's yes or no, bound to exactly one call under exactly one policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import orjson

from aegis.core.ports import Document
from aegis.core.times import rfc3339

COLLECTION: Final = "approvals"

State = Literal["pending", "approved", "denied", "expired", "cancelled", "redeemed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval:
    """One approval as stored. Times are microseconds since the epoch; `decision_index` is the held call's leaf."""

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
    decision_index: int | None = None
    resolved_by: str | None = None
    resolved_at: int | None = None
    reason: str | None = None
    receipt_id: str | None = None
    version: int = 1

    @property
    def expires(self) -> str:
        """The end of the time in which it can be resolved, RFC 3339."""
        return rfc3339(self.expires_at)


def to_document(approval: Approval) -> Document:
    """The stored form; the state is the word that the store lists by."""
    body = {name: getattr(approval, name) for name in Approval.__slots__ if name != "version"}
    return Document(
        collection=COLLECTION,
        key=approval.id,
        version=approval.version,
        state=approval.state,
        body=orjson.dumps(body),
    )


def from_document(document: Document) -> Approval:
    """The approval that a document holds."""
    return Approval(**orjson.loads(document.body), version=document.version)
