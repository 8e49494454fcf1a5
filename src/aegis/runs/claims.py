"""Executions of a run's tool calls: claimed durably before the tool runs, so that none runs twice.

A run that is resumed, or taken up after a crash, finds the result of a call that ended, and of one that was under way
only that its outcome is not known: then the tool is not called again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson

from aegis.core.ports import Document, Store
from aegis.errors import StoreConflict

COLLECTION: Final = "run-calls"
_STARTED: Final = "started"
_DONE: Final = "done"


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """One execution: the decision under which it was made, whether it ended, and what it gave."""

    decision_id: str
    ended: bool
    result: Any = None


class Box(Protocol):
    """Seals what is stored, under the keys of the deployment."""

    def seal(self, payload: bytes) -> tuple[bytes, bytes]: ...

    def open_payload(self, key: bytes, body: bytes) -> bytes: ...


class Claims:
    """The executions of one deployment's runs."""

    def __init__(self, store: Store, box: Box) -> None:
        self._store = store
        self._box = box

    def find(self, run_id: str, call_id: str) -> Claim | None:
        """The claim on this call, or `None`. Raises `StoreError`."""
        with self._store.reader() as reader:
            found = reader.document(COLLECTION, _key(run_id, call_id))
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
            transaction.put_document(Document(collection=COLLECTION, key=key, version=version, body=body, state=state))


def _key(run_id: str, call_id: str) -> str:
    return orjson.dumps([run_id, call_id]).decode()


def pack(key: bytes, body: bytes) -> bytes:
    return len(key).to_bytes(2, "big") + key + body


def unpack(data: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(data[:2], "big")
    return data[2 : 2 + size], data[2 + size :]
