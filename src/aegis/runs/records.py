"""What is kept of runs: one document each with a lease, their executions, their receipts, and what was spent."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

import orjson
from msgspec import Struct, structs

from aegis.core.canonical import SALT_BYTES, payload_commitment
from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Clock, Document, Store, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft
from aegis.core.times import MICROS
from aegis.errors import StoreConflict, StoreUnavailable
from aegis.gate import Gate
from aegis.gate.events import new_id
from aegis.log.writer import Unit
from aegis.runs.state import Status

# Executions of a run's tool calls: claimed durably before the tool runs, so that none runs twice.
#
# A run that is resumed, or taken up after a crash, finds the result of a call that ended, and of one that was under
# way only that its outcome is not known: then the tool is not called again.

CLAIMS: Final = "run-calls"
_STARTED: Final = "started"
_DONE: Final = "done"


class Claim(Struct, frozen=True, kw_only=True):
    """One execution: the decision under which it was made, whether it ended, and what it gave."""

    decision_id: str
    ended: bool
    result: Any = None


class ClaimBox(Protocol):
    """Seals what is stored, under the keys of the deployment."""

    def seal(self, payload: bytes) -> tuple[bytes, bytes]: ...

    def open_payload(self, key: bytes, body: bytes) -> bytes: ...


class Claims:
    """The executions of one deployment's runs."""

    def __init__(self, store: Store, box: ClaimBox) -> None:
        self._store = store
        self._box = box

    def find(self, run_id: str, call_id: str) -> Claim | None:
        """The claim on this call, or `None`. Raises `StoreError`."""
        with self._store.reader() as reader:
            found = reader.document(CLAIMS, _key(run_id, call_id))
        if found is None:
            return None
        kept = orjson.loads(self._box.open_payload(*unpack(found.body)))
        return Claim(decision_id=kept["decision_id"], ended=found.state == _DONE, result=kept.get("result"))

    def take(self, run_id: str, call_id: str, decision_id: str) -> bool:
        """Whether the caller may run the tool now; exactly one caller is ever told so. Raises `StoreError`."""
        try:
            self._write(run_id, call_id, 1, _STARTED, {"decision_id": decision_id})
        except StoreConflict:
            return False
        return True

    def finish(self, run_id: str, call_id: str, decision_id: str, result: Any) -> None:
        """Keep the result of a claimed execution. Raises `StoreError`."""
        self._write(run_id, call_id, 2, _DONE, {"decision_id": decision_id, "result": result})

    def _write(self, run_id: str, call_id: str, version: int, state: str, kept: dict[str, Any]) -> None:
        body = pack(*self._box.seal(orjson.dumps(kept)))
        key = _key(run_id, call_id)
        with self._store.transaction() as transaction:
            transaction.put_document(Document(collection=CLAIMS, key=key, version=version, body=body, state=state))


def _key(run_id: str, call_id: str) -> str:
    return orjson.dumps([run_id, call_id]).decode()


def pack(key: bytes, body: bytes) -> bytes:
    return len(key).to_bytes(2, "big") + key + body


def unpack(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:2], "big")
    return data[2 : 2 + size], data[2 + size :]


COLLECTION: Final = "runs"
OPENINGS: Final = "run-openings"
ENDED: Final = frozenset({"completed", "refused", "failed"})
LEASE_SECONDS: Final = 30
"""How long a process may be silent before another takes its runs up."""


class RunRow(Struct, frozen=True, kw_only=True):
    """One run as the store lists it. `principal` is whose it is; `digest` names the request that started it.

    `attempts` counts how often it was begun or taken up since it last waited for a person.
    """

    run_id: str
    principal: str
    route: str
    digest: str
    status: Status
    agent: str = ""
    attempts: int = 0
    owner: str = ""
    lease: int = 0
    version: int = 0


class RunRows:
    """The runs of one deployment; `owner` names this process."""

    def __init__(self, store: Store, clock: Clock, owner: str) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner

    def find(self, run_id: str) -> RunRow | None:
        """The run, or `None`. Raises `StoreError`."""
        with self._store.reader() as reader:
            found = reader.document(COLLECTION, run_id)
        return None if found is None else _row(found)

    def with_status(self, status: Status, *, limit: int = 1_000) -> list[RunRow]:
        """Runs of this status."""
        with self._store.reader() as reader:
            return [_row(found) for found in reader.documents(COLLECTION, state=status, limit=limit)]

    def start(self, row: RunRow, opening: bytes) -> RunRow:
        """Put a new run on the list, leased to this process, with what it begins from, which is kept until it ends.

        Raises `StoreConflict` where the id is taken.
        """
        begun = Document(collection=OPENINGS, key=row.run_id, version=1, body=opening)
        row = structs.replace(row, status="running", owner=self._owner, lease=self._until(), version=1, attempts=1)
        return self._write(row, begun)

    def opening(self, run_id: str) -> bytes | None:
        """What the run begins from, as `start` was given it."""
        with self._store.reader() as reader:
            found = reader.document(OPENINGS, run_id)
        return None if found is None else found.body

    def take(self, row: RunRow) -> RunRow | None:
        """Take a run up; `None` where somebody is at work on it, it ended, or another was faster."""
        at_work = row.status == "running" and row.lease > self._clock() and not _gone(row.owner)
        if at_work or row.status in ENDED:
            return None
        attempts = row.attempts + 1 if row.status == "running" else 1
        return self._lease(structs.replace(row, attempts=attempts))

    def renew(self, row: RunRow) -> RunRow | None:
        """Go on with a run that this process works on; `None` where another one took it."""
        return self._lease(row) if row.owner == self._owner else None

    def _lease(self, row: RunRow) -> RunRow | None:
        leased = structs.replace(row, status="running", owner=self._owner, lease=self._until(), version=row.version + 1)
        try:
            return self._write(leased)
        except StoreConflict:
            return None

    def settle(self, row: RunRow, status: Status) -> RunRow:
        """Say what became of the run that this process works on. Raises `StoreConflict` where it is not its own."""
        if row.owner != self._owner:
            raise StoreConflict("the run was taken up by another process")
        return self._write(
            structs.replace(row, status=status, owner="", lease=0, version=row.version + 1), forget=status in ENDED
        )

    def _until(self) -> int:
        return self._clock() + LEASE_SECONDS * MICROS

    def _write(self, row: RunRow, *more: Document, forget: bool = False) -> RunRow:
        body: dict[str, Any] = {
            "principal": row.principal,
            "agent": row.agent,
            "attempts": row.attempts,
            "route": row.route,
            "digest": row.digest,
            "owner": row.owner,
            "lease": row.lease,
        }
        document = Document(
            collection=COLLECTION, key=row.run_id, version=row.version, body=orjson.dumps(body), state=row.status
        )
        with self._store.transaction() as transaction:
            for one in (document, *more):
                transaction.put_document(one)
            if forget:
                transaction.delete_document(OPENINGS, row.run_id)
        return row


def first_start(transaction: Transaction, run_id: str) -> bool:
    """Whether this is the first time that a run's start is recorded; it is noted where its opening is kept."""
    opening = transaction.document(OPENINGS, run_id)
    if opening is None or opening.version > 1:
        return False
    transaction.put_document(Document(collection=OPENINGS, key=run_id, version=2, body=opening.body))
    return True


def first_end(transaction: Transaction, run_id: str) -> bool:
    """Whether this is the first time that a run's end is recorded; its opening goes with it."""
    if transaction.document(OPENINGS, run_id) is None:
        return False
    transaction.delete_document(OPENINGS, run_id)
    return True


def _gone(owner: str) -> bool:
    """Whether the process of that owner surely ended; a store is used by the processes of one machine."""
    try:
        os.kill(int(owner.partition("-")[0]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, ValueError):
        return False
    return False


def _row(document: Document) -> RunRow:
    return RunRow(
        run_id=document.key,
        status=document.state,  # type: ignore[arg-type]  # only `_write` writes it
        version=document.version,
        **orjson.loads(document.body),
    )


# The receipts of a run: one when it starts, one for every stage and turn, one when it ends.
#
# A receipt of kind `run` carries the run's id as its session, so that the trace of a run is the trace of a session.
# What guards said stands in the receipt; labels and counts stand beside it, encrypted.

Action = Literal["start", "ingress", "route", "result", "turn", "egress", "pause", "resume", "end"]
GuardRow = dict[str, Any]
_FIRST: Final = {"start": first_start, "end": first_end}


class RunRecord:
    """Writes the receipts of runs. Raises `StoreError` where one cannot be written; the run then stops."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def write(
        self,
        run_id: str,
        principal: Principal,
        action: Action,
        *,
        outcome: Outcome = Outcome.ALLOW,
        reason: Reason = Reason.NONE,
        guards: Sequence[GuardRow] = (),
        details: dict[str, Any] | None = None,
    ) -> str:
        """Record one step; gives back the receipt's id.

        A run starts once and ends once: one that was taken up again adds nothing there.
        """
        salt, receipt_id = os.urandom(SALT_BYTES), new_id()
        payload = orjson.dumps({"action": action, **(details or {})})
        members: dict[str, Any] = {
            "kind": "run",
            "receipt_id": receipt_id,
            "principal": principal.id,
            "agent": principal.agent or principal.id,
            "session": run_id,
            "action": action,
            "decision": outcome.word,
            "reason": reason.value,
            "guards": [{name: row[name] for name in ("guard", "outcome", "rules")} for row in guards],
            "policy_digest": self._gate.parts.policy.current.digest,
            "payload_commitment": payload_commitment(salt, payload),
        }
        draft = Draft(members=members, payload=payload, salt=salt)
        first = _FIRST.get(action)
        if first is None:
            await self._gate.arecord(Unit(drafts=(draft,)))
        else:
            await self._gate.arecord(Unit(apply=lambda transaction: (draft,) if first(transaction, run_id) else ()))
        return receipt_id


# What each principal spent on models, by day: exact across processes, by compare-and-set.

SPENDING: Final = "run-spending"
_DAY: Final = 86_400 * MICROS
_ATTEMPTS: Final = 20


def spent(store: Store, clock: Clock, principal: str) -> int:
    """What `principal` spent since midnight UTC, in millionths."""
    with store.reader() as reader:
        found = reader.document(SPENDING, _day_key(clock, principal))
    return 0 if found is None else int(orjson.loads(found.body))


def spend(store: Store, clock: Clock, principal: str, cost: int) -> int:
    """Add `cost`; gives back the sum of the day."""
    for _ in range(_ATTEMPTS):
        try:
            with store.transaction() as transaction:
                key = _day_key(clock, principal)
                found = transaction.document(SPENDING, key)
                total = cost + (0 if found is None else int(orjson.loads(found.body)))
                version = 1 if found is None else found.version + 1
                transaction.put_document(
                    Document(collection=SPENDING, key=key, version=version, body=orjson.dumps(total))
                )
                return total
        except StoreConflict:
            continue
    raise StoreUnavailable("the spending of a run could not be recorded")


def _day_key(clock: Clock, principal: str) -> str:
    return orjson.dumps([clock() // _DAY, principal]).decode()
