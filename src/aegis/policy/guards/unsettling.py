"""What unsettles the guard without naming a file of it: its process ended, its settings changed, its hooks taken off.

Pure functions over the commands and texts of a call; `protected` decides by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import re2

from aegis.core.json import tokens
from aegis.core.patterns import Lazy
from aegis.detect.facts import RanCommand
from aegis.detect.roles import words_of
from aegis.detect.takes import Taken

# The gateway as a process, a service or a container is called after it; `aegis-web` is somebody's own.
_OURS: Final = Lazy(
    r"(?i)(?:^|[^a-z0-9_-])aegis(?:d|[-_](?:gateway|guard|serve|server|service|proxy|mcp|hook)s?)?(?:$|[^a-z0-9_-]|[-_]?\d)"
)
_KILLERS: Final = frozenset({"kill", "skill", "tskill", "fkill", "stop-process"})
_BY_NAME: Final = frozenset({"pkill", "killall", "killall5", "taskkill", "stop-service", "skill", "fkill"})
_MANAGERS: Final = frozenset({
    "systemctl", "service", "rc-service", "initctl", "launchctl", "supervisorctl", "pm2", "docker", "docker-compose",
    "podman", "nerdctl", "kubectl", "helm", "sc", "sc.exe", "net", "net.exe", "sv", "nomad", "monit", "stop-service",
    "tmux", "screen",
})  # fmt: skip
_ENDING: Final = frozenset({
    "stop", "kill", "rm", "remove", "down", "disable", "mask", "restart", "try-restart", "pause", "delete", "scale",
    "unload", "bootout", "uninstall", "kill-session", "quit", "term", "exit", "suspend", "rollout", "freeze",
})  # fmt: skip
_FINDERS: Final = frozenset(
    {"pgrep", "pidof", "ps", "grep", "egrep", "rg", "lsof", "ss", "netstat", "fuser", "awk", "cat", "jps"}
)
_INSTALLERS: Final = frozenset({"pip", "pip3", "uv", "pipx", "poetry", "apt", "apt-get", "dnf", "yum", "brew", "conda"})
_UNINSTALLS: Final = frozenset({"uninstall", "remove", "purge", "autoremove", "erase"})
_WATCHED: Final = _KILLERS | _BY_NAME | _MANAGERS | _FINDERS | _INSTALLERS
_PROGRAMS: Final = ("aegis", "aegis serve")  # what a pattern of processes is compared with
_LEAST_PATTERN: Final = 3
_LONGEST_PATTERN: Final = 256
_NAME: Final = Lazy(r"^AEGIS_[A-Z0-9_]+$")
# A variable that is set: `AEGIS_URL=...`, `environ["AEGIS_URL"] = ...`, `{"AEGIS_URL": ...}`; no comparison with it.
_SETS: Final = Lazy(r"""(?:^|[^\w${])AEGIS_[A-Z0-9_]+(?:['"\])}%]*\s*[+:|]?=(?:[^=~]|$)|['"]\s*(?::|=>))""")
_UNSETS: Final = Lazy(
    r"""(?:\bunset\w*|\bunexport|putenv|setenv|delenv|setdefault|\bpop|\bdel|\bdelete|\bsetx|--unset[=\s]|\s-u|emove-Item|lear-Item|"""
    r"""__(?:set|del)item__|EnvironmentVariable)\b?[^\n;|&]{0,40}AEGIS_[A-Z]"""
)
_UNHOOKS: Final = Lazy(r"""\bunhook\s*\(|\.\s*unhook\b|['"]unhook['"]|\bimport\b[^\n;]{0,80}\bunhook\b""")
_TREES: Final = Lazy(
    r"\b(rmtree|copytree|make_archive|move|rename|symlink|walk|rglob|rmSync|cpSync|renameSync|symlinkSync|removedirs|fwalk)"
    r"\s*\(([^\n]{0,400})"
)
_READS: Final = frozenset({"copytree", "make_archive", "walk", "rglob", "cpSync", "fwalk"})
_LITERAL: Final = Lazy(r"""^[^'",)]{0,80}['"]([^'"\n]{1,400})['"]""")
_LITERALS: Final = Lazy(r"""['"]([^'"\n]{0,400})['"]""")
# What stands behind a literal that other literals are added to: after it, or between them.
_ADDED: Final = Lazy(r"""^(?:\s*\+\s*['"][^'"\n]{0,400}['"])+\s*(?:[,)]|$)""")
_BETWEEN: Final = Lazy(
    r"""^\.join\(\s*[\[(]((?:\s*['"][^'"\n]{0,400}['"]\s*,?)+)\s*[\])]|"""
    r"""^\s*\+\s*\[((?:\s*['"][^'"\n]{0,400}['"]\s*,?)+)\s*\]\.join\(\s*['"]/['"]\s*\)"""
)
_HOME: Final = Lazy(r"^\s*(?:pathlib\.)?Path\.home\(\)\s*[,)]|^\s*os\.homedir\(\)\s*[,)]")
_MOST_CALLS: Final = 64
_TREE_TOOLS: Final[dict[str, bool]] = {
    **dict.fromkeys(("delete", "remove", "move", "rename", "chmod", "chown", "trash", "rmtree", "symlink"), True),
    **dict.fromkeys(
        ("copy", "archive", "zip", "compress", "tar", "grep", "ripgrep", "sync", "upload", "backup", "mirror"), False
    ),
}
_TARGETS: Final = frozenset({"destination", "dest", "dst", "target", "to", "into", "output", "out", "new"})


class Ends:
    """Which commands end the gateway: by its name, by what finds it, or by the id of its process."""

    def __init__(self, process: int | None = None):
        self._process = "" if process is None else str(process)

    def ended(self, ran: Sequence[RanCommand]) -> str | None:
        """The place of the command that ends the gateway; `None` where none does."""
        killer: RanCommand | None = None
        found = False
        for one in ran:
            name = one.name.lower()
            if name not in _WATCHED:
                continue
            if (
                name in _MANAGERS
                and not _ENDING.isdisjoint(map(str.lower, one.args))
                and any(map(_OURS.search, one.args))
            ):
                return one.path
            if name in _BY_NAME and any(map(_is_pattern_of_us, one.args)):
                return one.path
            if name in _INSTALLERS and not _UNINSTALLS.isdisjoint(one.args) and any(map(_OURS.search, one.args)):
                return one.path
            if name in _KILLERS:
                killer = one
                found = found or any(map(_OURS.search, one.args)) or (self._process != "" and self._process in one.args)
            elif name in _FINDERS:
                found = found or any(map(_is_pattern_of_us if name == "pgrep" else _OURS.search, one.args))
        return killer.path if killer is not None and found else None


def _is_pattern_of_us(arg: str) -> bool:
    """Whether a pattern of processes, which is a regular expression, finds the gateway."""
    if len(arg) > _LONGEST_PATTERN or arg.startswith("-"):
        return False
    if _OURS.search(arg):
        return True
    if sum(char.isalpha() for char in arg) < _LEAST_PATTERN and arg.strip(".*"):
        return False
    try:
        pattern = re2.compile(arg, _QUIETLY)
    except re2.error:
        return False
    return any(pattern.search(program) is not None for program in _PROGRAMS)


_QUIETLY: Final = re2.Options()
_QUIETLY.log_errors = False


def is_setting(name: str) -> bool:
    """Whether a member's name is a variable that the guard reads its settings from."""
    return _NAME.match(name) is not None


def unsettles(text: str) -> bool:
    """Whether a text that is run sets or unsets a variable of the guard, or takes its hooks off."""
    if "AEGIS_" in text and (_SETS.search(text) or _UNSETS.search(text)):
        return True
    return "unhook" in text and "aegis" in text.lower() and _UNHOOKS.search(text) is not None


@lru_cache(maxsize=4_096)
def tool_takes(tool: str) -> bool | None:
    """Whether a tool changes the folders that it is given, or reads them whole; `None` where its name says neither."""
    found = [_TREE_TOOLS[word] for word in words_of(tool) if word in _TREE_TOOLS]
    return any(found) if found else None


def is_target(path: str) -> bool:
    """Whether an argument says where something is put."""
    name = next((token for token in reversed(tokens(path)) if not token.isdigit()), "")
    return not _TARGETS.isdisjoint(words_of(name))


def taken_by_code(text: str) -> Iterator[Taken]:
    """The folders that calls in a program take whole, as far as they are written out."""
    for number, match in enumerate(_TREES.finditer(text)):
        if number == _MOST_CALLS:
            return
        changes, rest = match.group(1) not in _READS, match.group(2)
        if _HOME.search(rest):
            yield Taken("~", changes)
        if match.group(1) == "make_archive":
            for folder in _LITERALS.findall(rest):
                yield Taken(folder, changes)
        else:
            first = _LITERAL.search(rest)
            if first is not None:
                yield Taken(_put_together(first.group(1), rest[first.end() :]), changes)


def _put_together(first: str, behind: str) -> str:
    """The folder that a literal and those behind it make: `"/" + "srv"`, `"/".join(["", "srv"])`.

    Where something else than literals is added, it is the first one, around whatever the rest may be.
    """
    added, between = _ADDED.match(behind), _BETWEEN.match(behind)
    if added is not None:
        return first + "".join(_LITERALS.findall(added.group()))
    if between is None:
        return first
    parts = _LITERALS.findall(between.group(1) or between.group(2))
    return first.join(parts) if between.group(1) else first + "/".join(parts)
