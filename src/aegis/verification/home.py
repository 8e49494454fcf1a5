"""What is stored in a home, verified where it lies: what an export does not hold, and what stands beside the log.

(1) the store continues what the home's mark says that it saw
(2) every document is what was put last, and none is missing
(3) the columns by which receipts are found say what the receipts say, and lead to them
(4) payloads are those that the receipts commit to; what is gone was erased on record
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

from aegis.audit.append import entry_of
from aegis.audit.breaks import Break
from aegis.audit.id_set import IdSet
from aegis.audit.merkle import leaf_hash
from aegis.bootstrap.mark import HighWater
from aegis.bootstrap.state import contradicted
from aegis.core.digest import payload_commitment
from aegis.core.ports import Entry, Reader, Search
from aegis.core.times import from_rfc3339
from aegis.errors import StoreCorrupt
from aegis.keys.keyring import Keyring
from aegis.stores.sealed import SealedStore

_PAGE: Final = 1_000
Open = Callable[[bytes, bytes], bytes]


def mark_break(store: SealedStore, mark: HighWater, keyring: Keyring) -> Break | None:
    """(1) What in the store contradicts the home's mark; `None` where nothing does, or there is none."""
    try:
        kept = mark.read()
        wrong = None if kept is None else contradicted(store, kept, keyring)
    except StoreCorrupt as error:
        wrong = str(error)
    return None if wrong is None else Break(kind="rolled_back", detail=wrong)


def document_breaks(store: SealedStore) -> Iterator[Break]:
    """(2) Every document that somebody else wrote, changed, took away or put back."""
    try:
        for defect in store.defects():
            yield Break(kind="document_changed", detail=str(defect))
    except StoreCorrupt as error:
        yield Break(kind="document_changed", detail=str(error))


def column_breaks(reader: Reader, start: int, stop: int, *, looked_up: bool) -> Iterator[Break]:
    """(3) Every receipt from `start` to before `stop` whose columns differ from it, or do not lead to it.

    `looked_up` says that each is searched for as well, which takes a few queries.
    """
    for entry in reader.entries(start, stop):
        wrong = _differing(entry) or (_not_found(reader, entry) if looked_up else "")
        if wrong:
            yield Break(kind="column_changed", detail=wrong, index=entry.index, receipt_id=entry.receipt_id)


def payload_breaks(reader: Reader, size: int, open_payload: Open) -> Iterator[Break]:
    """(4) Every receipt whose payload is another one, or is gone and was not erased on record."""
    erased = IdSet()
    before: int | None = None
    while page := reader.search(Search(kind="erasure", before=before, limit=_PAGE)):
        for entry in page:
            erased.add(entry.parent)
        before = page[-1].index
    for entry in reader.entries(0, size):
        commitment = _commitment(entry)
        if commitment is None:
            continue
        stored = reader.payload(entry.index)
        if stored is None:
            wrong = "" if entry.receipt_id in erased else "it is gone, and nobody erased it on record"
        else:
            try:
                text = open_payload(stored.key, stored.body)
                wrong = "" if payload_commitment(stored.salt, text) == commitment else "it is another one"
            except StoreCorrupt:
                wrong = "it does not open"
        if wrong:
            yield Break(kind="payload_changed", detail=wrong, index=entry.index, receipt_id=entry.receipt_id)


def _commitment(entry: Entry) -> str | None:
    try:
        commitment: str | None = orjson.loads(entry.body).get("payload_commitment")
    except (ValueError, AttributeError):  # the receipt is malformed, which its own check says
        return None
    return commitment


def _differing(entry: Entry) -> str:
    """The columns of a receipt that say something else than it does."""
    try:
        body: dict[str, Any] = orjson.loads(entry.body)
        told = entry_of(body, entry.body, leaf_hash(entry.body), from_rfc3339(body["time"]))
    except (ValueError, KeyError, TypeError):
        return "the receipt is malformed"
    return ", ".join(f"`{name}`" for name in Entry.__struct_fields__ if getattr(entry, name) != getattr(told, name))


def _not_found(reader: Reader, entry: Entry) -> str:
    """The way in which a receipt is looked for and not found."""
    by_id = reader.entry_by_id(entry.receipt_id)
    if by_id is None or by_id.index != entry.index:
        return "it is not found by `receipt_id`"
    if entry.kind == "decision" and entry.call_id:
        latest = reader.latest_call(entry.principal, entry.session, entry.call_id)
        if latest is None or latest < entry.index:
            return "it is not found by its call"
    search = Search(
        kind=entry.kind,
        principal=entry.principal,
        agent=entry.agent,
        session=entry.session,
        call_id=entry.call_id,
        tool=entry.tool,
        decision=entry.decision,
        reason=entry.reason,
        parent=entry.parent,
        before=entry.index + 1,
        limit=1,
    )
    found = reader.search(search)
    return "" if found and found[0].index == entry.index else "it is not found by what it says"
