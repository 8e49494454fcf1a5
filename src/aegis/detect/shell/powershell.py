"""A PowerShell text as the commands and calls that it makes, by a bounded reader of our own.

The text is cut into atoms at C speed and read once, with a bounded depth; nothing that it says can make the reader fail
or take more than linear work. Values are followed where they are constant: variables, concatenation, `-f`, `-join`,
`-replace`, casts, base64, splatting. What is not known keeps the spelling that it has in the text.

Calls of .NET are commands too: `[io.file]::delete` for a static one, `.downloadstring` for that of an object.
"""

from __future__ import annotations

from typing import Final

from aegis.detect.facts import Effort
from aegis.detect.shell.powershell_values import (
    NOTHING,
    UNKNOWN,
    PsValue,
    binary,
    cast,
    constant,
    indexed,
    listed,
    member,
    method,
    quoted,
    static_call,
    variable,
)
from aegis.detect.shell.tree import Command

MAX_POWERSHELL: Final = 16_384  # characters: a longer text is not read, and what would run it is told
_DEEPEST: Final = 48  # brackets inside brackets: bounds what a crafted text does to the stack
_MOST_COMMANDS: Final = 2_000
_SEAM: Final = "\x1f"
_SPECIAL: Final = "'\"$@(){}[];|&,<>=#` \t\n"
# PowerShell takes typographic quotes and dashes for plain ones (about_Quoting_Rules, about_Operators).
_ALIKE: Final = {
    **dict.fromkeys("‘’‚‛", "'"), **dict.fromkeys("“”„", '"'), **dict.fromkeys("–—―", "-"),
    **dict.fromkeys("\r\v\f\x1f\u00a0\u0085", " "),
}  # fmt: skip
_ATOMS: Final = str.maketrans({char: f"{_SEAM}{char}{_SEAM}" for char in _SPECIAL})
_PLAIN: Final = str.maketrans(_ALIKE)
_BLANK: Final = frozenset(" \t")
_ENDS: Final = frozenset({"\n", ";", "|", "&", ")", "}", "]"})
_CLOSES: Final = frozenset({")", "}", "]"})
_VALUES: Final = frozenset({"'", '"', "$", "@", "(", "["})
_KEYWORDS: Final = frozenset({
    "if", "elseif", "else", "while", "for", "foreach", "switch", "do", "until", "try", "catch", "finally", "trap",
    "return", "throw", "exit", "break", "continue", "begin", "process", "end", "dynamicparam", "parallel", "sequence",
    "data", "inlinescript",
})  # fmt: skip
_DECLARES: Final = frozenset({"function", "filter", "workflow", "configuration", "class", "enum", "using"})
_OPERATORS: Final = frozenset({
    "f", "join", "split", "replace", "ireplace", "creplace", "isplit", "csplit", "eq", "ne", "gt", "lt", "ge", "le",
    "like", "notlike", "match", "notmatch", "contains", "notcontains", "in", "notin", "and", "or", "xor", "band", "bor",
    "bxor", "shl", "shr", "is", "isnot", "as", "ieq", "ine", "ilike", "imatch", "ceq", "cmatch", "clike", "not", "bnot",
})  # fmt: skip
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "", "a": "", "b": "", "f": "", "v": "", "e": ""}
_SIGNS: Final = frozenset("-+!")
_ONE_SIGN: Final = frozenset({"%", "?"})
_NAMES: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:?^")


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
        self.texts: dict[int, tuple[str, bool]] = {}
        self.cut = False


def parse_powershell(text: str, effort: Effort) -> PsScript:
    """Read a text of at most `MAX_POWERSHELL` characters, as far as `effort` goes; never raises."""
    script = PsScript()
    if len(text) > MAX_POWERSHELL or not effort.take(len(text)):
        script.cut = True
        return script
    plain = text.replace("\r\n", "\n")
    if not plain.isascii() or "\r" in plain or "\x1f" in plain:
        plain = plain.translate(_PLAIN)
    atoms = [atom for atom in plain.translate(_ATOMS).split(_SEAM) if atom]
    _Reader(atoms, script).all()
    return script


class _Reader:
    """A walk over the atoms of a text; `at` only grows, so that the work is linear."""

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

    def all(self) -> None:
        while self._at < self._most:
            before = self._at
            self._statements()
            if self._at < self._most:
                self._at += 1  # a bracket that closes nothing
            elif self._at == before:
                return

    # Atoms

    def _peek(self) -> str:
        return self._atoms[self._at] if self._at < self._most else ""

    def _blanks(self, *, lines: bool = False) -> None:
        atoms, most = self._atoms, self._most
        while self._at < most:
            atom = atoms[self._at]
            if atom in _BLANK or (lines and atom == "\n"):
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
            while self._at < most and not (atoms[self._at] == "#" and self._at + 1 < most and atoms[self._at + 1] == ">"):
                self._at += 1
            self._at = min(most, self._at + 2)
            return
        while self._at < most and atoms[self._at] != "\n":
            self._at += 1

    # Statements

    def _statements(self) -> PsValue:
        """Read up to a bracket that closes, or the end; the value of the last statement."""
        last = NOTHING
        if self._depth >= _DEEPEST:
            self._script.cut = True
            self._skip()
            return UNKNOWN
        self._depth += 1
        while True:
            self._blanks(lines=True)
            atom = self._peek()
            if not atom or atom in _CLOSES:
                break
            before = self._at
            if atom in {";", "|", "&", ","}:
                self._at += 1
                if atom == "&":
                    self._at = before
                    last = self._pipeline()
                continue
            last = self._pipeline()
            if self._at == before:
                self._at += 1
        self._depth -= 1
        return last

    def _skip(self) -> None:
        """Pass over everything up to the bracket that closes this depth."""
        depth = 0
        while self._at < self._most:
            atom = self._atoms[self._at]
            if atom in {"(", "{", "["}:
                depth += 1
            elif atom in _CLOSES:
                if not depth:
                    return
                depth -= 1
            self._at += 1

    def _pipeline(self) -> PsValue:
        self._pipes += 1
        pipe, stage = self._pipes, 0
        value = NOTHING
        first = self._at
        while True:
            self._blanks(lines=stage > 0)
            given = self._piped
            if stage:
                self._piped = value
            value = self._stage(pipe, stage, value if stage else NOTHING)
            self._piped = given
            self._blanks()
            if self._peek() != "|":
                return value
            if self._at + 1 < self._most and self._atoms[self._at + 1] == "|":
                self._at += 2
                return value
            self._at += 1
            stage += 1
            if self._at == first:
                return value

    def _stage(self, pipe: int, stage: int, before: PsValue) -> PsValue:
        atom = self._peek()
        if atom in {"&", "."} or (atom == "." and self._following() in _VALUES | _BLANK):
            self._at += 1
            self._blanks()
            if self._peek() == "&" or self._peek() in _ENDS:
                return NOTHING
            return self._command(self._value(), pipe, stage, before)
        if atom == "{":
            self._primary()
            return NOTHING
        if atom in _VALUES or atom[:1].isdigit() or (atom[:1] in _SIGNS and self._is_sign(atom)):
            return self._expression(assigns=True)
        if atom in _ENDS or not atom:
            return NOTHING
        lowered = atom.lower()
        if lowered in _KEYWORDS:
            self._at += 1
            self._blanks()
            if lowered == "foreach" and self._peek() == "(":
                self._each()
            return NOTHING if self._peek() in _ENDS else self._stage(pipe, stage, before)
        if lowered in _DECLARES:
            return self._declared(lowered)
        if lowered == "param":
            self._at += 1
            self._blanks(lines=True)
            if self._peek() == "(":
                self._primary()
            return NOTHING
        if lowered in _ONE_SIGN:
            self._at += 1
            return self._command(constant(lowered), pipe, stage, before)
        return self._command(self._value(), pipe, stage, before)

    def _is_sign(self, atom: str) -> bool:
        rest = atom.lstrip("-+!").lower()
        return (not rest and self._following() in _VALUES) or rest in _OPERATORS or rest[:1].isdigit()

    def _following(self) -> str:
        return self._atoms[self._at + 1] if self._at + 1 < self._most else ""

    def _each(self) -> None:
        """Read the head of `foreach ($x in values)`: the variable has the first of them."""
        self._at += 1
        self._blanks(lines=True)
        name = self._variable_name() if self._peek() == "$" else ""
        self._blanks(lines=True)
        if self._peek().lower() == "in":
            self._at += 1
            self._blanks(lines=True)
            values = self._pipeline()
            if name:
                self._known[name] = listed([item for item in values.items]) if values.items else values
        self._blanks(lines=True)
        if self._peek() == ")":
            self._at += 1

    def _declared(self, word: str) -> PsValue:
        """Pass over a declaration up to its body, which is read where it stands."""
        while self._at < self._most and self._atoms[self._at] not in {"{", "\n", ";"}:
            if self._atoms[self._at] == "(":
                self._at += 1
                self._statements()
            self._at += 1
        if word != "using":
            self._blanks(lines=True)
            if self._peek() == "{":
                self._primary()
        return NOTHING

    # Commands

    def _command(self, name: PsValue, pipe: int, stage: int, before: PsValue) -> PsValue:
        place = len(self._script.commands)
        if place >= _MOST_COMMANDS:
            self._script.cut = True
            self._skip()
            return UNKNOWN
        self._script.commands.append(_NO_COMMAND)
        start = self._at
        words: list[PsValue] = []
        while True:
            self._blanks()
            atom = self._peek()
            if not atom or atom in _CLOSES or atom in {"\n", ";", "|"}:
                break
            if atom == "&":
                if self._following() == "&":
                    self._at += 2
                    break
                self._at += 1
                break
            if atom == ",":
                items = list(words.pop().spread()) if words else []
                while self._peek() == ",":
                    self._at += 1
                    self._blanks(lines=True)
                    if self._peek() and self._peek() not in _ENDS:
                        items.extend(self._value().spread())
                    self._blanks()
                words.append(listed(items))
                continue
            if atom == ">" or (atom in "123456*" and self._following() == ">"):
                self._redirect(place, atom)
                continue
            if atom == "<" or atom == "=":
                self._at += 1
                continue
            if atom == "@" and self._following() not in {"(", "{", "'", '"', ""}:
                self._at += 1
                words.extend(self._splatted())
                continue
            ahead = self._at
            words.append(self._value())
            if self._at == ahead:
                self._at += 1
        args: list[str] = []
        for word in words:
            args.extend(word.spread_text())
        kinds = before.kinds.union(*(word.kinds for word in words)) if words else before.kinds
        called = name.text.strip()
        text = "".join(self._atoms[max(0, start - 3) : min(self._at, start + 40)])[:200]
        lowered = called.lower()
        command = Command(lowered, tuple(args), f"{called} {text}"[:200], pipe, stage, self._depth > 1, program=called)
        self._script.commands[place] = command
        if kinds or name.kinds:
            self._script.flows[place] = kinds | name.kinds
        if before.text and stage:
            self._script.texts[place] = (before.text, before.known)
        return _result(lowered, args, words, before, kinds)

    def _splatted(self) -> list[PsValue]:
        name = self._peek()
        self._at += 1
        known = self._known.get(name.lower(), UNKNOWN)
        if known.fields is None:
            return list(known.items)
        words: list[PsValue] = []
        for key, value in known.fields.items():
            if value.text.lower() == "$false":
                continue
            words.append(constant(f"-{key}"))
            if value.text.lower() != "$true":
                words.append(value)
        return words

    def _redirect(self, place: int, atom: str) -> None:
        self._at += 2 if atom != ">" else 1
        if self._peek() == ">":
            self._at += 1
        if self._peek() == "&":
            self._at += 2
            return
        self._blanks()
        if self._peek() and self._peek() not in _ENDS:
            self._script.writes.append((self._value().text, place))

    def _value(self) -> PsValue:
        """One word of a command: everything up to a blank, put together."""
        parts: list[PsValue] = []
        atoms, most = self._atoms, self._most
        while self._at < most:
            atom = atoms[self._at]
            if atom in _BLANK or atom in _ENDS or atom == ",":
                break
            if atom in {">", "<"} or (parts and atom == "{") or (atom == "#" and not parts):
                break
            before = self._at
            if atom == "`":
                following = self._following()
                if following in {"\n", ""}:
                    break
                self._at += 2
                parts.append(constant(following if len(following) > 1 or following in _SPECIAL else following))
            elif atom == "[" and parts:
                parts.append(self._bracketed())
            elif atom in _VALUES or atom == "{":
                value = self._postfix(self._primary())
                parts.append(value)
                if atom in {"(", "{"} and not (self._at < most and atoms[self._at][:1] in {".", "$", "'", '"', "\\"}):
                    break
            else:
                self._at += 1
                parts.append(constant(atom))
            if self._at == before:
                self._at += 1
        if len(parts) == 1:
            return parts[0]
        return _joined(parts)

    def _bracketed(self) -> PsValue:
        """`[...]` inside of a word of a command: a pattern, as it stands."""
        text: list[str] = []
        while self._at < self._most and self._atoms[self._at] not in _BLANK | _ENDS:
            text.append(self._atoms[self._at])
            self._at += 1
            if text[-1] == "]":
                break
        return constant("".join(text))

    # Expressions

    def _expression(self, *, assigns: bool = False) -> PsValue:
        value = self._operand()
        while True:
            self._blanks()
            atom = self._peek()
            if not atom or atom in _ENDS:
                return value
            if atom == ",":
                value = self._array(value)
                continue
            if atom == "=" or (atom in {"+", "-", "*", "/", "%", "??"} and self._following() == "="):
                self._at += 1 if atom == "=" else 2
                self._blanks(lines=True)
                self._script.cut = self._script.cut or self._depth >= _DEEPEST
                if self._depth >= _DEEPEST:
                    self._skip()
                    return UNKNOWN
                self._depth += 1
                right = self._pipeline()
                self._depth -= 1
                if assigns and value.name.startswith("env:"):
                    self._assigned(value, right)
                if assigns and value.name:
                    old = self._known.get(value.name)
                    self._known[value.name] = binary("+", old, right) if atom == "+" and old is not None else right
                elif assigns:
                    self._assigned(value, right)
                return NOTHING
            operator = atom.lower()
            if operator[0] == "-" and operator[1:] in _OPERATORS:
                self._at += 1
                self._blanks(lines=True)
                value = binary(operator[1:], value, self._operands(operator))
                continue
            if operator[0] in "+*%/" or operator == "-" or operator.startswith(".."):
                sign = ".." if operator.startswith("..") else operator[0]
                self._at += 1
                rest = atom[len(sign) :]
                if rest:
                    value = binary(sign, value, constant(rest))
                    continue
                self._blanks(lines=True)
                value = binary(sign, value, self._operand())
                continue
            if atom in {">", "<"}:
                if atom == ">":
                    self._redirect(len(self._script.commands) - 1, atom)
                else:
                    self._at += 1
                continue
            if atom == "{":  # the body behind a condition: what follows it is a statement of its own
                self._primary()
                return UNKNOWN
            before = self._at
            self._operand()
            value = UNKNOWN
            if self._at == before:
                self._at += 1

    def _array(self, first: PsValue) -> PsValue:
        items = list(first.spread())
        while self._peek() == ",":
            self._at += 1
            self._blanks(lines=True)
            items.extend(self._operand().spread())
            self._blanks()
        return listed(items)

    def _assigned(self, to: PsValue, value: PsValue) -> None:
        """Note what is written to a place that is no variable of the script: `$object.Member`, `$env:NAME`."""
        place = to.spelling() if to.name else to.text
        self._script.commands.append(Command("=", (place, *value.spread_text()), place[:200], 0, 0, False))
        if value.kinds:
            self._script.flows[len(self._script.commands) - 1] = value.kinds

    def _operands(self, operator: str) -> PsValue:
        """What stands right of an operator that takes a list: operands with commas between."""
        value = self._operand()
        if operator in {"-f", "-replace", "-ireplace", "-creplace", "-split", "-isplit", "-csplit"}:
            items = list(value.spread())
            while True:
                self._blanks()
                if self._peek() != ",":
                    break
                self._at += 1
                self._blanks(lines=True)
                items.extend(self._operand().spread())
            return listed(items) if len(items) != 1 else items[0]
        return value

    def _operand(self) -> PsValue:
        self._blanks(lines=True)
        atom = self._peek()
        if not atom or atom in _ENDS:
            return UNKNOWN
        if atom[0] in "-+!":
            sign, rest = atom[0], atom[1:].lower()
            if not rest or rest in _OPERATORS:
                self._at += 1
                if self._depth >= _DEEPEST:
                    self._script.cut = True
                    return UNKNOWN
                self._depth += 1
                value = self._operand()
                self._depth -= 1
                if rest in {"join", "split"}:
                    return binary(rest, value, constant(""))
                return constant(f"-{value.text}") if sign == "-" and not rest and value.known else UNKNOWN
        return self._postfix(self._primary())

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
        if atom[0].isdigit() and not atom.isalnum():
            end = 1
            while end < len(atom) and (atom[end].isalnum() or (atom[end] == "." and atom[end + 1 : end + 2].isdigit())):
                end += 1
            self._leave(atom[end:])
            return constant(atom[:end])
        self._at += 1
        return constant(atom)

    def _grouped(self, atom: str) -> PsValue:
        opened = self._at
        self._at += 1
        value = self._statements()
        if self._peek() == (")" if atom == "(" else "}"):
            self._at += 1
        if atom == "{":
            return PsValue(text="".join(self._raw[opened + 1 : max(opened + 1, self._at - 1)]), known=False, block=True)
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
        while self._at < most and atoms[self._at] in _BLANK:
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
                    return _joined(parts)
                self._at += 1
            parts.append(constant("".join(atoms[start:])))
            return _joined(parts)
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
        return _joined(parts)

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
        return _joined(parts)

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

    def _leave(self, rest: str) -> None:
        """Pass over an atom but for its `rest`, which is what is read next."""
        if rest:
            self._atoms[self._at] = rest
        else:
            self._at += 1

    def _dollar(self) -> PsValue:
        following = self._following()
        if following == "(":
            self._at += 1
            return self._grouped("(")
        if not following or following in _BLANK or following in _ENDS or following in {"'", '"', "=", ",", "]"}:
            self._at += 1
            return constant("$")
        name = self._variable_name()
        if name in {"_", "psitem"}:
            known = self._piped
            return (known if known.kinds or known.text else variable(name)).named(name)
        return self._known.get(name, variable(name)).named(name)

    def _hash(self) -> PsValue:
        """`@{ key = value; ... }`."""
        self._at += 1
        fields: dict[str, PsValue] = {}
        if self._depth >= _DEEPEST:
            self._script.cut = True
            self._skip()
            return UNKNOWN
        self._depth += 1
        while True:
            self._blanks(lines=True)
            atom = self._peek()
            if not atom or atom in _CLOSES:
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
        return PsValue(text="@{}", known=False, fields=fields)

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
        for prefix in ("system.", "management.automation.", "microsoft.win32."):
            name = name.removeprefix(prefix)
        following = self._peek()
        if following.startswith("::"):
            return PsValue(text=f"[{name}]", known=False, type=name)
        self._blanks()
        following = self._peek()
        if following in _VALUES or following == "{" or (following and (following[0].isdigit() or following[0] == "-")):
            if self._depth >= _DEEPEST:
                self._script.cut = True
                return UNKNOWN
            self._depth += 1
            inner = self._operand()
            self._depth -= 1
            return cast(name, inner)
        return PsValue(text=f"[{name}]", known=False, type=name)

    def _postfix(self, value: PsValue) -> PsValue:
        """Members, calls and indexes behind a value."""
        while self._at < self._most:
            atom = self._atoms[self._at]
            if atom == "[" and not value.block:
                self._at += 1
                index = self._statements()
                if self._peek() == "]":
                    self._at += 1
                value = indexed(value, index)
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
        if rest or self._peek() != "(":
            return member(value, name.lower())
        place = len(self._script.commands)
        if place >= _MOST_COMMANDS:
            self._script.cut = True
            self._skip()
            return UNKNOWN
        self._script.commands.append(_NO_COMMAND)
        opened = self._at
        self._at += 1
        given: list[PsValue] = []
        self._arguments(given)
        lowered = name.lower()
        args: list[str] = []
        for one in given:
            args.extend(one.spread_text())
        kinds = value.kinds.union(*(one.kinds for one in given)) if given else value.kinds
        called = f"[{value.type}]::{lowered}" if mark == "::" else f".{lowered}"
        text = f"{value.spelling()}{mark}{name}{''.join(self._atoms[opened : min(self._at, opened + 30)])}"[:200]
        settings = (("of", value.type or value.text or value.spelling()),)
        self._script.commands[place] = Command(called, tuple(args), text, 0, 0, self._depth > 1, settings, program=called)
        if kinds:
            self._script.flows[place] = kinds
        if mark == "::":
            return static_call(value.type, lowered, given)
        return method(value, lowered, given)

    def _arguments(self, given: list[PsValue]) -> None:
        if self._depth >= _DEEPEST:
            self._script.cut = True
            self._skip()
        self._depth += 1
        while self._at < self._most:
            self._blanks(lines=True)
            atom = self._peek()
            if not atom or atom in _CLOSES:
                break
            before = self._at
            if atom == ",":
                self._at += 1
                continue
            given.append(self._argument())
            if self._at == before:
                self._at += 1
        self._depth -= 1
        if self._peek() == ")":
            self._at += 1

    def _argument(self) -> PsValue:
        """One argument of a call: an expression up to a comma."""
        value = self._operand()
        while True:
            self._blanks(lines=True)
            atom = self._peek()
            if not atom or atom in _CLOSES or atom in {",", ";"}:
                return value
            operator = atom.lower()
            before = self._at
            if operator[0] == "-" and operator[1:] in _OPERATORS:
                self._at += 1
                value = binary(operator[1:], value, self._operand())
            elif operator[0] == "+" or operator.startswith(".."):
                sign = "+" if operator[0] == "+" else ".."
                self._leave(atom[len(sign) :])
                value = binary(sign, value, self._operand())
            else:
                self._operand()
                value = UNKNOWN
            if self._at == before:
                self._at += 1


_NO_COMMAND: Final = Command("", (), "", 0, 0, False)
_SCOPES: Final = frozenset({"env", "global", "script", "local", "private", "using", "variable", "function", "alias"})


def _scoped(name: str) -> str:
    """A variable's name in small letters, without the scope that it is named with."""
    lowered = name.lower()
    head, colon, rest = lowered.partition(":")
    return rest if colon and head in _SCOPES and head != "env" else lowered


def _joined(parts: list[PsValue]) -> PsValue:
    if not parts:
        return constant("")
    if len(parts) == 1:
        return parts[0].named("")
    kinds = frozenset().union(*(part.kinds for part in parts))
    return PsValue(
        text="".join([part.text for part in parts]), known=all(part.known for part in parts), kinds=kinds
    )


def _result(name: str, args: list[str], words: list[PsValue], before: PsValue, kinds: frozenset[str]) -> PsValue:
    """What a command gives on, so far as that is known from its words."""
    return quoted(name, args, words, before, kinds)
