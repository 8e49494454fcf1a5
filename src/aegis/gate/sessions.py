"""Opening a session: the host says once what the user asked for, on a channel that the agent cannot forge.

A session belongs to its principal. Its task stands encrypted beside the `session` receipt, and a
document finds it again; a session is never opened twice with different words.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from aegis.audit.writer import Unit
from aegis.core.call import MAX_NAME_CHARS, MAX_TASK_CHARS
from aegis.core.digest import SALT_BYTES, payload_commitment
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft
from aegis.errors import InvalidCall, StoreConflict
from aegis.gate.ids import new_id
from aegis.gate.parts import Parts
from aegis.gate.repeat import load_payload

COLLECTION: Final = "sessions"


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """An open session: its trusted task (`None` where it was erased), and where the log keeps its opening."""

    session: str
    task: str | None
    receipt_id: str
    index: int
    leaf_hash: str


def opening(principal: Principal, session: str, task: str) -> Unit:
    """The unit that opens `session` for `principal` with the trusted `task`, with its receipt.

    Recording it raises `StoreConflict` where the session is open already. Raises `InvalidCall` for a
    name or a task beyond its bounds.
    """
    if not session.strip() or len(session) > MAX_NAME_CHARS:
        raise InvalidCall(f"`session` must have 1 to {MAX_NAME_CHARS} characters")
    if len(task) > MAX_TASK_CHARS:
        raise InvalidCall(f"`task` must be text of at most {MAX_TASK_CHARS} characters")
    salt, payload, receipt_id = os.urandom(SALT_BYTES), orjson.dumps({"task": task}), new_id()
    members: dict[str, Any] = {
        "kind": "session",
        "receipt_id": receipt_id,
        "principal": principal.id,
        "session": session,
        "action": "open",
        "payload_commitment": payload_commitment(salt, payload),
    }
    if principal.agent is not None:
        members["agent"] = principal.agent
    document = Document(
        collection=COLLECTION, key=session_key(principal, session), version=1, body=receipt_id.encode("ascii")
    )

    def apply(transaction: Transaction) -> Sequence[Draft]:
        if transaction.document(COLLECTION, document.key) is not None:
            raise StoreConflict("the session is open already")
        transaction.put_document(document)
        return ()

    return Unit(drafts=(Draft(members=members, payload=payload, salt=salt),), apply=apply)


def find_session(parts: Parts, reader: Reader, principal: Principal, session: str) -> Opened | None:
    """The open session of that name, or `None`."""
    document = reader.document(COLLECTION, session_key(principal, session))
    entry = None if document is None else reader.entry_by_id(document.body.decode("ascii"))
    if entry is None:
        return None
    payload, _ = load_payload(parts, reader, entry.index)
    return Opened(
        session=session,
        task=None if payload is None else payload["task"],
        receipt_id=entry.receipt_id,
        index=entry.index,
        leaf_hash=entry.leaf_hash.hex(),
    )


def session_key(principal: Principal, session: str) -> str:
    """The key of a session's documents: sessions are scoped to their principal."""
    return orjson.dumps([principal.id, session]).decode()
