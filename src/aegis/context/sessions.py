"""Opening a session: the host says once what the user asked for, on a channel that the agent cannot forge.

A session belongs to its principal. Its task is kept encrypted with the `session` receipt, and a
document finds it again; a session is never opened twice with different words.

The host also says in which folders the agent works (its mounts) and which tools it is offered. Mounts are looked at by
previews and judges on the gateway's own machine, so they may not lead to what the gateway itself, the system or a
person keeps there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import orjson
from msgspec import Struct, structs

from aegis.core.call import MAX_NAME_CHARS, MAX_TASK_CHARS, check_name
from aegis.core.canonical import SALT_BYTES, canonical, payload_commitment
from aegis.core.decision import ParentSession
from aegis.core.json import parse
from aegis.core.ports import Document, Reader, Search, Transaction
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
SURROUNDINGS: Final = "surroundings"
MAX_MOUNTS: Final = 16
# Whole trees that belong to the system, and places that only contain other people's.
_SYSTEM: Final = (
    "/proc", "/sys", "/dev", "/run", "/etc", "/boot", "/usr", "/bin", "/sbin", "/lib", "/var/run", "/var/lib",
)  # fmt: skip
_ROOTS: Final = ("/", "/home", "/root", "/var", "/opt", "/srv", "/mnt", "/tmp")  # noqa: S108 - named to be refused
_SECRETS: Final = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".docker", ".aegis", ".azure", ".config"})


class SessionRecorded(Struct, frozen=True, kw_only=True):
    """An open session: its trusted task and its owner, and where the log keeps its opening.

    `task` and `owner` are `None` where they were erased; there may be no owner, and no `parent`.
    """

    session: str
    task: str | None
    owner: str | None
    receipt_id: str
    index: int
    leaf_hash: str
    parent: ParentSession | None = None


def opening(
    principal: Principal,
    session: str,
    task: str,
    owner: str = "",
    *,
    parent: ParentSession | None = None,
    documents: Sequence[str] = (),
    longest: int = MAX_TASK_CHARS,
) -> Unit:
    """The unit that opens `session` for `principal` with the trusted `task`, with its receipt.

    `owner` is the person for whom the session runs, where the host says so; `documents` are what came with the task
    and is no word of it, and `longest` is how many characters the task may have. Under a `parent` the task is the word
    of the agent there.

    Recording it raises `StoreConflict` where the session is open already, and `InvalidCall` where the agent was
    stopped. Raises `InvalidCall` for a name or a task beyond its bounds.
    """
    check_name("session", session)
    if has_controls(owner):
        raise InvalidCall("`owner` must not hold control characters")
    if len(task) > longest:
        raise InvalidCall(f"`task` must be text of at most {longest} characters")
    if len(owner) > MAX_NAME_CHARS:
        raise InvalidCall(f"`owner` must have at most {MAX_NAME_CHARS} characters")
    value: dict[str, Any] = {"task": task}
    if owner:
        value["owner"] = owner
    if parent is not None:
        value["parent"] = [parent.session, parent.call_id]
    if documents:
        value["documents"] = list(documents)
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
    parent = None if payload is None else payload.get("parent")
    return SessionRecorded(
        session=session,
        task=None if payload is None else payload["task"],
        owner=None if payload is None else payload.get("owner"),
        receipt_id=entry.receipt_id,
        index=entry.index,
        leaf_hash=entry.leaf_hash.hex(),
        parent=None if parent is None else ParentSession(session=parent[0], call_id=parent[1]),
    )


def check_parent(reader: Reader, principal: Principal, session: str, parent: ParentSession) -> None:
    """Guarantee that a session may be opened from `parent`: a session of the same principal, and a call of it.

    Raises `InvalidCall` (403, 422).
    """
    check_name("parent.session", parent.session)
    if parent.session == session:
        raise InvalidCall("a session is not its own parent")
    is_open = reader.document(COLLECTION, session_key(principal, parent.session)) is not None
    known = is_open or bool(reader.search(Search(principal=principal.id, session=parent.session, limit=1)))
    if known and parent.call_id is not None:
        known = reader.latest_call(principal.id, parent.session, parent.call_id) is not None
    if not known:
        raise InvalidCall("`parent` names no session of this principal, or no call of it", code="forbidden", status=403)


def session_key(principal: Principal, session: str) -> str:
    """The key of a session's documents: sessions are scoped to their principal."""
    return key_of_session(principal.id, session)


def key_of_session(principal_id: str, session: str) -> str:
    """`session_key` of a principal by its id."""
    return orjson.dumps([principal_id, session]).decode()


class Surroundings(Struct, frozen=True, kw_only=True):
    """What is known of a session; nothing for one that was not opened."""

    mounts: tuple[str, ...] = ()
    tools: tuple[Any, ...] = ()


def check_mounts(mounts: Sequence[Any], below: Sequence[str], protected: Sequence[Path]) -> tuple[str, ...]:
    """The mounts, absolute and as they really are; raises `InvalidCall` for one that a session may not name."""
    if len(mounts) > MAX_MOUNTS:
        raise InvalidCall(f"a session has at most {MAX_MOUNTS} mounts")
    found: list[str] = []
    for mount in mounts:
        if not isinstance(mount, str) or not PurePosixPath(mount).is_absolute() or "\0" in mount:
            raise InvalidCall("a mount is the absolute path of a folder")
        real = os.path.realpath(mount)
        if not Path(real).is_dir():
            raise InvalidCall("a mount is not a folder on this machine", hint="previews and judges need its files here")
        if not _may(PurePosixPath(real), below, protected):
            raise InvalidCall(
                "this folder may not be a mount", code="forbidden", status=403, hint="see `previews.mounts`"
            )
        if real not in found:
            found.append(real)
    return tuple(found)


def _may(path: PurePosixPath, below: Sequence[str], protected: Sequence[Path]) -> bool:
    if str(path) in _ROOTS or path == PurePosixPath(os.path.expanduser("~")) or _SECRETS & set(path.parts):  # noqa: PTH111
        return False
    if any(path.is_relative_to(one) for one in _SYSTEM):
        return False
    own = [PurePosixPath(os.path.realpath(one)) for one in protected]
    if any(path.is_relative_to(one) or one.is_relative_to(path) for one in own):
        return False
    return any(path.is_relative_to(one) for one in below)


def surrounded(unit: Unit, key: str, mounts: Sequence[str], tools: Sequence[Any] | None) -> Unit:
    """`unit`, which opens a session, with its surroundings kept beside it."""
    if not mounts and not tools:
        return unit
    body = canonical({"mounts": list(mounts), "tools": list(tools or ())})
    document, first = Document(collection=SURROUNDINGS, key=key, version=1, body=body), unit.apply

    def apply(transaction: Transaction) -> Sequence[Draft]:
        drafts = () if first is None else first(transaction)
        transaction.put_document(document)
        return drafts

    return structs.replace(unit, apply=apply)


def find_surroundings(reader: Reader, key: str) -> Surroundings:
    """What the host said when it opened the session."""
    document = reader.document(SURROUNDINGS, key)
    if document is None:
        return Surroundings()
    body = parse(document.body)
    return Surroundings(mounts=tuple(body["mounts"]), tools=tuple(body["tools"]))
