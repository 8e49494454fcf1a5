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
from aegis.gate.repeat import load_payload
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
        """Start a look where a call was held."""
        decision = event.decision
        if event.kind != "decision" or decision is None or decision.approval is None or event.recorded is None:
            return
        if decision.outcome is not Outcome.REQUIRE_APPROVAL or not self._parts.policy.current.previews.rules.enabled:
            return
        with self._lock:
            if self._threads is None or self._process != os.getpid():  # a forked child has no threads
                self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="aegis-preview")
                self._waiting, self._process = set(), os.getpid()
            if len(self._waiting) >= MAX_WAITING:
                _log.warning("a held call has no preview: too many wait for one")
                return
            job = self._threads.submit(self._look, decision.approval.id, event.members, event.recorded.index)
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

    def _look(self, approval_id: str, members: dict[str, Any], index: int) -> None:
        from aegis.approvals.preview.look import look_at  # sandbox, SQL and requests: for held calls alone

        try:
            preview = look_at(self._looked(members, index), self._parts.dry_runs)
            self._parts.ledger.append(_recorded(approval_id, members, preview))
        except AegisError:  # the store is gone: the approval shows no preview
            _log.exception("a preview could not be recorded")

    def _looked(self, members: dict[str, Any], index: int) -> Looked:
        with self._parts.store.reader() as reader:
            payload, _ = load_payload(self._parts, reader, index)
            around = find_surroundings(reader, key_of_session(members["principal"], members.get("session", "")))
        payload = payload or {}
        policy = self._parts.policy.current
        tool, server = members["tool"], members.get("server")
        how = policy.previews.find(server, tool)
        return Looked(
            tool=tool,
            server=server,
            arguments=payload.get("patched") or payload.get("arguments") or {},
            mounts=around.mounts,
            dryrun=how.dryrun,
            rules=policy.previews.rules,
            tool_preview=how.preview,
        )


def _recorded(approval_id: str, members: dict[str, Any], preview: Preview) -> Unit:
    if preview.state == "none":
        return _kept(approval_id, {"preview": preview.to_wire()})
    salt, payload, receipt_id = os.urandom(SALT_BYTES), orjson.dumps(preview.to_wire()), new_id()
    receipt: dict[str, Any] = {
        "kind": "approval",
        "action": "previewed",
        "receipt_id": receipt_id,
        "parent": members["receipt_id"],
        "principal": "gate",
        "approval_id": approval_id,
        "preview": {"state": preview.state, "kind": preview.kind or "none", "ms": round(preview.seconds * 1_000)},
        "payload_commitment": payload_commitment(salt, payload),
        **{name: members[name] for name in ("agent", "session", "call_id", "tool", "server") if name in members},
    }
    return _kept(approval_id, {"receipt": receipt_id}, Draft(members=receipt, payload=payload, salt=salt))


def _kept(approval_id: str, body: dict[str, Any], *drafts: Draft) -> Unit:
    document = Document(collection=COLLECTION, key=approval_id, version=1, body=orjson.dumps(body))

    def apply(transaction: Transaction) -> Sequence[Draft]:
        transaction.put_document(document)
        return ()

    return Unit(drafts=drafts, apply=apply)


def preview_of(parts: Parts, reader: Reader, approval_id: str, created_at: int) -> dict[str, Any]:
    """The member `preview` of an approval that was opened at `created_at` (microseconds since the epoch)."""
    document = reader.document(COLLECTION, approval_id)
    if document is None:
        rules = parts.policy.current.previews.rules
        if not rules.enabled:
            return no_preview("previews are switched off").to_wire()
        late = parts.clock() - created_at > (rules.seconds + GRACE_S) * MICROS
        return no_preview("none was recorded in time").to_wire() if late else {"state": "pending"}
    kept: dict[str, Any] = orjson.loads(document.body)
    if "preview" in kept:
        shown: dict[str, Any] = kept["preview"]
        return shown
    entry = reader.entry_by_id(kept["receipt"])
    if entry is None:
        return {"state": "failed", "why": "the preview is not on record"}
    payload, _ = load_payload(parts, reader, entry.index)
    return {"state": "erased"} if payload is None else payload
