"""Finding entries by their columns, and sessions by their last entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from aegis.core.ports import Search, SessionRow

_COLUMNS: Final = ("parent", "call_id", "session", "tool", "agent", "principal", "reason", "decision", "kind")
_MAX_LIMIT: Final = 10_000  # bounds the rows of one page
_FOREVER: Final = 2**63 - 1
# Times never run backwards along the log, so a span of time is a span of indexes.
_FIRST_AT: Final = "SELECT idx FROM aegis_leaf WHERE time >= %s ORDER BY time, idx LIMIT 1"
_SESSIONS: Final = (
    "SELECT session, principal, agent, first, last, count FROM aegis_session"
    " WHERE last < %s ORDER BY last DESC LIMIT %s"
)


class Rows(Protocol):
    """Runs a statement."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]: ...


def search(run: Rows, columns: str, search: Search) -> list[Any]:
    """Rows of `columns` of the entries that match, newest first."""
    start, stop = 0, _FOREVER if search.before is None else search.before
    if search.since is not None:
        start = _first_at(run, search.since)
    if search.until is not None:
        stop = min(stop, _first_at(run, search.until + 1))
    wanted = [(column, getattr(search, column)) for column in _COLUMNS if getattr(search, column)]
    conditions = "".join(f" AND {column} = %s" for column, _ in wanted)
    sql = f"SELECT {columns} FROM aegis_leaf WHERE idx >= %s AND idx < %s{conditions} ORDER BY idx DESC LIMIT %s"  # noqa: S608
    limit = min(max(search.limit, 0), _MAX_LIMIT)
    return run.rows(sql, (start, stop, *(value.encode() for _, value in wanted), limit))


def _first_at(run: Rows, time: int) -> int:
    """The first index whose time is at least `time`."""
    found = run.rows(_FIRST_AT, (time,))
    return found[0][0] if found else _FOREVER


def sessions(run: Rows, before: int | None, limit: int) -> list[SessionRow]:
    """Sessions by their last entry, newest first."""
    end = _FOREVER if before is None else before
    return [
        SessionRow(
            session=row[0].decode(), principal=row[1].decode(), agent=row[2].decode(),
            first=row[3], last=row[4], count=row[5],
        )
        for row in run.rows(_SESSIONS, (end, min(max(limit, 0), _MAX_LIMIT)))
    ]  # fmt: skip
