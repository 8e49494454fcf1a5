"""What a held call does, in words: what was seen when it was tried, and what its arguments name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aegis.core.pointer import resolve
from aegis.facts.gather import gather
from aegis.facts.model import Limits, Subject
from aegis.guards.scope.touch import touch
from aegis.server.cockpit import words

MAX_NAMED: Final = 12  # resources of one kind that are named one by one; all of them are counted
_KINDS: Final = {
    "paths": ("path", "paths"),
    "hosts": ("host", "hosts"),
    "tables": ("statement", "statements"),
    "recipients": ("recipient", "recipients"),
    "commands": ("command", "commands"),
}
_CHANGES: Final = (("deleted", "deletes"), ("changed", "changes"), ("created", "creates"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """Resources of one kind that the arguments name."""

    kind: str
    values: tuple[str, ...]
    more: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of a difference; `kind` is `add`, `del`, `at` or empty."""

    kind: str
    sign: str
    text: str


def touched(tool: str, server: str | None, arguments: Mapping[str, Any], effects: Sequence[str]) -> list[Named]:
    """What the arguments name, by kind."""
    facts = gather(Subject(tool=tool, server=server, arguments=dict(arguments), limits=Limits()))
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


def sentence(approval: Mapping[str, Any], named: Sequence[Named], irreversible: bool, effects: Sequence[str]) -> str:
    """The call in one sentence, as far as it is known."""
    seen = list(_seen(approval.get("preview") or {}))
    parts = seen or [words.effects(effects) or "has no effect that its arguments show"]
    if not seen and named:
        parts.append(
            "names " + ", ".join(group.kind if group.kind[0].isdigit() else f"a {group.kind}" for group in named)
        )
    if irreversible:
        parts.append("cannot be undone")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def changed_files(preview: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The files that a preview changed, those with a difference to read first."""
    files = [
        {**file, "lines": diff_lines(file.get("diff", ""))}
        for workspace in (preview.get("effect") or {}).get("workspaces", ())
        for file in workspace.get("files", ())
    ]
    order = {"changed": 0, "created": 1, "deleted": 2}
    return sorted(files, key=lambda file: (order.get(file["change"], 3), not file["lines"]))


def diff_lines(text: str) -> list[Line]:
    """A unified difference as lines."""
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
    """What happened in the one run that was made to see."""
    effect = preview.get("effect") or {}
    for workspace in effect.get("workspaces", ()):
        counts = [(verb, workspace.get(name, 0)) for name, verb in _CHANGES if workspace.get(name, 0)]
        if counts:
            told = ", ".join(
                f"{verb} {words.count(count)} {'file' if count == 1 else 'files'}" for verb, count in counts
            )
            yield f"{told} under {workspace['workspace']}"
    for table, rows in (effect.get("touched") or {}).items():
        yield f"touches {rows} in {table}" if not isinstance(rows, Mapping) else f"touches {table}"
    if preview.get("kind") == "http" and effect:
        yield f"sends {effect.get('method')} to {effect.get('host')}"


def _value(arguments: Mapping[str, Any], pointer: str) -> str:
    try:
        value = resolve(dict(arguments), pointer)
    except (LookupError, ValueError, TypeError):
        return pointer
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
