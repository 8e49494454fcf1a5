"""Writing rows inside the one exclusive transaction; what needs no answer travels with what follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg
from msgspec.structs import replace

from aegis.core.ports import Document, Entry, Head, Node, Payload
from aegis.errors import StoreConflict
from aegis.stores.call_key import call_key
from aegis.stores.continuing import check_continues, check_payloads
from aegis.stores.postgres.connect import Connection
from aegis.stores.postgres.errors import wrapped
from aegis.stores.postgres.reader import HEAD, PostgresReader, head_of

_HOLD: Final = f"{HEAD} FOR UPDATE"
_INSERT_LEAF: Final = (
    "INSERT INTO aegis_leaf (idx, leaf_hash, body, receipt_id, time, kind, principal, agent, session, call_id, tool,"
    " decision, reason, parent, call_key) VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s)"
)
_INSERT_PAYLOAD: Final = "INSERT INTO aegis_payload (idx, salt, key, body) VALUES (%s,%s,%s,%s)"
_INSERT_NODE: Final = "INSERT INTO aegis_node (level, position, hash) VALUES (%s,%s,%s)"
_FOLD_SESSION: Final = (
    "INSERT INTO aegis_session AS s (principal, session, agent, first, last, count) VALUES (%s,%s,%s,%s,%s,%s)"
    " ON CONFLICT (principal, session) DO UPDATE SET agent = greatest(s.agent, excluded.agent),"
    " last = excluded.last, count = s.count + excluded.count"
)
_MOVE_HEAD: Final = "UPDATE aegis_control SET size = %s, leaf = %s, frontier = %s, time = %s"
_INSERT_DOCUMENT: Final = (
    "INSERT INTO aegis_document (version, state, body, collection, key) VALUES (%s,%s,%s,%s,%s)"
    " ON CONFLICT DO NOTHING RETURNING 1"
)
_UPDATE_DOCUMENT: Final = (
    "UPDATE aegis_document SET version = %s, state = %s, body = %s WHERE collection = %s AND key = %s"
    " AND version = %s RETURNING 1"
)
_PUT_NODE: Final = (
    "INSERT INTO aegis_document AS d (version, state, body, collection, key) VALUES (%s,%s,%s,%s,%s)"
    " ON CONFLICT (collection, key) DO UPDATE SET version = excluded.version, body = excluded.body"
    " WHERE excluded.version > d.version"
)
_PUT_SEAL: Final = "UPDATE aegis_control SET seal = %s"
_DELETE_DOCUMENT: Final = "DELETE FROM aegis_document WHERE collection = %s AND key = %s"
_ERASE: Final = "DELETE FROM aegis_payload WHERE idx = %s RETURNING 1"
_BUMP: Final = "UPDATE aegis_control SET epoch = epoch + 1 RETURNING epoch"


class PostgresTransaction(PostgresReader):
    """`core.ports.Transaction` over the writer's connection."""

    def __init__(self, connection: Connection):
        super().__init__(connection)
        self._head = Head()

    def hold(self, wait_s: float) -> None:
        """Become the one writer; raises `StoreBusy` where another one stays for `wait_s` seconds."""
        milliseconds = max(1, int(wait_s * 1_000))
        self._write("SELECT set_config('lock_timeout', %s, true)", (str(milliseconds),))
        self._head = head_of(self.row(_HOLD))

    def head(self) -> Head:
        """The end of the log; nobody else can move it."""
        return self._head

    def append(self, entries: Sequence[Entry], payloads: Sequence[Payload], nodes: Sequence[Node], head: Head) -> None:
        """Add leaves at the end and move the head; its `epoch` is not written, `bump_epoch` alone moves that.

        Raises `StoreCorrupt` where the leaves do not continue the log.
        """
        before = self._head
        check_continues(before.size, entries, head)
        check_payloads(before.size, payloads, head)
        for entry in entries:
            self._write(_INSERT_LEAF, _leaf_row(entry))
        for payload in payloads:
            self._write(_INSERT_PAYLOAD, (payload.index, payload.salt, payload.key, payload.body))
        for node in nodes:
            self._write(_INSERT_NODE, (node.level, node.position, node.hash))
        for row in _sessions_of(entries):
            self._write(_FOLD_SESSION, row)
        self._write(_MOVE_HEAD, (head.size, head.leaf, head.frontier, head.time))
        self._head = replace(head, epoch=before.epoch, seal=before.seal)

    def put_document(self, document: Document) -> None:
        """Write a document whose `version` is one more than the stored one; raises `StoreConflict` otherwise."""
        values = (
            document.version,
            document.state.encode(),
            document.body,
            document.collection.encode(),
            document.key.encode(),
        )
        if document.version == 1:
            changed = self.rows(_INSERT_DOCUMENT, values)
        else:
            changed = self.rows(_UPDATE_DOCUMENT, (*values, document.version - 1))
        if not changed:
            raise StoreConflict(f"a document of `{document.collection}` was changed meanwhile")

    def put_seal(self, seal: bytes, nodes: Sequence[Document]) -> None:
        """Write the head's seal and its nodes; each of these is written where it is later than what is stored."""
        for node in nodes:
            self._write(
                _PUT_NODE, (node.version, node.state.encode(), node.body, node.collection.encode(), node.key.encode())
            )
        self._write(_PUT_SEAL, (seal,))
        self._head = replace(self._head, seal=seal)

    def delete_document(self, collection: str, key: str) -> None:
        self._write(_DELETE_DOCUMENT, (collection.encode(), key.encode()))

    def erase_payload(self, index: int) -> bool:
        """Delete payload, key and salt of a leaf."""
        return bool(self.rows(_ERASE, (index,)))

    def bump_epoch(self) -> int:
        """Move the control epoch; every process sees it once this transaction commits."""
        epoch: int = self.row(_BUMP)[0]
        self._head = replace(self._head, epoch=epoch)
        return epoch

    def _write(self, sql: str, values: Sequence[Any]) -> None:
        """Send a statement whose answer is looked at with the next one that is waited for, the commit at the latest."""
        try:
            self._connection.execute(sql.encode(), values)
        except psycopg.Error as error:
            raise wrapped(error) from error


def _leaf_row(entry: Entry) -> tuple[Any, ...]:
    key = None
    if entry.kind == "decision" and entry.call_id:
        key = call_key(entry.principal, entry.session, entry.call_id)
    words = (
        entry.kind, entry.principal, entry.agent, entry.session, entry.call_id, entry.tool, entry.decision,
        entry.reason, entry.parent,
    )  # fmt: skip
    encoded = (word.encode() for word in words)
    return (entry.index, entry.leaf_hash, entry.body, entry.receipt_id.encode(), entry.time, *encoded, key)


def _sessions_of(entries: Sequence[Entry]) -> list[tuple[bytes, bytes, bytes, int, int, int]]:
    """What the entries add to each session."""
    found: dict[tuple[bytes, bytes], tuple[bytes, int, int, int]] = {}
    for entry in entries:
        if entry.session:
            key, agent = (entry.principal.encode(), entry.session.encode()), entry.agent.encode()
            before, first, _, count = found.get(key, (b"", entry.index, 0, 0))
            found[key] = (max(before, agent), first, entry.index, count + 1)
    return [(*key, *rest) for key, rest in found.items()]
