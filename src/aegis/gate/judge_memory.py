"""The judges' memory in the store: every gateway on it knows a verdict, and counts what was denied.

It is written in the transaction that records the run's end or the decision. A verdict's words stay where they are
sealed, beside the receipt of the run's end: erasing them there ends the verdict's use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import orjson

from aegis.audit.writer import Unit
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import MICROS
from aegis.gate.judge_ends import Ends
from aegis.gate.parts import Parts
from aegis.gate.repeat import load_payload
from aegis.judges.memory import PROBING_S, Intent, Key
from aegis.judges.model import Ran, Result, Signal

VERDICTS: Final = "judge-verdicts"
DENIED: Final = "judge-denied"
MAX_VARIANTS: Final = 1_000  # of one intent: as many as a configuration can ask to be counted
PAGE: Final = 1_000  # documents that are looked at, and forgotten, at a time


class StoredMemory:
    """The memory as one call's judges use it; what they add goes on record with `ends`."""

    def __init__(self, parts: Parts, ends: Ends):
        self._parts = parts
        self._ends = ends

    def find(self, key: Key, judge: str) -> Ran | None:
        """The run whose verdict still holds; raises `StoreError`."""
        with self._parts.store.reader() as reader:
            document = reader.document(VERDICTS, _name(key))
            kept = None if document is None else orjson.loads(document.body)
            if kept is None or self._parts.clock() >= kept["until"]:
                return None
            entry = reader.entry_by_id(kept["receipt"])
            payload = None if entry is None else load_payload(self._parts, reader, entry)[0]
        if payload is None or payload["result"] is None:
            return None
        return Ran(judge=judge, run_id=kept["run"], cause="passed", result=_result(payload["result"]), cached=True)

    def keep(self, key: Key, ran: Ran, seconds: int) -> None:
        """Let the verdict of a well-formed run count for so many seconds."""
        if seconds <= 0 or ran.result is None or not ran.receipt_id:
            return
        until = self._parts.clock() + seconds * MICROS
        body = orjson.dumps({"until": until, "receipt": ran.receipt_id, "run": ran.run_id})

        def write(transaction: Transaction) -> Sequence[Draft]:
            _put(transaction, VERDICTS, _name(key), body)
            return ()

        self._ends.keep(write)

    def is_probing(self, intent: Intent, call_digest: str, bound: int) -> bool:
        """Whether so many other variants were denied that this one is refused without looking; raises `StoreError`."""
        with self._parts.store.reader() as reader:
            variants = _recent(reader, intent, self._parts.clock())
        return len(variants) >= bound and call_digest not in variants

    def count(self, intent: Intent, call_digest: str) -> None:
        """This variant of the intent was denied."""
        now = self._parts.clock()

        def write(transaction: Transaction) -> Sequence[Draft]:
            variants = _recent(transaction, intent, now)
            variants[call_digest] = now
            newest = dict(sorted(variants.items(), key=lambda row: row[1])[-MAX_VARIANTS:])
            body = orjson.dumps({"until": now + PROBING_S * MICROS, "seen": newest})
            _put(transaction, DENIED, _name(intent), body)
            return ()

        self._ends.keep(write)


def forgotten(reader: Reader, collection: str, after: str, now: int) -> tuple[Unit | None, str]:
    """The unit that deletes what no longer counts in one page of a collection, and where the next page begins."""
    page = reader.documents(collection, after=after, limit=PAGE)
    over = [document for document in page if orjson.loads(document.body)["until"] <= now]

    def apply(transaction: Transaction) -> Sequence[Draft]:
        for document in over:
            found = transaction.document(collection, document.key)
            if found is not None and found.version == document.version:
                transaction.delete_document(collection, document.key)
        return ()

    return Unit(apply=apply) if over else None, page[-1].key if len(page) == PAGE else ""


def _recent(reader: Reader, intent: Intent, now: int) -> dict[str, int]:
    """The variants that were denied within the time that counts, each with its newest moment."""
    document = reader.document(DENIED, _name(intent))
    seen: dict[str, int] = {} if document is None else orjson.loads(document.body)["seen"]
    return {digest: at for digest, at in seen.items() if at > now - PROBING_S * MICROS}


def _name(of: tuple[str, ...]) -> str:
    return hashlib.sha256(orjson.dumps(list(of))).hexdigest()


def _put(transaction: Transaction, collection: str, key: str, body: bytes) -> None:
    known = transaction.document(collection, key)
    version = 1 if known is None else known.version + 1
    transaction.put_document(Document(collection=collection, key=key, version=version, body=body))


def _result(wire: dict[str, Any]) -> Result:
    return Result(**{**wire, "signals": tuple(Signal(**one) for one in wire["signals"])})
