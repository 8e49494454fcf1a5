"""Reading rows: one consistent view, held by a connection inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg

from aegis.core.ports import Document, Entry, Head, Payload, Search, SessionRow
from aegis.errors import StoreCorrupt
from aegis.store.postgres.connect import Connection, wrapped
from aegis.store.rows import call_key

_CHUNK: Final = 500  # rows held in memory while streaming
_COLUMNS: Final = (
    "idx, leaf_hash, body, receipt_id, time, kind, principal, agent, session, call_id, tool, decision, reason, parent"
)
HEAD: Final = "SELECT size, leaf, frontier, time, epoch, seal FROM aegis_control"
_ENTRY: Final = f"SELECT {_COLUMNS} FROM aegis_leaf WHERE idx = %s"  # noqa: S608
_ENTRY_BY_ID: Final = f"SELECT {_COLUMNS} FROM aegis_leaf WHERE receipt_id = %s"  # noqa: S608
_ENTRIES: Final = f"SELECT {_COLUMNS} FROM aegis_leaf WHERE idx >= %s AND idx < %s ORDER BY idx LIMIT {_CHUNK}"  # noqa: S608
_LATEST_CALL: Final = (
    "SELECT idx FROM aegis_leaf WHERE call_key = %s AND call_key IS NOT NULL AND call_id = %s AND session = %s"
    " AND principal = %s ORDER BY idx DESC LIMIT 1"
)
_LEAF_HASHES: Final = "SELECT leaf_hash FROM aegis_leaf WHERE idx >= %s AND idx < %s ORDER BY idx"
_NODE: Final = "SELECT hash FROM aegis_node WHERE level = %s AND position = %s"
_PAYLOAD: Final = "SELECT idx, salt, key, body FROM aegis_payload WHERE idx = %s"
_DOCUMENT: Final = "SELECT collection, key, version, body, state FROM aegis_document WHERE collection = %s AND key = %s"
_DOCUMENTS: Final = (
    "SELECT collection, key, version, body, state FROM aegis_document"
    " WHERE collection = %s AND key > %s ORDER BY key LIMIT %s"
)
_COLLECTIONS: Final = "SELECT DISTINCT collection FROM aegis_document ORDER BY collection"
_DOCUMENTS_IN_STATE: Final = (
    "SELECT collection, key, version, body, state FROM aegis_document"
    " WHERE collection = %s AND state = %s AND state <> '' AND key > %s ORDER BY key LIMIT %s"
)


class PostgresReader:
    """`core.ports.Reader` over one connection; usable until its transaction ends."""

    def __init__(self, connection: Connection):
        self._connection = connection

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Fetch all rows of a statement; raises the store's errors alone."""
        try:
            return self._connection.execute(sql.encode(), values, binary=True).fetchall()
        except psycopg.Error as error:
            raise wrapped(error) from error

    def row(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Fetch the only row of a statement, or `None`."""
        rows = self.rows(sql, values)
        return rows[0] if rows else None

    def head(self) -> Head:
        return head_of(self.row(HEAD))

    def entry(self, index: int) -> Entry | None:
        row = self.row(_ENTRY, (index,))
        return None if row is None else entry_of(row)

    def entry_by_id(self, receipt_id: str) -> Entry | None:
        row = self.row(_ENTRY_BY_ID, (receipt_id.encode(),))
        return None if row is None else entry_of(row)

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        """Stream entries with `start <= index < stop`, in order, a few hundred in memory at a time."""
        while rows := self.rows(_ENTRIES, (start, stop)):
            yield from map(entry_of, rows)
            start = rows[-1][0] + 1

    def search(self, search: Search) -> list[Entry]:
        return [entry_of(row) for row in matching(self, _COLUMNS, search)]

    def sessions(self, *, before: int | None, limit: int) -> list[SessionRow]:
        return sessions(self, before, limit)

    def latest_call(self, principal: str, session: str, call_id: str) -> int | None:
        key = call_key(principal, session, call_id)
        row = self.row(_LATEST_CALL, (key, call_id.encode(), session.encode(), principal.encode()))
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
        row = self.row(_DOCUMENT, (collection.encode(), key.encode()))
        return None if row is None else document_of(row)

    def documents(self, collection: str, *, state: str = "", after: str = "", limit: int = 1_000) -> list[Document]:
        """List documents with key > `after`, ordered by key; `state` restricts where it is not empty."""
        if state:
            rows = self.rows(_DOCUMENTS_IN_STATE, (collection.encode(), state.encode(), after.encode(), max(limit, 0)))
        else:
            rows = self.rows(_DOCUMENTS, (collection.encode(), after.encode(), max(limit, 0)))
        return [document_of(row) for row in rows]

    def collections(self) -> list[str]:
        return [row[0].decode() for row in self.rows(_COLLECTIONS)]


def head_of(row: Sequence[Any] | None) -> Head:
    """Read the head in a row of `HEAD`; raises `StoreCorrupt` where there is none."""
    if row is None:
        raise StoreCorrupt("the store has no head")
    return Head(size=row[0], leaf=row[1], frontier=row[2], time=row[3], epoch=row[4], seal=row[5])


def entry_of(row: Sequence[Any]) -> Entry:
    """Make the entry of a row of `_COLUMNS`."""
    return Entry(
        index=row[0],
        leaf_hash=row[1],
        body=row[2],
        receipt_id=row[3].decode(),
        time=row[4],
        kind=row[5].decode(),
        principal=row[6].decode(),
        agent=row[7].decode(),
        session=row[8].decode(),
        call_id=row[9].decode(),
        tool=row[10].decode(),
        decision=row[11].decode(),
        reason=row[12].decode(),
        parent=row[13].decode(),
    )


def document_of(row: Sequence[Any]) -> Document:
    """Make the document of a row in the order of the statements above."""
    return Document(collection=row[0].decode(), key=row[1].decode(), version=row[2], body=row[3], state=row[4].decode())


# Finding entries by their columns, and sessions by their last entry.

_SEARCH_COLUMNS: Final = ("parent", "call_id", "session", "tool", "agent", "principal", "reason", "decision", "kind")
_MAX_LIMIT: Final = 10_000  # bounds the rows of one page
_FOREVER: Final = 2**63 - 1
# Times never run backwards along the log, so a span of time is a span of indexes.
_FIRST_AT: Final = "SELECT idx FROM aegis_leaf WHERE time >= %s ORDER BY time, idx LIMIT 1"
_SESSIONS: Final = (
    "SELECT session, principal, agent, first, last, count FROM aegis_session"
    " WHERE last < %s ORDER BY last DESC LIMIT %s"
)


def matching(reader: PostgresReader, columns: str, search: Search) -> list[Any]:
    """Find rows of `columns` of the entries that match, newest first."""
    start, stop = 0, _FOREVER if search.before is None else search.before
    if search.since is not None:
        start = _first_at(reader, search.since)
    if search.until is not None:
        stop = min(stop, _first_at(reader, search.until + 1))
    wanted = [(column, getattr(search, column)) for column in _SEARCH_COLUMNS if getattr(search, column)]
    conditions = "".join(f" AND {column} = %s" for column, _ in wanted)
    sql = f"SELECT {columns} FROM aegis_leaf WHERE idx >= %s AND idx < %s{conditions} ORDER BY idx DESC LIMIT %s"  # noqa: S608
    limit = min(max(search.limit, 0), _MAX_LIMIT)
    return reader.rows(sql, (start, stop, *(value.encode() for _, value in wanted), limit))


def _first_at(reader: PostgresReader, time: int) -> int:
    """Find the first index whose time is at least `time`."""
    found = reader.rows(_FIRST_AT, (time,))
    return found[0][0] if found else _FOREVER


def sessions(reader: PostgresReader, before: int | None, limit: int) -> list[SessionRow]:
    """List sessions by their last entry, newest first."""
    end = _FOREVER if before is None else before
    return [
        SessionRow(
            session=row[0].decode(), principal=row[1].decode(), agent=row[2].decode(),
            first=row[3], last=row[4], count=row[5],
        )
        for row in reader.rows(_SESSIONS, (end, min(max(limit, 0), _MAX_LIMIT)))
    ]  # fmt: skip
