"""Programs in languages without a grammar here: their signs, and the calls and values among them as nodes of a tree.

The signs of most languages are alike: calls are names before parentheses, members stand behind dots, strings between
quotes. What differs is data (`written` of `data/calls`). Only what may do something is read: the calls whose names are
known, what is assigned, loops and functions. Nodes have the shape of those of the grammars, so that everything that
follows values reads them; each is made when it is asked for. Linear in the text: an expression is read once from where
it begins, in bounded depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final, cast

from tree_sitter import Node

from aegis.core.patterns import Lazy
from aegis.detect.facts import Effort
from aegis.detect.grammar import Captures, captures
from aegis.detect.languages.calls import Writing, calls_of
from aegis.detect.languages.declared import HOLDS, Declarations
from aegis.detect.languages.expressions import AFTER, CHOICES, DEFINES, FAR, MOST_NAMES, MOST_PARTS, PIPES
from aegis.detect.languages.names import ADDS, EACH
from aegis.detect.languages.service_calls import asks_service
from aegis.detect.languages.signs import BRACKETS, NAME, SIGN, STRING
from aegis.detect.languages.syntax import PLAIN, CodeLanguage, NodeParts, SignNode, grammar_of

# Brackets that may stay open in a text that is parsed whole: the grammars of other languages than these take more than
# their steps show to find the way out of many.
_MOST_OPEN: Final = 64
_STURDY: Final[frozenset[CodeLanguage]] = frozenset({"python", "javascript", "php"})
_UNITS: Final = 8  # of effort that a sign costs
_NO_CALLS: Final = frozenset({
    "if", "while", "for", "switch", "match", "when", "catch", "return", "and", "or", "not", "in", "until", "elseif",
})  # fmt: skip
_ASSIGNS: Final = frozenset({"=", "<-", ":=", "<<-"})
_OWN: Final = Lazy(
    r"\b(?:fn|fun|func|def|function|defp)\s+(?:\w+[.:])?(\w+)|(?m)^\s*(?:local\s+|val\s+|let\s+)?([\w.]+)\s*(?:=|<-)\s*(?:function\s*\(|\\\(|\{|\()"
)
_OF_TYPES: Final = frozenset({":", "extends", "with", "implements"})  # before the name of a type
_ENDS_NAMES: Final = frozenset({"=", "{", "(", ";", ",", "}", ")", "<-"})
_ALIAS: Final = Lazy(r"(?m)^\s*(?:(?:local|val|let|var|const)\s+)?(\w+)\s*(?:=|<-)\s*(?:\w+(?:\.|::))+\w+\s*$")
_CLASS: Final = Lazy(r"\b(?:class|object|struct|enum)\s+(\w+)")
_DECLARES: Final = frozenset({"let", "val", "var", "local", "const", "final", "auto"})


def captured(text: str, language: CodeLanguage, effort: Effort) -> Iterator[Captures | None]:
    """What stands in a text, by the grammar of its language or by its signs."""
    if language in PLAIN:
        found = _plain_nodes(text, language, effort)
        return iter([None if found is None else Captures(False, found)])
    whole = language in _STURDY or _open(text) <= _MOST_OPEN
    return captures(grammar_of(language), text, effort, whole=whole)


def _open(text: str) -> int:
    """How many brackets of a text are not closed."""
    return sum(max(0, text.count(opens) - text.count(closes)) for opens, closes in ("()", "[]", "{}"))


def _plain_nodes(text: str, language: CodeLanguage, effort: Effort) -> dict[str, list[Node]] | None:
    """What a text calls, assigns, goes over and defines; `None` where `effort` does not last."""
    written, ends = calls_of(language).written, calls_of(language).ends
    if written is None or not (_worth(language).search(text) or _ASKS.search(text)):
        return {}
    own = {(match.group(1) or match.group(2)).lower() for match in _OWN.finditer(text)}
    own |= {match.group(1).lower() for match in (*_ALIAS.finditer(text), *_CLASS.finditer(text))}
    reader = _Reader(text, written, ends | EACH | ADDS | own)
    if not effort.take(len(reader.words) * _UNITS):
        return None
    # They have the shape of a grammar's nodes, of which whoever reads them asks no more.
    return cast("dict[str, list[Node]]", reader.nodes())


# The beginning of a call that may ask a service for something.
_ASKS: Final = Lazy(
    r"(?i)\b\w*(?:request|delete|remove|disable|revoke|grant|update|create|put|patch|send|purge|drop)\w*[({]"
)


@cache
def _worth(language: CodeLanguage) -> Lazy:
    """What one of must stand in a text that does anything that is known."""
    names = "|".join(sorted(name for name in calls_of(language).ends if name.replace("_", "").isalnum()))
    return Lazy(rf"(?i)(?:\b|_)(?:{names})|`|\.!")


class _Reader(Declarations):
    """The nodes that are read among the signs of one text."""

    def __init__(self, text: str, written: Writing, wanted: frozenset[str]):
        super().__init__(text, written)
        self._wanted = wanted

    # What stands in the text

    def nodes(self) -> dict[str, list[SignNode]]:
        found: dict[str, list[SignNode]] = {"call": [], "assign": [], "loop": [], "function": [], "class": []}
        closed: list[int] = []  # where the parentheses end that a sign stands in
        owners: list[tuple[int, str]] = []  # where the classes end, and their names
        for at, word in enumerate(self.words):
            while closed and at >= closed[-1]:
                closed.pop()
            while owners and at >= owners[-1][0]:
                owners.pop()
            kind = self._kinds[at]
            if kind == NAME:
                lowered = word.lower()
                declared = self._declared(at) if word in HOLDS else None
                if declared is not None:
                    owners.append((declared.closes, declared.name))
                    found["class"].append(declared.node)
                    found["assign"] += declared.constants
                    found["call"] += declared.calls
                elif lowered in DEFINES or word in ("val", "var"):
                    own = self._function(at) if lowered in DEFINES else self._property(at)
                    if own is not None:
                        found["function"].append(own)
                elif word == "for":
                    loop = self._loop(at)
                    if loop is not None:
                        found["loop"].append(loop)
                elif (lowered in self._wanted or asks_service(word)) and self._is_called(at):
                    found["call"].append(self._call_at(at))
            elif kind == SIGN:
                if word in ("(", "{", "["):
                    closed.append(self._pair.get(at, len(self.words)))
                elif word in _ASSIGNS or word == "+=":
                    short = self._short(at) if word == "=" and self._word(at - 1) == ")" else None
                    if short is not None:
                        found["function"].append(short)
                        continue
                    inner = (
                        self._word(self._pair.get(closed[-1], -1)) if closed and closed[-1] < len(self.words) else "{"
                    )
                    assigned = None if inner == "(" and word != "<-" else self._assignment(at, word)
                    if assigned is not None:
                        found["assign"].append(assigned)
                        left, right = map(assigned.child_by_field_name, ("left", "right")) if owners else (None, None)
                        if left is not None and right is not None:
                            found["assign"].append(self._constant(f"{owners[-1][1]}.{left.text.decode()}", right))
                elif word in PIPES:
                    piped = self._piped(at)
                    if piped is not None:
                        found["call"].append(piped)
                elif (
                    word in ("!", "!!") and self._word(at - 1) == "." and at > 1
                ):  # of Scala, which runs what it stands behind
                    owner = self._chain(self._start(at), at - 1, 0)[0]
                    if owner is not None:
                        last = self._make("property_identifier", at, at + 1)
                        node = SignNode("call_expression", self._slice(at - 2, at + 1), self._at[at])
                        member = self._filled(SignNode("member_expression", "", self._at[at]), {}, (owner, last))
                        found["call"].append(self._filled(node, {"function": member}))
            elif kind == STRING and word[0] == "`" and self._written.commands:
                found["call"].append(self._string(at, "command_string"))
        return found

    def _is_called(self, at: int) -> bool:
        after = self._word(at + 1)
        if self._word(at - 1).lower() in DEFINES or self._word(at - 1) in HOLDS:
            return False
        if after == "{" and self._word(at - 1) in _OF_TYPES:
            return False
        if after == "!":
            return self._word(at + 2) in ("(", "[", "{")
        if after in ("<", "::") and self._generic(at + 1) != at + 1:
            return self._word(self._generic(at + 1)) == "("
        if after == "{" and not self._written.blocks and not self._is_filled(at, at + 1):
            return False
        return after in ("(", "{") and not self._breaks[at + 1]

    def _call_at(self, at: int) -> SignNode:
        if at not in self._calls:
            self._chain(self._start(at), len(self.words), 0)
        if at not in self._calls:  # the chain is too long: the call alone
            self._chain(at, len(self.words), 0)
        return self._calls[at] if at in self._calls else self._make("call_expression", at, at + 1)

    def _start(self, at: int) -> int:
        """Where the chain of members and calls begins that leads to a name."""
        for _ in range(MOST_PARTS):
            if self._word(at - 1) not in self._members:
                return at
            before = at - 2
            while self._word(before) in AFTER:
                before -= 1
            while self._word(before) in BRACKETS and before in self._pair:
                before = self._pair[before] - 1
                if self._word(before) == "!" and self._is_name(before - 1):
                    before -= 1
                if self._word(before) == ">":  # of a type
                    before = (
                        next((one for one in range(before, max(before - 12, 0), -1) if self._word(one) == "<"), 0) - 1
                    )
                    before -= self._word(before) == "::"
            if before < 0 or (self._kinds[before] == SIGN and self._word(before) not in BRACKETS):
                return before + 1
            if self._is_name(before) and self.words[before] in _NO_CALLS:
                return before + 1
            at = before
        return at

    def _assignment(self, at: int, sign: str) -> SignNode | None:
        """The name before a sign that gives it a value, and the value behind it."""
        several = self._names_before(at)
        if several:
            return self._assigned(several, at)
        before, start = at - 1, at - 1
        declared = -1
        for one in range(at - 1, max(at - 10, -1), -1):
            if self._word(one) in _ENDS_NAMES or self.words[one] in _DECLARES:
                declared = one if self.words[one] in _DECLARES else -1
                break
        if declared >= 0 and not any(self._breaks[declared + 1 : at]):
            names = [one for one in range(declared + 1, at) if self._is_name(one) and self.words[one] != "mut"]
            if not names:
                return None
            start, before = names[0], names[0]
        elif self._is_name(before):
            start = self._start(before)
        else:
            return None
        is_asked = self._word(declared - 1) in ("if", "guard", "while")  # `if let root = config["root"] {`
        end = self._header_end(at + 1) if declared >= 0 and is_asked else len(self.words)

        def read() -> NodeParts:
            value = self._expression(at + 1, end, 0)[0]
            left = self._make("identifier", start, before + 1)
            return ({"left": left} if value is None else {"left": left, "right": value}), ()

        return self._make("augmented_assignment" if sign == "+=" else "assignment", start, at + 1, read)

    def _names_before(self, at: int) -> list[int]:
        """The signs of several names that get the parts of one value: `val (a, b) =`, `local a, b =`, `a, b =`."""
        opens = self._pair.get(at - 1, -1) if self._word(at - 1) == ")" else -1
        if opens > 0 and self._word(opens - 1) in _DECLARES:
            inside = range(opens + 1, min(at - 1, opens + FAR))
            return [one for one in inside if self._is_name(one) and self.words[one] != "mut"][:MOST_NAMES]
        found: list[int] = []
        one = at - 1
        while self._is_name(one) and len(found) < MOST_NAMES:
            found.insert(0, one)
            if self._word(one - 1) != ",":
                break
            one -= 2
        return found if len(found) > 1 else []

    def _assigned(self, names: list[int], at: int) -> SignNode:
        """Several names, and the value whose parts they get, or a value for each."""

        def read() -> NodeParts:
            pattern = SignNode("tuple_pattern", "", self._at[names[0]])
            left = self._filled(pattern, {}, [self._make("identifier", one, one + 1) for one in names])
            values: list[SignNode] = []
            after = at + 1
            for _ in names:
                value, after = self._expression(after, len(self.words), 0)
                if value is None:
                    break
                values.append(value)
                if self._word(after) != ",":
                    break
                after += 1
            if not values:
                return {"left": left}, ()
            several = SignNode("expression_list", "", self._at[at])
            right = values[0] if len(values) == 1 else self._filled(several, {}, values)
            return {"left": left, "right": right}, ()

        return self._make("assignment", names[0], at + 1, read)

    def _loop(self, at: int) -> SignNode | None:
        """The last name that a loop binds, and what it goes over."""
        for one in range(at + 1, min(at + 16, len(self.words))):
            word = self._word(one)
            if word in ("in", "<-") or (word == ":" and self._word(at + 1) == "(" and one > at + 2):
                if not self._is_name(one - 1) and self._word(one - 1) != ")":
                    return None
                end = self._header_end(one + 1)

                def read(one: int = one, end: int = end) -> NodeParts:
                    value = self._expression(one + 1, end, 0)[0]
                    names = [place for place in range(at + 1, one) if self._is_name(place)]
                    name = self._make("identifier", one - 1, one)
                    if len(names) > 1 and any(self._word(place) == "," for place in range(at + 1, one)):
                        parts = [self._make("identifier", place, place + 1) for place in names[:MOST_NAMES]]
                        name = self._filled(SignNode("tuple_pattern", "", self._at[at]), {}, parts)
                    return ({"left": name} if value is None else {"left": name, "right": value}), ()

                return self._make("for_statement", at, one, read)
            if word in ("{", ";"):
                return None
        return None

    def _header_end(self, at: int) -> int:
        """Where the head of a loop ends: before its block, or with the line."""
        for _ in range(MOST_PARTS):
            if at >= len(self.words) or self._word(at) in ("{", "do", ")", "where") or self._breaks[at]:
                break
            at = self._pair[at] + 1 if self._word(at) in ("(", "[") else at + 1
        return at

    def _function(self, at: int) -> SignNode | None:
        """A function that the text defines: its parameters, and what it gives back."""
        name = at + 1
        while self._is_name(name) and self._word(name + 1) in (".", ":") and self.words[at] != "def":
            name += 2
        opens = self._generic(name + 1)
        if self._word(at + 1) == "(" and self._word(at - 1) in _ASSIGNS:  # `collect <- function(dirs) {...}`
            name, opens = at - 2, at + 1
        if self._is_name(name) and self._word(name + 1) in (":", "=") and self.words[at] == "def":  # of Scala
            return self._defined(at, name, -1, name + 1)
        if not self._is_name(name) or self._word(opens) != "(":
            return None
        return self._defined(at, name, opens, self._pair[opens] + 1)

    def _short(self, at: int) -> SignNode | None:
        """A function on one line, of Julia: `path(c) = joinpath(c.root, "ssh")`."""
        opens = self._pair.get(at - 1, 0)
        name = opens - 1
        begins = self._is_name(name) and self.words[name] not in _DECLARES and (not name or self._breaks[name])
        return self._defined(name, name, opens, at) if begins else None

    def _property(self, at: int) -> SignNode | None:
        """A member that is computed when it is asked for: `val path get() = ...`, `var path: String { ... }`."""
        name = at + 1
        if not self._is_name(name):
            return None
        for one in range(name + 1, min(name + 8, len(self.words))):
            word = self._word(one)
            if word == "get" and self._word(one + 1) == "(":
                return self._defined(at, name, -1, self._pair[one + 1] + 1)
            if word == "{" and self._word(name + 1) == ":":
                return self._defined(at, name, -1, one)
            if word in ("=", "by", ",", ")", "in", "}"):
                break
        return None

    def _defined(self, at: int, name: int, opens: int, behind: int) -> SignNode:
        """A function by its name, its parentheses (-1 for none), and the sign behind them."""

        def read() -> NodeParts:
            body = self._result(behind) or self._make("body_statement", behind, behind + 1)
            none = self._filled(SignNode("parameters", "", self._at[at]), {})
            return {
                "name": self._make("identifier", name, name + 1),
                "parameters": none if opens < 0 else self._parameters(opens),
                "body": body,
            }, ()

        ends = behind
        for one in range(behind, min(behind + FAR, len(self.words))):
            word = self._word(one)
            if word == "{":
                ends = self._pair[one] if ends == behind else ends
                break
            if word in ("}", "end") or (word.lower() in DEFINES and self._is_name(one + 1)):
                break
            ends = one + 1 if word == "=" or ends > behind else behind
        return self._make("method", at, max(ends, behind), read)

    def _result(self, at: int) -> SignNode | None:
        """What a function gives back whose parameters end before a sign, where it is one expression or returned."""
        end = at
        while end < min(at + 24, len(self.words)) and self._word(end) not in ("{", "=", "return", ";"):
            if self._breaks[end] and end > at:
                break
            end += 1
        if self._word(end) == "{":
            closes = self._pair[end]
            chosen = self._expression(end + 1, closes, 1)[0] if self._word(end + 1) in CHOICES else None
            if chosen is not None:
                return chosen
            found, after = self._expression(end + 1, closes, 1)
            if found is not None and after >= closes:
                return found
            last = next((one for one in range(min(closes, end + FAR) - 1, end, -1) if self._word(one) == ";"), -1)
            if last > 0 and closes <= end + FAR and self._word(last + 1) != "return" and last + 1 < closes:
                found, after = self._expression(last + 1, closes, 1)
                if found is not None and after >= closes:
                    return found
        elif self._word(end) == "=":
            return self._expression(end + 1, len(self.words), 1)[0]
        for one in range(end, min(end + FAR, len(self.words))):
            if self.words[one] == "return":
                return self._expression(one + 1, len(self.words), 1)[0]
            if self._word(one).lower() in DEFINES:
                break
        return None

    def _piped(self, at: int) -> SignNode | None:
        """What a pipe calls, whose first argument stands before it."""
        before = at - 1
        while before in self._pair and self._word(before) in BRACKETS:
            before = self._pair[before] - 1
        if before < 0:
            return None
        left = self._chain(
            self._start(before) if self._is_name(before) else before + (before + 1 in self._pair), at, 1
        )[0]
        return None if left is None else self._pipe_into(left, at, len(self.words), 1)[0]
