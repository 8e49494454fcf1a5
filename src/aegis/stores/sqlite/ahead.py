"""Leaves that are acknowledged before SQLite commits them.

A commit of SQLite copies every page that a leaf changes and sums it up. Where one process has the store
to itself, a group of leaves and of documents put with them is written to the redo file instead, and the
transaction of SQLite stays open for the next ones. It is committed after `MOST` groups, `LAG_S` after
the first of them, before anybody reads, and before anything else is written. Where it is lost, by
a fault or a crash, the next transaction begins with what the redo file holds.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

from aegis.core.ports import Head
from aegis.errors import StoreUnavailable
from aegis.stores.sqlite.redo import Frame, RedoFile
from aegis.stores.sqlite.schema import SCHEMA_VERSION
from aegis.stores.sqlite.writer import Held, SqliteTransaction

MOST: Final = 64  # groups in one commit of SQLite: bounds what has to be put back after a crash
LAG_S: Final = 0.05  # how long a group may stand in the redo file alone

_log = logging.getLogger("aegis.store")


class Ahead:
    """What stands between the redo file and SQLite for one store; the store's lock is held around it.

    `head` is the end of the log while a transaction stays open with acknowledged groups in it. `owes` says
    that such a transaction was lost: the redo file has what SQLite lacks. `held` are the documents among what
    was acknowledged, the newest of each: they are written when it is committed. `settle` commits what waits,
    and says whether there will be more.
    """

    def __init__(self, path: Path, *, flushes: bool, settle: Callable[[], bool]):
        self.redo = RedoFile(path, flushes=flushes)
        self.head: Head | None = None
        self.owes = False
        self.held: Held = {}
        self.written = 0
        self._groups = 0
        self._settle = weakref.WeakMethod(settle)
        self._due = threading.Event()
        self._ended = threading.Event()  # whether no thread follows
        self._ended.set()

    @property
    def waits(self) -> bool:
        """Whether SQLite has not committed everything that was acknowledged."""
        return self.head is not None or self.owes

    def take(self, transaction: SqliteTransaction) -> bool:
        """Whether the redo file acknowledges the leaves of `transaction`; otherwise SQLite has to commit them."""
        before, after = transaction.before, transaction.head()
        if before is None or not transaction.only_appended or self._groups >= MOST - 1 or not self._is_followed():
            return False
        frame = Frame(
            size=before.size,
            leaf=before.leaf,
            end=after.size,
            last=after.leaf,
            leaves=transaction.leaves,
            nodes=transaction.nodes,
            documents=list(transaction.puts.values()),
            seal=after.seal,
        )
        try:
            if not self.redo.write(frame):
                return False
        except OSError as error:
            _log.warning("the redo file of the store fails, and is used no more", extra={"error": error.strerror})
            return False
        self._groups += 1
        self.written += transaction.written
        self.held.update(transaction.puts)
        if self.head is None:
            self._due.set()
        self.head = after
        return True

    def committed(self) -> None:
        """SQLite holds everything."""
        self.head, self.owes, self.written, self._groups = None, False, 0, 0
        self.held = {}
        self.redo.restart()

    def lost(self) -> None:
        """The open transaction is gone, and with it what only the redo file has now."""
        self.owes = self.owes or self.head is not None
        self.head, self.written, self._groups, self.held = None, 0, 0, {}
        if not self.owes:
            self.redo.restart()

    def put_back(self, transaction: SqliteTransaction) -> None:
        """Write into `transaction` what the redo file holds beyond the end of the log."""
        head = transaction.head()
        for frame in self.redo.frames():
            if frame.end <= head.size:
                continue
            if (frame.size, frame.leaf) != (head.size, head.leaf):
                # An older file was put in place, or a power cut took what `durability: os` never flushed.
                _log.warning("the redo file does not continue the log, and is left out", extra={"size": head.size})
                return
            if frame.schema != SCHEMA_VERSION:
                raise StoreUnavailable("another version of Aegis left the store in use: open it once with that one")
            head = transaction.put_back(frame.leaves, frame.nodes, frame.documents, frame.seal)

    def is_left_over(self) -> bool:
        """Whether the redo file holds frames, of whatever age; asked before anything else was done here."""
        return next(self.redo.frames(), None) is not None

    def close(self) -> None:
        """Let the redo file go; what it owes stays in it for whoever opens the store next."""
        self.redo.close()
        self._due.set()

    def _is_followed(self) -> bool:
        """Whether a thread will commit what waits, should nobody else."""
        if self._ended.is_set():
            self._ended.clear()
            follower = threading.Thread(
                target=_follow, args=(self._due, self._ended, self._settle), name="aegis-settle", daemon=True
            )
            try:
                follower.start()
            except RuntimeError:  # the interpreter is ending
                self._ended.set()
                return False
        return True


def _follow(due: threading.Event, ended: threading.Event, settle: weakref.WeakMethod[Callable[[], bool]]) -> None:
    """Commit what waits, `LAG_S` after it is `due`, for as long as the store is there."""
    try:
        while due.wait():
            due.clear()
            time.sleep(LAG_S)
            call = settle()
            if call is None or not call():
                return
            del call
    finally:
        ended.set()
