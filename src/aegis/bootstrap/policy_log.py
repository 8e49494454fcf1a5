"""Every configuration that decides is in the log before it decides, with who put it in force."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from aegis.audit.writer import Ledger, Unit
from aegis.core.ports import Document, Transaction
from aegis.core.receipt import Draft
from aegis.gate.events import Event, Listener, notify
from aegis.gate.ids import new_id
from aegis.pipeline.reload import Change

COLLECTION: Final = "policies"
GATE: Final = "gate"


def record_start(ledger: Ledger, digest: str) -> None:
    """Record the policy that this process starts with, where the log does not know it yet."""

    def apply(transaction: Transaction) -> Sequence[Draft]:
        if transaction.document(COLLECTION, digest) is not None:
            return ()
        transaction.put_document(Document(collection=COLLECTION, key=digest, version=1, body=b"start"))
        return (_draft(digest, action="start", principal=GATE),)

    ledger.append(Unit(apply=apply))


def recorder(ledger: Ledger, listeners: Sequence[Listener]) -> Callable[[Change], None]:
    """Records each change of the policy; raises `StoreError` where it cannot, and nothing changes then."""

    def record(change: Change) -> None:
        draft = _draft(change.after, action=change.trigger, principal=change.by or GATE)

        def apply(transaction: Transaction) -> Sequence[Draft]:
            stored = transaction.document(COLLECTION, change.after)
            version = 1 if stored is None else stored.version + 1
            transaction.put_document(
                Document(collection=COLLECTION, key=change.after, version=version, body=change.trigger.encode())
            )
            return (draft,)

        recorded = ledger.append(Unit(apply=apply))
        notify(listeners, Event(kind="config", members=draft.members, recorded=recorded[0]))

    return record


def _draft(digest: str, *, action: str, principal: str) -> Draft:
    members: dict[str, Any] = {
        "kind": "config",
        "receipt_id": new_id(),
        "principal": principal,
        "policy_digest": digest,
        "action": action,
    }
    return Draft(members=members)
