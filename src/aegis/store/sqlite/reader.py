"""Reading rows: one consistent view, held by a connection inside a transaction."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from aegis.core.ports import Document, Entry, Head, Payload, Search, SessionRow
from aegis.core.receipt import ID_DIGITS, call_id_of
from aegis.errors import StoreCorrupt
from aegis.store.rows import LAST, call_key
from aegis.store.sqlite.connect import too_large, wrapped

_COLUMNS: Final = (
    "idx, leaf_hash, body, receipt_id, time, kind, principal, agent, session, call_id, tool, decision, reason, parent"
)
_CHUNK: Final = 500  # rows held in memory while streaming

_HEAD: Final = (
    "SELECT c.epoch, iif(l.idx IS NULL, c.seal, l.seal), l.idx, l.leaf_hash, l.frontier, l.time FROM control c"
    " LEFT JOIN leaf l ON l.idx = (SELECT max(idx) FROM leaf)"
)
_ENTRY: Final = f"SELECT {_COLUMNS} FROM leaf WHERE idx = ?"  # noqa: S608
_ENTRY_BY_ID: Final = f"SELECT {_COLUMNS} FROM leaf WHERE receipt_id = ?"  # noqa: S608
_ENTRIES_BY_PREFIX: Final = (
    f"SELECT {_COLUMNS} FROM leaf WHERE receipt_id >= ? AND receipt_id < ? ORDER BY receipt_id LIMIT ?"  # noqa: S608
)
_ENTRIES: Final = f"SELECT {_COLUMNS} FROM leaf WHERE idx >= ? AND idx < ? ORDER BY idx LIMIT {_CHUNK}"  # noqa: S608
_LATEST_CALL: Final = (
    "SELECT idx FROM leaf WHERE call_key = ? AND call_key IS NOT NULL AND call_id = ? AND session = ?"
    " AND principal = ? ORDER BY idx DESC LIMIT 1"
)
_FIRST_DECISION: Final = (
    "SELECT idx FROM leaf WHERE receipt_id = ? AND kind = 'decision' AND call_id = ? AND session = ? AND principal = ?"
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


class SqliteReader(Struct, eq=False):
    """`core.ports.Reader` over one connection; usable until its transaction ends."""

    _connection: sqlite3.Connection
    _head: Head | None = None
    unindexed: int = 0  # how many entries a search of this view found outside the index

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Fetch all rows of a statement; raises the store's errors alone."""
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise wrapped(error) from error
        except OverflowError as error:
            raise too_large() from error

    def row(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Fetch the only row of a statement, or `None`."""
        rows = self.rows(sql, values)
        return rows[0] if rows else None

    def head(self) -> Head:
        """Give the end of the log; read once, since nobody else can move it in this view."""
        if self._head is not None:
            return self._head
        rows = self.rows(_HEAD)
        if not rows:
            raise StoreCorrupt("the store has no head")
        epoch, seal, last, leaf, frontier, time = rows[0]
        if last is None:
            self._head = Head(epoch=epoch, seal=seal)
        elif frontier is None:
            raise StoreCorrupt("the log does not end where a commit ended")
        else:
            self._head = Head(size=last + 1, leaf=leaf, frontier=frontier, time=time, epoch=epoch, seal=seal or b"")
        return self._head

    def entry(self, index: int) -> Entry | None:
        row = self.row(_ENTRY, (index,))
        return None if row is None else entry_of(row)

    def entry_by_id(self, receipt_id: str) -> Entry | None:
        row = self.row(_ENTRY_BY_ID, (receipt_id,))
        return None if row is None else entry_of(row)

    def entries_by_prefix(self, prefix: str, limit: int) -> list[Entry]:
        return [entry_of(row) for row in self.rows(_ENTRIES_BY_PREFIX, (prefix, prefix + LAST, limit))]

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        """Stream entries with `start <= index < stop`, in order, a few hundred in memory at a time."""
        while rows := self.rows(_ENTRIES, (start, stop)):
            yield from map(entry_of, rows)
            start = rows[-1][0] + 1

    def search(self, search: Search) -> list[Entry]:
        self.unindexed = unindexed(self)
        return [entry_of(row) for row in matching(self, search)]

    def sessions(self, *, before: int | None, limit: int) -> list[SessionRow]:
        self.unindexed = unindexed(self)
        return sessions(self, before, limit)

    def latest_call(self, principal: str, session: str, call_id: str) -> int | None:
        row = self.row(_LATEST_CALL, (call_key(principal, session, call_id), call_id, session, principal))
        if row is None and len(call_id) == ID_DIGITS:  # one that its host gave no name may be
            row = self.row(_FIRST_DECISION, (call_id_of(call_id), call_id, session, principal))
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
        """List documents with key > `after`, ordered by key; `state` restricts where it is not empty."""
        if state:
            rows = self.rows(_DOCUMENTS_IN_STATE, (collection, state, after, limit))
        else:
            rows = self.rows(_DOCUMENTS, (collection, after, limit))
        return [document_of(row) for row in rows]

    def collections(self) -> list[str]:
        return [row[0] for row in self.rows(_COLLECTIONS)]


def entry_of(row: Sequence[Any]) -> Entry:
    """Make the entry of a row of `_COLUMNS`."""
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
    """Make the document of a row in the order of the statements above."""
    return Document(collection=row[0], key=row[1], version=row[2], body=row[3], state=row[4])


# Finding entries by their columns: an inverted index for the old ones, a scan for the newest.
#
# Appending never maintains the index; searching extends it by a bounded step first. The answer is the same however
# far the index has come: entries behind `indexed` are found through `term`, those after it by looking at them.

# Rarest first: the first term given drives the search, the others only filter.
_TERMS: Final = ("parent", "call_id", "session", "tool", "agent", "principal", "reason", "decision", "kind")
_MAX_LIMIT: Final = 10_000  # bounds the rows of one page
_PROGRESS: Final = "SELECT indexed FROM progress"
_SIZE: Final = "SELECT coalesce(max(idx) + 1, 0) FROM leaf"
_LEAF_COLUMNS: Final = ", ".join(f"l.{column}" for column in _COLUMNS.split(", "))
_FIRST_AT: Final = "SELECT idx, time FROM leaf WHERE idx = ?"
_TERMS_A_STATEMENT: Final = 100
_NEW_SESSIONS: Final = (
    "SELECT principal, session, max(agent), min(idx), max(idx), count(*) FROM leaf"
    " WHERE idx >= ? AND session <> '' GROUP BY principal, session"
)
_OLD_SESSION: Final = "SELECT first, count, agent FROM session WHERE principal = ? AND session = ?"
_OLD_SESSIONS: Final = (
    "SELECT principal, session, agent, first, last, count FROM session WHERE last < ? ORDER BY last DESC LIMIT ?"
)
_FOLD_SESSIONS: Final = (
    "INSERT INTO session (principal, session, agent, first, last, count)"
    " SELECT principal, session, max(agent), min(idx), max(idx), count(*) FROM leaf"
    " WHERE idx >= ? AND idx < ? AND session <> '' GROUP BY principal, session"
    " ON CONFLICT (principal, session) DO UPDATE SET agent = max(agent, excluded.agent), last = excluded.last,"
    " count = count + excluded.count"
)


def term(column: str, value: str) -> int:
    """Compute the 64-bit key of one value of one column."""
    return int.from_bytes(hashlib.sha256(f"{column}\0{value}".encode()).digest()[:8], "big", signed=True)


def matching(reader: SqliteReader, search: Search) -> list[Any]:
    """Find rows of the entries that match, newest first."""
    limit = min(max(search.limit, 0), _MAX_LIMIT)
    size = reader.rows(_SIZE)[0][0]
    start, stop = 0, size if search.before is None else min(search.before, size)
    # Times never run backwards along the log, so a span of time is a span of indexes.
    if search.since is not None:
        start = _first_at(reader, search.since, 0, size)
    if search.until is not None:
        stop = min(stop, _first_at(reader, search.until + 1, 0, size))
    wanted = [(column, getattr(search, column)) for column in _TERMS if getattr(search, column)]
    indexed = reader.rows(_PROGRESS)[0][0] if wanted else 0
    found = _scan(reader, wanted, max(start, indexed), stop, limit)
    if len(found) < limit and start < min(stop, indexed):
        found += _look_up(reader, wanted, start, min(stop, indexed), limit - len(found))
    return found


def _scan(reader: SqliteReader, wanted: list[tuple[str, str]], start: int, stop: int, limit: int) -> list[Any]:
    conditions = "".join(f" AND l.{column} = ?" for column, _ in wanted)
    sql = f"SELECT {_LEAF_COLUMNS} FROM leaf l WHERE l.idx >= ? AND l.idx < ?{conditions} ORDER BY l.idx DESC LIMIT ?"  # noqa: S608
    return reader.rows(sql, (start, stop, *(value for _, value in wanted), limit))


def _look_up(reader: SqliteReader, wanted: list[tuple[str, str]], start: int, stop: int, limit: int) -> list[Any]:
    # The columns are compared as well: a term is a hash, and two values may share one.
    joins = "".join(f" CROSS JOIN term t{at} ON t{at}.term = ? AND t{at}.idx = t0.idx" for at in range(1, len(wanted)))
    conditions = "".join(f" AND l.{column} = ?" for column, _ in wanted)
    sql = (
        f"SELECT {_LEAF_COLUMNS} FROM term t0{joins} CROSS JOIN leaf l ON l.idx = t0.idx"  # noqa: S608
        f" WHERE t0.term = ? AND t0.idx >= ? AND t0.idx < ?{conditions} ORDER BY t0.idx DESC LIMIT ?"
    )
    terms = [term(column, value) for column, value in wanted]
    return reader.rows(sql, (*terms[1:], terms[0], start, stop, *(value for _, value in wanted), limit))


def _first_at(reader: SqliteReader, time: int, low: int, high: int) -> int:
    """Find the first index whose time is at least `time`."""
    while low < high:
        middle = (low + high) // 2
        row = reader.rows(_FIRST_AT, (middle,))
        if row and row[0][1] < time:
            low = middle + 1
        else:
            high = middle
    return low


def sessions(reader: SqliteReader, before: int | None, limit: int) -> list[SessionRow]:
    """List sessions by their last entry, newest first, from the index and what came after it."""
    limit = min(max(limit, 0), _MAX_LIMIT)
    indexed = reader.rows(_PROGRESS)[0][0]
    fresh = {(row[0], row[1]): row for row in reader.rows(_NEW_SESSIONS, (indexed,))}
    merged: list[SessionRow] = []
    for (principal, session), row in fresh.items():
        old = reader.rows(_OLD_SESSION, (principal, session))
        first, count, agent = old[0] if old else (row[3], 0, "")
        merged.append(
            SessionRow(
                principal=principal,
                session=session,
                agent=max(agent, row[2]),
                first=first,
                last=row[4],
                count=count + row[5],
            )
        )
    # A session with newer entries stands in `merged` under its newer end, whatever the table says.
    end = before if before is not None else 2**63 - 1
    for row in reader.rows(_OLD_SESSIONS, (end, limit + len(fresh))):
        if (row[0], row[1]) not in fresh:
            merged.append(
                SessionRow(principal=row[0], session=row[1], agent=row[2], first=row[3], last=row[4], count=row[5])
            )
    merged.sort(key=lambda found: found.last, reverse=True)
    return [found for found in merged if found.last < end][:limit]


def unindexed(reader: SqliteReader) -> int:
    """Count how many entries the index does not hold yet."""
    size: int = reader.rows(_SIZE)[0][0]
    indexed: int = reader.rows(_PROGRESS)[0][0]
    return size - indexed


def extend_index(reader: SqliteReader, step: int) -> int:
    """Index the next `step` entries inside the writer's transaction; how many are left after them."""
    start: int = reader.rows(_PROGRESS)[0][0]
    size: int = reader.rows(_SIZE)[0][0]
    stop = min(start + step, size)
    if start >= stop:
        return 0
    columns = ", ".join(_TERMS)
    found: list[tuple[int, int]] = []
    for row in reader.rows(f"SELECT idx, {columns} FROM leaf WHERE idx >= ? AND idx < ?", (start, stop)):  # noqa: S608
        found.extend((term(column, value), row[0]) for column, value in zip(_TERMS, row[1:], strict=True) if value)
    found.sort()
    for at in range(0, len(found), _TERMS_A_STATEMENT):
        part = found[at : at + _TERMS_A_STATEMENT]
        marks = ",".join(["(?,?)"] * len(part))
        reader.rows(f"INSERT OR IGNORE INTO term VALUES {marks}", [number for pair in part for number in pair])  # noqa: S608
    reader.rows(_FOLD_SESSIONS, (start, stop))
    reader.rows("UPDATE progress SET indexed = ?", (stop,))
    return size - stop
