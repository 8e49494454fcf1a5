"""The expressions of a PowerShell text: operands, operators between them, and what is assigned."""

from __future__ import annotations

from abc import abstractmethod

from aegis.detect.shell.powershell_atoms import CLOSES, DEEPEST, ENDS, NO_COMMAND, OPERATORS, PsAtoms
from aegis.detect.shell.powershell_values import NOTHING, UNKNOWN, UNREAD, PsValue, binary, constant, listed, put, truth
from aegis.detect.shell.tree import Command


class PsExpressions(PsAtoms):
    """A walk over the atoms of a text that reads expressions."""

    @abstractmethod
    def _redirect(self, place: int, atom: str) -> None:
        """Read where `>` writes what a command prints."""

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
                right = self._primary() if self._peek() == "{" else self._pipeline()
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
            if atom == "??":
                self._at += 1
                value = self._binary(atom, value, self._operand())
                continue
            if atom == "?":
                self._at += 1
                branches = {True: self._operand(), False: UNKNOWN}
                self._blanks(lines=True)
                if self._peek() == ":":
                    self._at += 1
                    branches[False] = self._operand()
                asked = truth(value)
                value = UNKNOWN if asked is None else branches[asked]
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
        last = self._script.commands[-1] if self._script.commands else NO_COMMAND
        if to.text == UNREAD and last.name[:1] == ".":  # of what has places by a number: `$object.Member(1) = value`
            place = f"{dict(last.variables).get('of', '')}{last.name}"
        self._script.commands.append(Command("=", (place, *value.spread_text()), place[:200], 0, 0, False))
        if value.kinds:
            self._script.flows[len(self._script.commands) - 1] = value.kinds

    def _operands(self, operator: str) -> PsValue:
        """What stands right of an operator that takes a list: operands with commas between."""
        value = self._operand()
        if operator in {"-f", "-replace", "-ireplace", "-creplace", "-split", "-isplit", "-csplit", "-in", "-notin"}:
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

    def _arguments(self, given: list[PsValue]) -> None:
        if self._depth >= DEEPEST:
            self._script.cut = True
            self._skip()
        self._depth += 1
        while self._at < self._most:
            self._blanks(lines=True)
            atom = self._peek()
            if not atom or atom in CLOSES:
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
