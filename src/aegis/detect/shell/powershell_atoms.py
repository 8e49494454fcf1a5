"""The atoms of a PowerShell text, and the values written with them: strings, variables, tables, types, members.

The text is cut into atoms once; a reader walks over them and never goes back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from aegis.detect.shell.powershell_calls import changed, method, static_call
from aegis.detect.shell.powershell_values import (
    NO_KINDS,
    NOTHING,
    SECRET,
    SENDABLE,
    UNKNOWN,
    PsValue,
    cast,
    constant,
    indexed,
    joined,
    listed,
    literal,
    member,
    one_by_one,
    put,
    variable,
)
from aegis.detect.shell.tree import Command

DEEPEST: Final = 48  # brackets inside brackets: bounds what a crafted text does to the stack
MOST_COMMANDS: Final = 2_000
_MOST_MADE: Final = 262_144  # characters of all values that are put together: bounds `$a += $a` in a crafted text
BLANK: Final = frozenset(" \t")
BLANK_OR_LINE: Final = frozenset(" \t\n")
ENDS: Final = frozenset({"\n", ";", "|", "&", ")", "}", "]"})
CLOSES: Final = frozenset({")", "}", "]"})
VALUES: Final = frozenset({"'", '"', "$", "@", "(", "["})
OPERATORS: Final = frozenset({
    "f", "join", "split", "replace", "ireplace", "creplace", "isplit", "csplit", "eq", "ne", "gt", "lt", "ge", "le",
    "like", "notlike", "match", "notmatch", "contains", "notcontains", "in", "notin", "and", "or", "xor", "band", "bor",
    "bxor", "shl", "shr", "is", "isnot", "as", "ieq", "ine", "ilike", "imatch", "ceq", "cmatch", "clike", "not", "bnot",
})  # fmt: skip
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "", "a": "", "b": "", "f": "", "v": "", "e": ""}
_NAMES: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:?^")
_KEY_AND_VALUE: Final = 2
_EACH: Final = frozenset({"foreach", "where"})  # methods that take a block, which sees one item after the other
NO_COMMAND: Final = Command("", (), "", 0, 0, False)
_SCOPES: Final = frozenset({"env", "global", "script", "local", "private", "using", "variable", "function", "alias"})


class PsScript:
    """What was read: commands in their order, files that redirections write, and whether anything was left out.

    `flows` says of a command, by its place, where its operands and what is piped into it come from: `fetched` from a
    network, `decoded`, read from a `file`. `texts` is what is piped into it, and whether that is known or a spelling.
    """

    __slots__ = ("commands", "cut", "flows", "texts", "writes")

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.writes: list[tuple[str, int]] = []
        self.flows: dict[int, frozenset[str]] = {}
        self.texts: dict[int, tuple[tuple[str, ...], bool]] = {}
        self.cut = False


class PsAtoms(ABC):
    """A walk over the atoms of a text that reads single values; it never goes back, so that the work is linear."""

    def __init__(self, atoms: list[str], script: PsScript):
        self._atoms = atoms
        self._raw = tuple(atoms)
        self._most = len(atoms)
        self._at = 0
        self._depth = 0
        self._script = script
        self._pipes = 0
        self._known: dict[str, PsValue] = {}
        self._piped: PsValue = NOTHING
        self._result: PsValue = NOTHING  # of the last statement of the block that was read last
        self._member_of: tuple[dict[str, PsValue], list[str]] | None = None  # the table and the names read last
        self._left = _MOST_MADE

    @abstractmethod
    def _statements(self) -> PsValue:
        """Read up to a bracket that closes, or the end; the value of the last statement."""

    @abstractmethod
    def _pipeline(self) -> PsValue:
        """Read one pipeline; what it gives on."""

    @abstractmethod
    def _operand(self) -> PsValue:
        """Read one operand of an expression."""

    @abstractmethod
    def _arguments(self, given: list[PsValue]) -> None:
        """Read the arguments of a call into a list."""

    def _may_make(self, *values: PsValue) -> bool:
        """Whether a further value may be made of these; making one costs what they are long."""
        self._left -= 16 + sum([len(value.text) + 8 * len(value.items) for value in values])
        self._script.cut |= self._left < 0
        return self._left >= 0

    def _noted(self, command: Command, kinds: frozenset[str]) -> None:
        self._script.flows[len(self._script.commands)] = kinds
        self._script.commands.append(command)

    def _runs(self, block: PsValue) -> None:
        """Note that a text which was made a block is run."""
        self._noted(
            Command("invoke-expression", (block.text,), f"& {block.spelling()}"[:200], 0, 0, False), block.kinds
        )

    def _peek(self) -> str:
        return self._atoms[self._at] if self._at < self._most else ""

    def _following(self) -> str:
        return self._atoms[self._at + 1] if self._at + 1 < self._most else ""

    def _blanks(self, *, lines: bool = False) -> None:
        atoms, most = self._atoms, self._most
        while self._at < most:
            atom = atoms[self._at]
            if atom in BLANK or (lines and atom == "\n"):
                self._at += 1
            elif atom == "`" and self._at + 1 < most and atoms[self._at + 1] in "\n ":
                self._at += 2
            elif atom == "#" or (atom == "<" and self._at + 1 < most and atoms[self._at + 1] == "#"):
                self._comment(atom)
            else:
                return

    def _comment(self, atom: str) -> None:
        atoms, most = self._atoms, self._most
        if atom == "<":
            while self._at < most and not (
                atoms[self._at] == "#" and self._at + 1 < most and atoms[self._at + 1] == ">"
            ):
                self._at += 1
            self._at = min(most, self._at + 2)
            return
        while self._at < most and atoms[self._at] != "\n":
            self._at += 1

    def _skip(self) -> None:
        """Pass over everything up to the bracket that closes this depth."""
        depth = 0
        while self._at < self._most:
            atom = self._atoms[self._at]
            if atom in {"(", "{", "["}:
                depth += 1
            elif atom in CLOSES:
                if not depth:
                    return
                depth -= 1
            self._at += 1

    def _leave(self, rest: str) -> None:
        """Pass over an atom but for its `rest`, which is what is read next."""
        if rest:
            self._atoms[self._at] = rest
        else:
            self._at += 1

    def _primary(self) -> PsValue:
        atom = self._peek()
        if atom == "'" or atom == '"':
            return self._string(atom)
        if atom == "$":
            return self._dollar()
        if atom == "@":
            return self._at_sign()
        if atom == "(" or atom == "{":
            return self._grouped(atom)
        if atom == "[":
            return self._typed()
        if atom[:1].isdigit() and not atom.isalnum():
            end = 1
            while end < len(atom) and (atom[end].isalnum() or (atom[end] == "." and atom[end + 1 : end + 2].isdigit())):
                end += 1
            self._leave(atom[end:])
            return constant(atom[:end])
        self._at += bool(atom)  # nothing stands behind the end
        return constant(atom)

    def _grouped(self, atom: str) -> PsValue:
        opened = self._at
        self._at += 1
        value = self._statements()
        if self._peek() == (")" if atom == "(" else "}"):
            self._at += 1
        if atom == "{":
            self._result, block = value, (opened + 1, max(opened + 1, self._at - 1))
            text = "".join(self._raw[slice(*block)])
            return PsValue(text=text, known=False, kinds=value.kinds & SECRET, block=block)
        return value.named("")

    def _at_sign(self) -> PsValue:
        following = self._following()
        if following == "(":
            self._at += 1
            return listed(self._grouped("(").spread())
        if following == "{":
            self._at += 1
            return self._hash()
        if following in {"'", '"'} and self._at + 2 < self._most and self._atoms[self._at + 2] in "\n \t":
            return self._here(following)
        self._at += 2
        return constant(f"@{following}")

    def _here(self, quote: str) -> PsValue:
        """A here-string: everything up to its quote at the beginning of a line."""
        atoms, most = self._atoms, self._most
        self._at += 2
        while self._at < most and atoms[self._at] in BLANK:
            self._at += 1
        self._at += 1
        start = self._at
        while self._at < most:
            if atoms[self._at] == quote and atoms[self._at - 1] == "\n" and self._following() == "@":
                body = "".join(atoms[start : max(start, self._at - 1)])
                self._at += 2
                return constant(body) if quote == "'" else self._interpolated(body)
            self._at += 1
        return constant("".join(atoms[start:most]))

    def _string(self, quote: str) -> PsValue:
        atoms, most = self._atoms, self._most
        self._at += 1
        parts: list[PsValue] = []
        if quote == "'":
            start = self._at
            while self._at < most:
                if atoms[self._at] == "'":
                    parts.append(constant("".join(atoms[start : self._at])))
                    if self._at + 1 < most and atoms[self._at + 1] == "'":
                        parts.append(constant("'"))
                        self._at += 2
                        start = self._at
                        continue
                    self._at += 1
                    return literal(joined(parts))
                self._at += 1
            parts.append(constant("".join(atoms[start:])))
            return joined(parts)
        while self._at < most:
            atom = atoms[self._at]
            if atom == '"':
                if self._following() == '"':
                    parts.append(constant('"'))
                    self._at += 2
                    continue
                self._at += 1
                break
            if atom == "`":
                self._escaped(parts)
            elif atom == "$":
                parts.append(self._dollar())
            else:
                self._at += 1
                parts.append(constant(atom))
        return literal(joined(parts))

    def _escaped(self, parts: list[PsValue]) -> None:
        following = self._following()
        self._at += 2
        if following:
            head = _ESCAPES.get(following[0], following[0])
            parts.append(constant(head + following[1:]))

    def _interpolated(self, body: str) -> PsValue:
        """The body of a here-string with its variables, where there are any."""
        if "$" not in body:
            return constant(body)
        parts: list[PsValue] = []
        first, *pieces = body.split("$")
        parts.append(constant(first))
        for piece in pieces:
            end = 0
            while end < len(piece) and piece[end] in _NAMES:
                end += 1
            name = piece[:end].lower().rstrip(":?^")
            parts.append(self._known.get(name, variable(name)) if name else constant("$"))
            parts.append(constant(piece[len(name) :]))
        return joined(parts)

    def _variable_name(self) -> str:
        """The name behind `$`, the rest of its atom left in place."""
        self._at += 1
        atom = self._peek()
        if atom == "{":
            end = self._at + 1
            while end < self._most and self._atoms[end] not in {"}", "\n"}:
                end += 1
            name = "".join(self._atoms[self._at + 1 : end])
            self._at = min(self._most, end + 1)
            return _scoped(name)
        if atom == "$" or not atom:
            self._at += 1
            return "$"
        end = 0
        while end < len(atom) and atom[end] in _NAMES:
            end += 1
        name = atom[:end]
        if name.endswith("::"):
            name = name.partition("::")[0]
        elif name.endswith(":") or (name.count(":") and name.partition(":")[0].lower() not in _SCOPES):
            name = name.partition(":")[0]
        name = name.rstrip("?^") or name
        self._leave(atom[len(name) :])
        return _scoped(name)

    def _dollar(self) -> PsValue:
        following = self._following()
        if following == "(":
            self._at += 1
            return self._grouped("(")
        if not following or following in BLANK or following in ENDS or following in {"'", '"', "=", ",", "]"}:
            self._at += 1
            return constant("$")
        name = self._variable_name()
        if name in {"_", "psitem"}:
            known = one_by_one(self._piped)
            return (known if known.kinds or known.text else variable(name)).named(name)
        known = self._known.get(name, self._known.get(name.removeprefix("using:"), variable(name)))
        return known.named(name)

    def _hash(self) -> PsValue:
        """`@{ key = value; ... }`."""
        self._at += 1
        fields: dict[str, PsValue] = {}
        if self._depth >= DEEPEST:
            self._script.cut = True
            self._skip()
            return UNKNOWN
        self._depth += 1
        while True:
            self._blanks(lines=True)
            atom = self._peek()
            if not atom or atom in CLOSES:
                break
            if atom == ";":
                self._at += 1
                continue
            before = self._at
            key = self._primary()
            self._blanks(lines=True)
            if self._peek() == "=":
                self._at += 1
                self._blanks(lines=True)
                fields[key.text.strip().lower()] = self._pipeline()
            if self._at == before:
                self._at += 1
        self._depth -= 1
        if self._peek() == "}":
            self._at += 1
        kinds = NO_KINDS.union(*(one.kinds for one in fields.values())) & (SECRET | SENDABLE)
        return PsValue(text="@{}", known=False, kinds=kinds, fields=fields)

    def _typed(self) -> PsValue:
        """`[type]` before a value, or a static call of it."""
        self._at += 1
        depth, start = 1, self._at
        while self._at < self._most:
            atom = self._atoms[self._at]
            if atom == "[":
                depth += 1
            elif atom == "]":
                depth -= 1
                if not depth:
                    break
            elif atom in {"\n", ";", "{"} or self._at - start > 64:
                return UNKNOWN
            elif atom == "(":
                self._at += 1
                self._statements()
                continue
            self._at += 1
        name = "".join(self._atoms[start : self._at]).replace(" ", "").lower()
        self._at += 1
        name = name.removeprefix("system.").removeprefix("management.automation.").removeprefix("microsoft.win32.")
        if self._peek().startswith("::"):
            return PsValue(text=f"[{name}]", known=False, type=name)
        self._blanks()
        following = self._peek()
        if following in VALUES or following == "{" or (following and (following[0].isdigit() or following[0] == "-")):
            if self._depth >= DEEPEST:
                self._script.cut = True
                return UNKNOWN
            self._depth += 1
            inner = self._operand()
            self._depth -= 1
            return cast(name, inner)
        return PsValue(text=f"[{name}]", known=False, type=name)

    def _postfix(self, value: PsValue) -> PsValue:
        """Members, calls and indexes behind a value."""
        self._member_of = None
        while self._at < self._most:
            atom = self._atoms[self._at]
            if atom == "[" and not value.block:
                self._at += 1
                index = self._statements()
                if self._peek() == "]":
                    self._at += 1
                self._member_of = None if value.fields is None else (value.fields, index.spread_text())
                value = indexed(value, index) if self._may_make(value, index) else UNKNOWN
            elif atom[0] == "." and atom[:2] != ".." and (len(atom) > 1 or self._following() in {"'", '"', "$", "("}):
                value = self._member(value, atom, ".")
            elif atom.startswith("::"):
                value = self._member(value, atom, "::")
            elif atom.startswith("?."):
                value = self._member(value, atom[1:], ".")
            else:
                return value
        return value

    def _member(self, value: PsValue, atom: str, mark: str) -> PsValue:
        name = atom[len(mark) :]
        if not name:
            self._at += 1
            name = self._primary().text
            rest = ""
        else:
            head, dot, behind = name.partition(".")
            name, rest = head, dot + behind
            end = 0
            while end < len(name) and name[end] in _NAMES:
                end += 1
            name, rest = name[:end], name[end:] + rest
            self._leave(rest)
            if not name:
                if rest and self._peek() == rest:
                    self._at += 1
                return UNKNOWN
        self._member_of = None
        lowered = name.lower()
        if rest or (self._peek() != "(" and not (self._peek() == "{" and lowered in _EACH)):
            self._member_of = None if value.fields is None else (value.fields, [name])
            return member(value, lowered)
        place = len(self._script.commands)
        if place >= MOST_COMMANDS:
            self._script.cut = True
            self._skip()
            return UNKNOWN
        self._script.commands.append(NO_COMMAND)
        opened = self._at
        given: list[PsValue] = []
        piped = self._piped
        self._piped = value if lowered in _EACH else piped
        if self._peek() == "{":
            given.append(self._primary())
        else:
            self._at += 1
            self._arguments(given)
        self._piped = piped
        if value.type == "scriptblock" and lowered.startswith("invoke"):
            self._runs(value)
        args: list[str] = []
        for one in given:
            args.extend(one.spread_text())
        kinds = value.kinds.union(*(one.kinds for one in given)) if given else value.kinds
        called = f"[{value.type}]::{lowered}" if mark == "::" else f".{lowered}"
        text = f"{value.spelling()}{mark}{name}{''.join(self._atoms[opened : min(self._at, opened + 30)])}"[:200]
        if "::" in value.type and lowered == "invoke":  # of a method that was asked for by its name
            static = any(one.text.lower() == "$null" for one in given[:1])
            called = f"[{value.type.replace('::', ']::')}" if static else f".{value.type.rpartition('::')[2]}"
            args = [text for one in given[1:] for text in one.spread_text()]
        settings = (("of", value.about()),)
        self._script.commands[place] = Command(
            called, tuple(args), text, 0, 0, self._depth > 1, settings, program=called
        )
        if kinds:
            self._script.flows[place] = kinds
        if not self._may_make(value, *given, *(given * 8 if lowered.startswith("frombase64") else ())):
            return UNKNOWN
        if value.fields is not None and lowered in {"add", "set_item"} and len(given) == _KEY_AND_VALUE:
            put(value.fields, given[0].spread_text(), given[1])
        if lowered in _EACH and given and given[0].block:
            return self._result if lowered == "foreach" else value
        self._known.update(changed(value, lowered, given))
        if mark == "::":
            return static_call(value.type, lowered, given)
        return method(value, lowered, given)


def _scoped(name: str) -> str:
    """A variable's name in small letters, without the scope that it is named with."""
    lowered = name.lower()
    head, colon, rest = lowered.partition(":")
    return rest if colon and head in _SCOPES and head not in {"env", "using"} else lowered
