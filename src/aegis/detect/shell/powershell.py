"""A PowerShell text as the commands and calls that it makes, by a bounded reader of our own.

The text is cut into atoms at C speed and read once, with a bounded depth; nothing that it says can make the reader fail
or take more than linear work. Values are followed where they are constant: variables, concatenation, `-f`, `-join`,
`-replace`, casts, base64, splatting. What is not known keeps the spelling that it has in the text.

Calls of .NET are commands too: `[io.file]::delete` for a static one, `.downloadstring` for that of an object.
"""

from __future__ import annotations

from typing import Final

from aegis.detect.facts import Effort
from aegis.detect.shell.powershell_atoms import (
    BLANK,
    BLANK_OR_LINE,
    CLOSES,
    DEEPEST,
    ENDS,
    MOST_COMMANDS,
    NO_COMMAND,
    OPERATORS,
    SPECIAL,
    VALUES,
    PsAtoms,
    PsScript,
    atoms_of,
)
from aegis.detect.shell.powershell_calls import defaulted, quoted, sets_defaults
from aegis.detect.shell.powershell_values import (
    NOTHING,
    UNKNOWN,
    PsValue,
    binary,
    constant,
    joined,
    listed,
    one_by_one,
    put,
    truth,
)
from aegis.detect.shell.tree import Command

MAX_POWERSHELL: Final = 16_384  # characters: a longer text is not read, and what would run it is told
_KEYWORDS: Final = frozenset({
    "if", "elseif", "else", "while", "for", "foreach", "switch", "do", "until", "try", "catch", "finally", "trap",
    "return", "throw", "exit", "break", "continue", "begin", "process", "end", "dynamicparam", "parallel", "sequence",
    "data", "inlinescript",
})  # fmt: skip
_DECLARES: Final = frozenset({"function", "filter", "workflow", "configuration", "class", "enum", "using"})
_SIGNS: Final = frozenset("-+!")
_ONE_SIGN: Final = frozenset({"%", "?"})


def parse_powershell(text: str, effort: Effort) -> PsScript:
    """Read a text of at most `MAX_POWERSHELL` characters, as far as `effort` goes; never raises."""
    script = PsScript()
    if len(text) > MAX_POWERSHELL or not effort.take(len(text)):
        script.cut = True
        return script
    reader = _Reader(atoms_of(text), script)
    reader.has_defaults = sets_defaults(text)
    reader.all()
    return script


class _Reader(PsAtoms):
    """A walk over the atoms of a text that reads its statements, commands and expressions."""

    has_defaults = False

    def all(self) -> None:
        while self._at < self._most:
            before = self._at
            self._statements()
            if self._at < self._most:
                self._at += 1  # a bracket that closes nothing
            elif self._at == before:
                return

    def _statements(self) -> PsValue:
        """Read up to a bracket that closes, or the end; the value of the last statement."""
        last = NOTHING
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
        if atom in {"&", "."} or (atom == "." and self._following() in VALUES | BLANK):
            self._at += 1
            self._blanks()
            if self._peek() == "&" or self._peek() in ENDS:
                return NOTHING
            return self._command(self._value(), pipe, stage, before)
        if atom == "{":
            self._primary()
            return NOTHING
        if atom in VALUES or atom[:1].isdigit() or (atom[:1] in _SIGNS and self._is_sign(atom)):
            return self._expression(assigns=True)
        if atom in ENDS or not atom:
            return NOTHING
        lowered = atom.lower()
        if lowered in _KEYWORDS:
            self._at += 1
            self._blanks()
            if lowered == "foreach" and self._peek() == "(":
                self._each()
            return NOTHING if self._peek() in ENDS else self._stage(pipe, stage, before)
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
        return (not rest and self._following() in VALUES) or rest in OPERATORS or rest[:1].isdigit()

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
                self._known[name] = one_by_one(listed(values.items)) if values.items else values
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

    def _command(self, name: PsValue, pipe: int, stage: int, before: PsValue) -> PsValue:
        place = len(self._script.commands)
        if place >= MOST_COMMANDS:
            self._script.cut = True
            self._skip()
            return UNKNOWN
        self._script.commands.append(NO_COMMAND)
        start = self._at
        words: list[PsValue] = []
        while True:
            self._blanks()
            atom = self._peek()
            if not atom or atom in CLOSES or atom in {"\n", ";", "|"}:
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
                    if self._peek() and self._peek() not in ENDS:
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
            value = self._value()
            words.append(listed([value]) if _poses(value.text) and atom[:1] != "-" else value)
            if self._at == ahead:
                self._at += 1
        if self.has_defaults:
            words += defaulted(self._known.get("psdefaultparametervalues", UNKNOWN), name.text.strip().lower(), words)
        args: list[str] = []
        for word in words if self._may_make(*words) else ():
            args.extend(f"'{text}'" if word.items and _poses(text) else text for text in word.spread_text())
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
        return quoted(lowered, args, words, before, kinds)

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
            if value.text.lower() == "$true":
                words.append(constant(f"-{key}:$true"))
            else:
                words += [constant(f"-{key}"), value]
        return words

    def _redirect(self, place: int, atom: str) -> None:
        self._at += 2 if atom != ">" else 1
        if self._peek() == ">":
            self._at += 1
        if self._peek() == "&":
            self._at += 2
            return
        self._blanks()
        if self._peek() and self._peek() not in ENDS:
            self._script.writes.append((self._value().text, place))

    def _value(self) -> PsValue:
        """One word of a command: everything up to a blank, put together."""
        parts: list[PsValue] = []
        atoms, most = self._atoms, self._most
        first = self._peek()
        if first and first[0] not in SPECIAL and (self._at + 1 >= most or atoms[self._at + 1] in BLANK_OR_LINE):
            self._at += 1
            return constant(first)
        while self._at < most:
            atom = atoms[self._at]
            if atom in BLANK or atom in ENDS or atom == ",":
                break
            if atom in {">", "<"} or (parts and atom == "{") or (atom == "#" and not parts):
                break
            before = self._at
            if atom == "`":
                following = self._following()
                if following in {"\n", ""}:
                    break
                self._at += 2
                parts.append(constant(following))
            elif atom == "[" and parts:
                parts.append(self._bracketed())
            elif atom in VALUES or atom == "{":
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
        return joined(parts)

    def _bracketed(self) -> PsValue:
        """`[...]` inside of a word of a command: a pattern, as it stands."""
        text: list[str] = []
        while self._at < self._most and self._atoms[self._at] not in BLANK | ENDS:
            text.append(self._atoms[self._at])
            self._at += 1
            if text[-1] == "]":
                break
        return constant("".join(text))

    def _expression(self, *, assigns: bool = False) -> PsValue:
        value = self._operand()
        of = self._member_of
        while True:
            self._blanks()
            atom = self._peek()
            if not atom or atom in ENDS:
                return value
            if atom == ",":
                value = self._array(value)
                continue
            if atom == "=" or (atom in {"+", "-", "*", "/", "%", "??"} and self._following() == "="):
                self._at += 1 if atom == "=" else 2
                self._blanks(lines=True)
                self._script.cut = self._script.cut or self._depth >= DEEPEST
                if self._depth >= DEEPEST:
                    self._skip()
                    return UNKNOWN
                self._depth += 1
                right = self._pipeline()
                self._depth -= 1
                if assigns and value.name.startswith("env:"):
                    self._assigned(value, right)
                if assigns and value.name:
                    old = self._known.get(value.name)
                    self._known[value.name] = (
                        self._binary("+", old, right) if atom == "+" and old is not None else right
                    )
                elif assigns and of is not None:
                    put(*of, self._binary("+", value, right) if atom == "+" else right)
                elif assigns:
                    self._assigned(value, right)
                return NOTHING
            operator = atom.lower()
            if operator[0] == "-" and operator[1:] in OPERATORS:
                self._at += 1
                self._blanks(lines=True)
                value = self._binary(operator[1:], value, self._operands(operator))
                continue
            if operator[0] in "+*%/" or operator == "-" or operator.startswith(".."):
                sign = ".." if operator.startswith("..") else operator[0]
                self._at += 1
                rest = atom[len(sign) :]
                if rest:
                    value = self._binary(sign, value, constant(rest))
                    continue
                self._blanks(lines=True)
                value = self._binary(sign, value, self._operand())
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

    def _binary(self, operator: str, left: PsValue, right: PsValue) -> PsValue:
        return binary(operator, left, right) if self._may_make(left, right) else UNKNOWN

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
        if not atom or atom in ENDS:
            return UNKNOWN
        if atom[0] in "-+!":
            sign, rest = atom[0], atom[1:].lower()
            if not rest or rest in OPERATORS:
                self._at += 1
                if self._depth >= DEEPEST:
                    self._script.cut = True
                    return UNKNOWN
                self._depth += 1
                value = self._operand()
                self._depth -= 1
                if rest in {"join", "split"}:
                    return self._binary(rest, value, constant(""))
                if (rest == "not" or sign == "!") and truth(value) is not None:
                    return constant("$false" if truth(value) else "$true")
                return constant(f"-{value.text}") if sign == "-" and not rest and value.known else UNKNOWN
            if rest[0].isdigit():
                self._leave(atom[1:])
                number = self._primary()
                if sign == "!" and truth(number) is not None:
                    return constant("$false" if truth(number) else "$true")
                return constant(f"-{number.text}") if sign == "-" else number
        return self._postfix(self._primary())

    def _argument(self) -> PsValue:
        """One argument of a call: an expression up to a comma."""
        value = self._operand()
        while True:
            self._blanks(lines=True)
            atom = self._peek()
            if not atom or atom in CLOSES or atom in {",", ";"}:
                return value
            operator = atom.lower()
            before = self._at
            if operator[0] == "-" and operator[1:] in OPERATORS:
                self._at += 1
                value = self._binary(operator[1:], value, self._operand())
            elif operator[0] == "+" or operator.startswith(".."):
                sign = "+" if operator[0] == "+" else ".."
                self._leave(atom[len(sign) :])
                value = self._binary(sign, value, self._operand())
            else:
                self._operand()
                value = UNKNOWN
            if self._at == before:
                self._at += 1


def _poses(text: str) -> bool:
    """Whether a value reads like `-WhatIf`, which is a parameter only where it is written as one."""
    return text[:2].lower() == "-w"
