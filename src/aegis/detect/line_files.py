"""The command lines of makefiles, tables of times and of temporary files, manifests and keys of a registry.

Sources: GNU make's manual; tmpfiles.d(5); npm's manual, `package.json vars`; Microsoft's article 310516.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from aegis.core.patterns import Lazy
from aegis.detect.files import MAX_FLOW

_SET_IN_MAKE: Final = Lazy(
    r"^(?:[\w./% -]+:\s*)?(?:export\s+|override\s+|private\s+)*([A-Za-z]\w*)\s*(:{0,3}|\?|\+)=\s*(.*?)\s*$"
)
_USED_IN_MAKE: Final = Lazy(r"\$[({]([A-Za-z]\w*)[)}]")
_MADE_OF: Final = 4  # definitions that a name is followed through
# Names that make, its rules or whoever calls it give a value (GNU make, 10.3 and 7.2.5); these are told as unknown.
_GIVEN_TO_MAKE: Final = frozenset({
    "AR", "AS", "CC", "CXX", "CPP", "FC", "LD", "LEX", "YACC", "MAKE", "CURDIR", "SHELL", "MAKEFLAGS", "MAKEFILE_LIST",
    "HOME", "PWD", "USER", "PATH", "TMPDIR", "RM", "DESTDIR", "PREFIX", "prefix", "MAKECMDGOALS",
})  # fmt: skip


def of_make(lines: Sequence[str]) -> Iterator[str]:
    """The command lines of a makefile, with the values of its own names; one that nothing sets is empty."""
    known: dict[str, str] = {}
    others = False
    for line in lines:
        match = None if line.startswith("\t") else _SET_IN_MAKE.match(line)
        if match is not None and len(match.group(3)) <= _LONGEST_VALUE:
            name, sign, value = match.groups()
            before = known.get(name)
            if before is None or sign != "?":  # what is set last holds, wherever it is used
                known[name] = f"{before} {value}"[:_LONGEST_VALUE] if sign == "+" and before is not None else value
        others = others or line.startswith(("include ", "-include ", "define ", "sinclude "))
    for line in lines:
        if not line.startswith("\t"):
            continue
        text = line
        for _ in range(_MADE_OF):
            if "$" not in text or len(text) > MAX_FLOW:
                break
            text = _USED_IN_MAKE.sub(
                lambda use: known.get(use.group(1), _unset(use.group(1), others or not known)), text
            )[:MAX_FLOW]
        yield text.replace("$$", "$").strip().lstrip("@-+")


_LONGEST_VALUE: Final = 512


def _unset(name: str, others: bool) -> str:
    return f"${{{name}}}" if others or name in _GIVEN_TO_MAKE else ""


# What the specifiers of a table of temporary files stand for, to a user as to the system.
_PLACES: Final = {
    "%h": "~", "%C": "~/.cache", "%S": "~/.local/state", "%L": "~/.local/state/log", "%t": "/run/user/1000",
    "%T": "/tmp", "%V": "/var/tmp",  # noqa: S108
    "%u": "$USER", "%U": "1000", "%%": "%",
}  # fmt: skip
_SPECIFIER: Final = Lazy(r"%[hCSLtTVuU%]")
_OF_TABLE: Final = {
    "R": "rm -rf", "r": "rm -f", "D": "rm -rf", "L": "ln -sf", "C": "cp -r", "z": "chmod", "Z": "chmod -R",
}  # fmt: skip


def of_tmpfiles(text: str) -> Iterator[str]:
    """The commands that stand for the lines of a table of temporary files: what it removes, links, copies and opens."""
    for line in text.splitlines():
        words = _SPECIFIER.sub(lambda found: _PLACES[found.group()], line).split(None, 6)
        command = _OF_TABLE.get(words[0].rstrip("+!-=~^$?")) if len(words) > 1 and len(line) < _LONGEST_VALUE else None
        if command is None:
            continue
        path = words[1].strip("\"'")
        if command.startswith("rm"):
            yield f"{command} {path}"
        elif command.startswith("chmod") and len(words) > 2 and words[2] != "-":
            yield f"{command} {words[2].lstrip(':~')} {path}"
        elif not command.startswith("chmod") and len(words) > 6 and words[6] != "-":
            yield f"{command} {words[6]} {path}"


_PLAIN_VALUE: Final = Lazy(r"^[\w./:@%+,=~ -]{1,512}$")  # of which no shell makes anything else
_OF_PACKAGE: Final = Lazy(r"\$(?:\{(npm_package_\w{1,128})\}|(npm_package_\w{1,128}))|%(npm_package_\w{1,128})%")


def with_package(commands: Sequence[str], manifest: Any) -> list[str]:
    """The commands of a package with the values of its manifest, which npm sets as variables for them."""

    def value(found: Any) -> str:
        node, name = manifest, next(filter(None, found.groups())).removeprefix("npm_package_")
        while isinstance(node, dict) and name:
            key = name
            while key and key not in node:
                key = key.rpartition("_")[0]
            node, name = node.get(key) if key else None, name[len(key) + 1 :]
        return node if isinstance(node, str) and _PLAIN_VALUE.match(node) is not None else str(found.group())

    return [
        _OF_PACKAGE.sub(value, command)[:MAX_FLOW] if "npm_package_" in command else command for command in commands
    ]


def scheduled(text: str, path: str) -> Iterator[str]:
    """The commands of a table of `cron` (crontab(5)); of one of a system also without what is a user's name there."""
    for line in map(str.strip, text.splitlines()):
        parts = line.split(None, 1 if line.startswith("@") else 5)
        if len(parts) > 1 and not line.startswith("#"):
            yield parts[-1]
            if _OF_SYSTEM.search(path) is not None and " " in parts[-1]:
                yield parts[-1].split(None, 1)[1]


_OF_SYSTEM: Final = Lazy(r"(?:^|/)cron\.d/|(?:^|/)etc/crontab$")


# What takes caches and logs out of an image, which has none of its host's (each path without a way up).
_TIDIES: Final = Lazy(
    r"\b(?:sudo\s+)?rm\s+(?:-[rRfv]+\s+)+(?:/(?:var/(?:log|cache|lib/apt/lists|tmp)|tmp|usr/share/(?:doc|man|locale))"
    r"(?:/[\w*-][\w*.-]*)*/?[ \t]*)+($|[\n;&|])"
)


def tidied(command: str) -> str:
    """The command of a container without what removes caches and logs in it."""
    return str(_TIDIES.sub(r"true\1", command))


def of_registry(text: str) -> Iterator[str]:
    """The commands that stand for a file of keys of Windows: `reg add` and `reg delete`."""
    key = ""
    for line in map(str.strip, text.splitlines()):
        name, sign, value = line.partition("=")
        name = "/ve" if name == "@" else f"/v {name}"
        if line[:1] == "[":
            key = line.strip("[]")
            if key[:1] == "-":
                yield f'reg delete "{key[1:]}" /f'
        elif key and sign and value == "-":
            yield f'reg delete "{key}" {name} /f'
        elif key and sign and len(line) < _LONGEST_LINE:
            number = value[6:].lstrip("0") or "0"
            data = number if value.startswith("dword:") else value.strip('"').replace('\\"', "'").replace("\\\\", "\\")
            yield f'reg add "{key}" {name} /d "{data}" /f'


_LONGEST_LINE: Final = 4_096
# Members of a development container that can put parts of its host into it (containers.dev, reference of the file).
_LENDS: Final = frozenset({"mounts", "runArgs", "dockerComposeFile", "workspaceMount", "privileged", "capAdd"})


def in_container(value: dict[str, Any]) -> dict[str, Any]:
    """The settings of a development container, without what tidies it; `initializeCommand` runs on the host."""
    kept = value.keys() if not _LENDS.isdisjoint(value) else ("initializeCommand",)
    return {key: inner if key in kept or not isinstance(inner, str) else tidied(inner) for key, inner in value.items()}
