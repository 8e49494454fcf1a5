"""What the pieces of a call are put together to: commands given as words, statements and programs given in parts.

A list under the name of a command is one command in words, as `exec` takes it, or several command lines. Its bytes say
which; where they do not, it is read both ways. Words stay words: `["echo", "a; b"]` is one command with one operand.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from string import ascii_letters
from typing import Any, Final, NamedTuple

from aegis.core.json import escape
from aegis.core.patterns import Lazy
from aegis.core.text import TextRole
from aegis.detect.extract import MOST_POINTERS
from aegis.detect.quick import one_of
from aegis.detect.roles import argument_of, executes, named_role, words_of
from aegis.detect.shell.catalogue import RemoteStart, members, of_kind
from aegis.detect.shell.programs import interpreter
from aegis.detect.shell.starts import PREFIXED
from aegis.detect.shell.variables import heeds
from aegis.detect.shell.words import DELETERS, FED, INTERPRETERS, NETWORK, READERS, SHELLS, WRITERS

SURE: Final = 90  # how sure the role of what was put together is
MOST_JOINED: Final = 8_192  # characters of command lines that are read once more as one script
_MOST_PIECES: Final = 64  # paths and addresses are put together of no more
_LONGEST_PROGRAM: Final = 4_096
# What a member of an object is called that names a program, where another holds its arguments ...
_PROGRAMS: Final = (
    "command", "cmd", "program", "executable", "exe", "binary", "bin", "entrypoint", "exec", "commandline",
)  # fmt: skip
# ... and what may name one as well, and many other things: only beside a list of words.
_LOOSE: Final = (
    "process", "processname", "file", "filepath", "filename", "path", "script", "interpreter", "shell", "name",
)  # fmt: skip
_WORDS: Final = (
    "args", "argv", "arguments", "argumentlist", "argslist", "argument", "params", "parameters", "commandargs",
    "cmdargs", "programargs", "extraargs", "options", "flags", "operands",
)  # fmt: skip
_SURE_WORDS: Final = frozenset({"args", "argv", "arguments", "commandargs", "cmdargs", "programargs", "argslist"})
_ENVIRONMENTS: Final = frozenset({"env", "environ", "environment", "envs", "envvars", "environmentvariables"})
_FOLDERS: Final = ("cwd", "workdir", "workingdirectory", "workingdir")
# What a program reads that is started: beside one that interprets, the program that it runs.
_FED: Final = ("stdin", "stdindata", "stdintext", "stdincontent", "standardinput", "input", "inputdata", "inputtext")
HINTS: Final = frozenset(
    {*_WORDS, *_ENVIRONMENTS, *_FOLDERS, *_FED}
)  # names without which, and without a list, nothing is put together
_OPERATORS: Final = frozenset({"|", "||", "&&", "&", ";", ">", ">>", "<", "<<<", "2>", "2>&1", "&>"})
_KNOWN: Final = (
    READERS | WRITERS | DELETERS | NETWORK | INTERPRETERS | {"find", "xargs", "docker", "kubectl", "chmod", "exec"}
)
# Programs whose operands are texts: what reads like a command in one of them is none.
_TALKERS: Final = frozenset({
    "echo", "printf", "say", "logger", "notify-send", "grep", "egrep", "rg", "git", "gh", "espeak", "wall", "test",
    "expr",
})  # fmt: skip
_STARTS_LINE: Final = one_of(
    r"^\s*(?:[\w.@%$\"'({!:\[\\#]|~/|/(?:usr|opt|bin|sbin|home|\S*bin/|\S+\.(?:sh|py)\b|\S+\s))"
)
_LETTERS: Final = frozenset(ascii_letters)
_NO_LINE: Final = one_of(r"^\s*(?:[/~.*]|\.\.|\d+|\S+/|\S*://\S*)\s*$")
_RUNNABLE: Final = Lazy(r"^\./|^(?:/[\w.-]+){0,8}/s?bin/[^/]+$|^[^:]*\.(?:sh|bash|py|pl|rb|js|exe|bat|cmd|ps1)$")
_BLANK: Final = Lazy(r"\s")
_STATEMENT: Final = Lazy(
    r"(?i)^\s*\(?\s*(?:select|insert|update|delete|with|create|drop|alter|truncate|merge|explain|show|grant|revoke|copy|call|"
    r"exec(?:ute)?|replace|values|begin|start|commit|rollback|set|use|pragma|vacuum|analyze|describe|declare|lock|--|/\*)\b"
)
_RUNS: Final = Lazy(r"(?i)(?:^|[_\W])(?:run|exec|execute)(?:[_\W]|$)|^(?:run|exec)")  # tools that run what they get
_NAME: Final = Lazy(r"^[A-Za-z_][A-Za-z0-9_]*$")


class Whole(NamedTuple):
    """A text put together from several of a call: where its pieces stand, what it says, and what it is for.

    `words` are those of a command given as words; `sets` says that the text only sets variables for another command.
    """

    path: str
    value: str
    role: TextRole
    words: tuple[str, ...] = ()
    sets: bool = False


class Assembled(NamedTuple):
    """The texts that a call's pieces make; lists and members whose strings are words of one of them, nothing else.

    `folders` are the working directories that stand beside commands, by the pointer of the object that holds both.
    """

    wholes: tuple[Whole, ...] = ()
    words: frozenset[str] = frozenset()
    folders: Mapping[str, str] = {}


def plain_name(name: str) -> str:
    """The name of a member without the signs and the case that divide its words."""
    return name.replace("_", "").replace("-", "").lower()


LONGEST_NAME: Final = 64  # characters of a name that is remembered: bounds what that takes


@lru_cache(maxsize=8_192)
def hints(name: str) -> bool:
    """Whether the name of a member says that pieces may be put together; the same names come in call after call."""
    return plain_name(name) in HINTS


def assembled(tool: str, arguments: Mapping[str, Any], roles: Mapping[str, TextRole]) -> Assembled:
    """Everything that pieces of `arguments` make together; `roles` are those of the strings in lists, by pointer.

    Each value is looked at once; of arguments beyond the limits of a call, which refuse it, some are not looked at.
    """
    wholes: list[Whole] = []
    words: set[str] = set()
    folders: dict[str, str] = {}
    stack: list[tuple[str, str, Any]] = [("", "", arguments)]
    pointers = 0
    while stack and pointers <= MOST_POINTERS:
        path, name, value = stack.pop()
        pointers += (len(path) + 1) * len(value)
        if isinstance(value, dict):
            used = _of_object(tool, path, value, wholes, words, folders)
            stack.extend(
                (f"{path}/{escape(str(key))}", str(key), inner)
                for key, inner in value.items()
                if type(inner) in (dict, list) and key not in used
            )
        elif isinstance(value, list):
            pieces = _scalars(value)
            if pieces:
                _of_list(tool, path, name, pieces, roles, wholes, words)
            else:
                stack.extend(
                    (f"{path}/{at}", name, inner) for at, inner in enumerate(value) if type(inner) in (dict, list)
                )
    return Assembled(tuple(wholes), frozenset(words), folders)


def named_commands(arguments: Mapping[str, Any]) -> Assembled:
    """What the pieces of a call make, told by the names of its members alone: commands, and nothing else."""
    found = assembled("", arguments, _ByName())
    return found._replace(wholes=tuple(whole for whole in found.wholes if whole.role == "command" and not whole.sets))


class _ByName(Mapping[str, TextRole]):
    """The roles of strings in lists by the names above them."""

    def __getitem__(self, path: str) -> TextRole:
        role, _ = named_role("", argument_of(path))
        if role != "command":
            raise KeyError(path)
        return role

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def line(words: Sequence[str]) -> str:
    """The command line that a shell splits into exactly these words."""
    return " ".join([word if _is_plain(word) else shlex.quote(word) for word in words])


_NEEDS_NO_QUOTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-"


def _is_plain(word: str) -> bool:
    """Whether a shell reads a word as it stands: told in a tenth of the time that `shlex.quote` takes for it."""
    return word != "" and word.isascii() and not word.encode().translate(None, _NEEDS_NO_QUOTES)


def _of_object(
    tool: str, path: str, value: dict[str, Any], wholes: list[Whole], words: set[str], folders: dict[str, str]
) -> frozenset[str]:
    """Add the command that members of one object are put together to; the members that are nothing else."""
    named = {plain_name(key): key for key in value}
    given = next((named[one] for one in _WORDS if one in named and _is_words(value[named[one]])), None)
    program = next((named[one] for one in _PROGRAMS if one in named and _is_program(value[named[one]])), None)
    if program is None and given is not None and isinstance(value[given], list) and plain_name(given) in _SURE_WORDS:
        program = next((named[one] for one in _LOOSE if one in named and _is_one_word(value[named[one]])), None)
    folder = next((value[named[one]] for one in _FOLDERS if one in named), None)
    if isinstance(folder, str) and folder:
        folders[path] = folder
    found = _command(tool, value, program, given)
    if found is not None:
        text, parts = found
        wholes.append(Whole(path, text, "command", parts))
        if given is not None:
            words.add(f"{path}/{escape(given)}")
        if program is not None and plain_name(program) in _PROGRAMS:
            words.add(f"{path}/{escape(program)}")
    _of_input(path, value, named, found[0] if found is not None else "", wholes, words)
    if program is not None or given is not None:
        for one in sorted(_ENVIRONMENTS & named.keys()):
            settings = _settings(value[named[one]])
            started = found[0] if found is not None else _as_line(value[program]) if program is not None else ""
            heard = started if heeds(_base("".join(started.split(None, 1)[:1]))) else "true"
            if settings:
                text = f"{' '.join(settings)} {heard}"
                wholes.append(Whole(f"{path}/{escape(named[one])}", text, "command", sets=True))
    return frozenset() if found is None else frozenset(key for key in (given, program) if key is not None)


def _of_input(
    path: str, value: dict[str, Any], named: dict[str, str], started: str, wholes: list[Whole], words: set[str]
) -> None:
    """Add what an interpreter is fed: the text goes to it as a here-document does.

    Where that ends is said by the digest of the text, which the text cannot hold: no end has to be looked for.
    """
    fed = next((named[one] for one in _FED if one in named and isinstance(value[named[one]], str)), None)
    if fed is None or not value[fed]:
        return
    if not started:
        programs = [_as_line(value[named[one]]) for one in (*_PROGRAMS, *_LOOSE, *_WORDS) if one in named]
        started = next(filter(_interprets, programs), "")
    if started and "\n" not in started and _interprets(started):
        end = f"EOF_{blake2b(value[fed].encode('utf-8', 'replace'), digest_size=16).hexdigest()}"
        wholes.append(Whole(f"{path}/{escape(fed)}", f"{started} <<'{end}'\n{value[fed]}\n{end}", "command"))
        first = _base(started.split()[0])
        if (
            interpreter(first) or first in _STARTERS
        ):  # whatever another program does with it is read as it stands as well
            words.add(f"{path}/{escape(fed)}")


def _as_line(started: Any) -> str:
    """The command line of a program that is named in one text or in words; empty where neither is."""
    if isinstance(started, list):
        return line(_scalars(started))
    return started if isinstance(started, str) else ""


def _interprets(command: str) -> bool:
    return any(
        interpreter(_base(word)) or _base(word) in FED for word in command.split(None, _MOST_STARTERS)[:_MOST_STARTERS]
    )


_STARTERS: Final = frozenset({*PREFIXED, *members("elsewhere", RemoteStart), *of_kind("container-engine")})
_MOST_STARTERS: Final = 12  # words before which an interpreter is started: `docker exec -i -u root db mysql`


def _command(
    tool: str, value: dict[str, Any], program: str | None, given: str | None
) -> tuple[str, tuple[str, ...]] | None:
    """The command line of a program and its words, which stand beside it or, of a tool that is a program, alone."""
    if given is None:
        return None
    operands = value[given]
    if program is None:
        if plain_name(given) not in _SURE_WORDS or not isinstance(operands, list):
            return None
        own = tool.lower()
        first = operands[0] if operands else None
        if own in SHELLS and isinstance(first, str) and _base(first) in _KNOWN:  # a shell's tool, and a whole vector
            start = []
        elif own in _KNOWN:
            start = [own]
        elif executes(tool) == "command" or {"exec", "execute", "run", "spawn", "subprocess", "process"} & set(
            words_of(tool)
        ):
            start = []
        else:
            return None
    else:
        start = _scalars(value[program]) if isinstance(value[program], list) else [value[program]]
    rest = _scalars(operands) if isinstance(operands, list) else []
    if (
        isinstance(operands, list)
        and plain_name(given) == "argv"
        and start
        and rest[:1]
        and _base(rest[0]) == _base(start[0])
    ):
        rest = rest[1:]  # the first word of a vector is the program once more
    if len(start) == 1 and _BLANK.search(start[0]):
        text = f"{start[0]} {line(rest)}" if isinstance(operands, list) else f"{start[0]} {operands}"
        return text, ()
    if not isinstance(operands, list):
        return f"{line(start)} {operands}", ()
    parts = (*start, *rest)
    if not parts:
        return None
    # A program's words with signs of a shell among them: whoever wrote them expects one.
    text = " ".join(parts) if _OPERATORS & set(parts) else line(parts)
    return text, parts


def _of_list(
    tool: str,
    path: str,
    name: str,
    pieces: list[str],
    roles: Mapping[str, TextRole],
    wholes: list[Whole],
    words: set[str],
) -> None:
    """Add what a list of scalars makes, by the role of its strings."""
    kinds = {roles[at] for at in (f"{path}/{index}" for index in range(len(pieces))) if at in roles}
    if len(pieces) < 2 or not kinds:
        return
    if "command" in kinds:
        _commands(path, name, pieces, wholes, words)
    elif "sql" in kinds or ("query_fragment" in kinds and _RUNS.search(tool)):
        if not all(map(_STATEMENT.match, pieces)):
            texts = dict.fromkeys((" ".join(pieces), "".join(pieces)))
            wholes.extend(Whole(path, text, "sql") for text in texts if "sql" in kinds or _STATEMENT.match(text))
    elif "code" in kinds:
        text = "".join(pieces) if any(piece.endswith("\n") for piece in pieces[:-1]) else "\n".join(pieces)
        wholes.append(Whole(path, text, "code"))
    elif len(pieces) <= _MOST_PIECES and kinds & {"path", "url"} and not name.lower().endswith("s"):
        wholes.extend(Whole(path, text, "path" if "path" in kinds else "url") for text in _places(pieces, kinds))


def _places(pieces: list[str], kinds: set[TextRole]) -> Iterator[str]:
    """Paths and addresses that were given in parts; several whole ones are none."""
    if any("://" in piece or piece.startswith(("/", "~")) for piece in pieces[1:]) and "url" not in kinds:
        return
    if any("://" in piece for piece in pieces[1:]):
        return
    yield "".join(pieces)
    if "path" in kinds:
        yield "/".join(pieces)


def _commands(path: str, name: str, pieces: list[str], wholes: list[Whole], words: set[str]) -> None:
    """A list under the name of a command: words, lines, or both where nothing tells them apart."""
    first, rest = pieces[0], pieces[1:]
    in_words, are_named = not _BLANK.search(first.strip()), plain_name(name).endswith("s")
    several = not in_words or (_base(first) not in _TALKERS and all(_BLANK.search(piece.strip()) for piece in rest))
    lines = (several or are_named) and _are_lines(pieces)
    if not in_words:
        as_words = first.startswith(("/", "\\")) or first[1:3] == ":\\"  # a folder with a blank in its name
        as_lines = True
    elif are_named and lines:
        as_words = not any(_BLANK.search(piece) for piece in rest)
        as_lines = True
    else:
        as_words = True
        as_lines = several and lines
    if as_words:
        wholes.append(Whole(path, line(pieces), "command", tuple(pieces)))
    if as_words and not as_lines:
        words.add(path)
    together = " ".join(pieces)
    # A piece that is no line, behind one that is; or a sign that only a shell reads: a tool will join them.
    if ((as_lines and not lines) or (_OPERATORS & set(rest))) and not plain_name(name).endswith("lines"):
        wholes.append(Whole(path, together, "command"))
    elif as_lines and len(together) <= MOST_JOINED:
        wholes.append(Whole(path, "\n".join(pieces), "command"))
    if _is_split(pieces):
        wholes.append(Whole(path, "".join(pieces), "command"))


def _is_split(pieces: list[str]) -> bool:
    """Whether a word may be divided over two pieces: a short one of letters alone, which is no program of its own."""
    return any(
        len(piece) <= 2 and piece.isalpha() and following[:1].isalpha() and _BLANK.search(following) is not None
        for piece, following in pairwise(pieces)
    )


def _are_lines(pieces: Sequence[str]) -> bool:
    """Whether each piece may be a command line; most begin with a letter, and have a blank behind it."""
    return all(
        (piece[:1] in _LETTERS or _STARTS_LINE(piece)) and (" " in piece.strip() or not _NO_LINE(piece))
        for piece in pieces
    )


def _is_words(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and _scalars(value) != [])


def _is_program(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= _LONGEST_PROGRAM
    return isinstance(value, list) and _scalars(value) != []


def _is_one_word(value: Any) -> bool:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_PROGRAM or _BLANK.search(value):
        return False
    return _base(value) in _KNOWN or interpreter(_base(value)) != "" or _RUNNABLE.search(value) is not None


def _scalars(value: list[Any]) -> list[str]:
    """The members of a list as words; nothing where one is no string and no number."""
    if not any(type(item) is str for item in value):
        return []
    found: list[str] = []
    for item in value:
        if type(item) is str:  # half of a pair of characters is none
            found.append(item if item.isascii() else item.encode("utf-8", "replace").decode())
        elif type(item) in (int, float):
            found.append(str(item))
        else:
            return []
    return found


def _settings(value: Any) -> list[str]:
    """Variables that are set for a command, as a shell sets them."""
    if isinstance(value, dict):
        pairs = [(str(name), inner) for name, inner in value.items()]
    elif isinstance(value, list):
        pairs = [(one.partition("=")[0], one.partition("=")[2]) for one in value if isinstance(one, str)]
    else:
        return []
    return [f"{name}={shlex.quote(str(inner))}" for name, inner in pairs if _NAME.match(name)]


def _base(word: str) -> str:
    return word.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")
