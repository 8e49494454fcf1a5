"""Finding entries by their columns: an inverted index for the old ones, a scan for the newest.

Appending never maintains the index; searching extends it by a bounded step first. The answer is
the same however far the index has come: entries behind `indexed` are found through `term`, those
after it by looking at them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, Protocol

from aegis.core.ports import Search, SessionRow

# Rarest first: the first term given drives the search, the others only filter.
_TERMS: Final = ("parent", "call_id", "session", "tool", "agent", "principal", "reason", "decision", "kind")
_MAX_LIMIT: Final = 10_000  # bounds the rows of one page
_PROGRESS: Final = "SELECT indexed FROM progress"
_SIZE: Final = "SELECT coalesce(max(idx) + 1, 0) FROM leaf"
_COLUMNS: Final = (
    "l.idx, l.leaf_hash, l.body, l.receipt_id, l.time, l.kind, l.principal, l.agent, l.session, l.call_id, l.tool,"
    " l.decision, l.reason, l.parent"
)
_FIRST_AT: Final = "SELECT idx, time FROM leaf WHERE idx = ?"

_sha256 = hashlib.sha256


class Rows(Protocol):
    """Runs a statement."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]: ...


def term(column: str, value: str) -> int:
    """The 64-bit key of one value of one column."""
    return int.from_bytes(_sha256(f"{column}\0{value}".encode()).digest()[:8], "big", signed=True)


def search(run: Rows, search: Search) -> list[Any]:
    """Rows of the entries that match, newest first."""
    limit = min(max(search.limit, 0), _MAX_LIMIT)
    size = run.rows(_SIZE)[0][0]
    start, stop = 0, size if search.before is None else min(search.before, size)
    # Times never run backwards along the log, so a span of time is a span of indexes.
    if search.since is not None:
        start = _first_at(run, search.since, 0, size)
    if search.until is not None:
        stop = min(stop, _first_at(run, search.until + 1, 0, size))
    wanted = [(column, getattr(search, column)) for column in _TERMS if getattr(search, column)]
    indexed = run.rows(_PROGRESS)[0][0] if wanted else 0
    found = _scan(run, wanted, max(start, indexed), stop, limit)
    if len(found) < limit and start < min(stop, indexed):
        found += _look_up(run, wanted, start, min(stop, indexed), limit - len(found))
    return found


def _scan(run: Rows, wanted: list[tuple[str, str]], start: int, stop: int, limit: int) -> list[Any]:
    conditions = "".join(f" AND l.{column} = ?" for column, _ in wanted)
    sql = f"SELECT {_COLUMNS} FROM leaf l WHERE l.idx >= ? AND l.idx < ?{conditions} ORDER BY l.idx DESC LIMIT ?"  # noqa: S608
    return run.rows(sql, (start, stop, *(value for _, value in wanted), limit))


def _look_up(run: Rows, wanted: list[tuple[str, str]], start: int, stop: int, limit: int) -> list[Any]:
    # The columns are compared as well: a term is a hash, and two values may share one.
    joins = "".join(f" CROSS JOIN term t{at} ON t{at}.term = ? AND t{at}.idx = t0.idx" for at in range(1, len(wanted)))
    conditions = "".join(f" AND l.{column} = ?" for column, _ in wanted)
    sql = (
        f"SELECT {_COLUMNS} FROM term t0{joins} CROSS JOIN leaf l ON l.idx = t0.idx"  # noqa: S608
        f" WHERE t0.term = ? AND t0.idx >= ? AND t0.idx < ?{conditions} ORDER BY t0.idx DESC LIMIT ?"
    )
    terms = [term(column, value) for column, value in wanted]
    return run.rows(sql, (*terms[1:], terms[0], start, stop, *(value for _, value in wanted), limit))


def _first_at(run: Rows, time: int, low: int, high: int) -> int:
    """The first index whose time is at least `time`."""
    while low < high:
        middle = (low + high) // 2
        row = run.rows(_FIRST_AT, (middle,))
        if row and row[0][1] < time:
            low = middle + 1
        else:
            high = middle
    return low


def sessions(run: Rows, before: int | None, limit: int) -> list[SessionRow]:
    """Sessions by their last entry, newest first, from the index and what came after it."""
    limit = min(max(limit, 0), _MAX_LIMIT)
    indexed = run.rows(_PROGRESS)[0][0]
    fresh = {(row[0], row[1]): row for row in run.rows(_NEW_SESSIONS, (indexed,))}
    merged: list[SessionRow] = []
    for (principal, session), row in fresh.items():
        old = run.rows(_OLD_SESSION, (principal, session))
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
    for row in run.rows(_OLD_SESSIONS, (end, limit + len(fresh))):
        if (row[0], row[1]) not in fresh:
            merged.append(
                SessionRow(principal=row[0], session=row[1], agent=row[2], first=row[3], last=row[4], count=row[5])
            )
    merged.sort(key=lambda found: found.last, reverse=True)
    return [found for found in merged if found.last < end][:limit]


def unindexed(run: Rows) -> int:
    """How many entries the index does not hold yet."""
    size: int = run.rows(_SIZE)[0][0]
    indexed: int = run.rows(_PROGRESS)[0][0]
    return size - indexed


def extend_index(run: Rows, step: int) -> int:
    """Index the next `step` entries inside the writer's transaction; how many are left after them."""
    start: int = run.rows(_PROGRESS)[0][0]
    size: int = run.rows(_SIZE)[0][0]
    stop = min(start + step, size)
    if start >= stop:
        return 0
    columns = ", ".join(_TERMS)
    found: list[tuple[int, int]] = []
    for row in run.rows(f"SELECT idx, {columns} FROM leaf WHERE idx >= ? AND idx < ?", (start, stop)):  # noqa: S608
        found.extend((term(column, value), row[0]) for column, value in zip(_TERMS, row[1:], strict=True) if value)
    found.sort()
    for at in range(0, len(found), _TERMS_A_STATEMENT):
        part = found[at : at + _TERMS_A_STATEMENT]
        marks = ",".join(["(?,?)"] * len(part))
        run.rows(f"INSERT OR IGNORE INTO term VALUES {marks}", [number for pair in part for number in pair])  # noqa: S608
    run.rows(_FOLD_SESSIONS, (start, stop))
    run.rows("UPDATE progress SET indexed = ?", (stop,))
    return size - stop


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
