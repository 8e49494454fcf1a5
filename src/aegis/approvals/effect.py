"""What a held call does, in words: what was seen when it was tried, and what its arguments name."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from aegis.cockpit import text as words
from aegis.core.json import resolve
from aegis.core.text import visible
from aegis.detect.facts import FactSubject, ReadLimits
from aegis.detect.gather import gather
from aegis.detect.touch.touch import touch

MAX_NAMED: Final = 12  # resources of one kind that are named one by one; all of them are counted
_KINDS: Final = {
    "paths": ("path", "paths"),
    "hosts": ("host", "hosts"),
    "tables": ("statement", "statements"),
    "recipients": ("recipient", "recipients"),
    "commands": ("command", "commands"),
}
_CHANGES: Final = (("deleted", "deletes"), ("changed", "changes"), ("created", "creates"))
_THINGS: Final = {"file": "file", "folder": "folder", "link": "link"}
MAX_FILES: Final = 12  # changed paths that are shown one by one before the rest is folded


class Named(Struct, frozen=True, kw_only=True):
    """Resources of one kind that the arguments name."""

    kind: str
    values: tuple[str, ...]
    more: int


class Line(Struct, frozen=True, kw_only=True):
    """One line of a difference; `kind` is `add`, `del`, `at` or empty."""

    kind: str
    sign: str
    text: str


def touched(tool: str, server: str | None, arguments: Mapping[str, Any], effects: Sequence[str]) -> list[Named]:
    """Return what the arguments name, by kind."""
    facts = gather(FactSubject(tool=tool, server=server, arguments=dict(arguments), limits=ReadLimits()))
    found = touch(arguments, facts.texts.strings, sends="external_send" in effects)
    named = []
    for kind, rows in found.resources.items():
        values = list(dict.fromkeys(_value(arguments, pointer) for pointer, _ in rows))
        one, many = _KINDS[kind]
        named.append(
            Named(
                kind=one if len(values) == 1 else f"{len(values)} {many}",
                values=tuple(values[:MAX_NAMED]),
                more=max(0, len(values) - MAX_NAMED),
            )
        )
    return named


def done_to(tool: str, server: str | None, arguments: Mapping[str, Any]) -> list[str]:
    """Return what the call does to which resources, a phrase each; nothing for plain files."""
    facts = gather(FactSubject(tool=tool, server=server, arguments=dict(arguments), limits=ReadLimits()))
    told = [effect for effect in facts.resource_effects if effect.resource != "file"]
    return list(dict.fromkeys(visible(effect.sentence) for effect in told))[:MAX_NAMED]


def sentence(
    approval: Mapping[str, Any],
    named: Sequence[Named],
    irreversible: bool,
    effects: Sequence[str],
    deeds: Sequence[str] = (),
) -> str:
    """Return the call in one sentence, as far as it is known; `deeds` are what it does to which resources."""
    seen = list(_seen(approval.get("preview") or {}))
    parts = seen or list(deeds) or [words.effects(effects) or "has no effect that its arguments show"]
    if not seen and named:
        parts.append(
            "names " + ", ".join(group.kind if group.kind[0].isdigit() else f"a {group.kind}" for group in named)
        )
    if irreversible:
        parts.append("cannot be undone")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def changed_files(preview: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the files that a preview changed, those with a difference to read first."""
    files = [
        {**file, "lines": diff_lines(file.get("diff", ""))}
        for workspace in (preview.get("effect") or {}).get("workspaces", ())
        for file in workspace.get("files", ())
    ]
    order = {"changed": 0, "created": 1, "deleted": 2}
    return sorted(files, key=lambda file: (order.get(file["change"], 3), not file["lines"]))


def reach(preview: Mapping[str, Any]) -> int:
    """Return how many files and rows a preview touched."""
    effect = preview.get("effect") or {}
    files = sum(workspace.get(change, 0) for workspace in effect.get("workspaces", ()) for change, _ in _CHANGES)
    rows = sum(sum(rows.values()) for rows in (effect.get("touched") or {}).values())
    return int(files + rows)


def diff_lines(text: str) -> list[Line]:
    """Return a unified difference as lines."""
    lines = []
    for line in text.splitlines():
        kind = {"+": "add", "-": "del", "@": "at"}.get(line[:1], "")
        if line.startswith(("+++", "---")):
            kind = "at"
        if kind in ("add", "del"):
            lines.append(Line(kind=kind, sign=line[0], text=line[1:]))
        else:
            lines.append(Line(kind=kind, sign="", text=line))
    return lines


def _seen(preview: Mapping[str, Any]) -> Iterator[str]:
    """Return what happened in the one run that was made to see."""
    effect = preview.get("effect") or {}
    for workspace in effect.get("workspaces", ()):
        yield from _files(workspace)
    for table, rows in (effect.get("touched") or {}).items():
        yield words.rows(table, rows)
    if preview.get("kind") == "sql" and effect and not effect.get("touched"):
        more = " or more" if effect.get("rows_cut") else ""
        yield f"gives {words.many(effect.get('rows', 0), 'row')}{more}, changes none"
    if preview.get("kind") == "http" and effect:
        yield f"sends {effect.get('method')} to {effect.get('host')}"


def _files(workspace: Mapping[str, Any]) -> Iterator[str]:
    """Return what a run changed below one folder: how many of what, and the deepest folder that holds them all."""
    for change, verb in _CHANGES:
        found = [file for file in workspace.get("files", ()) if file["change"] == change]
        count = workspace.get(change, 0)
        if not count:
            continue
        place = workspace["workspace"]
        if len(found) < count:  # not all are listed: what is not known of them is not said
            yield f"{verb} {words.many(count, 'path')} under {place}"
            continue
        whole = posixpath.commonpath([posixpath.join(place, file["path"]) for file in found])
        if count == 1:
            yield f"{verb} {whole}"
            continue
        kinds = [_THINGS.get(file["kind"], "path") for file in found]
        told = " and ".join(words.many(kinds.count(kind), kind) for kind in dict.fromkeys(sorted(kinds)))
        yield f"{verb} {told} under {whole}"


def _value(arguments: Mapping[str, Any], pointer: str) -> str:
    try:
        value = resolve(dict(arguments), pointer)
    except (LookupError, ValueError, TypeError):
        return pointer
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
