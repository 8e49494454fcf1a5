"""What commands print: a table on a terminal, tab-separated text in a pipe, JSON when asked; failures as one line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from aegis.core.text import json_text, visible
from aegis.errors import Problem

if TYPE_CHECKING:
    from rich.progress import Progress


# How a failure is said: one line and a hint on standard error, or one JSON object with `--json`.

# The exit codes, a closed set that scripts rely on.

DONE: Final = 0  # done, allowed or verified
REFUSED: Final = 1  # refused, blocked or not verified
USAGE: Final = 2  # the command line or the configuration is wrong; nothing was done
HELD: Final = 3  # a person has to approve first
INTERRUPTED: Final = 130  # the shell's word for Ctrl-C


def say(message: str, *, code: str, hint: str = "", as_json: bool = False) -> None:
    """Write one failure to standard error in the error shape of the HTTP API or as plain text."""
    if as_json:
        error = {"code": code, "message": message} | ({"hint": hint} if hint else {})
        sys.stderr.write(json_text({"error": error}) + "\n")
        return
    sys.stderr.write(f"aegis: {visible(message)}\n")
    if hint:
        sys.stderr.write(f"  hint: {visible(hint)}\n")


def say_problems(problems: Sequence[Problem], *, as_json: bool = False) -> None:
    """Write everything that is wrong with a configuration, each with its file and line."""
    if as_json:
        listed = [
            {"message": one.message, "file": one.file, "line": one.line, "pointer": one.pointer, "hint": one.hint}
            for one in problems
        ]
        error = {"code": "configuration", "message": problems[0].message, "problems": listed}
        sys.stderr.write(json_text({"error": error}) + "\n")
        return
    for one in problems:
        place = f"{one.file}:{one.line}: " if one.file and one.line else f"{one.file}: " if one.file else ""
        where = f" (at `{one.pointer}`)" if one.pointer else ""
        say(f"{place}{one.message}{where}", code="configuration", hint=one.hint)


# A progress bar for people: only on a terminal, and only where the work takes more than a second.

PATIENCE_S: Final = 1.0

Count = Callable[[int], None]


@contextmanager
def counted(total: int, *, title: str) -> Iterator[Count | None]:
    """Tell the given function how much is done; after a second a bar on standard error shows it."""
    if not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    bars: list[Progress] = []

    def done(count: int) -> None:
        if not bars and time.monotonic() - started > PATIENCE_S:
            from rich.console import Console
            from rich.progress import Progress

            bars.append(Progress(console=Console(stderr=True), transient=True))
            bars[0].start()
            bars[0].add_task(title, total=total)
        if bars:
            bars[0].update(bars[0].task_ids[0], completed=count)

    try:
        yield done
    finally:
        for bar in bars:
            bar.stop()


STYLES: Final = {
    "allow": "green", "sanitize": "cyan", "require_approval": "yellow", "block": "red",
    "active": "green", "revoked": "red", "pending": "yellow", "approved": "green", "denied": "red",
    "ok": "green", "warn": "yellow", "fail": "red",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column of a list: its title, the member it shows, and how that member is written.

    `brief` writes it for a person, where that is shorter. On a terminal that is too narrow columns are left out, those
    of the greatest `weight` first and those without one never, until the last one has `least` characters to fold in.
    `is_id` shortens ids as far as they stay distinct.
    """

    title: str
    member: str
    write: Callable[[Any], str] | None = None
    brief: Callable[[Any], str] | None = None
    weight: int = 0
    least: int = 16
    is_id: bool = False


def columns(*named: str | tuple[str, str]) -> tuple[Column, ...]:
    """Columns that show members as they are: by a member's name, or by that and a title of another name."""
    both = ((one, one.replace("_", " ").upper()) if isinstance(one, str) else one for one in named)
    return tuple(Column(title=title, member=member) for member, title in both)


LEAST_ID: Final = 14  # characters of an id that are shown: what commands take as its name
_GAP: Final = 2
_UNBOUNDED: Final = 4_096  # columns of a table that is not to fit


def show_list(
    items: Sequence[dict[str, Any]], columns: Sequence[Column], *, as_json: bool, empty: str, wide: bool = False
) -> None:
    """Print `items`; a terminal gets a table or the sentence `empty`, a pipe gets one line an item.

    A table fits the terminal: it leaves columns out, unless it is to be `wide`.
    """
    if as_json:
        print_json({"items": list(items)})
        return
    rows = [[_cell(item.get(column.member), column) for column in columns] for item in items]
    if not sys.stdout.isatty():
        for row in rows:
            print_line("\t".join(row))
        return
    if not rows:
        print_line(empty)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, width=_UNBOUNDED if wide else None)
    if not wide:
        columns, rows = _fitting(items, columns, console.width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        # The last column is prose and folds; names and ids before it stay in one piece.
        table.add_column(column.title, overflow="fold", no_wrap=column is not columns[-1])
    for row in rows:
        table.add_row(*[Text(cell, style=STYLES.get(cell, "")) for cell in row])
    console.print(table)


def _fitting(
    items: Sequence[dict[str, Any]], columns: Sequence[Column], width: int
) -> tuple[list[Column], list[list[str]]]:
    """Choose the columns that fit the width, and write their cells for a person."""
    cells = [[_brief(item, column) for item in items] for column in columns]
    for at, column in enumerate(columns):
        if column.is_id:
            cells[at] = shortened(cells[at])
    kept = list(range(len(columns)))
    while True:
        taken = [max(len(columns[at].title), *map(len, cells[at])) + _GAP for at in kept]
        taken[-1] = min(taken[-1], columns[kept[-1]].least + _GAP)
        droppable = [at for at in kept if columns[at].weight]
        if sum(taken) - _GAP <= width or not droppable:
            break
        kept.remove(max(droppable, key=lambda at: columns[at].weight))
    return [columns[at] for at in kept], [list(row) for row in zip(*(cells[at] for at in kept), strict=True)]


def shortened(ids: Sequence[str]) -> list[str]:
    """Cut ids to the shortest length of at least `LEAST_ID` at which they stay distinct."""
    length = LEAST_ID
    while length < 64 and len({one[:length] for one in ids}) < len(set(ids)):
        length += 2
    return [one[:length] for one in ids]


def _brief(item: dict[str, Any], column: Column) -> str:
    value = item.get(column.member)
    if column.brief is not None and value is not None:
        return visible(column.brief(value))
    return _cell(value, column)


def brief_time(value: str) -> str:
    """Write an RFC 3339 time for a glance: the hour today, else the day, in the zone of the terminal."""
    moment = datetime.fromisoformat(value).astimezone()
    if moment.date() == datetime.now(moment.tzinfo).date():
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%Y-%m-%d %H:%M")


def time_left(value: str) -> str:
    """Write how long it is until an RFC 3339 time: `4m 10s`, `2h 5m`, `over`."""
    seconds = int((datetime.fromisoformat(value) - datetime.now(UTC)).total_seconds())
    if seconds <= 0:
        return "over"
    if seconds < 3_600:
        return f"{seconds // 60}m {seconds % 60}s"
    if seconds < 86_400:
        return f"{seconds // 3_600}h {seconds % 3_600 // 60}m"
    return f"{seconds // 86_400}d {seconds % 86_400 // 3_600}h"


def show_members(item: dict[str, Any], *, as_json: bool) -> None:
    """Print one object: its members a line each, or the object itself as JSON."""
    if as_json:
        print_json(item)
        return
    terminal = sys.stdout.isatty()
    width = max((len(name) for name in item), default=0)
    for name, value in item.items():
        text = _cell(value, None)
        print_line(f"{name:<{width}}  {text}" if terminal else f"{name}\t{text}")


def print_json(value: Any) -> None:
    """Print one JSON value, indented on a terminal."""
    print_line(json_text(value, pretty=sys.stdout.isatty()))


def print_line(text: str = "") -> None:
    """Print one line to standard output."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """Tell a person something beside the result; standard output stays what a script reads."""
    sys.stderr.write(visible(text) + "\n")


def _cell(value: Any, column: Column | None) -> str:
    if column is not None and column.write is not None:
        return visible(column.write(value))
    if value is None:
        return "-"
    if isinstance(value, str):
        return visible(value) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return visible(",".join(value)) or "-"
    return json_text(value)
