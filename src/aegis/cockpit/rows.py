"""What is recorded, as rows for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from markupsafe import Markup

from aegis.cockpit import text as words
from aegis.cockpit.text import as_text, covered, visible
from aegis.core.json import escape
from aegis.core.ports import Entry, Store

SHOWN: Final = ("decision", "result", "approval", "redemption", "revocation", "config", "alarm", "grant")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the feed, as data and as the text that browsers get."""

    index: int
    members: Mapping[str, Any]
    text: bytes


def row_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a receipt as a line of a list; it holds names that callers chose, and no values."""
    decision = str(body.get("decision", ""))
    return {
        "index": body["index"],
        "id": body["receipt_id"],
        "time": body["time"],
        "kind": body["kind"],
        "decision": decision,
        "word": words.outcome(decision) if decision else str(body["kind"]),
        "risk": body.get("risk", ""),
        "reason": body.get("reason", ""),
        "agent": body.get("agent", ""),
        "tool": body.get("tool", ""),
        "session": body.get("session", ""),
        "approval": body.get("approval_id", ""),
        "summary": words.summary(body),
    }


def shape(store: Store, entries: Sequence[Entry]) -> list[Row]:
    """Return the rows that stand for `entries`."""
    rows = []
    for entry in entries:
        if entry.kind not in SHOWN or (entry.kind == "result" and entry.decision == "allow"):
            continue
        members = row_of(orjson.loads(entry.body))
        text = b"id: %d\nevent: row\ndata: %s\n\n" % (entry.index, orjson.dumps(members))
        rows.append(Row(index=entry.index, members=members, text=text))
    return rows


# Arguments for reading: every value whole, one place a line, and what guards found marked where it stands.


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaf:
    """One value: where it stands, how it reads, and what was found in it."""

    pointer: str
    name: str
    html: Markup
    notes: tuple[str, ...] = ()
    hides: bool = False


def leaves(value: Any, findings: Sequence[Mapping[str, Any]] = (), *, hidden: Sequence[str] = ()) -> list[Leaf]:
    """Return the values of `value` in order; the texts of `hidden` are masked wherever they stand."""
    by_path: dict[str, list[Mapping[str, Any]]] = {}
    for finding in findings:
        by_path.setdefault(finding["path"], []).append(finding)
    return [_leaf(pointer, item, by_path.get(pointer, []), hidden) for pointer, item in _walk("", value)]


def _walk(pointer: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _walk(f"{pointer}/{escape(key)}", item)
    elif isinstance(value, list) and value:
        for at, item in enumerate(value):
            yield from _walk(f"{pointer}/{at}", item)
    else:
        yield pointer, value


def _leaf(pointer: str, value: Any, findings: list[Mapping[str, Any]], hidden: Sequence[str]) -> Leaf:
    whole = as_text(value)
    text = covered(whole, hidden)
    marked = [covered(finding["evidence"], hidden) for finding in findings]
    name = pointer[1:].replace("~1", "/").replace("~0", "~") or "(value)"
    return Leaf(
        pointer=pointer,
        name=name,
        html=_marked(text, marked),
        notes=tuple(dict.fromkeys(_note(finding) for finding in findings)),
        hides=text != whole,
    )


def _marked(text: str, pieces: Sequence[str]) -> Markup:
    """`text` with each of the pieces marked at its first places; overlapping pieces are one mark."""
    spans: list[tuple[int, int]] = []
    for piece in pieces:
        start = text.find(piece) if piece else -1
        while start >= 0 and len(spans) < 100:
            spans.append((start, start + len(piece)))
            start = text.find(piece, start + len(piece))
    parts: list[Markup] = []
    at = 0
    for start, stop in sorted(spans):
        if stop <= at:
            continue
        begin = max(start, at)
        parts += (visible(text[at:begin]), Markup("<mark>{}</mark>").format(visible(text[begin:stop])))
        at = stop
    parts.append(visible(text[at:]))
    return Markup("").join(parts)


def _note(finding: Mapping[str, Any]) -> str:
    message = finding["message"] or finding["category"].replace("_", " ")
    return f"{finding['rule']}: {message}"
