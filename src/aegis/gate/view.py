"""Receipts and payloads as auditors see them: masked unless they were asked to be revealed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aegis.core.decision import finding_to_wire
from aegis.core.ports import Entry, Reader, Search
from aegis.core.text import mask_value
from aegis.gate.record import findings_of

# What a payload says that no caller wrote, or that the receipt beside it says too.
_PLAIN: Final = frozenset({"tool", "server", "guards", "approval", "action"})
# A digest without salt of a short argument is found by trying: it is shown with the argument or not at all.
_DIGESTS: Final = frozenset({"request_digest", "call_digest", "digest"})
_HIDDEN: Final = frozenset({"epoch"})


def summary(body: dict[str, Any]) -> dict[str, Any]:
    """Return a receipt without its signature, for lists and events."""
    return {name: value for name, value in body.items() if name != "sig"}


def payload_view(payload: dict[str, Any], *, reveal: bool) -> dict[str, Any]:
    """Return the decrypted payload of a receipt, masked unless `reveal`."""
    view: dict[str, Any] = {}
    for name, value in payload.items():
        if name in _HIDDEN or (name in _DIGESTS and not reveal):
            continue
        if name == "findings":
            view[name] = [finding_to_wire(finding, reveal=reveal) for finding in findings_of(payload)]
        elif reveal or name in _PLAIN:
            view[name] = value
        else:
            view[name] = mask_value(value)
    return view


MAX_ORIGINS: Final = 4  # that one sentence names
_COUNTED: Final = 1_000  # calls of a session that are counted; a later one is named by its receipt


def told_origins(reader: Reader, session: str, origins: Sequence[Sequence[str]]) -> str:
    """Where the value of a finding stands, as a sentence without the value; empty where no origin is known."""
    places = list(dict.fromkeys(_origin(reader, session, receipt, path) for receipt, path in origins))
    if not places:
        return ""
    more = len(places) - MAX_ORIGINS
    return "it stands only in " + ", ".join(places[:MAX_ORIGINS]) + (f" and in {more} more places" if more > 0 else "")


def _origin(reader: Reader, session: str, receipt: str, path: str) -> str:
    entry = reader.entry_by_id(receipt)
    part = f"`{path[1:].replace('~1', '/').replace('~0', '~')}` of " if path else ""
    if entry is None:
        return f"{part}what was read (receipt {receipt})"
    if entry.kind == "session":
        return f"{part}what the user pasted (receipt {entry.index})"
    call = reader.entry_by_id(entry.parent) if entry.parent else None
    where = f"receipt {entry.index}" if call is None else _numbered(reader, call)
    other = f" of session `{entry.session}`" if entry.session != session else ""
    return f"{part}what `{entry.tool}` gave ({where}{other})"


def _numbered(reader: Reader, call: Entry) -> str:
    """Which call of its session this is, counted from 1."""
    search = Search(kind="decision", session=call.session, principal=call.principal, before=call.index, limit=_COUNTED)
    before = len(reader.search(search))
    return f"call {before + 1}" if before < _COUNTED else f"receipt {call.index}"
