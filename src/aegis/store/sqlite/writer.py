"""Writing rows inside the one exclusive transaction; the hot path is a handful of statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from aegis.core.ports import Document, Entry, Head, Node, Payload
from aegis.errors import StoreConflict
from aegis.store.rows import call_key, check_continues, check_payloads
from aegis.store.sqlite.files import too_large, wrapped
from aegis.store.sqlite.reader import SqliteReader

Put = tuple[int, str, bytes, str, str]  # version, state, body, collection, key
Held = dict[tuple[str, str], Put]  # the newest of each document that was put, by collection and key

_INSERT_LEAF: Final = (
    "INSERT INTO leaf (idx, leaf_hash, receipt_id, time, kind, principal, agent, session, call_id, tool, decision,"
    " reason, parent, call_key, frontier, body, salt, key, payload)"
    " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
_INSERT_NODE: Final = "INSERT INTO node (level, position, hash) VALUES (?,?,?)"
_INSERT_DOCUMENT: Final = (
    "INSERT INTO document (version, state, body, collection, key) VALUES (?,?,?,?,?) ON CONFLICT DO NOTHING"
)
_UPDATE_DOCUMENT: Final = (
    "UPDATE document SET version = ?, state = ?, body = ? WHERE collection = ? AND key = ? AND version = ?"
)
_READ_VERSION: Final = "SELECT version FROM document WHERE collection = ? AND key = ?"
_REDO_DOCUMENT: Final = (
    "INSERT INTO document (version, state, body, collection, key) VALUES (?,?,?,?,?) ON CONFLICT (collection, key)"
    " DO UPDATE SET version = excluded.version, state = excluded.state, body = excluded.body"
    " WHERE excluded.version > version"
)
_DELETE_DOCUMENT: Final = "DELETE FROM document WHERE collection = ? AND key = ?"
_ERASE: Final = "UPDATE leaf SET salt = NULL, key = NULL, payload = NULL WHERE idx = ? AND key IS NOT NULL"
_SEAL: Final = "UPDATE control SET seal = ?"
_BUMP: Final = "UPDATE control SET epoch = epoch + 1 RETURNING epoch"


class SqliteTransaction(SqliteReader):
    """`core.ports.Transaction` over the writer's connection.

    With `held`, documents that are put stay in `puts` until `settle`: a ledger that every call changes is
    written once for many of them.
    """

    def __init__(self, connection: sqlite3.Connection, head: Head | None = None, *, held: Held | None = None):
        """`head` is the end of the log where it is known; `held` are documents put before this and not settled."""
        super().__init__(connection)
        self._head = head
        self._held = held
        self.written = 0
        self.erased = False
        self.before: Head | None = None  # the end of the log before the first append
        self.leaves: list[tuple[Any, ...]] = []  # rows of what was appended, and of its tree nodes
        self.nodes: list[tuple[Any, ...]] = []
        self.puts: Held = {}  # what was put here and is not settled

    def head(self) -> Head:
        """The end of the log; read once, since nobody else can move it."""
        if self._head is None:
            self._head = super().head()
        return self._head

    def append(self, entries: Sequence[Entry], payloads: Sequence[Payload], nodes: Sequence[Node], head: Head) -> None:
        """Add leaves at the end and move the head; its `epoch` is not written, `bump_epoch` alone moves that.

        Raises `StoreCorrupt` where the leaves do not continue the log.
        """
        before = self.head()
        check_continues(before.size, entries, head)
        check_payloads(before.size, payloads, head)
        sealed = {payload.index: payload for payload in payloads}
        rows = [_leaf_row(entry, sealed.get(entry.index), head) for entry in entries]
        self._write(_INSERT_LEAF, rows)
        if self.before is None:
            self.before = before
        self.leaves += rows
        if nodes:
            positions = [(node.level, node.position, node.hash) for node in nodes]
            self._write(_INSERT_NODE, positions)
            self.nodes += positions
        self._head = replace(head, epoch=before.epoch, seal=before.seal)

    def put_back(
        self,
        leaves: Sequence[Sequence[Any]],
        nodes: Sequence[Sequence[Any]],
        documents: Sequence[Sequence[Any]],
        seal: bytes,
    ) -> Head:
        """Write rows that another transaction held in the lists of these names, and its seal; the new head.

        A document that has that version already, or a later one, stays as it is.
        """
        self._write(_INSERT_LEAF, leaves)
        if nodes:
            self._write(_INSERT_NODE, nodes)
        for document in documents:
            self._change(_REDO_DOCUMENT, document)
        self._change(_SEAL, (seal,))
        self._head = None
        return self.head()

    @property
    def only_appended(self) -> bool:
        """Whether leaves were written, and nothing else was but documents that wait in `puts`."""
        return bool(self.leaves) and self.written == len(self.leaves) + len(self.nodes)

    def document(self, collection: str, key: str) -> Document | None:
        put = self._put(collection, key)
        if put is None:
            return super().document(collection, key)
        return Document(collection=collection, key=key, version=put[0], body=put[2], state=put[1])

    def documents(self, collection: str, *, state: str = "", after: str = "", limit: int = 1_000) -> list[Document]:
        self.settle()
        return super().documents(collection, state=state, after=after, limit=limit)

    def put_document(self, document: Document) -> None:
        """Write a document whose `version` is one more than the stored one; raises `StoreConflict` otherwise."""
        values = (document.version, document.state, document.body, document.collection, document.key)
        if self._held is not None:
            changed = int(self._version(document.collection, document.key) == document.version - 1)
        elif document.version == 1:
            changed = self._change(_INSERT_DOCUMENT, values)
        else:
            changed = self._change(_UPDATE_DOCUMENT, (*values, document.version - 1))
        if not changed:
            raise StoreConflict(f"a document of `{document.collection}` was changed meanwhile")
        if self._held is not None:
            self.puts[document.collection, document.key] = values

    def settle(self) -> None:
        """Write every document that was held, and those of this transaction; afterwards each is written at once."""
        if self._held is None:
            return
        for values in {**self._held, **self.puts}.values():
            self._change(_REDO_DOCUMENT, values)
        self._change(_SEAL, (self.head().seal,))
        self._held, self.puts = None, {}

    def put_seal(self, seal: bytes, nodes: Sequence[Document]) -> None:
        """Write the head's seal and its nodes; each of these is written where it is later than what is stored."""
        self._head = replace(self.head(), seal=seal)
        if nodes:
            rows = [(node.version, node.state, node.body, node.collection, node.key) for node in nodes]
            if self._held is None:
                self._write(_REDO_DOCUMENT, rows)
            else:
                self.puts.update({(row[3], row[4]): row for row in rows})
        if self._held is None:
            self._change(_SEAL, (seal,))

    def delete_document(self, collection: str, key: str) -> None:
        self.settle()
        self._change(_DELETE_DOCUMENT, (collection, key))

    def erase_payload(self, index: int) -> bool:
        """Delete payload, key and salt of a leaf; their pages are overwritten with zeros."""
        erased = self._change(_ERASE, (index,)) > 0
        self.erased = self.erased or erased
        return erased

    def bump_epoch(self) -> int:
        """Move the control epoch; every process sees it once this transaction commits."""
        before = self.head()
        epoch: int = self.row(_BUMP)[0]
        self.written += 1
        self._head = replace(before, epoch=epoch)
        return epoch

    def _put(self, collection: str, key: str) -> Put | None:
        """What was put under that key and is not settled."""
        if self._held is None:
            return None
        return self.puts.get((collection, key)) or self._held.get((collection, key))

    def _version(self, collection: str, key: str) -> int:
        """The version of a document; 0 where there is none."""
        put = self._put(collection, key)
        if put is not None:
            return put[0]
        row = self.row(_READ_VERSION, (collection, key))
        return 0 if row is None else row[0]

    def _write(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if len(rows) == 1:
            self._change(sql, rows[0])
            return
        try:
            self.written += self._connection.executemany(sql, rows).rowcount
        except sqlite3.Error as error:
            raise wrapped(error) from error
        except OverflowError as error:
            raise too_large() from error

    def _change(self, sql: str, values: Sequence[Any]) -> int:
        try:
            changed = self._connection.execute(sql, values).rowcount
        except sqlite3.Error as error:
            raise wrapped(error) from error
        except OverflowError as error:
            raise too_large() from error
        self.written += changed
        return changed


def _leaf_row(entry: Entry, payload: Payload | None, head: Head) -> tuple[Any, ...]:
    key = None
    if entry.kind == "decision" and entry.call_id:
        key = call_key(entry.principal, entry.session, entry.call_id)
    return (
        entry.index,
        entry.leaf_hash,
        entry.receipt_id,
        entry.time,
        entry.kind,
        entry.principal,
        entry.agent,
        entry.session,
        entry.call_id,
        entry.tool,
        entry.decision,
        entry.reason,
        entry.parent,
        key,
        head.frontier if entry.index == head.size - 1 else None,
        entry.body,
        *((None, None, None) if payload is None else (payload.salt, payload.key, payload.body)),
    )
