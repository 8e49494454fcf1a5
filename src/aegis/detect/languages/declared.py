"""Classes, objects and enumerations that a program declares whose language has no grammar here.

Of each is told what its members are called, in the order in which a call gives them, and which constants it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from aegis.detect.languages.expressions import Expressions
from aegis.detect.languages.syntax import SignNode

HOLDS: Final = frozenset({"class", "object", "struct", "enum"})
ENTRIES: Final = frozenset({"entries", "values", "allCases"})  # that list what an enumeration has
_FAR: Final = 40  # signs behind a name in which its body begins
_MOST_SIGNS: Final = 400  # of a body that are looked at for its members
_MOST_MEMBERS: Final = 32
_BEFORE_MEMBER: Final = frozenset({"let", "var", "{", ",", "pub", ")", ";"})


class DeclaredClass(NamedTuple):
    """What a text declares: its name, the sign that its body ends at, its class as a node, and its constants."""

    name: str
    closes: int
    node: SignNode
    constants: list[SignNode]
    calls: list[SignNode]


class Declarations(Expressions):
    """The declarations among the signs of one text."""

    def _declared(self, at: int) -> DeclaredClass | None:
        """What is declared behind a word such as `class`."""
        name = at + 1
        if not self._is_name(name) or self.words[name] in HOLDS or self._breaks[name]:
            return None
        behind = self._generic(name + 1)
        given = behind if self._word(behind) == "(" and not self._breaks[behind] else -1
        opens = self._body_of(self._pair[given] + 1 if given > 0 else behind)
        closes = min(self._pair[opens] if opens > 0 else name, len(self.words))
        is_struct = self.words[at] == "struct"
        fields: list[str] = []
        if given > 0 and is_struct:  # of Rust, whose members have no names
            fields = [str(place) for place, _ in enumerate(self._parts(given + 1, self._pair[given]))]
        elif given > 0:
            fields = self._names_of(given)
        elif opens > 0:
            fields = list(self._members_of(opens, closes, is_struct=is_struct))
        elif is_struct:
            fields = list(self._lines_of(name + 1))
        constants, calls = self._entries(at, name, opens, closes)
        owner, start = self.words[name], self._at[at]
        told = [self._named_node("parameter", one, start) for one in fields[:_MOST_MEMBERS]]
        listed = self._filled(SignNode("parameter_list", "", start), {}, told)
        node = SignNode("class", owner, start)
        fields_of = {"name": self._make("identifier", name, name + 1)}
        return DeclaredClass(owner, closes, self._filled(node, fields_of, [listed]), constants, calls)

    def _body_of(self, at: int) -> int:
        """The brace that a body begins with; -1 where there is none."""
        for one in range(at, min(at + _FAR, len(self.words))):
            if self._word(one) == "{":
                return one
            if self._breaks[one] or self._word(one) in (";", "=", "}"):
                break
        return -1

    def _names_of(self, opens: int) -> list[str]:
        listed = self._parameters(opens).named_children
        return [(one.child_by_field_name("name") or one).text.decode() for one in listed]

    def _members_of(self, opens: int, closes: int, *, is_struct: bool) -> Iterator[str]:
        """The members that a body declares with their types, or what it is made with (`init` of Swift)."""
        one = opens + 1
        while one < min(closes, opens + _MOST_SIGNS):
            if self._word(one) == "init" and self._word(one + 1) == "(":
                yield from self._names_of(one + 1)
                return
            is_member = self._word(one + 1) == ":" and self._is_name(one)
            if is_struct and is_member and (self._word(one - 1) in _BEFORE_MEMBER or self._breaks[one]):
                yield self.words[one]
            one = self._pair[one] + 1 if self._word(one) in ("(", "{", "[") else one + 1

    def _lines_of(self, at: int) -> Iterator[str]:
        """The members of a structure of Julia, one in a line."""
        for one in range(at, min(at + _MOST_SIGNS, len(self.words))):
            if self._word(one) == "end":
                return
            if self._is_name(one) and self._breaks[one]:
                yield self.words[one]

    def _entries(self, at: int, name: int, opens: int, closes: int) -> tuple[list[SignNode], list[SignNode]]:
        """What an enumeration has, each entry as a constant and all as a list; and the calls that make them."""
        if opens < 0 or "enum" not in (self.words[at], self._word(at - 1)):
            return [], []
        owner = self.words[name]
        constants: list[SignNode] = []
        calls: list[SignNode] = []
        if self.words[at] == "class":  # of Kotlin
            ends = next((one for one in range(opens + 1, closes) if self._word(one) in (";", "{", "fun")), closes)
            for start, end in self._parts(opens + 1, ends):
                if self._is_name(start) and self._word(start + 1) == "(":
                    made = self._chain(start, end, 1)[0]
                    arguments = None if made is None else made.child_by_field_name("arguments")
                    if arguments is not None:
                        node = SignNode("call_expression", self._slice(start, end), self._at[start])
                        function = SignNode("identifier", owner, self._at[start])
                        calls.append(self._filled(node, {"function": function, "arguments": arguments}))
                        constants.append(self._constant(f"{owner}.{self.words[start]}", calls[-1]))
        else:
            for one in range(opens + 1, min(closes, opens + _MOST_SIGNS)):
                if self._word(one) == "case" and self._word(one + 2) == "=":
                    value = self._expression(one + 3, closes, 1)[0]
                    if value is not None:
                        constants.append(self._constant(f"{owner}.{self.words[one + 1]}", value))
        values = [value for one in constants if (value := one.child_by_field_name("right")) is not None]
        if values:
            every = self._filled(SignNode("list", "", self._at[name]), {}, values[:_MOST_MEMBERS])
            constants += [self._constant(f"{owner}.{one}", every) for one in sorted(ENTRIES)]
        return constants, calls

    def _constant(self, name: str, value: SignNode) -> SignNode:
        """A name that is given a value."""
        left = SignNode("identifier", name, value.start_byte)
        return self._filled(SignNode("assignment", "", value.start_byte), {"left": left, "right": value})

    def _named_node(self, kind: str, name: str, start: int) -> SignNode:
        return self._filled(SignNode(kind, name, start), {"name": SignNode("identifier", name, start)})
