"""Which program a command runs that it is given: in which language, and from where.

What the options of interpreters and database clients mean, and which programs start a command elsewhere, stands in
`data/programs`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from aegis.core.effects import ResourceEffect
from aegis.core.patterns import Lazy
from aegis.detect.files import EMPTY, FileFlow, Written
from aegis.detect.quick import remembered
from aegis.detect.shell.catalogue import InterpreterOptions, ProgramLanguage, RemoteStart, members, of_kind, options
from aegis.detect.shell.starts import PREFIXED, USUAL_PLACES
from aegis.detect.shell.tree import Command
from aegis.detect.shell.words import SHELLS
from aegis.detect.tool_words import vocabulary


class Program(NamedTuple):
    """A program that a command runs: written out, in a file, or (neither) what the command reads.

    `arguments` are those of the program itself.
    """

    language: ProgramLanguage
    text: str | None = None
    file: str | None = None
    arguments: tuple[str, ...] = ()


class Fed(Struct, kw_only=True):
    """What one text runs that reaches an interpreter, and what it writes.

    `runs` are the files that it runs as programs, `written` the files that it writes, `output` what it prints as a
    whole, and `unread` says that something is run which was written here and cannot be known. `read` are the
    programs that came out of a file or a pipe, and `effects` what programs do that are in no shell's language.
    """

    programs: list[tuple[str, str]] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)  # of cron
    runs: list[str] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    output: FileFlow = EMPTY
    read: list[str] = field(default_factory=list)
    effects: list[ResourceEffect] = field(default_factory=list)
    unread: bool = False


_INTERPRETERS: Final = members("runs", InterpreterOptions)
AWKS: Final = of_kind("awk")
STDIN: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_LETS_LEAVE: Final = frozenset({"-l", "-r", "--version", "-V", "--help", "-?", "-h", "-n", "--dry-run", "-p", "-q"})


def interpreter(name: str) -> str:
    """The name under which an interpreter is known here: `python3.12` as `python`; empty for every other program."""
    plain = name.lower()
    if plain in _INTERPRETERS:
        return plain
    plain = plain.rstrip("0123456789.")
    return plain if plain in _INTERPRETERS and plain else ""


def programs(command: Command, words: Sequence[str]) -> list[Program]:
    """The programs that an interpreter runs, its `words` without its own name; none for any other command."""
    name = interpreter(command.name)
    if not name:
        return []
    options = _INTERPRETERS[name]
    language = options.language
    if name == "crontab" and (not words or _LETS_LEAVE & set(words)):
        return [Program("cron")] if not words else []
    found: list[Program] = []
    rest, reads, given = list(words), True, ""
    while rest:
        word = rest.pop(0)
        head, joined, value = word.partition("=")
        if word in STDIN or (language == "shell" and _reads_script(word)):
            while language == "shell" and rest and rest[0][:1] == "-":
                if rest.pop(0) in {"-", "--"}:
                    break
            return [*found, Program(language, arguments=tuple(rest))]
        if word == "--" or (word == "0" and command.fed):  # a descriptor (`sh 0< x`) is a word to the grammar
            continue
        if language == "shell" and name not in _NO_SCRIPTS and _is_script_option(word):
            found += [Program("shell", text=rest[0], arguments=tuple(rest[1:]))] if rest else []
            return found
        if word in options.text or (name in _BUNDLES and _is_bundle(word) and word[:2] not in options.value):
            found += [Program(language, text=rest.pop(0))] if rest else []
            reads = False
            if language in {"python", "javascript"}:
                return found
        elif joined and (head in options.text or head in options.file):
            found.append(Program(language, text=value) if head in options.text else _in_file(language, value))
            reads = False
        elif word in options.file:
            found += [_in_file(language, rest.pop(0))] if rest else []
            reads = reads and word in _BESIDE
        elif word in options.module:
            return [*found, Program(language, file=rest[0].replace(".", "/") + ".py")] if rest else found
        elif name in AWKS and word[:2] == "-v":
            variable, _, value = (word[2:] or (rest.pop(0) if rest else "")).partition("=")
            given += f"{variable}={json.dumps(value)};"
        elif word in options.value:
            del rest[:1]
        elif word[:1] == "-" or (word[:1] == "+" and language == "shell"):
            if word in {"--version", "--help"}:
                return found
            if word in options.check or (word[1:].isalpha() and any(f"-{letter}" in options.check for letter in word)):
                return []
        elif name in AWKS:
            return [*found, Program("other", text=given + word)] if reads else found
        elif options.operand and reads:
            return [*found, _in_file(language, word, tuple(rest))]
    if language == "applescript" and (text := "\n".join(one.text or "" for one in found)):  # each `-e` is a line
        return [Program("javascript" if _OF_OBJECTS.search(text) else language, text=text)]
    if name == "make" and reads:
        return [Program("make", file=each) for each in ("Makefile", "makefile", "GNUmakefile")]
    return [*found, Program(language)] if reads else found


_NO_SCRIPTS: Final = of_kind("reads-lines")
_OF_OBJECTS: Final = Lazy(r"\bObjC\.|\$\.NS")  # of macOS, as JavaScript reaches them
_BUNDLES: Final = of_kind("joins-letters")
_BESIDE: Final = frozenset({"-r", "--require", "--import", "--rcfile", "--init-file", "-init"})  # and a program besides
_CODE_OPTIONS: Final = {name: frozenset(words) for name, words in options("code").items()}


def code_given(command: Command) -> Iterator[tuple[str, str]]:
    """Yield the code in another language that stands on the command line, with the name of its interpreter."""
    name = command.name.rstrip("0123456789.")
    given = _CODE_OPTIONS.get(name, frozenset())
    for at, (option, following) in enumerate(pairwise(command.args)) if given else ():
        if option in given:
            is_script = option.lower() in _EVALUATES
            yield name, _with_arguments(following, command.args[at + 2 :]) if is_script else following


_EVALUATES: Final = frozenset({"eval", "eval_ro"})
_GIVEN: Final = Lazy(r"\b(KEYS|ARGV)\s*(?:\[\s*(\d{1,3})\s*\])?")


def _with_arguments(script: str, given: Sequence[str]) -> str:
    """A script of a store with what stands behind it for its keys, as many as the first word says, and arguments."""
    count = int(given[0]) + 1 if given and given[0].isdecimal() and len(given[0]) < _MOST_DIGITS else 1
    quoted = [json.dumps(one[:_LONGEST_GIVEN]) for one in given]
    held = {"KEYS": quoted[1:count], "ARGV": quoted[count:]}
    left = _MOST_PUT_IN

    def put(match: Any) -> str:
        nonlocal left
        values, number = held[match.group(1)], int(match.group(2) or 0)
        text = f"{{{', '.join(values[:_MOST_GIVEN])}}}" if not number else "".join(values[number - 1 : number])
        left -= len(text)
        return text if text and left >= 0 else str(match.group())

    return str(_GIVEN.sub(put, script))


_MOST_DIGITS: Final = 4
_MOST_GIVEN: Final = 16
_LONGEST_GIVEN: Final = 100
_MOST_PUT_IN: Final = 16_384  # characters


def _reads_script(word: str) -> bool:
    """Whether options of a shell say that it reads its script, and what it is called with stands behind them."""
    return word[:1] == "-" and word[1:].isalpha() and "s" in word and "c" not in word


def _is_bundle(word: str) -> bool:
    """Whether letters that are put together end in the one behind which a program stands: `-lne`, `-0777ne`."""
    return word[:1] == "-" and word[1:].isalnum() and word[-1:] in "eE"


def _in_file(language: ProgramLanguage, name: str, arguments: tuple[str, ...] = ()) -> Program:
    return Program(language, arguments=arguments) if name in STDIN else Program(language, None, name, arguments)


def _is_script_option(word: str) -> bool:
    lowered = word.lower()
    return (word[:1] == "-" and word[1:2] != "-" and "c" in word and "=" not in word) or lowered in {"-command", "/c"}


def started_file(command: Command) -> str:
    """The file that a command is by its own name (`./build.sh`); empty for programs of the system."""
    program = command.program
    return program if "/" in program and not program.startswith(USUAL_PLACES) and "$(" not in program else ""


_SHEBANG: Final = Lazy(r"^#!\s*\S*?/?(?:env\s+(?:-\S+\s+)*)?([\w.+-]+)(?:\s|$)")


def language_of_file(text: str) -> tuple[str, ProgramLanguage]:
    """The interpreter that the first line of a program names, and its language; the shell where none does."""
    match = _SHEBANG.match(text)
    name = interpreter(match.group(1).rsplit("/", 1)[-1]) if match is not None else ""
    return (name, _INTERPRETERS[name].language) if name else ("sh", "shell")


_STARTED_IN_CODE: Final = Lazy(
    r"""(?:\b(?:system|exec|popen|popen3|spawn|shell_exec|passthru|capture2e?|capture3|qx|sh|run|readpipe)|%x|"""
    r"""do shell script|doShellScript)"""
    r"""\s*[({\[]*\s*(?:"((?:[^"\\\n]|\\.)+)"|'((?:[^'\\\n]|\\.)+)')|`([^`\n]+)`|(?:%x|\bqx)\s*[({\[/]([^)}\]/\n]+(?:/[^)}\]\n]*)?)"""
    r"""|"((?:[^"\\\n]|\\.)+)"\s*\|\s*getline|\|\s*"((?:[^"\\\n]|\\.)+)\""""
)
_MOST_STARTED: Final = 32


def commands_in_code(code: str) -> list[str]:
    """The command lines that a program starts in a language without a grammar here: Perl, Ruby, awk, Lua, Tcl."""
    found: list[str] = []
    for match in _STARTED_IN_CODE.finditer(code):
        text = next((group for group in match.groups() if group), "")
        if text and len(found) < _MOST_STARTED:
            found.append(text.replace('\\"', '"').replace("\\'", "'"))
    return found


_JOINED: Final = r"""(?:"(?:[^"\\\n]|\\.)*"|\$?\w+|[ \t])+"""
_OF_AWK: Final = Lazy(
    rf"""\b(\w+)\s*=\s*({_JOINED})|\bgetline\b[^<;)}}\n]{{0,80}}<\s*(?:"((?:[^"\\\n]|\\.)+)"|(\w+))"""
    r"""|\bprintf?\b[^;}\n|>]{0,400}>>?\s*(?:"((?:[^"\\\n]|\\.)+)"|(\w+))"""
    r"""|\bprintf?\b([^;}\n|]{0,400})\|&?\s*(?:"((?:[^"\\\n]|\\.)+)"|(\w+))|\b(\w+)\s*\|&?\s*getline"""
    rf"""|\bsystem\s*\(\s*({_JOINED})\)"""
)
_OF_JOINED: Final = Lazy(r"""\"((?:[^"\\\n]|\\.)*)\"|(\$?\w+)""")


def lines_of_awk(code: str) -> list[str]:
    """Return what a program of awk does to files and other programs, as the command lines that do the same."""
    known: dict[str, str] = {}
    read: list[str] = []
    lines: list[str] = []

    def joined(written: str) -> str:
        """What stands side by side; fields and names that nobody knows stay as they are written."""
        parts = ((text, name) for text, name in _OF_JOINED.findall(written))
        made = "".join(known.get(name, name) if name else text.replace('\\"', '"') for text, name in parts)
        return made[:_LONGEST_JOINED]

    for found in islice(_OF_AWK.finditer(code), _MOST_STARTED):
        name, value, source, source_at, target, target_at, told, fed, fed_at, asked, started = found.groups()
        if name is not None:
            known[name] = joined(value)
        source, target = source or known.get(source_at, ""), target or known.get(target_at, "")
        fed = (fed or known.get(fed_at, "")).replace('\\"', '"')
        if source:
            read.append(shlex.quote(source))
        if target:
            lines.append(f"tee {shlex.quote(target)}")
        if fed:
            lines.append(f"cat {' '.join(read)} | {fed}")
            lines.append(f"echo {shlex.quote(joined(told))} | {fed}")
        lines += [known[asked]] if asked in known else []
        lines += [joined(started)] if started else []
    return [*lines, f"cat {' '.join(read)}"] if read else lines


_LONGEST_JOINED: Final = 1_024
_STRINGS: Final = Lazy(r"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'")


def strings_in_code(code: str) -> str:
    """Every text that stands in a program, a line each: what it prints is made of them."""
    found = (next((group for group in match.groups() if group), "") for match in _STRINGS.finditer(code))
    return "\n".join(found).replace("\\n", "\n")


_ESCAPE: Final = Lazy(r"(?m)^\s*(?:\\!|\.(?:shell|system)\b|system\b|!!|host\b|!)\s*(\S.*)$")
_INCLUDES: Final = Lazy(r"(?m)^\s*(?:\\ir?|\.read|source|\\\.|@{1,2})\s+(\S+)")
# Commands that a client gives its rows to: of `sqlite3`, of `psql` and of `mysql`.
_GIVEN_ROWS: Final = Lazy(r"(?m)(?:^\s*\.(?:once|output)|\\(?:o|out|gx?|w))\s+\|\s*(\S.*)$|^\s*(?:pager|\\P)\s+(\S.*)$")


def commands_in_sql(text: str) -> tuple[list[tuple[str, str]], list[str]]:
    """The commands that lines of a database client's input start, each with what it reads, and the files they read."""
    rows = strings_in_code(text)
    started = [(match.group(1), "") for match in _ESCAPE.finditer(text)]
    started += [(match.group(1) or match.group(2), rows) for match in _GIVEN_ROWS.finditer(text)]
    return (
        started[:_MOST_STARTED],
        [match.group(1) for match in _INCLUDES.finditer(text)][:_MOST_STARTED],
    )


_RECIPE: Final = Lazy(r"(?m)^(?:\t|[^\s:#=][^:=\n]*:[^=;\n]*;)[ \t@+-]*(.+)$|\$\(shell\s+([^)]*)\)")


def recipes(text: str) -> str:
    """The commands of a makefile, a line each."""
    found = (next((group for group in match.groups() if group), "") for match in _RECIPE.finditer(text))
    return "\n".join(found).replace("$$", "$")


# What starts a command elsewhere: the options that take a value, where those are few.
_REMOTE: Final = members("elsewhere", RemoteStart)
_VALUED: Final = {name: elsewhere.value for name, elsewhere in _REMOTE.items()}
# Options of `docker run` and `docker exec` without a value; every other one takes one, or has it behind `=`.
_ENGINES: Final = of_kind("container-engine")
_HAS_EXEC: Final = of_kind("has-exec")
_HAS_SSH: Final = of_kind("has-ssh")
_DOWNLOADERS: Final = of_kind("downloader")
_COMMAND_OPTION: Final = frozenset({"-c", "--command", "-C"})
_MOVES: Final = of_kind("moves-programs")
_PLAIN: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+["


@remembered
def _moves(name: str) -> bool:
    return name.lower() in _MOVES or hands_on(name.lower()) or bool(name.strip(_PLAIN))


def moves_programs(command: Command) -> bool:
    """Whether a command can run, start, copy or fetch a program; most can do nothing of it."""
    return _moves(command.name) or started_file(command) != ""


@remembered
def hands_on(name: str) -> bool:
    """Whether a program gives what it is called with to another one: to an interpreter, or to a shell elsewhere."""
    return name in PREFIXED or name in _VALUED or name in _ENGINES | _HAS_EXEC | _HAS_SSH or interpreter(name) != ""


class Started(NamedTuple):
    """A command line that is run elsewhere; where it is empty, what waits there is a shell that reads."""

    line: str

    @property
    def shell(self) -> str:
        """The shell that waits there for what it is to run; empty where something else is run."""
        name, *rest = self.line.split() or ["sh"]
        plain = name.rsplit("/", 1)[-1]
        return plain if plain in SHELLS and all(word[0] == "-" and "c" not in word for word in rest) else ""


def started(command: Command, words: Sequence[str]) -> Started | None:
    """What a command starts on another machine, in a container or as another user; `None` where it starts nothing."""
    name = command.name.lower()
    rest = list(words)
    remote = _REMOTE.get(name)
    if remote is not None and (remote.after or remote.operands is not None):
        for at, word in enumerate(rest):
            head, joined, value = word.partition("=")
            if head in remote.after:
                return Started(value if joined else " ".join(rest[at + 1 :] if word == "--" else rest[at + 1 : at + 2]))
        line = None if remote.operands is None else _behind(rest, remote.value, remote.operands)
        if line or name == "ssh":
            return None if line is None else Started(" ".join(line))
    if name in {"su", "runuser"}:
        for at, word in enumerate(rest):
            if word in {"-c", "--command"} or (word[:1] == "-" and word[1:2] != "-" and "c" in word):
                return Started(rest[at + 1]) if at + 1 < len(rest) else None
        behind = _after(rest, "--")
        return Started(shlex.join(behind) if behind and name == "runuser" else "")
    if name in _ENGINES:
        return _in_container(name, rest)
    if name in _HAS_EXEC:
        if "exec" not in rest[:8] and not (name != "lxc" and "run" in rest[:8]):
            return None
        behind = _after(rest, "--")
        if behind is None and "exec" in rest[:8]:
            behind = _behind(rest[rest.index("exec") + 1 :], _VALUED[name], 1)
        return None if not behind else Started(shlex.join(behind))
    if name in {"chroot", "nsenter"}:
        behind = _after(rest, "--") or _behind(rest, _VALUED[name], 1 if name == "chroot" else 0)
        return None if behind is None else Started(shlex.join(behind))
    if name == "adb" and "shell" in rest[:4]:
        return Started(" ".join(rest[rest.index("shell") + 1 :]))
    if name in _HAS_SSH and "ssh" in rest[:4]:
        for at, word in enumerate(rest):
            head, joined, value = word.partition("=")
            if head in _COMMAND_OPTION:
                return Started(value if joined else " ".join(rest[at + 1 : at + 2]))
        return Started("")
    if name == "trap" and len(rest) > 1 and rest[0] not in {"-", "-p", "-l"}:
        return Started(rest[0])
    return None


def _in_container(name: str, rest: list[str]) -> Started | None:
    at = next((at for at, word in enumerate(rest[:8]) if word in {"exec", "run"}), None)
    if at is None:
        return None
    runs = rest[at] == "run"
    rest = rest[at + 1 :]
    entry: list[str] = []
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        head, joined, value = word.partition("=")
        if head == "--entrypoint":
            entry = [value if joined else rest.pop(0) if rest else ""]
        elif not joined and word not in vocabulary().values["plainflags"] and rest:
            rest.pop(0)
    if not rest:
        return None
    behind = [*entry, *rest[1:]]
    return Started(shlex.join(behind)) if behind or not runs else None


def _behind(words: Sequence[str], valued: frozenset[str], operands: int) -> list[str] | None:
    """The words behind a command's options and so many operands; `None` where it has fewer."""
    rest = list(words)
    while rest:
        word = rest[0]
        if word == "--":
            rest.pop(0)
            return rest[operands:] if len(rest) >= operands else None
        if word.startswith("-"):
            del rest[: 2 if word in valued else 1]
        elif operands:
            operands -= 1
            rest.pop(0)
        else:
            break
    return None if operands else rest


def _after(words: Sequence[str], mark: str) -> list[str] | None:
    return list(words[words.index(mark) + 1 :]) if mark in words else None


def files_made(command: Command, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The files that a command writes by their names, each with the file that it is a copy of, or nothing.

    Nothing stands for what nobody can know: what was downloaded.
    """
    name = command.name.lower()
    plain = [word for word in words if not word.startswith("-") or word == "-"]
    if name in {"cp", "mv", "ln", "install"}:
        if name == "install":
            plain = _behind(list(words), frozenset({"-m", "-o", "-g", "--mode", "-S"}), 0) or []
            plain = [word for word in plain if not word.startswith("-")]
        for source in plain[:-1]:
            target = plain[-1]
            yield target, source
            if len(plain) > 2 or "." not in target.strip("./").rsplit("/", 1)[-1]:  # perhaps into a folder
                yield f"{target.rstrip('/')}/{source.rsplit('/', 1)[-1]}", source
    elif name == "dd":
        values = dict(word.split("=", 1) for word in words if "=" in word)
        if "of" in values:
            yield values["of"], values.get("if", "-")
    elif name in _DOWNLOADERS:
        yield from ((target, "") for target in _downloaded(name, words))


def _downloaded(name: str, words: Sequence[str]) -> Iterator[str]:
    """The files that a download is written to."""
    named = False
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else ""
        is_output = word in {"-o", "--output", "--output-document", "-OutFile", "--out"}
        if is_output or (word == "-O" and name == "wget"):
            named = True
            if following not in {"-", ""}:
                yield following
        elif word.startswith(("--output=", "--output-document=", "--out=")):
            named = True
            yield word.partition("=")[2]
        elif word[:1] == "-" and word[1:2] != "-" and word[-1:] == ("O" if name == "wget" else "o"):
            named = True
            if following not in {"-", ""}:
                yield following
    remote = name == "wget" or any(word[:1] == "-" and word[1:2] != "-" and "O" in word for word in words)
    if remote and not named:
        yield from (word.partition("?")[0].rstrip("/").rsplit("/", 1)[-1] for word in words if "://" in word)


_OF_SCRIPT: Final = Lazy(r"\"?\$(?:([0-9@*])|\{([0-9@*])\})\"?")


def with_arguments(text: str, arguments: Sequence[str]) -> str:
    """A script with what it is called with in place of `$0`, `$1` and `$@`; what it is not called with is empty."""
    if "$" not in text:
        return text
    known, given = not any(one in text for one in ("()", "set ", "function ")), dict(enumerate(arguments))

    def value(match: Any) -> str:
        name = match.group(1) or match.group(2)
        if name in "@*":
            return " ".join(arguments[1:])
        return given.get(int(name), "" if known and name != "0" else str(match.group()))

    called = f"set -- {shlex.join(arguments[1:])}\n" if "${" in text or "shift" in text else ""
    return called + str(_OF_SCRIPT.sub(value, text) if "shift" not in text else text)
