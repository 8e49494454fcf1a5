"""The end of a session: its host says so, or nobody used it for as long as the configuration says.

(1) the end is recorded, and the memory of the session says so: from then on nothing is said, opened or called in it
(2) calls that wait are ended with it (what waits for evidence expires, what waits for people is cancelled), and grants
(3) of every call that ran and whose result never came it is recorded that its execution is unknown

An end that was recorded is found again, and what a crash left undone of it is done then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final, Protocol

import msgspec
import orjson

from aegis.approvals import grants
from aegis.approvals.grants import grant_receipt
from aegis.approvals.queue import find, transition
from aegis.approvals.values import COLLECTION as APPROVALS
from aegis.approvals.values import State, from_document
from aegis.context.heads import COLLECTION, fresh_head, put_head, read_head
from aegis.context.sessions import key_of_session, session_key
from aegis.core.call import check_name
from aegis.core.decision import EndedSession, ReceiptRef
from aegis.core.ports import Document, Entry, Reader, Search, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft, Recorded, agent_signer
from aegis.core.times import MICROS
from aegis.errors import InvalidCall, StoreConflict, StoreError, StoreUnavailable
from aegis.gate.control import check_runs
from aegis.gate.events import new_id
from aegis.gate.observe import COLLECTION as RESULTS
from aegis.gate.parts import Parts
from aegis.log.records import RELEASED
from aegis.log.writer import Unit

EndSteps = Generator[Unit, tuple[Recorded, ...], EndedSession]
PAGE: Final = 200  # decisions, approvals or grants read at once; so many receipts one unit records
_ATTEMPTS: Final = 4


def end_steps(parts: Parts, principal: Principal, session: str, *, by: str = "") -> EndSteps:
    """The steps that end a session of `principal`; `by` is who ends it, the principal itself where nobody is named.

    Raises `InvalidCall` for a session of which the log holds nothing (404), and for an agent that was stopped (403).
    """
    check_name("session", session)
    key = session_key(principal, session)
    for _ in range(_ATTEMPTS):
        with parts.store.reader() as reader:
            if not by:
                check_runs(reader, principal)
            if not reader.search(Search(principal=principal.id, session=session, limit=1)):
                raise InvalidCall("this principal has no session of that name", code="not_found", status=404)
            document = reader.document(COLLECTION, key)
            ended = "" if document is None else read_head(document).ended
            entry = reader.entry_by_id(ended) if ended else None
        if entry is not None:
            place = ReceiptRef(id=entry.receipt_id, index=entry.index, leaf_hash=entry.leaf_hash.hex())
            break
        try:
            recorded = (yield _end(parts, principal, session, key, by or principal.id))[0]  # (1)
        except StoreConflict:  # ended by another process meanwhile
            continue
        place = ReceiptRef(id=recorded.receipt_id, index=recorded.index, leaf_hash=recorded.leaf_hash.hex())
        break
    else:
        raise StoreUnavailable("the end of the session could not be recorded")
    yield from _let_go(parts, principal, session)  # (2)
    yield from _settle_results(parts, principal, session)  # (3)
    return EndedSession(session=session, receipt=place, fresh=entry is None)


def _end(parts: Parts, principal: Principal, session: str, key: str, by: str) -> Unit:
    members: dict[str, Any] = {
        "kind": "session",
        "receipt_id": new_id(),
        "principal": by,
        "session": session,
        "action": "end",
    }
    if principal.agent is not None:
        members["agent"] = principal.agent

    def apply(transaction: Transaction) -> Sequence[Draft]:
        document = transaction.document(COLLECTION, key)
        head = fresh_head(parts) if document is None else read_head(document)
        if head.ended:
            raise StoreConflict("the session has ended already")
        head = msgspec.structs.replace(head, ended=members["receipt_id"], reads=head.reads + 1)
        put_head(transaction, key, head, 0 if document is None else document.version)
        return ()

    return Unit(drafts=(Draft(members=members),), apply=apply)


def _let_go(parts: Parts, principal: Principal, session: str) -> Generator[Unit, tuple[Recorded, ...], None]:
    """End what waits in the session, and what was granted for it."""
    for document in _documents(parts, APPROVALS, "pending"):
        approval = from_document(document)
        if (approval.principal, approval.session) != (principal.id, session):
            continue
        to: State = "expired" if approval.waiting_for else "cancelled"
        try:
            yield transition(approval, to, receipt_id=new_id(), principal="gate")
        except StoreConflict:  # answered, or ended in another way, meanwhile
            continue
    for document in _documents(parts, grants.COLLECTION, "active"):
        grant = grants.from_document(document)
        if (grant.principal, grant.session) != (principal.id, session):
            continue
        try:
            yield _ended_grant(grant.id)
        except InvalidCall:  # revoked meanwhile
            continue


def _ended_grant(grant_id: str) -> Unit:
    def apply(transaction: Transaction) -> Sequence[Draft]:
        grant = grants.revoke(transaction, grant_id, by="gate")
        return (grant_receipt(grant, "revoke", receipt_id=new_id(), principal="gate"),)

    return Unit(apply=apply)


def _documents(parts: Parts, collection: str, state: str) -> Iterator[Document]:
    after = ""
    while True:
        with parts.store.reader() as reader:
            page = reader.documents(collection, state=state, after=after, limit=PAGE)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].key


def _settle_results(parts: Parts, principal: Principal, session: str) -> Generator[Unit, tuple[Recorded, ...], None]:
    """Record of every call that ran and whose result never came that it is unknown what it did."""
    before: int | None = None
    while True:
        search = Search(kind="decision", principal=principal.id, session=session, before=before, limit=PAGE)
        with parts.store.reader() as reader:
            page = reader.search(search)
            calls = [(entry, orjson.loads(entry.body)) for entry in page if not _has_result(reader, entry)]
            calls = [(entry, body) for entry, body in calls if _ran(reader, entry, body)]
        if calls:
            for agent in {entry.agent for entry, _ in calls}:
                parts.introduce(agent)
            yield _unknown(calls)
        if len(page) < PAGE:
            return
        before = page[-1].index


def _has_result(reader: Reader, entry: Entry) -> bool:
    return reader.document(RESULTS, entry.receipt_id) is not None


def _unknown(calls: Sequence[tuple[Entry, dict[str, Any]]]) -> Unit:
    def apply(transaction: Transaction) -> Sequence[Draft]:
        drafts: list[Draft] = []
        for entry, body in calls:
            if _has_result(transaction, entry):  # it came just now
                continue
            draft = _unknown_result(entry, body)
            receipt = draft.members["receipt_id"].encode()
            transaction.put_document(Document(collection=RESULTS, key=entry.receipt_id, version=1, body=receipt))
            drafts.append(draft)
        return drafts

    return Unit(apply=apply)


def _ran(reader: Reader, entry: Entry, body: dict[str, Any]) -> bool:
    """Whether a call was let through by this decision, or by people after it."""
    if entry.decision in RELEASED:
        return True
    approval = find(reader, body["approval_id"]) if "approval_id" in body else None
    return approval is not None and approval.state == "redeemed" and approval.decision_id == entry.receipt_id


def _unknown_result(entry: Entry, body: dict[str, Any]) -> Draft:
    """The receipt of a result that never came: nobody may use it any more."""
    members: dict[str, Any] = {
        "kind": "result",
        "receipt_id": new_id(),
        "parent": entry.receipt_id,
        "agent": entry.agent,
        "principal": entry.principal,
        "session": entry.session,
        "call_id": body["call_id"],
        "tool": entry.tool,
        "call_commitment": body["call_commitment"],
        "decision": "block",
        "verdict": "insufficient_evidence",
        "reason": "insufficient_evidence",
        "guards": [],
        "policy_digest": body["policy_digest"],
        "settings": body["settings"],
        "execution": "unknown",
    }
    if "server" in body:
        members["server"] = body["server"]
    return Draft(members=members, signer=agent_signer(entry.agent))


# Sessions that nobody used for as long as `sessions.idle` says are ended by the gateway.

PERIOD_S: Final = 60.0
SCAN: Final = 200  # sessions read at once
MAX_SCANNED: Final = 10_000  # sessions looked at in one round: the next one goes on
_log = logging.getLogger("aegis.server.sessions")


class SessionEnder(Protocol):
    """The gate, as it is asked to end a session."""

    async def aend_session(self, session: str, *, principal: Principal | None = None, by: str = "") -> EndedSession: ...


async def end_idle(parts: Parts, gate: SessionEnder, period: float = PERIOD_S) -> None:
    """End sessions that nobody used for too long; runs until it is cancelled."""
    mark = -1
    while True:
        await asyncio.sleep(period)
        try:
            found, mark = await asyncio.to_thread(_idle, parts, mark)
            for principal, session in found:
                await gate.aend_session(session, principal=principal, by="gate")
        except (StoreError, InvalidCall):  # they are looked at again
            mark = -1
            _log.warning("sessions could not be ended", exc_info=True)


def _idle(parts: Parts, mark: int) -> tuple[list[tuple[Principal, str]], int]:
    """The sessions to end, of those whose last entry is behind `mark`; and the mark of the next round."""
    seconds = parts.policy.current.dataflow.idle
    if not seconds:
        return [], -1
    found: list[tuple[Principal, str]] = []
    with parts.store.reader() as reader:
        newest = reader.search(Search(until=parts.clock() - seconds * MICROS, limit=1))
        if not newest:
            return [], mark
        before = newest[0].index + 1
        for _ in range(MAX_SCANNED // SCAN):
            rows = reader.sessions(before=before, limit=SCAN)
            for row in rows:
                if row.last <= mark:
                    return found, newest[0].index
                document = reader.document(COLLECTION, key_of_session(row.principal, row.session))
                if document is not None and not read_head(document).ended:
                    agent = Principal(id=row.principal, roles=frozenset({"agent"}), agent=row.agent or None)
                    found.append((agent, row.session))
            if len(rows) < SCAN:
                break
            before = rows[-1].last
    return found, newest[0].index
