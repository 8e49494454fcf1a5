"""The command lines of makefiles, tables of times and of temporary files, manifests, notebooks and keys of a registry.

And the blocks of Terraform, with the values of what they name. Sources: GNU make's manual; Terraform's language;
tmpfiles.d(5); npm's manual, `package.json vars`; Microsoft's article 310516.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from typing import Any, Final

from aegis.core.patterns import Lazy
from aegis.detect.files import MAX_FLOW

# A text in quotation marks, one or three.
TEXT: Final = r"(?:\"\"\"(?:[^\"]|\"[^\"])*\"\"\"|'{3}[^']*'{3}|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"


def unquoted(text: str) -> str:
    """What stands in quotation marks, one or three, with quoted quotation marks as they are meant."""
    marks = 3 if text[:3] in ('"""', "'''") else 1
    return text[marks:-marks].replace('\\"', '"')


# What a text of no form that is read says as a command: in quotation marks, in an element, or up to the end of a line.
_SAID: Final = Lazy(
    rf"(?m)^\s*(?:#|//[^g\n]|;|--|%%|rem\b|echo\b|(?i:message|print\w*|puts|desc\w*)\b)[^\n]*|({TEXT})|"
    r">([^<>]{4,1000})<|\b((?:curl|wget|(?:ba|z)?sh\s+-\w*c|nc|ncat|powershell(?:\.exe)?|iex|iwr)\s[^\n\"'<>]*[^\n<]*)"
)
_MATTERS: Final = Lazy(r"(?i)\b(?:curl|wget|nc|ncat|bash|sh|iex|iwr|invoke-\w+|base64|powershell|chmod|rm|/dev/tcp)\b")


def loose(text: str) -> Iterator[str]:
    """The commands of a file whose form is not known."""
    for match in _SAID.finditer(unescape(text)):
        quoted, element, rest = match.groups()
        command = unquoted(quoted) if quoted else element or rest
        if command and " " in command and _MATTERS.search(command):
            yield command


_SET_IN_MAKE: Final = Lazy(
    r"^(?:[\w./% -]+:\s*)?(?:export\s+|override\s+|private\s+)*([A-Za-z]\w*)\s*(:{0,3}|\?|\+)=\s*(.*?)\s*$"
)
_USED_IN_MAKE: Final = Lazy(r"\$[({]([A-Za-z]\w*)[)}]")
_RUN_BY_MAKE: Final = Lazy(r"(?:\$\(shell|^\w+\s*!=)\s+(.+?)\)*$")
# Functions that give what they are given, or what a command of a shell prints, as far as what it names goes.
_CALLED_IN_MAKE: Final = Lazy(
    r"\$[({](?:abspath|realpath|strip|sort|wildcard|firstword|lastword)\s+((?:[^$(){}]|\$\{\w+\})*)[)}]"
)
_STARTED_IN_MAKE: Final = Lazy(r"\$\(shell\s+((?:[^$(){}]|\$\{\w+\}|\$\$\w+)*)\)")
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
    lines = [*lines, *(f"\t{found.group(1)}" for line in lines for found in _RUN_BY_MAKE.finditer(line))]
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
            text = _STARTED_IN_MAKE.sub(r"$(\1)", _CALLED_IN_MAKE.sub(r"\1", text))
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


# What a machine, a cluster or a tool for many machines does, by the first words of its file, wherever that lies.
PLAYS: Final = Lazy(
    r"(?m)^(?:---\s*\n)?(?:apiVersion:|#cloud-config|\s*(?:-\s+)?hosts:\s|\s*(?:-\s+)?ansible\.builtin\.\w+:|\s+(?:cmd|cron|file|pkg|service|ssh_auth|user)\.\w+:)"
)


def scheduled(text: str, path: str) -> Iterator[str]:
    """The commands of a table of `cron` (crontab(5)); of one of a system also without what is a user's name there."""
    for line in map(str.strip, text.splitlines()):
        parts = line.split(None, 1 if line.startswith("@") else 3 if path.endswith("anacrontab") else 5)
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


def of_notebook(value: Any) -> Iterator[str]:
    """The programs in the cells of a notebook, with the lines that a shell runs as calls that do."""
    cells = value.get("cells") if isinstance(value, dict) else None
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source")
            text = "".join(map(str, source)) if isinstance(source, list) else str(source)
            yield "import os\n" + _OF_SHELL.sub(lambda line: f"os.system({line.group(1)!r})", text)[:MAX_FLOW]


_OF_SHELL: Final = Lazy(r"(?m)^[ \t]*[!%]+(?:sx |system |sh )?([^\n]+)$")

_BLOCK: Final = Lazy(r"^\s*([\w-]+)((?:\s+\"[^\"]*\")*)\s*\{\s*(\}?)\s*$")
_SETTING: Final = Lazy(r"^\s*\"?([\w-]+)\"?\s*[=:]\s*(.*?)\s*,?\s*$")
_LEAVES: Final = frozenset({"egress"})  # what goes out, which is another matter than what comes in


def parsed_hcl(text: str) -> dict[str, Any]:
    """The blocks of a text of Terraform as mappings, a line a setting; what stands otherwise is left out.

    Expressions of constants are worked out, with what the text itself says of its locals and variables.
    """
    root: dict[str, Any] = {}
    known: dict[str, str | int] = {}
    text = text[:MAX_FLOW]
    for match in _LOCALS.finditer(text):
        named = [("var", match[2], match[3])] if match[2] else [("local", *one) for one in _LOCAL.findall(match[1])]
        for kind, name, written in named:
            value = _worked_out(written, known)
            known.update({} if value is None else {f"{kind}.{name}".lower(): value})
    open_blocks = [root]
    for line in text.splitlines():
        block, setting = _BLOCK.match(line), _SETTING.match(line)
        if block is not None and len(open_blocks) < _DEEPEST:
            inner: dict[str, Any] = {}
            if block.group(1) not in _LEAVES:
                open_blocks[-1][f"{block.group(1)}{block.group(2)}#{len(open_blocks[-1])}"] = inner
            if not block.group(3):
                open_blocks.append(inner)
        elif line.strip().startswith("}") and len(open_blocks) > 1:
            open_blocks.pop()
        elif setting is not None:
            value = setting.group(2)
            if value.startswith("{") and not value.endswith("}"):
                open_blocks.append(open_blocks[-1].setdefault(setting.group(1), {}))
            else:
                open_blocks[-1][setting.group(1)] = _setting(value, known)
    return root


_LOCALS: Final = Lazy(r"(?ms)^\s*locals\s*\{(.*?)^\s*\}|^\s*variable\s+\"(\w+)\"\s*\{[^{}]*?\bdefault\s*=\s*([^\n]+)")
_LOCAL: Final = Lazy(r"(?m)^\s*(\w+)\s*=\s*(\S.*)$")
_OF_MORE: Final = Lazy(r"[(?]|\$\{|\b(?:local|var)\.|\]\[")


def _worked_out(text: str, known: Mapping[str, str | int]) -> str | int | None:
    from aegis.detect.sql_constants import hcl_constant  # whose parser takes a tenth of a second to load

    return hcl_constant(text, known)


def _setting(value: str, known: Mapping[str, str | int]) -> Any:
    worked_out = _worked_out(value, known) if _OF_MORE.search(value) is not None else None
    if worked_out is not None:
        from aegis.detect.sql_constants import ITEMS

        return str(worked_out).split(ITEMS) if value[:1] == "[" else worked_out
    if value[:1] == "[":
        return [part.strip().strip('"') for part in value.strip("[]").split(",") if part.strip()]
    return True if value == "true" else False if value == "false" else value.strip('"')


_DEEPEST: Final = 24
