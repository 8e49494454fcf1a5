"""What a call touches: the resources that its arguments name, by kind, each in every reading.

A text is read as the kind that the operator declared for it; else as the kinds that its argument's
name or its own form speak for. A text of several kinds must be in scope as each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import tree_sitter_bash
from msgspec import Struct
from tree_sitter import Language, Parser

from aegis.core.json import tokens
from aegis.core.mission import KINDS, Kind, Scope
from aegis.core.names import Pattern, matches
from aegis.core.text import TextRole
from aegis.detect.assembled import named_commands
from aegis.detect.facts import Text
from aegis.detect.shell.unquote import is_placeholder
from aegis.detect.touch import hosts, paths, recipients

# Commands by their words after parsing; what a shell would still have to work out is not readable.

MAX_CHARS: Final = 16_384  # the parser takes 196 ms for a mebibyte
MAX_NODES: Final = 5_000
_LANGUAGE: Final = Language(tree_sitter_bash.language())
_LITERAL: Final = frozenset({"word", "raw_string", "number", "string", "concatenation"})
# Everything else (assignments, functions, loops, expansions of arrays) makes the text unreadable here.
_KNOWN: Final = _LITERAL | {
    "program", "list", "pipeline", "command", "command_name", "string_content", "redirected_statement",
    "file_redirect", "file_descriptor", "comment", "command_substitution", "simple_expansion", "variable_name",
    "special_variable_name", "subshell",
}  # fmt: skip
_SPECIAL: Final = frozenset("*?[]{}~\\$`")


class Commands(NamedTuple):
    """The words of every command of a text, and the files that it redirects to or from."""

    words: frozenset[tuple[str, ...]]
    files: frozenset[str]


def command_readings(text: str) -> Commands | None:
    """Every command of a shell text; `None` where its programs cannot be told without running it."""
    if not text.strip() or len(text) > MAX_CHARS or "\0" in text:
        return None
    root = Parser(_LANGUAGE).parse(text.encode("utf-8", "replace")).root_node
    if root.has_error:
        return None
    words: set[tuple[str, ...]] = set()
    files: set[str] = set()
    stack: list[Any] = [root]
    for _ in range(MAX_NODES):
        if not stack:
            break
        node = stack.pop()
        if node.type not in _KNOWN:
            return None
        if node.type == "command":
            command = _command(node)
            if command is None:
                return None
            words.add(command)
        elif node.type == "file_redirect":
            target = _literal(node.named_children[-1]) if node.named_children else None
            if target is None:
                return None
            if target != "/dev/null" and not target.isdigit():
                files.add(target)
        stack.extend(node.named_children)
    return None if stack or not words else Commands(frozenset(words), frozenset(files))


def pattern_words(text: str) -> tuple[str, ...]:
    """A command in a scope: program, sub-command and further words; what follows them is free."""
    return (*text.split(), "**")


def _command(node: Any) -> tuple[str, ...] | None:
    """Program and arguments; an argument that is worked out later stands as `$`, the first two words may not."""
    words: list[str] = []
    for child in node.named_children:
        if child.type in ("file_redirect", "comment"):
            continue
        value = _literal(child.named_children[0] if child.type == "command_name" and child.named_children else child)
        if value is None and len(words) < 2:
            return None
        words.append("$" if value is None else value)
    return tuple(words) or None


def _literal(node: Any) -> str | None:
    """What a word means where no expansion can change it."""
    raw = (node.text or b"").decode("utf-8", "replace")
    if node.type == "raw_string":
        return raw[1:-1]
    if node.type == "string":
        inner = raw[1:-1]
        return None if any(char in inner for char in '$`\\"') else inner
    if node.type in ("word", "number"):
        return None if any(char in _SPECIAL for char in raw) else raw
    if node.type == "concatenation":
        parts = [_literal(child) for child in node.named_children]
        return None if any(part is None for part in parts) else "".join(part or "" for part in parts)
    return None


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
    "query", "source", "target", "input", "output", "server", "user", "users", "reply", "script", "address",
)  # fmt: skip
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
        from aegis.detect.sql import table_readings  # its parser takes a tenth of a second to load

        return table_readings(value), frozenset()
    if kind == "recipients":
        return recipients.readings(value), frozenset()
    read = command_readings(value)
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


# A scope, compiled: whether everything that a call touches is in it.

# Where a path really leads on this file system, as segments; `None` where that cannot be told.
Resolve = Callable[[Segments], Segments | None]


class CompiledScope(Struct, frozen=True, kw_only=True):
    """Allowed and forbidden patterns by kind; what is forbidden wins."""

    allowed: Mapping[Kind, tuple[Pattern, ...]]
    forbidden: Mapping[Kind, tuple[Pattern, ...]]


def compile_entry(kind: Kind, entry: str, base: str = "") -> Pattern:
    """The pattern of one `exact:` or `glob:` entry; raises `ValueError` where it names no resource of the kind."""
    form, _, text = entry.partition(":")
    literal = form == "exact"
    segments = _segments(kind, text.strip(), base)
    if segments is None or not segments or not text.strip():
        raise ValueError(f"`{entry}` names none of `{kind}`")
    if literal and kind == "commands":
        if "*" in text:
            raise ValueError(f"`{entry}` holds `*`: words of commands are compared as they stand")
        literal = False
    if not literal and kind == "paths" and ".." in segments:
        raise ValueError(f"`{entry}` leaves its start")
    return Pattern(segments, literal)


def compile_scope(scope: Scope, forbidden: Scope) -> CompiledScope:
    """Both scopes of a declaration; raises `ValueError` as `compile_entry` does."""
    return CompiledScope(
        allowed={kind: tuple(compile_entry(kind, one, scope.base) for one in scope.of(kind)) for kind in KINDS},
        forbidden={kind: tuple(compile_entry(kind, one, scope.base) for one in forbidden.of(kind)) for kind in KINDS},
    )


def outside(scope: CompiledScope, touched: Touched, resolve: Resolve | None = None) -> Iterator[tuple[str, Kind, str]]:
    """Every resource that the scope does not allow, as (pointer, kind, rule)."""
    for kind, rows in touched.resources.items():
        allowed, forbidden = scope.allowed[kind], scope.forbidden[kind]
        for pointer, names in rows:
            for name in names:
                rule = _judge(kind, name, allowed, forbidden)
                if rule is None and kind == "paths" and resolve is not None:
                    real = resolve(name)
                    if real is not None and real != name:
                        rule = _judge(kind, real, (*allowed, *_resolved(allowed, resolve)), forbidden)
                        rule = rule and f"{rule}-by-link"
                if rule is not None:
                    yield pointer, kind, rule
                    break


def _judge(kind: Kind, name: Segments, allowed: tuple[Pattern, ...], forbidden: tuple[Pattern, ...]) -> str | None:
    if forbidden:
        # Names of files differ in case alone on some systems: what is forbidden is forbidden in any case.
        folded = tuple(part.casefold() for part in name) if kind == "paths" else name
        for pattern in forbidden:
            if matches(pattern, name) or (kind == "paths" and matches(_folded(pattern), folded)):
                return f"scope-forbidden-{kind}"
    for pattern in allowed:
        if matches(pattern, name):
            return None
    return f"scope-{kind}"


def _folded(pattern: Pattern) -> Pattern:
    return Pattern(tuple(part.casefold() for part in pattern.segments), pattern.literal)


def _resolved(patterns: tuple[Pattern, ...], resolve: Resolve) -> Iterator[Pattern]:
    """The patterns with what stands before their first `*` followed through links: a scope may be one."""
    for pattern in patterns:
        fixed = pattern.segments
        if not pattern.literal:
            at = next((at for at, part in enumerate(fixed) if "*" in part), len(fixed))
            fixed = fixed[:at]
        real = resolve(fixed)
        if real is not None and real != fixed:
            yield Pattern((*real, *pattern.segments[len(fixed) :]), pattern.literal)


def _segments(kind: Kind, text: str, base: str) -> Segments | None:
    if kind == "paths":
        return paths.pattern_segments(text, base)
    if kind == "hosts":
        return hosts.pattern_labels(text)
    if kind == "tables":
        return tuple(text.lower().split("."))  # `name`, `schema.name` or `catalogue.schema.name`
    if kind == "recipients":
        return recipients.pattern_parts(text)
    return pattern_words(text)
