"""The variables of a shell text, and the words of its commands once everything is put in that is known."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

from aegis.core.patterns import Lazy
from aegis.detect.files import MAX_FLOW, FileFlow
from aegis.detect.shell.catalogue import members
from aegis.detect.shell.expansions import ARITHMETIC, SPREADS, USED, changed, number, piece
from aegis.detect.shell.heredocs import literal
from aegis.detect.shell.starts import split_words
from aegis.detect.shell.tree import Command

_ITEM: Final = Lazy(
    r"""(?:\[([^\]\s]{1,64})\]=)?((?:[^\s'"\\$]|'[^']*'|"(?:[^"\\]|\\(?s:.))*"|\\(?s:.)|\$\([^()]*\)|\$)+)"""
)
_QUOTES: Final = "\"'"
_HOMES: Final = ("$HOME", "${HOME}", "~")  # which no reading by patterns puts in
_MOST_TOLD: Final = 1_024  # characters of what an array with names holds, which every item that is not known stands for
_LONGEST: Final = 2_048  # characters of a value of which a part is taken
_MOST_ITEMS: Final = 64  # of one array
_VALUED_OF_READ: Final = {True: "dnOsuCc", False: "adinNptu"}  # letters of options with a value, of lists and fields


class Word(NamedTuple):
    """A word with everything known put in; whether that had to be worked out, and the files that parts come from."""

    text: str
    computed: bool = False
    files: tuple[str, ...] = ()


class Variables:
    """The variables of a text so far as they are known, and the words that hold them."""

    def __init__(self) -> None:
        self.known: dict[str, Word] = {}

    def words(self, command: Command, substitutes: dict[str, FileFlow]) -> tuple[list[str], bool, list[str]]:
        """The words of a command as they are once everything known is put in.

        With them whether that had to be worked out, and the files that parts of them come from.
        """
        words: list[str] = []
        files: list[str] = []
        any_computed = False
        for raw in command.words or (command.name, *command.args):
            if raw[:2] == "<(":  # names what it prints, as it is written
                words.append(raw)
                continue
            if "$" not in raw and "`" not in raw:
                words.append(literal(raw))
                continue
            value, computed, of_files = self.word(raw, substitutes)
            files += of_files
            any_computed = any_computed or (computed and value != "")
            spreads = SPREADS.search(raw) is not None
            if computed and ('"' not in raw or spreads) and (words or value):
                words += split_words(value) if spreads else value.split()
            else:
                words.append(value)
        return words, any_computed, files

    def word(self, raw: str, substitutes: dict[str, FileFlow]) -> Word:
        if raw[:1] == "'" and raw[-1:] == "'" and "'" not in raw[1:-1]:
            return Word(raw[1:-1])
        computed = False
        files: list[str] = []
        pieces: list[str] = []
        for source, flow in substitutes.items():
            if source in raw:
                raw = raw.replace(source, f"\0{len(pieces)}\0")
                pieces.append(flow.text.rstrip("\n"))
                files += flow.files
                computed = True
        if "$((" in raw:
            raw, computed = self._sums(raw), True
        if "$" in raw and self.known:

            def value(match: Any) -> str:
                nonlocal computed
                known = self._used(match)
                if known is None:
                    return str(match.group())
                computed = computed or known.computed
                files.extend(known.files)
                pieces.append(known.text)
                return f"\0{len(pieces) - 1}\0"

            raw = USED.sub(value, raw)
        word = literal(raw)
        if pieces and "\0" in word:
            parts = word.split("\0")
            parts[1::2] = [
                pieces[int(part)] if part.isdecimal() and int(part) < len(pieces) else "" for part in parts[1::2]
            ]
            word = "".join(parts)[:MAX_FLOW]
        return Word(word, computed, tuple(files))

    def _used(self, match: Any) -> Word | None:
        """What stands for a variable or an item of an array; for one that is not known, all that the array holds."""
        name, key = match.group(1) or match.group(3), (match.group(4) or "").strip("\"'")
        sign, operator = match.group(2), match.group(5)
        if sign == "#":
            whole = self.known.get(name, Word("")).text
            return Word(str(len(self._items(name)) if key in ("@", "*") or name in "@*" else len(whole)), computed=True)
        if sign == "!":
            name = self.known.get(name, Word("")).text
        if key not in ("", "@", "*") and f"{name}[{key}]" not in self.known:
            at = number(key, self._value)
            items = self._items(name) if at is not None and at < 0 else ()
            key = str(len(items) + at if items and at is not None else at)
        word = self.known.get(f"{name}[{key}]") or self.known.get(name)
        if word is None and ((name.isdecimal() and name != "0" and "@" in self.known) or (sign and name and not key)):
            # Of what a script is called with, fewer than that; or what the environment holds under a name.
            word = Word(f"${name}" if sign else "", computed=True)
        if sign and word is not None:
            word = word._replace(computed=True)
        if word is None or operator is None:
            return word
        if len(word.text) > _LONGEST:
            return None
        if operator[0] == ":" and (key in ("@", "*") or name in "@*"):
            items = self._items(name)
            at_least = 1 if name in "@*" else 0  # what a function is called with is counted from one
            part = piece(operator, len(items) + at_least, self._value)
            return Word(shlex.join(("", *items)[1 - at_least :][part]), computed=True) if part is not None else None
        text = changed(word.text, self.expand(operator), self._value)
        return None if text is None else Word(text, True, word.files)

    def _items(self, name: str) -> tuple[str, ...]:
        if name in "@*":
            return tuple(split_words(self.known.get("@", Word("")).text))
        held = [self.known.get(f"{name}[{at}]") for at in range(_MOST_ITEMS)]
        return tuple(one.text for one in held if one is not None)

    def _value(self, name: str) -> str:
        return self.known.get(name, Word("")).text

    def _sums(self, raw: str) -> str:
        """A word with the sums in it worked out that are known."""

        def value(match: Any) -> str:
            found = number(self.expand(match.group(1)), self._value)
            return str(match.group()) if found is None else str(found)

        return str(ARITHMETIC.sub(value, raw))

    def place(self, words: Sequence[str]) -> None:
        """Take in what a function is called with, or what `set` and `shift` leave of it."""
        for at in range(1, _MOST_ITEMS + 1):
            self.known.pop(str(at), None)
        words = words[:_MOST_ITEMS]
        for at, word in enumerate(words, 1):
            self.known[str(at)] = Word(word, computed=True)
        self.known["@"] = Word(shlex.join(words), computed=True)
        self.known["*"] = Word(" ".join(words), computed=True)

    def reads(self, name: str, words: Sequence[str], flow: FileFlow, between: str | None) -> None:
        """Take in what `read` or `mapfile` makes of what it reads: lines, or fields with signs `between` them."""
        names: list[str] = []
        listed = name != "read"
        rest = iter(words)
        for word in rest:
            if word[:1] == "-" and word[-1] in _VALUED_OF_READ[name != "read"]:
                value = next(rest, "")
                listed, names = (True, [value]) if word[-1] == "a" else (listed, names)
            elif word.isidentifier():
                names.append(word)
        names = names or ["MAPFILE" if listed else "REPLY"]
        text = flow.text if name != "read" else flow.text.partition("\n")[0].strip()
        if between:
            text = text.translate(dict.fromkeys(map(ord, between), " "))
        if listed:
            items = text.splitlines() if name != "read" else text.split()
            self.assign(names[0], f"({shlex.join(items)})" if items else "", {})
            return
        parts = text.split(None, len(names) - 1) if between != "" else [text]
        for at, one in enumerate(names):
            part = parts[at] if at < len(parts) else ""
            self.known[one] = Word(part, bool(part), flow.files)

    def moves(self, name: str, words: Sequence[str]) -> bool:
        """Tell whether a command is `set --`, `shift`, `let` or `getopts`, and take in what it leaves."""
        if name == "shift" and "@" in self.known:
            dropped = int(words[0]) if words and words[0].isdecimal() and len(words[0]) < 4 else 1
            self.place(self._items("@")[dropped:])
        elif name == "let":
            for variable, _, total in (word.partition("=") for word in words):
                self.assign(variable, f"$(({total}))", {})
        elif name == "getopts" and len(words) > 1 and "@" in self.known:
            given = next(
                ((one[1:2], two) for one, two in pairwise((*self._items("@"), "")) if one[:1] == "-"), ("", "")
            )
            self.known[words[1]], self.known["OPTARG"] = (Word(one, computed=True) for one in given)
        elif name == "set" and words[:1] == ("--",):
            self.place(words[1:])
        else:
            return False
        return True

    def assign(self, name: str, raw: str, substitutes: dict[str, FileFlow]) -> None:
        """Take in an assignment: of a text, of an array with its items, of one item, or of what is added to either."""
        adds, name = name[-1:] == "+", name.rstrip("+")
        array, _, key = name.partition("[")
        value = self.word(raw, substitutes)
        parts = [value.text]
        if raw[:1] == "(":
            parts = []
            for match in islice(_ITEM.finditer(raw[1:].removesuffix(")")), _MOST_ITEMS):
                item = self.word(match.group(2), substitutes if "$(" in match.group(2) else {})._replace(computed=True)
                self.known[f"{array}[{(match.group(1) or str(len(parts))).strip(_QUOTES)}]"] = item
                key = key or match.group(1)
                parts.append(shlex.quote(item.text) if " " in item.text and not key else item.text)
        before = self.known.get(array, Word("")).text if adds or "[" in name else ""
        if "[" in name:
            self.known[name.replace('"', "").replace("'", "")] = value._replace(computed=True)
        # Items by their names are other things to do, one a line; those without are the words of one thing.
        text = before + "".join(f"\n{part}" if key else f" {part}" for part in parts)
        text = text.strip() if key or raw[:1] == "(" else before + value.text
        computed = value.computed or adds or raw[:1] == "(" or bool(key) or text.startswith(_HOMES)
        self.known[array] = Word(text[: _MOST_TOLD if key else MAX_FLOW], computed, value.files)

    def expand(self, text: str) -> str:
        """A text with the variables in it that are known."""
        if "$" not in text or not self.known:
            return text

        def value(match: Any) -> str:
            known = self._used(match)
            return str(match.group()) if known is None else known.text

        return str(USED.sub(value, text))[:MAX_FLOW]


# What settings of the environment tell a program: words that could as well stand behind its name. Which variables those
# are stands in `data/programs`; a setting holds for its own command, or from `export` on.
_TOLD: Final[dict[str, dict[str, str]]] = members("variables", dict)
_SETS: Final = frozenset({"export", "declare", "typeset"})
_MOST_SETTINGS: Final = 64  # of one text


def heeds(program: str) -> bool:
    """Tell whether settings of the environment say what a program is to do."""
    return program in _TOLD


def told(commands: Iterable[Command]) -> Iterator[Command]:
    """Yield the commands with the words that their settings stand for."""
    exported: tuple[tuple[str, str], ...] = ()
    for command in commands:
        if command.name in _SETS:
            exported = (*exported, *command.variables)[-_MOST_SETTINGS:]
        names = _TOLD.get(command.name)
        settings = (*exported, *command.variables) if names is not None else ()
        words = [word for name, value in settings for word in _words(command, names or {}, name.upper(), value)]
        yield command._replace(args=(*command.args, *words)) if words else command


def _words(command: Command, names: dict[str, str], name: str, value: str) -> list[str]:
    for pattern, words in names.items():
        lead, some, _ = pattern.partition("*")
        rest = name[len(lead) :].lower()
        if not (name.startswith(lead) and rest if some else name == pattern):
            continue
        if words == "$":  # of a command that the name may say
            return split_words(value) if not rest or not some or rest in command.args else []
        return [words.replace("*", rest.replace("_", "-")).replace("$", value)]
    return []
