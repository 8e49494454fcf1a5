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

from aegis.core.call import MAX_NAME_CHARS, MAX_TASK_CHARS, check_name
from aegis.core.canonical import SALT_BYTES, payload_commitment
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft
from aegis.core.text import has_controls
from aegis.errors import InvalidCall, StoreConflict
from aegis.gate.control import check_runs
from aegis.gate.events import new_id
from aegis.gate.parts import Parts
from aegis.gate.repeat import load_payload
from aegis.log.writer import Unit

COLLECTION: Final = "sessions"


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionRecorded:
    """An open session: its trusted task and its owner, and where the log keeps its opening.

    `task` and `owner` are `None` where they were erased; there may be no owner.
    """

    session: str
    task: str | None
    owner: str | None
    receipt_id: str
    index: int
    leaf_hash: str


def opening(principal: Principal, session: str, task: str, owner: str = "") -> Unit:
    """The unit that opens `session` for `principal` with the trusted `task`, with its receipt.

    `owner` is the person for whom the session runs, where the host says so.

    Recording it raises `StoreConflict` where the session is open already, and `InvalidCall` where the agent was
    stopped. Raises `InvalidCall` for a name or a task beyond its bounds.
    """
    check_name("session", session)
    if has_controls(owner):
        raise InvalidCall("`owner` must not hold control characters")
    if len(task) > MAX_TASK_CHARS:
        raise InvalidCall(f"`task` must be text of at most {MAX_TASK_CHARS} characters")
    if len(owner) > MAX_NAME_CHARS:
        raise InvalidCall(f"`owner` must have at most {MAX_NAME_CHARS} characters")
    value = {"task": task, "owner": owner} if owner else {"task": task}
    salt, payload, receipt_id = os.urandom(SALT_BYTES), orjson.dumps(value), new_id()
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
        check_runs(transaction, principal)
        if transaction.document(COLLECTION, document.key) is not None:
            raise StoreConflict("the session is open already")
        transaction.put_document(document)
        return ()

    return Unit(drafts=(Draft(members=members, payload=payload, salt=salt),), apply=apply)


def find_session(parts: Parts, reader: Reader, principal: Principal, session: str) -> SessionRecorded | None:
    """The open session of that name, or `None`."""
    document = reader.document(COLLECTION, session_key(principal, session))
    entry = None if document is None else reader.entry_by_id(document.body.decode("ascii"))
    if entry is None:
        return None
    payload, _ = load_payload(parts, reader, entry)
    return SessionRecorded(
        session=session,
        task=None if payload is None else payload["task"],
        owner=None if payload is None else payload.get("owner"),
        receipt_id=entry.receipt_id,
        index=entry.index,
        leaf_hash=entry.leaf_hash.hex(),
    )


def session_key(principal: Principal, session: str) -> str:
    """The key of a session's documents: sessions are scoped to their principal."""
    return key_of_session(principal.id, session)


def key_of_session(principal_id: str, session: str) -> str:
    """`session_key` of a principal by its id."""
    return orjson.dumps([principal_id, session]).decode()
