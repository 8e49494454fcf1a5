"""A PowerShell text as the commands and calls that it makes, by a bounded reader of our own.

The text is cut into atoms at C speed and read once, with a bounded depth; nothing that it says can make the reader fail
or take more than linear work. Values are followed where they are constant: variables, concatenation, `-f`, `-join`,
`-replace`, casts, base64, splatting. What is not known keeps the spelling that it has in the text.

Calls of .NET are commands too: `[io.file]::delete` for a static one, `.downloadstring` for that of an object.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    VALUES,
    PsScript,
)
from aegis.detect.shell.powershell_calls import (
    RUN_BLOCKS,
    arguments,
    bound,
    by_name,
    defaulted,
    is_elsewhere,
    parameters,
    quoted,
    seen_elsewhere,
    sets_defaults,
    splatted,
)
from aegis.detect.shell.powershell_expressions import PsExpressions
from aegis.detect.shell.powershell_values import (
    NOTHING,
    SECRET,
    SPECIAL,
    UNKNOWN,
    PsValue,
    atoms_of,
    constant,
    joined,
    listed,
    one_by_one,
    truth,
    variable,
)
from aegis.detect.shell.tree import Command
from aegis.detect.tool_words import vocabulary

MAX_POWERSHELL: Final = 16_384  # characters: a longer text is not read, and what would run it is told
_DECLARES: Final = frozenset({"function", "filter", "workflow", "configuration", "class", "enum", "using"})
_SIGNS: Final = frozenset("-+!")
_MOST_FUNCTIONS: Final = 64  # that are read again where they are called
_MOST_REREAD: Final = 8_192  # atoms, of all calls
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


class _Reader(PsExpressions):
    """A walk over the atoms of a text that reads its statements, commands and expressions."""

    has_defaults = False

    def __init__(self, atoms: list[str], script: PsScript):
        super().__init__(atoms, script)
        # Their bodies, what these are given, and what they return without it.
        self._functions: dict[str, tuple[tuple[int, ...], list[str], PsValue]] = {}
        self._given: Sequence[PsValue] | None = None  # what the block is given that is read once more
        self._rereads = _MOST_REREAD

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
            if self._depth == 1 and last.kinds & SECRET:  # which is printed
                self._noted(Command("out-default", (), last.spelling()[:200], 0, 0, False), last.kinds)
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
            called = self._value()
            if called.type == "scriptblock":
                self._runs(called)
            return self._command(called, pipe, stage, before)
        if atom == "{":
            self._primary()
            return NOTHING._replace(kinds=self._result.kinds & SECRET)
        if atom in VALUES or atom[:1].isdigit() or (atom[:1] in _SIGNS and self._is_sign(atom)):
            return self._expression(assigns=True)
        if atom in ENDS or not atom:
            return NOTHING
        lowered = atom.lower()
        if lowered in vocabulary().values["pskeywords"]:
            self._at += 1
            self._blanks()
            if lowered == "if":
                return self._choice()
            if lowered == "foreach" and self._peek() == "(":
                self._each()
            if lowered == "switch":
                return self._switch()
            return NOTHING if self._peek() in ENDS else self._stage(pipe, stage, before)
        if lowered in _DECLARES:
            return self._declared(lowered)
        if lowered == "param":
            self._at += 1
            self._blanks(lines=True)
            opened, here = self._at, self._known
            self._known = dict(here)
            if self._peek() == "(":
                self._primary()
            names = parameters(self._raw[opened : self._at])
            given, self._given = self._given, None
            unset = {one: variable(one) for one in names if self._known.get(one) is here.get(one)}
            self._known.update(unset if given is None else bound(names, given))
            return NOTHING
        if lowered in _ONE_SIGN:
            self._at += 1
            return self._command(constant(lowered), pipe, stage, before)
        return self._command(self._value(), pipe, stage, before)

    def _is_sign(self, atom: str) -> bool:
        rest = atom.lstrip("-+!").lower()
        return (not rest and self._following() in VALUES) or rest in OPERATORS or rest[:1].isdigit()

    def _choice(self) -> PsValue:
        """Read the branches of an `if`; what the one that is taken gives, where that is known."""
        given, waits, word = NOTHING, True, "if"
        while True:
            asked = word == "else" or truth(self._primary())
            self._blanks(lines=True)
            if self._peek() != "{":
                return given
            asked = waits and asked
            self._branch(asked)
            if asked is not False:
                given, waits = self._result if asked else UNKNOWN, False
            self._blanks(lines=True)
            word = self._peek().lower()
            if word not in {"else", "elseif"}:
                return given
            self._at += 1
            self._blanks(lines=True)

    def _branch(self, asked: bool | None) -> None:
        """Read a block, which sets nothing where it is known that it is not run."""
        here = dict(self._known) if asked is False else self._known
        self._primary()
        self._known = here

    def _switch(self) -> PsValue:
        """Read the clauses of a `switch`; what the first one gives that is taken, where that is known."""
        operator = "eq"
        while (atom := self._peek().lower())[:1] == "-":
            operator = next((of for sign, of in (("-w", "like"), ("-r", "match")) if atom.startswith(sign)), operator)
            self._at += 1
            self._blanks(lines=True)
        of = self._primary() if self._peek() == "(" else UNKNOWN
        self._blanks(lines=True)
        if self._peek() != "{" or self._depth >= DEEPEST:
            return NOTHING
        self._at += 1
        self._depth += 1
        given, waits = NOTHING, True
        piped, self._piped = self._piped, of
        while True:
            self._blanks(lines=True)
            if self._peek() == ";":
                self._at += 1
                continue
            if not self._peek() or self._peek() in CLOSES:
                break
            before = self._at
            form = self._value()
            self._blanks(lines=True)
            asked = truth(self._result if form.block else self._binary(operator, of, form))
            asked = waits and (form.text.lower() == "default" or asked)
            if self._peek() == "{":
                self._branch(asked)
                if asked is not False:
                    given, waits = self._result if asked else UNKNOWN, False
            if self._at == before:
                self._at += 1
        self._piped = piped
        self._depth -= 1
        self._at += self._peek() == "}"
        return given

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
        first = self._at
        while self._at < self._most and self._atoms[self._at] not in {"{", "\n", ";"}:
            if self._atoms[self._at] == "(":
                self._at += 1
                self._statements()
            self._at += 1
        if word != "using":
            head = [atom for atom in self._raw[first : self._at] if atom.strip()]
            self._blanks(lines=True)
            if self._peek() == "{":
                block = self._primary().block
                if word == "function" and len(head) > 1 and len(self._functions) < _MOST_FUNCTIONS:
                    self._functions[head[1].lower()] = block, parameters(head[2:]), self._result
        return NOTHING

    def _again(self, block: tuple[int, ...], known: dict[str, PsValue], given: Sequence[PsValue]) -> PsValue:
        """Read a block once more, with what it is given; not what it gives others in turn. What it returns."""
        start, end = block
        if self._given is not None or self._rereads < end - start:
            return UNKNOWN
        self._rereads -= end - start
        held = self._at, self._most, self._known, self._functions
        self._atoms[start:end] = self._raw[start:end]
        self._at, self._most, self._known, self._functions = start, end, {**known, "args": listed(given)}, {}
        self._given = given
        returned = self._statements()
        self._given = None
        self._at, self._most, self._known, self._functions = held
        return returned

    def _command(self, name: PsValue, pipe: int, stage: int, before: PsValue) -> PsValue:
        place = len(self._script.commands)
        if place >= MOST_COMMANDS:
            self._script.cut = True
            self._skip()
            return UNKNOWN
        self._script.commands.append(NO_COMMAND)
        start = self._at
        words: list[PsValue] = []
        block, there = name.block, self._known
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
                words.extend(splatted(self._known.get(self._peek().lower(), UNKNOWN)))
                self._at += 1
                continue
            ahead = self._at
            here = self._known
            if atom == "{" and is_elsewhere(name.text.lower(), words):
                self._known = seen_elsewhere(here)
            value = self._value()
            if atom == "{":
                block, there, self._known = value.block, self._known, here
            if value.type == "scriptblock" and name.text.lower() in RUN_BLOCKS:
                self._runs(value)
            words.append(listed([value]) if _poses(value.text) and atom[:1] != "-" else value)
            if self._at == ahead:
                self._at += 1
        if self.has_defaults:
            words += defaulted(self._known.get("psdefaultparametervalues", UNKNOWN), name.text.strip().lower(), words)
        words += by_name(before, name.text.strip().lower()) if stage and before.fields else ()
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
        returned = None
        if block and (given := words if name.block else arguments(words)):
            returned = self._again(block, there, given)
        elif name.block:
            returned = self._again(block, there, ()) if name.name else self._result
        elif lowered in self._functions:
            body, names, returned = self._functions[lowered]
            if words:
                returned = self._again(body, {**self._known, **bound(names, words)}, words)
        if before.text and stage:
            self._script.texts[place] = (tuple(before.spread_text()), before.known)
        return quoted(lowered, args, words, before, kinds) if returned is None else returned

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
            if atom == "(" and parts and parts[-1].text[-1:].isalnum():  # `New-Object IO.FileInfo('a')`
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


def _poses(text: str) -> bool:
    """Whether a value reads like `-WhatIf`, which is a parameter only where it is written as one."""
    return text[:2].lower() == "-w"
