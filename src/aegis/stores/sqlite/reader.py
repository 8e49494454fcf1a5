"""Reading rows: one consistent view, held by a connection inside a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from aegis.core.ports import Document, Entry, Head, Payload, Search, SessionRow
from aegis.errors import StoreCorrupt
from aegis.stores.call_key import call_key
from aegis.stores.sqlite import search as index
from aegis.stores.sqlite.errors import too_large, wrapped

ENTRY_COLUMNS: Final = (
    "idx, leaf_hash, body, receipt_id, time, kind, principal, agent, session, call_id, tool, decision, reason, parent"
)
_CHUNK: Final = 500  # rows held in memory while streaming

_HEAD: Final = (
    "SELECT c.epoch, c.seal, l.idx, l.leaf_hash, l.frontier, l.time FROM control c"
    " LEFT JOIN leaf l ON l.idx = (SELECT max(idx) FROM leaf)"
)
_ENTRY: Final = f"SELECT {ENTRY_COLUMNS} FROM leaf WHERE idx = ?"  # noqa: S608
_ENTRY_BY_ID: Final = f"SELECT {ENTRY_COLUMNS} FROM leaf WHERE receipt_id = ?"  # noqa: S608
_ENTRIES: Final = f"SELECT {ENTRY_COLUMNS} FROM leaf WHERE idx >= ? AND idx < ? ORDER BY idx LIMIT {_CHUNK}"  # noqa: S608
_LATEST_CALL: Final = (
    "SELECT idx FROM leaf WHERE call_key = ? AND call_key IS NOT NULL AND call_id = ? AND session = ?"
    " AND principal = ? ORDER BY idx DESC LIMIT 1"
)
_LEAF_HASHES: Final = "SELECT leaf_hash FROM leaf WHERE idx >= ? AND idx < ? ORDER BY idx"
_NODE: Final = "SELECT hash FROM node WHERE level = ? AND position = ?"
_PAYLOAD: Final = "SELECT idx, salt, key, payload FROM leaf WHERE idx = ? AND key IS NOT NULL"
_DOCUMENT: Final = "SELECT collection, key, version, body, state FROM document WHERE collection = ? AND key = ?"
_DOCUMENTS: Final = (
    "SELECT collection, key, version, body, state FROM document WHERE collection = ? AND key > ? ORDER BY key LIMIT ?"
)
_COLLECTIONS: Final = "SELECT DISTINCT collection FROM document ORDER BY collection"
_DOCUMENTS_IN_STATE: Final = (
    "SELECT collection, key, version, body, state FROM document"
    " WHERE collection = ? AND state = ? AND state <> '' AND key > ? ORDER BY key LIMIT ?"
)


class SqliteReader:
    """`core.ports.Reader` over one connection; usable until its transaction ends."""

    def __init__(self, connection: sqlite3.Connection):
        self._connection = connection
        self.unindexed = 0  # how many entries a search of this view found outside the index

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a statement; raises the store's errors alone."""
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise wrapped(error) from error
        except OverflowError as error:
            raise too_large() from error

    def row(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """The only row of a statement, or `None`."""
        rows = self.rows(sql, values)
        return rows[0] if rows else None

    def head(self) -> Head:
        row = self.row(_HEAD)
        if row is None:
            raise StoreCorrupt("the store has no head")
        epoch, seal, last, leaf, frontier, time = row
        if last is None:
            return Head(epoch=epoch, seal=seal)
        if frontier is None:
            raise StoreCorrupt("the log does not end where a commit ended")
        return Head(size=last + 1, leaf=leaf, frontier=frontier, time=time, epoch=epoch, seal=seal)

    def entry(self, index: int) -> Entry | None:
        row = self.row(_ENTRY, (index,))
        return None if row is None else entry_of(row)

    def entry_by_id(self, receipt_id: str) -> Entry | None:
        row = self.row(_ENTRY_BY_ID, (receipt_id,))
        return None if row is None else entry_of(row)

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        """Entries with `start <= index < stop`, in order, a few hundred in memory at a time."""
        while rows := self.rows(_ENTRIES, (start, stop)):
            yield from map(entry_of, rows)
            start = rows[-1][0] + 1

    def search(self, search: Search) -> list[Entry]:
        self.unindexed = index.unindexed(self)
        return [entry_of(row) for row in index.search(self, search)]

    def sessions(self, *, before: int | None, limit: int) -> list[SessionRow]:
        self.unindexed = index.unindexed(self)
        return index.sessions(self, before, limit)

    def latest_call(self, principal: str, session: str, call_id: str) -> int | None:
        row = self.row(_LATEST_CALL, (call_key(principal, session, call_id), call_id, session, principal))
        return None if row is None else row[0]

    def leaf_hashes(self, start: int, stop: int) -> list[bytes]:
        return [row[0] for row in self.rows(_LEAF_HASHES, (start, stop))]

    def node(self, level: int, position: int) -> bytes | None:
        row = self.row(_NODE, (level, position))
        return None if row is None else row[0]

    def payload(self, index: int) -> Payload | None:
        row = self.row(_PAYLOAD, (index,))
        return None if row is None else Payload(index=row[0], salt=row[1], key=row[2], body=row[3])

    def document(self, collection: str, key: str) -> Document | None:
        row = self.row(_DOCUMENT, (collection, key))
        return None if row is None else document_of(row)

    def documents(self, collection: str, *, state: str = "", after: str = "", limit: int = 1_000) -> list[Document]:
        """Documents with key > `after`, ordered by key; `state` restricts where it is not empty."""
        if state:
            rows = self.rows(_DOCUMENTS_IN_STATE, (collection, state, after, limit))
        else:
            rows = self.rows(_DOCUMENTS, (collection, after, limit))
        return [document_of(row) for row in rows]

    def collections(self) -> list[str]:
        return [row[0] for row in self.rows(_COLLECTIONS)]


def entry_of(row: Sequence[Any]) -> Entry:
    """The entry of a row of `ENTRY_COLUMNS`."""
    return Entry(
        index=row[0],
        leaf_hash=row[1],
        body=row[2],
        receipt_id=row[3],
        time=row[4],
        kind=row[5],
        principal=row[6],
        agent=row[7],
        session=row[8],
        call_id=row[9],
        tool=row[10],
        decision=row[11],
        reason=row[12],
        parent=row[13],
    )


def document_of(row: Sequence[Any]) -> Document:
    """The document of a row in the order of the statements above."""
    return Document(collection=row[0], key=row[1], version=row[2], body=row[3], state=row[4])
