"""Looks at every held call, beside the caller: the call is held already, and waits for nobody here.

What a look came to is a receipt of its own, with the effect in its encrypted payload; where there was no
way to look, the reason is kept and nothing is on record. The approval is not touched, so that a look never
stands in the way of a person's answer, and is never one.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final

import orjson

from aegis.approvals.model import Approval
from aegis.approvals.queue import load
from aegis.approvals.receipts import receipt
from aegis.audit.writer import Unit
from aegis.core.digest import SALT_BYTES, payload_commitment
from aegis.core.outcome import Outcome
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.previewing import Looked, Preview, no_preview
from aegis.core.receipt import Draft
from aegis.core.times import MICROS
from aegis.errors import AegisError
from aegis.gate.events import Event
from aegis.gate.ids import new_id
from aegis.gate.parts import Parts
from aegis.gate.running import payload_of, running
from aegis.gate.sessions import key_of_session
from aegis.gate.surroundings import find_surroundings

COLLECTION: Final = "previews"
WORKERS: Final = 2  # looks at a time: each is a program of its own beside the gate
GRACE_S: Final = 60  # beyond its own time: how long a look may wait for others before it counts as lost
MAX_WAITING: Final = 256  # held calls that wait for a look; beyond it, a call has none
_log = logging.getLogger("aegis.gate.previews")


class PreviewWorker:
    """Listens for held calls and looks at each once."""

    def __init__(self, parts: Parts):
        self._parts = parts
        self._lock = threading.Lock()
        self._waiting: set[Future[None]] = set()
        self._threads: ThreadPoolExecutor | None = None
        self._process = 0

    def __call__(self, event: Event) -> None:
        """Start a look where a call was held, or became another one."""
        approval_id, narrowed_by = _held(event)
        if approval_id is None or not self._parts.policy.current.previews.rules.enabled:
            return
        with self._lock:
            if self._threads is None or self._process != os.getpid():  # a forked child has no threads
                self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="aegis-preview")
                self._waiting, self._process = set(), os.getpid()
            if len(self._waiting) >= MAX_WAITING:
                _log.warning("a held call has no preview: too many wait for one")
                return
            job = self._threads.submit(self._look, approval_id, narrowed_by)
            self._waiting.add(job)
        job.add_done_callback(self._waiting.discard)

    def close(self) -> None:
        """Wait for the looks that are under way, each of which has a deadline of its own."""
        with self._lock:
            threads, waiting = self._threads, set(self._waiting)
            self._threads = None
        if threads is not None and self._process == os.getpid():
            for job in waiting:
                job.cancel()
            wait(waiting)
            threads.shutdown()

    def _look(self, approval_id: str, narrowed_by: str | None) -> None:
        from aegis.approvals.preview.look import look_at  # sandbox, SQL and requests: for held calls alone

        try:
            approval, looked = self._looked(approval_id)
            if approval.narrowed_by == narrowed_by:  # else it is another call by now, which has a look of its own
                self._parts.ledger.append(_recorded(approval, look_at(looked, self._parts.dry_runs)))
        except AegisError:  # the store is gone: the approval shows no preview
            _log.exception("a preview could not be recorded")

    def _looked(self, approval_id: str) -> tuple[Approval, Looked]:
        with self._parts.store.reader() as reader:
            approval = load(reader, approval_id)
            arguments = running(self._parts, reader, approval)
            around = find_surroundings(reader, key_of_session(approval.principal, approval.session))
        policy = self._parts.policy.current
        how = policy.previews.find(approval.server, approval.tool)
        return approval, Looked(
            tool=approval.tool,
            server=approval.server,
            arguments=arguments or {},
            mounts=around.mounts,
            dryrun=how.dryrun,
            rules=policy.previews.rules,
            tool_preview=how.preview,
        )


def _held(event: Event) -> tuple[str | None, str | None]:
    """The approval of a call that an event says is to be looked at, and the receipt by which it was narrowed."""
    decision, members = event.decision, event.members
    if event.kind == "decision" and decision is not None and decision.approval is not None:
        return (decision.approval.id if decision.outcome is Outcome.REQUIRE_APPROVAL else None), None
    if event.kind == "approval" and "narrowed_by" in members:
        return members["approval_id"], members["narrowed_by"]
    return None, None


def _key(approval: Approval) -> str:
    """Under what the look at a call is kept: each narrowing makes another call of it."""
    return approval.narrowed_by or approval.id


def _recorded(approval: Approval, preview: Preview) -> Unit:
    if preview.state == "none":
        return _kept(_key(approval), {"preview": preview.to_wire()})
    salt, payload, receipt_id = os.urandom(SALT_BYTES), orjson.dumps(preview.to_wire()), new_id()
    said = receipt(approval, "previewed", receipt_id=receipt_id, principal="gate")
    members = {
        **said.members,
        "parent": approval.narrowed_by or approval.decision_id,
        "preview": {"state": preview.state, "kind": preview.kind or "none", "ms": round(preview.seconds * 1_000)},
        "payload_commitment": payload_commitment(salt, payload),
    }
    return _kept(_key(approval), {"receipt": receipt_id}, Draft(members=members, payload=payload, salt=salt))


def _kept(key: str, body: dict[str, Any], *drafts: Draft) -> Unit:
    document = Document(collection=COLLECTION, key=key, version=1, body=orjson.dumps(body))

    def apply(transaction: Transaction) -> Sequence[Draft]:
        transaction.put_document(document)
        return ()

    return Unit(drafts=drafts, apply=apply)


def preview_of(parts: Parts, reader: Reader, approval: Approval) -> dict[str, Any]:
    """The member `preview` of an approval: the look at the call that is held now."""
    document = reader.document(COLLECTION, _key(approval))
    if document is None:
        return _none_yet(parts, approval)
    kept: dict[str, Any] = orjson.loads(document.body)
    if "preview" in kept:
        shown: dict[str, Any] = kept["preview"]
        return shown
    payload = payload_of(parts, reader, kept["receipt"])
    return {"state": "erased"} if payload is None else payload


def _none_yet(parts: Parts, approval: Approval) -> dict[str, Any]:
    rules = parts.policy.current.previews.rules
    if not rules.enabled:
        return no_preview("previews are switched off").to_wire()
    late = parts.clock() - approval.held_at > (rules.seconds + GRACE_S) * MICROS
    return no_preview("none was recorded in time").to_wire() if late else {"state": "pending"}
