"""Receipts as an operator looks at them: found, and one in detail with its payload masked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aegis.cli.output import Column, print_line, show_members
from aegis.core.text import json_text
from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.bootstrap import State
    from aegis.core.ports import Entry, Reader, Search

COLUMNS: Final = (
    Column(title="INDEX", member="index", write=str),
    Column(title="TIME", member="time"),
    Column(title="KIND", member="kind"),
    Column(title="AGENT", member="agent"),
    Column(title="TOOL", member="tool"),
    Column(title="DECISION", member="decision"),
    Column(title="REASON", member="reason"),
    Column(title="RECEIPT", member="receipt_id"),
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
    """The receipt of this index or id, as lists print them; `None` where there is none."""
    entry = reader.entry(int(name)) if name.isascii() and name.isdigit() and len(name) < 16 else None
    return entry or reader.entry_by_id(name)


def entry_of(reader: Reader, name: str) -> Entry:
    """The receipt of this index or id; raises `InvalidCall` where there is none."""
    entry = find_entry(reader, name)
    if entry is None:
        raise InvalidCall(f"there is no receipt `{name}`", code="not_found", status=404)
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
