"""The command lines of makefiles, tables of times and of temporary files, manifests, notebooks and keys of a registry.

And the blocks of Terraform, with the values of what they name. Sources: GNU make's manual; Terraform's language;
tmpfiles.d(5); npm's manual, `package.json vars`; Microsoft's article 310516.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from typing import Any, Final

from aegis.core.patterns import Lazy
from aegis.detect.files import MAX_FLOW

# A text in quotation marks, one or three.
TEXT: Final = r"(?:\"\"\"(?:[^\"]|\"[^\"])*\"\"\"|'{3}[^']*'{3}|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"


# Remarks of programs that fill whole lines or stand between their signs.
COMMENTS: Final = Lazy(r"(?m)/\*(?:[^*]|\*[^/])*\*/|^[ \t]*(?://|#)[^\n]*$")


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


_MEMBER_LINE: Final = Lazy(r"^\s*(?:-\s+)?[\"']?([A-Za-z_][\w-]*)[\"']?:(?:\s+(?:[|>][-+\d]*|(.*\S)))?\s*$")


def of_lines(text: str) -> Iterator[dict[str, str]]:
    """The members of a piece of YAML that is none by itself, as an edit puts it in, each with the lines below it."""
    name, block = "", list[str]()
    for line in [*text[:_MOST_PIECE].splitlines(), "end:"]:
        match = _MEMBER_LINE.match(line)
        if match is None:
            block.append(line.strip().removeprefix("- "))
            continue
        yield {name: "\n".join(block)}
        name, block = match.group(1), [match.group(2)] if match.group(2) else []


_MOST_PIECE: Final = 16_384
# Templates and programs that build a cloud, by what they load, or in a piece of one by how they make and change parts.
BUILDS: Final = Lazy(
    r"(?i)aws[-_]?cdk|pulumi|cdktf|awscdk|\bconstructs\b|sst/|troposphere|cdk8s|amazon\.cdk|\bAWS::\w+::|"
    r"\bMicrosoft\.[A-Z]\w+/\w|\bnew\s+[\w.]+\(\s*(?:this|scope|stack)\s*,\s*[\"'`]|"
    r"\bnew\s+[\w.]+\.\w+\(\s*[\"'`][\w-]+[\"'`]\s*,\s*\{|\b[\w.]+\(\s*(?:self|scope|stack)\s*,\s*[\"'][\w-]+[\"']|"
    r"\w\.[A-Z]\w+\(\s*[\"'][\w-]+[\"']\s*,\s*[a-z_]+\s*=|"
    r"\b(?:RemovalPolicy|ec2\.P(?:eer|ort)|iam\.[A-Z]\w+|s3\.Bucket\w+|ManagedPolicy|FunctionUrlAuthType|Cfn[A-Z]\w+)\b|"
    r"\b(?:add_?(?:ingress_?rule|to_?role_?policy|managed_?policy|function_?url|property_?(?:deletion_?)?override)|"
    r"apply_?removal_?policy|grant_?public_?\w+|allow_?\w*from_?any_?ipv4)\("
)


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


def container_start(value: dict[str, Any]) -> str:
    """The command that starts a development container, but for what debuggers need."""
    given = value.get("runArgs")
    options = [one for one in given if isinstance(one, str)] if isinstance(given, list) else []
    options += ["--privileged"] if value.get("privileged") is True else []
    return str(_DEBUGS.sub("", shlex.join(["docker", "run", *options, "image"])))


_DEBUGS: Final = Lazy(r"--cap-add[= ]SYS_PTRACE|--security-opt[= ]seccomp=unconfined")


def of_notebook(value: Any) -> Iterator[str]:
    """The programs in the cells of a notebook, with the lines that a shell runs as calls that do."""
    cells = value.get("cells") if isinstance(value, dict) else None
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source")
            text = "".join(map(str, source)) if isinstance(source, list) else str(source)
            yield "import os\n" + _OF_SHELL.sub(lambda line: f"os.system({line.group(1)!r})", text)[:MAX_FLOW]


_OF_SHELL: Final = Lazy(r"(?m)^[ \t]*[!%]+(?:sx |system |sh )?([^\n]+)$")

_LEAVES: Final = frozenset({"egress"})  # what goes out, which is another matter than what comes in
_TOKEN: Final = Lazy(
    rf"(?P<skipped>//[^\n]*|#[^\n]*|/\*(?:[^*]|\*[^/])*\*/|[=!<>]=|<<[-~]?[\"']?\w+[\"']?)|{TEXT}|`[^`]*`|[\w.$@/*%!+-]+|=>|:=|[{{}}()\[\],;=:\n?]"
)
_OPENING: Final = "{(["
LABEL: Final = ""  # under which an object holds what stands before it: `resource "a" "b"`, `new Bucket`


class _Open:
    """An object, a list or a call that is open: where what is named in it goes, and what is not."""

    __slots__ = ("inner", "key", "name", "outer", "since", "words")

    def __init__(self, inner: dict[str, Any], outer: dict[str, Any], name: str):
        self.inner, self.outer, self.name = inner, outer, name
        self.key, self.words, self.since = "", list[str](), 0

    def end(self, text: str, known: Mapping[str, str | int] | None, constants: Mapping[str, str]) -> None:
        """Put in what was read since the last sign that ends something; `text` is what that was."""
        worked_out = None
        if self.key and known is not None and _OF_MORE.search(text) is not None:
            worked_out = _worked_out(text.strip(), known)
        if worked_out is not None:
            from aegis.detect.sql_constants import ITEMS

            is_list = text.lstrip()[:1] == "["
            self.inner[self.key] = str(worked_out).split(ITEMS) if is_list else worked_out
        elif self.words and (self.key or self.inner is not self.outer or self.name):
            value = " ".join(self.words)
            value = constants.get(value, value)
            _put(*((self.inner, self.key) if self.key else (self.outer, self.name)), _SWITCHES.get(value, value))
        self.key, self.words = "", []


_SWITCHES: Final[Mapping[str, Any]] = {"true": True, "True": True, "false": False, "False": False}


def _put(holder: dict[str, Any], name: str, value: Any) -> None:
    """Add a member, which is a list where it stands there more than once."""
    before = holder.get(name)
    holder[name] = value if name not in holder else [*before, value] if isinstance(before, list) else [before, value]


def parsed_blocks(text: str) -> dict[str, Any]:
    """The objects of a text of Terraform, of Bicep or of a program that describes a cloud, its calls among them.

    Expressions of constants of Terraform are worked out, with what the text itself says of its locals and variables.
    """
    text = text[:MAX_FLOW]
    known: dict[str, str | int] = {}
    for match in _LOCALS.finditer(text):
        named = [("var", match[2], match[3])] if match[2] else [("local", *one) for one in _LOCAL.findall(match[1])]
        for kind, name, written in named:
            value = _worked_out(written, known)
            known.update({} if value is None else {f"{kind}.{name}".lower(): value})
    of_terraform = known if TERRAFORM.search(text) is not None else None
    constants = {} if of_terraform else {name: unquoted(written) for name, written in _CONSTANT.findall(text)}
    root: dict[str, Any] = {}
    opened = [_Open(root, root, "")]
    for match in _TOKEN.finditer(text):
        sign, here = match.group(), opened[-1]
        if match["skipped"] is not None:
            continue
        if sign in _OPENING and len(opened) < _DEEPEST:
            label = (
                here.words[1] if here.words[:1] == ["dynamic"] and len(here.words) > 1 else " ".join(here.words[-1:])
            )
            name = here.key or (label.rpartition(".")[2] if sign == "(" else (here.words or [here.name])[0])
            if here.words[:1] == ["dynamic"]:
                name = label
            inner = here.inner
            if sign == "[" and here.key:
                here.inner.setdefault(name, [])
            if sign != "[":
                inner = {LABEL: " ".join(here.words)} if here.words else {}
                if name not in _LEAVES:
                    _put(here.inner, name, inner)
            is_default = sign == "(" and here.key and of_terraform is not None  # `try(var.a, false)`
            opened.append(_Open(inner, {} if sign == "{" or is_default else here.inner, name))
            here.words = []
        elif sign in "})]":
            here.end(text[here.since : match.start()], of_terraform, constants)
            if len(opened) > 1:
                opened.pop()
        elif sign in ",;\n":
            if not (sign == "\n" and here.key and not here.words and not text[here.since : match.start()].strip()):
                here.end(text[here.since : match.start()], of_terraform, constants)
        elif sign in ("=", ":", "=>", ":="):
            is_choice = here.key and sign == ":"  # `a ? b : c`
            here.key, here.since = "" if is_choice else (here.words or [""])[-1], match.end()
            here.words = []
        elif sign != "?":
            here.words.append(sign if sign[0] not in "\"'`" else unquoted(sign))
    return root


TERRAFORM: Final = Lazy(r"(?m)^\s*(?:resource|data|module|variable|locals|provider|output)\b[^\n=:]*\{")
_LOCALS: Final = Lazy(r"(?ms)^\s*locals\s*\{(.*?)^\s*\}|^\s*variable\s+\"(\w+)\"\s*\{[^{}]*?\bdefault\s*=\s*([^\n]+)")
# A constant of a program or of Bicep: `var owner = '8e3af657'`, `const everybody = "0.0.0.0/0";`.
_CONSTANT: Final = Lazy(
    rf"(?m)^(?:export\s+)?(?:(?:var|param|const|let|final|static|public|private)\s+)*(\w{{3,40}})"
    rf"(?:\s*:\s*\w+|\s+\w+)?\s*:?=\s*({TEXT})\s*;?\s*$"
)
_LOCAL: Final = Lazy(r"(?m)^\s*(\w+)\s*=\s*(\S.*)$")
_OF_MORE: Final = Lazy(r"[(?]|\$\{|\b(?:local|var)\.|\]\[")


def _worked_out(text: str, known: Mapping[str, str | int]) -> str | int | None:
    from aegis.detect.sql_constants import hcl_constant  # whose parser takes a tenth of a second to load

    return hcl_constant(text, known)


_DEEPEST: Final = 24


def of_launchd(text: str) -> list[str]:
    """The command that a job of launchd starts, as a property list says it; nothing for what is no such list."""
    import plistlib  # seldom needed
    from xml.parsers.expat import ExpatError

    try:
        job = plistlib.loads(text.encode("utf-8", "replace"), fmt=plistlib.FMT_XML)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, ExpatError):
        return []
    words = job.get("ProgramArguments") if isinstance(job, dict) else None
    told = [word for word in words if isinstance(word, str)] if isinstance(words, list) else []
    program = job.get("Program") if isinstance(job, dict) else None
    if isinstance(program, str) and program:  # which starts, whatever the arguments call it
        told = [program, *told[1:]]
    return [shlex.join(told)] if told else []
