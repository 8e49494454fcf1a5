"""The guard that Aegis sets around itself: its home, keys, configuration, socket, command line, process and settings.

A call that names one of them is blocked, in any argument but prose and file contents; so is one that takes a folder
whole that holds one of them, ends the gateway's process or service, sets or unsets a variable `AEGIS_*`, or takes the
hooks of the process off. Names are compared as text: a link made beforehand, and a folder named relative to a place
that the call does not tell, are not seen here; owning the home is administrator power, and belongs to another user
than the agent's.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from aegis.core.finding import Finding, Report
from aegis.core.names import glob_match
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.core.patterns import Lazy
from aegis.detect.facts import Text
from aegis.detect.paths import fits, plain_path, spread
from aegis.detect.takes import Taken, taken
from aegis.policy.guards.base import Case
from aegis.policy.guards.unsettling import Ends, is_setting, is_target, taken_by_code, tool_takes, unsettles

# Those of the command line that read or change what decides, who decides, and what is asked.
COMMANDS: Final = frozenset({
    "agents", "alerts", "approvals", "canaries", "config", "containment", "explain", "hook", "init", "keys", "kill",
    "log", "mcp", "missions", "report-false-alarm", "run", "serve", "tools", "users", "why",
})  # fmt: skip
_SUBCOMMANDS: Final = [[word] for word in sorted(COMMANDS)]  # as the first word of a text
_PROSE: Final = frozenset({"content", "document"})  # for people, or what a file is written with: nothing obeys it
# Commands whose words are data: what they name is not run.
_TALKERS: Final = frozenset({"apt", "cat", "cd", "echo", "grep", "ls", "man", "mkdir", "pip", "printf", "which"})
_STARTERS: Final = frozenset({"command", "doas", "env", "exec", "nice", "nohup", "setsid", "sudo", "time", "xargs"})
_SEPARATORS: Final = frozenset(";|&(){}`\n")
_WORDS: Final = Lazy(r"""[^\s;|&<>(){}`"'=,]+|[;|&(){}`\n=]""")
_REMOTE: Final = ("ftp", "http", "ssh", "ws")  # schemes whose paths are another machine's
_WILD: Final = Lazy(r"\[[^\]]*\]|\?")
_REACH: Final = 6  # words after `aegis` in which its subcommand is looked for, options in between
_NAME: Final = "aegis"
_STARTED: Final = frozenset({_NAME, f"{_NAME}.cli"})  # the program, and the module that Python runs as it
# Bounds on what a call can make us read: words that are compared in all, characters of a string that is
# read whole and of one that is a path with blanks, characters around a name in longer strings, and levels
# of a relative path.
MAX_WORDS: Final = 2_000
MAX_WHOLE: Final = 16_384
MAX_PATH: Final = 4_096
_AROUND: Final = 256
_DEEPEST: Final = 64
_ABSOLUTE: Final = ("/", "~", "$", "%", "file:")
_TAKEN: Final = "the call takes a folder whole that holds a part of the guard itself"
_ENDED: Final = "the call ends the guard itself"
_SET: Final = "the call changes the settings that the guard itself runs under"
# Names of files that a home holds: what a search that is narrowed by names may find in it.
_OF_A_HOME: Final = ("aegis.db", "aegis.db-wal", "aegis.yaml", "keys", "log.key", "aegis.sock", "log.json")
_NAMED: Final = "the call names a part of the guard itself"
_TOO_OFTEN: Final = "the call names what looks like the guard too often to be read"

_QUIET: Final = Report(guard="protected")


class ProtectedGuard:
    """Blocks calls that name a protected path or run a protected command."""

    name = "protected"

    def __init__(
        self,
        paths: Sequence[Path] = (),
        *,
        user_home: Path | None = None,
        settings: Sequence[Path] = (),
        process: int | None = None,
    ):
        """Protect `paths`, and files of `settings`, which may be read along with the folders that hold them.

        `process` is the id of the process that decides.
        """
        self._ends = Ends(process)
        self._user_home = posixpath.normpath(str(user_home)).lower() if user_home is not None else "~"
        self._shorts = ("~/", "$home/", f"~{posixpath.basename(self._user_home)}/")
        spelled = {str(path) for path in (*paths, *settings)} | {str(path.resolve()) for path in (*paths, *settings)}
        read_along = {str(path) for path in settings} | {str(path.resolve()) for path in settings}
        self._paths = tuple(sorted(posixpath.normpath(path).lower() for path in spelled))
        self._parts = tuple(tuple(path.strip("/").split("/")) for path in self._paths)
        self._closed = tuple(
            tuple(path.strip("/").split("/"))
            for path in sorted({posixpath.normpath(path).lower() for path in spelled - read_along})
        )
        # What a string must hold to be worth reading closely.
        self._hints = tuple({_NAME, *(parts[-1] for parts in self._parts)})

    def check(self, case: Case) -> Report:
        """`block` where any string of the call, as it stands or as a shell would read it, names one."""
        facts, together = case.facts, case.facts.together
        named = busy = True  # whether a string may name something of the guard; whether one may take or change it
        if together is not None:  # of most calls one look at all strings together says that none does
            lower = together.lower()
            named = bool(self._paths) and ("*" in together or "?" in together or "[" in together)
            for hint in self._hints:
                named = named or hint in lower
            busy = bool(facts.ran) or "AEGIS_" in together or "unhook" in together or tool_takes(case.tool) is not None
            for text in facts.texts.strings:
                busy = busy or text.role == "code"
        if busy:
            around = self._around(case)
            if around is not None:
                return around
        if not named:
            return _QUIET
        strings = case.facts.texts.strings
        left = [MAX_WORDS]
        for text in strings:
            if text.role not in _PROSE and self._is_close(text.value, text.role):
                message = self._read(text.value, left)
                if message:
                    return _blocked(text.path, message)
        for view in case.facts.views:
            source = strings[view.source] if 0 <= view.source < len(strings) else None
            role, value = view.role or ("unknown" if source is None else source.role), view.value
            if "joined" in view.kinds:
                role, value = "unknown", _joined(strings)
            if role not in _PROSE and self._is_close(value, role):
                message = self._read(value, left)
                if message:
                    return _blocked("" if source is None else source.path, message)
        return self._argument_vector(case)

    def _around(self, case: Case) -> Report | None:
        """What is done to the folders that hold a protected path, to the gateway's process, or to its settings."""
        ran = case.facts.ran
        for one in ran:
            for found in taken(one):
                if self._is_taken(found):
                    return _blocked(one.path, _TAKEN)
        if ran:
            path = self._ends.ended(ran)
            if path is not None:
                return _blocked(path, _ENDED)
        texts = case.facts.texts.strings
        changes = tool_takes(case.tool)
        for text in texts if changes is not None or case.facts.together is None or _marks(case.facts.together) else ():
            if text.is_key:
                if is_setting(text.value):
                    return _blocked(text.path, _SET)
            elif text.role in _PROSE:
                continue
            elif changes is not None and text.value.startswith(_ABSOLUTE) and not is_target(text.path):
                if self._is_taken(Taken(text.value, changes)):
                    return _blocked(text.path, _TAKEN)
            elif _marks(text.value) and unsettles(text.value):
                return _blocked(text.path, _SET)
        for view in case.facts.views:
            if view.role is not None and _marks(view.value) and unsettles(view.value):
                return _blocked(texts[view.source].path, _SET)
        for text in texts:
            if text.role == "code" and any(self._is_taken(found) for found in taken_by_code(text.value)):
                return _blocked(text.path, _TAKEN)
        return None

    def _is_taken(self, found: Taken) -> bool:
        """Whether a folder that is taken whole holds what is protected: all of it if it is changed, else the home."""
        protected = self._parts if found.changes else self._closed
        if not protected or not found.folder.startswith(_ABSOLUTE):
            return False
        word = (
            found.folder.lower()
            .replace("${home}", "$home")
            .replace("%userprofile%", "~")
            .replace("$env:userprofile", "~")
        )
        if word.rstrip("/") in ("~", "$home", self._shorts[-1][:-1]):
            word = self._user_home
        for short in self._shorts:
            if word.startswith(short):
                word = f"{self._user_home}/{word[len(short) :]}"
        if not word.startswith("/"):
            return False
        stripped = plain_path(word).strip("/")
        parts = tuple(stripped.split("/")) if stripped else ()
        return any(
            len(parts) <= len(path)
            and _reaches(path, parts, whole=False)
            and (found.depth is None or len(path) - len(parts) <= found.depth)
            and _may_find(found.names, path)
            for path in protected
        )

    def _argument_vector(self, case: Case) -> Report:
        """A command given as a list, `["aegis", "keys", "create"]`, or as a program and its words beside it."""
        strings = case.facts.texts.strings
        program = next((one for one in strings if one.role == "command" and _base(one.value.strip()) in _STARTED), None)
        if program is not None and any(one.value.split(None, 1)[:1] in _SUBCOMMANDS for one in strings):
            return _blocked(program.path, _NAMED)
        for text, following in pairwise(strings):
            if following.value in COMMANDS and _base(text.value) in _STARTED:
                return _blocked(text.path, _NAMED)
        return _QUIET

    def _is_close(self, value: str, role: str) -> bool:
        """Whether a string is worth reading: it holds a name, or wildcards that may stand for one."""
        return self._has_hint(value.lower()) or (role in ("command", "path") and bool(self._paths) and _is_wild(value))

    def _has_hint(self, lower: str) -> bool:
        for hint in self._hints:  # noqa: SIM110 - a generator takes three times as long, on every string of every call
            if hint in lower:
                return True
        return False

    def _read(self, value: str, left: list[int]) -> str:
        """Why the string is refused, or nothing; `left` counts the words that may still be compared."""
        lower = value.lower().replace("${home}", "$home")
        if any(_holds(lower, path) for path in self._paths):
            return _NAMED
        for piece in self._pieces(lower):
            words = _WORDS.findall(piece)
            if "{" in piece and len(piece) <= MAX_PATH:
                words += [spelled for word in piece.split() if "{" in word for spelled in spread(word)]
            close = [word for word in words if self._has_hint(word) or _is_wild(word)]
            if len(words) > 1 and len(lower) <= MAX_PATH:
                close.append(lower.strip())
            left[0] -= len(close)
            if left[0] < 0:
                return _TOO_OFTEN
            if any(self._is_protected_path(word) for word in close) or _runs_aegis(words):
                return _NAMED
        return ""

    def _pieces(self, lower: str) -> Iterator[str]:
        """The parts of a string that are read word by word: all of a short one, the surroundings of names else."""
        if len(lower) <= MAX_WHOLE:
            yield lower
            return
        start, end = 0, 0
        for at in sorted({at for hint in self._hints for at in _places(lower, hint, MAX_WORDS)}):
            if at > end:
                yield _from(lower, start, end)
                start = max(end, at - _AROUND)
            end = at + _AROUND
        yield _from(lower, start, end)

    def _is_protected_path(self, word: str) -> bool:
        scheme, found, rest = word.partition("://")
        if found and not scheme.startswith(_REMOTE):
            word = "/" + rest.lstrip("/")
        for short in self._shorts:
            if word.startswith(short):
                word = f"{self._user_home}/{word[len(short) :]}"
        if word.startswith(("$aegis_home", "$aegis_config", "${aegis_home", "${aegis_config")):
            return True
        if "/" not in word and "." not in word:
            return False
        absolute = word.startswith("/")
        parts = tuple(posixpath.normpath(word).strip("/").split("/"))
        # Another name of the same root (proc(5)).
        if absolute and parts[0] == "proc" and len(parts) > 3 and parts[2] in ("root", "cwd"):
            absolute, parts = parts[2] == "root", parts[3:]
        if absolute:
            return any(_reaches(parts, protected) for protected in self._parts)
        climbs = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
        parts = parts[climbs : climbs + _DEEPEST]
        return any(
            _NAME in protected[-1] and parts[:length] == protected[-length:]
            for protected in self._parts
            for length in range(1, min(len(parts), len(protected)) + 1)
        )


def _marks(text: str) -> bool:
    """Whether a text may speak of the guard's settings or its hooks."""
    return "AEGIS_" in text or "unhook" in text


def _joined(strings: Sequence[Text]) -> str:
    """What is divided over a call's strings, put together again with blanks and without; prose is no part of it."""
    pieces = [text.value for text in strings if not text.is_key and text.role not in _PROSE]
    return " ".join(pieces) + "\n" + "".join(pieces)


def _may_find(patterns: Sequence[str], path: Sequence[str]) -> bool:
    """Whether a search that is narrowed to names by patterns finds the protected path or a file of a home."""
    return not patterns or any(fits(pattern.lower(), name) for pattern in patterns for name in (path[-1], *_OF_A_HOME))


def _reaches(parts: Sequence[str], protected: Sequence[str], *, whole: bool = True) -> bool:
    """Whether a path, perhaps with wildcards, names `protected` or something inside it.

    The other way around where not `whole`: whether `protected`, with wildcards, is the path or a folder around it.
    """
    if not whole:
        parts, protected = protected, parts[: len(protected)]
    if len(parts) < len(protected):
        return False
    for part, name in zip(parts, protected, strict=False):
        if part == name:
            continue
        # A wildcard does not stand for a leading dot (POSIX.1-2017, 2.13.3).
        if name.startswith(".") and not part.startswith("."):
            return False
        if not glob_match(_WILD.sub("*", part), name):
            return False
    return True


def _holds(text: str, path: str) -> bool:
    """Whether `text` holds `path` as a whole path, quoted or not."""
    for at in _places(text, path, MAX_WORDS):
        before, after = text[at - 1 : at] if at else "", text[at + len(path) : at + len(path) + 1]
        if not _continues(before) and before != "/" and not _continues(after):
            return True
    return False


def _from(text: str, start: int, end: int) -> str:
    """A part of `text`; a path that is cut off on the left is relative, not one that begins at the root."""
    cut = start > 0 and not text[start - 1].isspace()
    return "./" + text[start:end].lstrip("/") if cut else text[start:end]


def _is_wild(text: str) -> bool:
    return "*" in text or "?" in text or "[" in text


def _places(text: str, piece: str, most: int) -> list[int]:
    """Where `piece` begins in `text`, at most `most + 1` times."""
    places: list[int] = []
    at = text.find(piece)
    while at >= 0 and len(places) <= most:
        places.append(at)
        at = text.find(piece, at + len(piece))
    return places


def _continues(char: str) -> bool:
    return char.isalnum() or (char != "" and char in "-_.~")


def _runs_aegis(words: Sequence[str]) -> bool:
    """Whether the words of a command line start Aegis's own with a protected subcommand."""
    command, before, is_value = "", "", False
    for position, word in enumerate(words):
        if word in _SEPARATORS:
            command, before, is_value = "", "", False
        elif word == "=":
            # A setting in front of a command, `NAME=value`, is not the command.
            command, is_value = before, True
        elif is_value:
            is_value = False
        elif _base(word) in _STARTED and command not in _TALKERS:
            if _has_command(words[position + 1 : position + 1 + _REACH]):
                return True
        elif not command and word not in _STARTERS and not word.startswith("-"):
            command, before = _base(word), command
    return False


def _has_command(words: Sequence[str]) -> bool:
    for word in words:
        if word in COMMANDS:
            return True
        if word in _SEPARATORS:
            return False
    return False


def _base(word: str) -> str:
    return word.rpartition("/")[2].lower()


def _blocked(path: str, message: str) -> Report:
    return Report(
        guard="protected",
        outcome=Outcome.BLOCK,
        verdict=Verdict.VIOLATION,
        reason=Reason.POLICY_DENIED,
        risk=Risk.CRITICAL,
        findings=(
            Finding(
                guard="protected",
                rule="protected-resource",
                category="policy",
                severity=Risk.CRITICAL,
                outcome=Outcome.BLOCK,
                path=path,
                message=message,
            ),
        ),
    )
