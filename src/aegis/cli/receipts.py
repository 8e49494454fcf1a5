"""Receipts as an operator looks at them: found, and one in detail with its payload masked."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

from aegis.cli.options import LEAST_PREFIX
from aegis.cli.output import Column, brief_time, print_line, show_members
from aegis.core.text import json_text, visible
from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aegis.bootstrap import State
    from aegis.core.ports import Entry, Reader, Search

PERIOD_S: Final = 0.5  # between two looks at the log for what was recorded meanwhile
_HEX: Final = frozenset("0123456789abcdef")

COLUMNS: Final = (
    Column(title="INDEX", member="index", write=str),
    Column(title="TIME", member="time", brief=brief_time),
    Column(title="KIND", member="kind", weight=2),
    Column(title="AGENT", member="agent", weight=1),
    Column(title="TOOL", member="tool"),
    Column(title="DECISION", member="decision"),
    Column(title="REASON", member="reason"),
    Column(title="RECEIPT", member="receipt_id", weight=3, is_id=True),
)


def moment(name: str, text: str) -> int | None:
    """Microseconds since the epoch for an RFC 3339 time, `None` for no text; raises `InvalidCall` otherwise."""
    from aegis.core.times import from_rfc3339

    try:
        return from_rfc3339(text) if text else None
    except (ValueError, OverflowError) as error:
        raise InvalidCall(f"`{name}` is not an RFC 3339 time", hint="such as 2026-01-02T03:04:05Z") from error


def found(state: State, search: Search) -> list[dict[str, Any]]:
    """The receipts that match, newest first, without their signatures."""
    import orjson

    from aegis.gate.view import summary

    with state.store.reader() as reader:
        return [summary(orjson.loads(entry.body)) for entry in reader.search(search)]


def followed(state: State, count: int, *, kind: str, follow: bool) -> Iterator[dict[str, Any]]:
    """The newest `count` receipts, oldest first; with `follow` then every further one, as it is recorded."""
    import orjson

    from aegis.core.ports import Search
    from aegis.gate.view import summary

    with state.store.reader() as reader:
        size = reader.head().size
        newest = reader.search(Search(kind=kind, limit=count)) if count else []
    for entry in reversed(newest):
        yield summary(orjson.loads(entry.body))
    while follow:
        time.sleep(PERIOD_S)
        with state.store.reader() as reader:
            start, size = size, reader.head().size
            fresh = [entry for entry in reader.entries(start, size) if kind in ("", entry.kind)]
        for entry in fresh:
            yield summary(orjson.loads(entry.body))


def line_of(body: dict[str, Any], *, wide: bool = False) -> str:
    """One receipt as a line: index, time, what was decided or done, and about what; `wide` names the receipt."""
    terminal = sys.stdout.isatty()
    reason = body.get("reason", "none")
    words = [
        body["kind"],
        body.get("decision") or body.get("action") or "",
        body.get("tool", ""),
        body.get("agent", ""),
    ]
    words.append("" if reason == "none" else reason)
    if wide:
        words += [body.get("session", ""), body["receipt_id"]]
    if not terminal:
        return "\t".join(visible(word) or "-" for word in (str(body["index"]), body["time"], *words))
    time = body["time"] if wide else brief_time(body["time"])
    return visible(f"{body['index']:>7}  {time}  {'  '.join(word for word in words if word)}")


def detail(state: State, name: str, *, reveal: bool, by: str) -> dict[str, Any]:
    """One receipt and its payload; revealing it is recorded before anything is shown."""
    import orjson

    from aegis.core.json import parse
    from aegis.gate.view import payload_view

    with state.store.reader() as reader:
        entry = entry_of(reader, name)
        stored = reader.payload(entry.index)
    payload = None if stored is None else parse(state.keyring.open_payload(stored.key, stored.body))
    if reveal and payload is not None:
        _record_access(state, entry, by)
    return {
        "receipt": orjson.loads(entry.body),
        "leaf_hash": entry.leaf_hash.hex(),
        "payload": None if payload is None else payload_view(payload, reveal=reveal),
        "revealed": reveal and payload is not None,
    }


def show_detail(value: dict[str, Any]) -> None:
    """Print one receipt for a person."""
    receipt = dict(value["receipt"])
    receipt["sig"] = receipt["sig"]["kid"]
    receipt["guards"] = [_guard(one) for one in receipt.get("guards", ())] or None
    show_members({name: member for name, member in receipt.items() if member is not None}, as_json=False)
    show_members({"leaf_hash": value["leaf_hash"]}, as_json=False)
    print_line()
    print_line("payload" if value["revealed"] else "payload, masked")
    if value["payload"] is None:
        print_line("  (none, or erased)")
    else:
        for line in json_text(value["payload"], pretty=True).splitlines():
            print_line(f"  {line}")


def _guard(said: dict[str, Any]) -> str:
    rules = ", ".join(said["rules"])
    return f"{said['guard']}={said['outcome']}" + (f" ({rules})" if rules else "")


def find_entry(reader: Reader, name: str) -> Entry | None:
    """The receipt of this name: an index, an id or how one begins, or `last`, the newest; `None` where there is none.

    Raises `InvalidCall` where several ids begin so.
    """
    if name == "last":
        return reader.entry(reader.head().size - 1)
    entry = reader.entry(int(name)) if name.isascii() and name.isdigit() and len(name) < 16 else None
    entry = entry or reader.entry_by_id(name)
    if entry is not None or len(name) < LEAST_PREFIX or not set(name) <= _HEX:
        return entry
    begun = reader.entries_by_prefix(name, 3)
    if len(begun) > 1:
        raise InvalidCall(
            f"several receipts begin with `{name}`", hint=f"such as {begun[0].receipt_id} and {begun[1].receipt_id}"
        )
    return begun[0] if begun else None


def entry_of(reader: Reader, name: str) -> Entry:
    """The receipt of this name, as `find_entry` reads it; raises `InvalidCall` where there is none."""
    entry = find_entry(reader, name)
    if entry is None:
        raise InvalidCall(
            f"there is no receipt `{name}`", code="not_found", status=404, hint="`aegis log show` lists them"
        )
    return entry


def _record_access(state: State, entry: Entry, by: str) -> None:
    from aegis.core.receipt import Draft
    from aegis.gate.events import new_id
    from aegis.log.writer import Unit

    members = {
        "kind": "access",
        "receipt_id": new_id(),
        "parent": entry.receipt_id,
        "principal": by,
        "action": "reveal",
    }
    state.ledger.append(Unit(drafts=(Draft(members=members),)))
