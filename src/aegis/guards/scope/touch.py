"""What a call touches: the resources that its arguments name, by kind, each in every reading.

A text is read as the kind that the operator declared for it; else as the kinds that its argument's
name or its own form speak for. A text of several kinds must be in scope as each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from aegis.core.mission import Kind
from aegis.core.pointer import tokens
from aegis.core.text import TextRole
from aegis.facts.assembled import named_commands
from aegis.facts.model import Text
from aegis.facts.unresolved import is_placeholder
from aegis.guards.scope import commands, hosts, paths, recipients

Segments = tuple[str, ...]
Named = dict[str, list[str]]

_NAMES: Final[Mapping[str, Kind]] = {
    **dict.fromkeys((
        "path", "file", "filename", "filepath", "filenames", "files", "paths", "dir", "directory", "folder", "source",
        "destination", "src", "dst", "dest", "target", "cwd", "root", "workdir", "output", "input", "attachment",
        "attachments",
    ), "paths"),
    **dict.fromkeys(("url", "uri", "urls", "host", "hostname", "domain", "endpoint", "website", "server"), "hosts"),
    **dict.fromkeys(("sql", "statement", "query"), "tables"),
    **dict.fromkeys((
        "to", "cc", "bcc", "recipient", "recipients", "email", "emails", "address", "channel", "participants",
        "attendees", "invitees", "phone", "reply", "user", "users",
    ), "recipients"),
    **dict.fromkeys(("command", "cmd", "commands", "script", "shell", "argv"), "commands"),
}  # fmt: skip
_ROLES: Final[Mapping[TextRole, Kind]] = {"path": "paths", "url": "hosts", "sql": "tables", "command": "commands"}
_DECLARED: Final = 100
_WORDY: Final = (
    "query",
    "source",
    "target",
    "input",
    "output",
    "server",
    "user",
    "users",
    "reply",
    "script",
    "address",
)
_SQL_STARTS: Final = (
    "select", "insert", "update", "delete", "with", "create", "drop", "alter", "truncate", "merge", "explain", "show",
    "grant", "copy", "call", "exec", "replace", "(select", "values", "table", "/*", "--",
)  # fmt: skip


class Touched(Struct, frozen=True, kw_only=True):
    """Resources by kind and pointer; `unreadable` are pointers whose resources could not be told."""

    resources: Mapping[Kind, tuple[tuple[str, frozenset[Segments]], ...]]
    unreadable: tuple[str, ...] = ()

    def count(self) -> int:
        """How many different resources there are."""
        return len({name for found in self.resources.values() for _, names in found for name in names})


def touch(arguments: Mapping[str, Any], texts: Iterable[Text], *, sends: bool, base: str = "") -> Touched:
    """Everything that a call names. `sends` says that the tool sends; `base` is where relative paths start."""
    found: dict[Kind, list[tuple[str, frozenset[Segments]]]] = {}
    unreadable: list[str] = []
    made = named_commands(arguments)
    for whole in made.wholes:
        names = frozenset({whole.words}) if whole.words else _read("commands", whole.value, base)[0]
        if names is None:
            unreadable.append(whole.path)
        else:
            found.setdefault("commands", []).append((whole.path, names))
    for text in texts:
        if text.is_key or text.path in made.words or text.path.rpartition("/")[0] in made.words:
            continue
        kinds = _kinds(text, sends)
        # What a placeholder will name is not known: it is neither inside nor outside.
        if kinds and is_placeholder(text.path, text.value):
            unreadable.append(text.path)
            continue
        for kind in kinds:
            read, files = _read(kind, text.value, base)
            if read is None:
                unreadable.append(text.path)
                continue
            found.setdefault(kind, []).append((text.path, read))
            for file in files:
                below = paths.readings(file, base)
                if below is None:
                    unreadable.append(text.path)
                else:
                    found.setdefault("paths", []).append((text.path, below))
    return Touched(resources={kind: tuple(rows) for kind, rows in found.items()}, unreadable=tuple(unreadable))


def _read(kind: Kind, value: str, base: str) -> tuple[frozenset[Segments] | None, frozenset[str]]:
    if kind == "paths":
        return paths.readings(value, base), frozenset()
    if kind == "hosts":
        return hosts.readings(value), frozenset()
    if kind == "tables":
        from aegis.guards.scope import tables

        return tables.readings(value), frozenset()
    if kind == "recipients":
        return recipients.readings(value), frozenset()
    read = commands.readings(value)
    return (None, frozenset()) if read is None else (read.words, read.files)


def _kinds(text: Text, sends: bool) -> list[Kind]:
    value = text.value
    if not value.strip():
        return []
    # (1) What the operator declared is what it is.
    declared = _ROLES.get(text.role) if text.confidence >= _DECLARED else None
    if declared is not None:
        return [declared]
    kinds: list[Kind] = []
    # (2) The argument's name; words that can mean anything need the form as well.
    name, by_name = _named(text.path)
    if by_name is not None and (name not in _WORDY or _has_form(by_name, value)):
        kinds.append(by_name)
    elif text.role in _ROLES and text.role != "path":
        kinds.append(_ROLES[text.role])
    # (3) The form alone: what is spelled like a URL, a path or an address is used as one.
    if text.role != "content":
        for kind in ("hosts", "paths", "recipients"):
            if kind not in kinds and (kind != "recipients" or sends) and _has_form(kind, value):
                kinds.append(kind)
    if "hosts" in kinds and "paths" in kinds:  # a URL has a path of its own, which is the host's
        kinds.remove("paths" if _is_url(value) else "hosts")
    return kinds


def _has_form(kind: str, value: str) -> bool:
    if kind == "hosts":
        return _is_url(value)
    if kind == "tables":
        return value.lstrip().lower().startswith(_SQL_STARTS)
    if kind == "recipients":
        return recipients.looks_like_address(value)
    if kind == "commands":
        return True
    if len(value) > paths.MAX_CHARS or "\n" in value:
        return False
    drive = value[1:2] == ":" and value[:1].isalpha() and value[2:3] in ("\\", "/")
    return drive or value.lower().startswith(
        ("/", "~/", "./", "../", "..\\", "\\\\", "file:", "／", "．．", "%2f", "%2e")
    )


def _is_url(value: str) -> bool:
    if ":" not in value:
        return False
    scheme, separator, _ = value.lstrip().partition("://")
    if separator and scheme.lower() != "file" and scheme.replace("+", "").replace("-", "").isalnum():
        return len(scheme) <= 16
    return value.lower().startswith(("http:", "https:", "ws:", "wss:"))


@lru_cache(maxsize=4_096)
def _named(pointer: str) -> tuple[str, Kind | None]:
    """The nearest name in a pointer, in lower case, and the kind that it speaks for: indexes are no names."""
    for token in reversed(tokens(pointer)):
        if token and not token.isdigit():
            name = token.lower().replace("-", "_")
            return name, _NAMES.get(name) or _by_ending(name)
    return "", None


def _by_ending(name: str) -> Kind | None:
    """`source_path`, `base_url`, `file_name`: the last word, or the last but one."""
    words = name.split("_")
    if len(words) < 2:
        return None
    last = _NAMES.get(words[-1])
    if last is not None and words[-1] not in _WORDY:
        return last
    return _NAMES.get(words[0]) if words[-1] in ("name", "list") and words[0] not in _WORDY else None
