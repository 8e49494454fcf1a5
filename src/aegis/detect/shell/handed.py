"""What a command line hands to somebody else to read: a script to a shell of Windows, an AppleScript, lines of orders.

An AppleScript is read statement by statement, with the application that each speaks to and with constants followed
through assignments, `&` and `path to`. What a statement does stands with the program `applescript` in `data/programs`:
its first word there is the statement without the texts in it, its second the statement with them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

from aegis.core.patterns import Lazy
from aegis.detect.shell.catalogue import InterpreterOptions, command_lines, members
from aegis.detect.shell.programs import STDIN, Program
from aegis.detect.shell.tree import Command
from aegis.detect.shell.uses import Did, effects_of, placed_path, service_resource
from aegis.detect.shell.words import decoded_base64

POWERSHELLS: Final = frozenset({"powershell", "pwsh", "powershell_ise", "sqlps", "sqltoolsps"})


def powershell_script(args: Sequence[str]) -> tuple[str, bool]:
    """Return the script on the command line of `powershell`, empty for none; and whether it hides what it runs."""
    at = 0
    while at < len(args):
        word = args[at].lower()
        body = word.lstrip("-/") if word[:1] in "-/" else ""
        behind = "" if list(args[at + 1 :]) == ["-"] else " ".join(args[at + 1 :])  # `-` is what it reads
        if body and ("encodedcommand".startswith(body) or body == "ec"):
            text = decoded_base64(args[at + 1]) if at + 1 < len(args) else None
            return text or "", text is None or _CONCEALS.search(text) is not None
        if body and ("command".startswith(body) or body in {"commandwithargs", "cwa"}):
            return behind, False
        if body and "file".startswith(body):
            return f"& {behind}" if behind else "", False
        if word == "-":
            return "", False
        if body:
            takes = any(option.startswith(body) for option in _VALUED) and body not in {"noprofile", "nop"}
            at += 2 if takes and not any(switch.startswith(body) for switch in _POWERSHELL_SWITCHES) else 1
            continue
        return " ".join(args[at:]), False
    return "", False


# What a script that came encoded runs or puts together once more, which no reading of it shows.
_CONCEALS: Final = Lazy(
    r"(?i)\b(?:iex|invoke-expression|frombase64string|gzipstream|deflatestream|reflection)\b|-enc\w*\s|-bxor\b|\[char"
)
_VALUED: Final = (
    "executionpolicy", "ep", "windowstyle", "version", "psconsolefile", "inputformat", "outputformat",
    "configurationname", "settingsfile", "workingdirectory", "custompipename", "exec",
)  # fmt: skip
_POWERSHELL_SWITCHES: Final = (
    "noprofile", "noninteractive", "nologo", "noexit", "sta", "mta", "interactive", "login", "help",
)  # fmt: skip


def cmd_script(args: Sequence[str]) -> str:
    """Return the command line that `cmd` runs; empty where it waits for one."""
    delayed = "setlocal enabledelayedexpansion& " if any(arg.lower() in {"/v", "/v:on"} for arg in args) else ""
    for at, arg in enumerate(args):
        lowered = arg.lower()
        if lowered in {"/c", "/k", "/r", "-c", "//c"}:
            rest = args[at + 1 :]
            return delayed + (_line(rest) if len(rest) > 1 else " ".join(rest))
        if lowered[:2] in {"/c", "/k"} and len(lowered) > 2:
            return " ".join([arg[2:], *args[at + 1 :]])
        if not lowered.startswith("/"):
            return ""
    return ""


def _line(words: Sequence[str]) -> str:
    """Return words as a line of `cmd`: what stood in quotes is one word there as well."""
    return " ".join([f'"{word}"' if " " in word and '"' not in word else word for word in words])


def started_line(args: Sequence[str]) -> str:
    """Return the command line that `Start-Process` starts: a program with what it is called with; empty for none."""
    words: list[str] = []
    at = 0
    while at < len(args):
        word = args[at].lower()
        if word[:1] == "-" and len(word) > 1 and not words:
            if "-argumentlist".startswith(word):
                words.append("")
                at += 1
            elif "-filepath".startswith(word) or "-execute".startswith(word):
                at += 1
            else:
                at += 1 if word in _SWITCHES else 2
            continue
        if word[:1] == "-" and word in _START_OPTIONS:
            at += 1 if word in _SWITCHES else 2
            continue
        if not ("-argumentlist".startswith(word) and len(word) > 1 and word[0] == "-"):
            words.append(args[at])
        at += 1
    program, *rest = [word for word in words if word] or [""]
    return " ".join([f'"{program}"' if " " in program and "\\" in program.split()[0] else program, *rest])


_SWITCHES: Final = frozenset(
    {"-wait", "-passthru", "-nonewwindow", "-loaduserprofile", "-usenewenvironment", "-nnw", "-lup"}
)
_START_OPTIONS: Final = _SWITCHES | {
    "-verb", "-windowstyle", "-workingdirectory", "-credential", "-redirectstandardoutput", "-redirectstandarderror",
    "-redirectstandardinput", "-erroraction", "-ea",
}  # fmt: skip


_MOVES: Final = frozenset({"cd", "chdir", "pushd", "set-location", "sl", "push-location"})
_HIVES: Final = frozenset({"hklm:", "hkcu:", "hkcr:"})
_HOMES: Final = frozenset({"~", "$home", "$env:userprofile", "%userprofile%", "%homepath%", "$env:homepath"})
_HERE: Final = ".\\"
_TAKE_FILES: Final = frozenset({
    "attrib", "cipher", "clear-content", "copy", "copy-item", "del", "erase", "get-content", "icacls", "move",
    "move-item", "rd", "remove-item", "ren", "rename-item", "rmdir", "set-content", "takeown", "type",
})  # fmt: skip


def standing(command: Command, folder: str) -> tuple[str, Command]:
    r"""Return the folder of Windows that the next command stands in, and this one with its files named from there.

    Only a folder that is named from the root is followed: `pushd C:\Windows & del *.dll`.
    """
    if command.name in _MOVES:
        place = next((arg for arg in command.args if arg[:1] not in "-/"), "")
        rooted = place[1:2] == ":" or place[:5].lower() in _HIVES or place.lower().rstrip("\\") in _HOMES
        return (place.rstrip("\\/") if rooted else folder if not place else ""), command
    if command.name in ("popd", "pop-location"):
        return "", command
    if folder[:5].lower() in _HIVES and command.args and command.args[0][:1] != "-" and ":" not in command.args[0]:
        return folder, command._replace(args=(f"{folder}\\{command.args[0].removeprefix('.')}", *command.args[1:]))
    if not folder or command.name not in _TAKE_FILES:
        return folder, command
    args = tuple([f"{folder}\\{arg.removeprefix(_HERE)}" if arg and arg[0] not in "-/\\$%'" and ":" not in arg else arg
                  for arg in command.args])  # fmt: skip
    return folder, command._replace(args=args)


def inner_lines(name: str, args: Sequence[str]) -> list[tuple[str, str]]:
    """Return the command lines that stand among the words of a program, each with the shell that reads it."""
    found: list[tuple[str, str]] = []
    lowered = [arg.lower() for arg in args]
    for entry in (*command_lines().get(name, ()), *command_lines().get("any", ())):
        if any(word in lowered for word in entry.unless):
            continue
        for at, arg in enumerate(lowered):
            if arg in entry.rest:
                found.append((entry.shell, _JOINS[entry.shell](args[at + 1 :])))
                break
            for option in entry.after:
                if arg == option and at + 1 < len(args):
                    found.append((entry.shell, args[at + 1]))
                elif arg.startswith(option) and arg[len(option) : len(option) + 1] in {":", "="}:
                    found.append((entry.shell, args[at][len(option) + 1 :]))
                elif option.endswith("=") and arg.startswith(option) and len(arg) > len(option):
                    found.append((entry.shell, args[at][len(option) :]))
        if entry.start:
            plain = [arg for arg in args if arg[:1] not in "-/"]
            if len(plain) >= entry.start:
                found.append((entry.shell, _JOINS[entry.shell](args[list(args).index(plain[entry.start - 1]) :])))
    # What a line hands on to `cmd /c` is all that stands behind it.
    return [
        (shell, str(_TO_CMD.sub("", line)) if shell == "cmd" else line) for shell, line in found[:16] if line.strip()
    ]


_JOINS: Final = {"bash": shlex.join, "cmd": _line, "powershell": " ".join}
_TO_CMD: Final = Lazy(r"(?i)^\s*\"?cmd(?:\.exe)?\"?\s+/[ckr]\s+")


def called_on_each(name: str, args: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the method that is called on each item, where it is named, with what it is given."""
    words = [arg for arg in args if arg.lower() != "-membername"]
    return (f".{words[0].lower()}", tuple(words[1:])) if words and words[0].isidentifier() else (name, tuple(args))


# Orders, a line each


TOLD: Final = frozenset(name for name, runs in members("runs", InterpreterOptions).items() if runs.language == "orders")
MOST_ORDERS: Final = 64  # lines that a program reads and that are read here
_CHAIN: Final = Lazy(r"^:(\w+)\s+(\w+)")
_KIND: Final = Lazy(r"(?m)^\s*\"?kind\"?\s*:\s*\"?(\w+)")


def ordered(name: str, words: Sequence[str], program: Program, text: str) -> list[str]:
    """Return the command lines that a program's orders stand for, each behind its name and the words that it has.

    Of a manifest it is those that take away what it names, where that is asked for.
    """
    if program.language == "manifest":
        kinds = _KIND.findall(text)[:MOST_ORDERS] if "delete" in words[:4] else []
        return [f"{name} delete {kind.lower()} x" for kind in kinds]
    kept: list[str] = []
    for word in words:  # without the file that they stand in, and the option before that
        if word not in STDIN and word not in (program.file, program.text):
            kept.append(word)
        elif kept and kept[-1][:1] == "-":
            kept.pop()
    before = shlex.join(kept)
    lines = [line for line in text.replace(";", "\n").splitlines() if line.strip()][:MOST_ORDERS]
    return [f"{name.removesuffix('-restore')} {before} {_order(line)}" for line in lines]


def _order(line: str) -> str:
    """A line of orders as words of a command; the policy of a chain of a saved packet filter is `-P CHAIN POLICY`."""
    match = _CHAIN.match(line)
    if match is not None:
        return f"-P {match.group(1)} {match.group(2)}"
    try:
        return shlex.join(shlex.split(line))
    except ValueError:
        return shlex.join(line.split())


def told(command: Command, printed: Sequence[str], files: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the orders that a program of Windows is given, by a pipe or by a file that was written here."""
    words = [word.rpartition(":")[2] for word in (*command.args, *command.text.partition("<")[2].split()[:1])]
    lines = [*printed, *(line for word in words for line in files.get(base_name(word), ()))]
    return [f"{command.name} {line}" for line in dict.fromkeys(lines[:MOST_ORDERS])]


def base_name(path: str) -> str:
    """The last part of a path, in small letters."""
    return path.replace("/", "\\").rstrip("\\").rpartition("\\")[2].strip("\"' ").lower()


# AppleScript


MAX_SCRIPT: Final = 16_384  # characters; a longer one is cut there
_MOST_STATEMENTS: Final = 512
_LONGEST_VALUE: Final = 4_096  # of a constant that is put together
_MOST_KNOWN: Final = 256
_MOST_LISTED: Final = 64
_DEEPEST: Final = 3  # scripts that scripts run
_TOKEN: Final = Lazy(
    r'(?s)"((?:[^"\\]|\\.)*)"|(--[^\n]*|#[^\n]*|\(\*.*?\*\)|¬[ \t]*\r?\n)|([A-Za-z_]\w*)|(\d+)|([&{}(),:=])|(\r?\n)'
)
_IS_JAVASCRIPT: Final = Lazy(r"\bApplication\s*\(|\bObjC\.|\$\.NS|\$\(|\bvar\s|\bfunction\s*\(")
_FOLDERS: Final = {
    "home": "~/", "desktop": "~/Desktop/", "documents": "~/Documents/", "downloads": "~/Downloads/",
    "pictures": "~/Pictures/", "temporary items": "/private/tmp/",
    "library": "~/Library/", "preferences": "~/Library/Preferences/", "keychain": "~/Library/Keychains/",
    "application support": "~/Library/Application Support/", "startup disk": "/", "system": "/System/",
    "users": "/Users/", "applications": "/Applications/",
}  # fmt: skip
# Phrases before a value that leave it what it is.
_LEAVES: Final = (("quoted", "form", "of"), ("posix", "path", "of"), ("posix", "file"), ("alias",), ("file",))
_STARTS: Final = (("do", "shell", "script"), ("do", "script"), ("write", "text"))
_BEHIND_FOLDER: Final = frozenset({"folder", "from", "user", "domain", "as", "text", "string", "alias"})
_TAKES: Final = frozenset({"read", "duplicate", "open", "copy"})
_ENDS: Final = frozenset({"delete", "move"})


class AppleScript(NamedTuple):
    """What a script starts and does."""

    commands: list[str]
    effects: list[Did]


class _Part(NamedTuple):
    """A word, a mark, or a value that is known, of a statement."""

    kind: Literal["word", "mark", "value"]
    text: str


def read_applescript(text: str, depth: int = 0) -> AppleScript:
    """Read a script, of AppleScript or of JavaScript for Automation, with those that it runs; never raises."""
    text = text[:MAX_SCRIPT]
    found = AppleScript([], [])
    if _IS_JAVASCRIPT.search(text):
        line = " ".join(text.split())
        found.effects.extend(effects_of("applescript", (line, line)))
        return found
    known: dict[str, str] = {}
    told: list[str] = []
    statements = list(islice(_statements(text), _MOST_STATEMENTS))
    for statement in _called(statements):
        parts = _taken(_joined(statement, known))
        for script in _statement(parts, known, told, found) if parts else ():
            if depth < _DEEPEST:
                inner = read_applescript(script, depth + 1)
                found.commands.extend(inner.commands)
                found.effects.extend(inner.effects)
    return found


def _called(statements: Sequence[list[_Part]]) -> Iterator[list[_Part]]:
    """Yield the statements, with those of a handler once more where it is called, its parameters set before them."""
    handlers: dict[str, int] = {}
    left = _MOST_STATEMENTS
    for at, statement in enumerate(statements):
        yield statement
        first = statement[0].text.lower()
        start = handlers.get(first, -1)
        if first in {"on", "to"} and len(statement) > 2:
            handlers[statement[1].text.lower()] = at
        names, given = ([part for part in one if part.text != ","] for one in (statements[start][2:], statement[1:]))
        for name, value in zip(names, given, strict=False) if start >= 0 else ():
            yield [_Part("word", "set"), name, _Part("word", "to"), value]
        for inner in statements[start + 1 : at] if start >= 0 else ():
            left -= 1
            if left < 0 or [part.text.lower() for part in inner[:2]] == ["end", first]:
                break
            yield inner


def _taken(parts: list[_Part]) -> list[_Part]:
    """A statement without the question before it, `if 1 = 1 then`; nothing of one whose answer is known to be no."""
    words = [part.text.lower() for part in parts]
    if words[:1] != ["if"] or "then" not in words[:-1]:
        return parts
    at = words.index("then")
    asked = parts[1:at]
    plain = (
        len(asked) == 3
        and asked[1].text == "="
        and all(one.kind == "value" or one.text.isdecimal() for one in asked[::2])
    )
    return [] if plain and asked[0].text.lower() != asked[2].text.lower() else parts[at + 1 :]


def _statements(text: str) -> Iterator[list[_Part]]:
    parts: list[_Part] = []
    for match in _TOKEN.finditer(text):
        value, skipped, word, number, mark, end = match.groups()
        if end is not None:
            if parts:
                yield parts
            parts = []
        elif value is not None:
            parts.append(_Part("value", value.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")))
        elif word is not None or number is not None:
            parts.append(_Part("word", word or number))
        elif skipped is None and mark not in {"(", ")"}:
            parts.append(_Part("mark", mark))
    if parts:
        yield parts


def _joined(parts: list[_Part], known: dict[str, str]) -> list[_Part]:
    """A statement with what is known put in, and values that `&` joins as one."""
    out: list[_Part] = []
    joins = False
    at = 0
    named = parts[1].text.lower() if len(parts) > 1 and parts[0].text.lower() in {"set", "property"} else ""
    while at < len(parts):
        part = parts[at]
        if part == _Part("mark", "&"):
            joins = bool(out)
            at += 1
            continue
        if joins:
            at = _behind(parts, at)
        value, at = _value(parts, at, known, named)
        if value is None:
            if joins and out and out[-1].kind == "value":
                joins = False  # what is joined to is nobody's to know: the beginning stands
                continue
            out.append(part)
        elif joins and out[-1].kind == "value":
            out[-1] = _Part("value", (out[-1].text + value)[:_LONGEST_VALUE])
        else:
            out.append(_Part("value", value))
        joins = False
    return out


def _behind(parts: list[_Part], at: int) -> int:
    """Where a value begins behind phrases that leave it what it is: `quoted form of`."""
    for _ in range(len(_LEAVES)):
        words = tuple(part.text.lower() for part in parts[at : at + 4])
        at += next((len(one) for one in _LEAVES if words[: len(one)] == one), 0)
    return min(at, len(parts) - 1)


def _value(parts: list[_Part], at: int, known: dict[str, str], named: str) -> tuple[str | None, int]:
    """The value that begins at a part, `None` where none does; and where what follows begins."""
    part = parts[at]
    if part.kind == "value":
        return part.text, at + 1
    words = [one.text.lower() if one.kind == "word" else "" for one in parts[at : at + 8]]
    if words[:2] == ["path", "to"]:
        for length in (2, 1):
            folder = _FOLDERS.get(" ".join(words[2 : 2 + length]))
            if folder is not None:
                at += 2 + length
                while at < len(parts) and parts[at].text.lower() in _BEHIND_FOLDER:
                    at += 1
                return folder, at
    if words[0] == "item" and words[2:3] == ["of"] and parts[at + 3 : at + 4] == [_Part("mark", "{")]:
        listed = [part.text for part in parts[at + 4 : at + 4 + 2 * _MOST_LISTED : 2] if part.kind == "value"]
        number = int(words[1]) if words[1].isdecimal() and len(words[1]) < 4 else 0
        ends = next((end for end, part in enumerate(parts[at:], at) if part.text == "}"), at)
        return (listed[number - 1] if 0 < number <= len(listed) else None), ends + 1
    if words[:4] == ["reverse", "of", "characters", "of"] and parts[at + 4 : at + 5] and parts[at + 4].kind == "value":
        return parts[at + 4].text[::-1], _behind_cast(parts, at + 5)
    if part.text == "{" or (words[:2] == ["character", "id"] and parts[at + 2 : at + 3] == [_Part("mark", "{")]):
        start = at + 1 if part.text == "{" else at + 3
        ends = next((end for end in range(start, len(parts)) if parts[end].text in {"}", "{", ":"}), start)
        held = [one for one in parts[start:ends] if one.text != ","][:_LONGEST_VALUE]
        behind = _behind_cast(parts, ends + 1)
        if part.text != "{" and all(one.text.isdecimal() and int(one.text[:4]) < 128 for one in held):
            return "".join([chr(int(one.text[:4])) for one in held]), behind
        if part.text == "{" and held and behind > ends + 1 and all(one.kind == "value" for one in held):
            return "".join([one.text for one in held])[:_LONGEST_VALUE], behind
        return None, at + 1
    if words[:2] in (["ascii", "character"], ["character", "id"]) and len(words) > 2 and words[2].isdecimal():
        return (chr(int(words[2])) if int(words[2]) < 128 else ""), at + 3
    if part.kind == "word" and not (at == 1 and words[0] == named):
        value = known.get(words[0])
        if value is not None:
            return value, at + 1
    return None, at + 1


def _behind_cast(parts: list[_Part], at: int) -> int:
    """Where what follows begins behind `as text`."""
    words = [part.text.lower() for part in parts[at : at + 2]]
    return at + 2 if words in (["as", "text"], ["as", "string"]) else at


def _statement(parts: list[_Part], known: dict[str, str], told: list[str], found: AppleScript) -> list[str]:
    """Read one statement; return the scripts that it runs."""
    words = [part.text.lower() if part.kind == "word" else "" for part in parts]
    if words[:1] == ["end"]:
        if told and words[1:2] != ["repeat"] and words[1:2] != ["try"] and words[1:2] != ["if"]:
            told.pop()
        return []
    if words[:1] == ["tell"] and "to" not in words:
        told.append(" ".join(part.text for part in parts))
        if "of" not in words and "machine" not in words:
            return []
    if words[:1] in (["set"], ["property"]) and len(parts) > 3:
        if len(parts) == 4 and parts[3].kind == "value" and len(known) < _MOST_KNOWN:
            known[words[1]] = parts[3].text
        else:
            known.pop(words[1], None)
    for phrase in _STARTS:
        for at in _places(words, phrase):
            if at < len(parts) and parts[at].kind == "value":
                found.commands.append(parts[at].text)
    _done(parts, words, told, found)
    run = _places(words, ("run", "script"))
    return [parts[at].text for at in run if at < len(parts) and parts[at].kind == "value"]


def _done(parts: list[_Part], words: list[str], told: list[str], found: AppleScript) -> None:
    lead = f"{told[-1]} " if told and words[:1] != ["tell"] else ""
    bare = lead + " ".join(
        part.text if part.kind != "value" or _names_application(parts, at) else '""' for at, part in enumerate(parts)
    )
    whole = lead + " ".join(f'"{part.text}"' if part.kind == "value" else part.text for part in parts)
    found.effects.extend(effects_of("applescript", (bare, whole)))
    values = [part.text for part in parts if part.kind == "value"]
    if "quit" in words:
        for value in values[-1:]:
            resource = service_resource(value.replace(" ", ""), "process")
            found.effects.append(Did("stop", resource, "one", (value,)))
    verb: Literal["read", "delete"] | None = "read" if _TAKES & set(words) else "delete" if _ENDS & set(words) else None
    if verb is not None:
        for value in values[:8]:
            resource, scope, shown = placed_path(_posix(value))
            if resource != "file":
                found.effects.append(Did(verb, resource, scope, (shown,)))


def _names_application(parts: list[_Part], at: int) -> bool:
    return at > 0 and parts[at - 1].text.lower() in {"application", "app", "process"}


def _places(words: list[str], phrase: tuple[str, ...]) -> Iterator[int]:
    """Where what follows a phrase begins, behind phrases that leave it what it is."""
    for at in range(len(words) - len(phrase)):
        if tuple(words[at : at + len(phrase)]) == phrase:
            behind = at + len(phrase)
            while True:
                left = next((one for one in _LEAVES if tuple(words[behind : behind + len(one)]) == one), None)
                if left is None:
                    break
                behind += len(left)
            yield behind


def _posix(path: str) -> str:
    """A path in the spelling of Unix: `Macintosh HD:Users:ada` is `/Users/ada`."""
    if "://" in path or ":" not in path:
        return path
    head, _, rest = path.partition(":")
    return ("/" if "/" not in head else f"{head}/") + rest.replace(":", "/")
