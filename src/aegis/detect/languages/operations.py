"""What operators make of values: arithmetic, comparisons, negations, what is taken in place of nothing, spans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final

from tree_sitter import Node

from aegis.detect.languages.bindings import BoundName
from aegis.detect.languages.branches import Conditions
from aegis.detect.languages.followed import (
    HOLE,
    MAX_CHARS,
    MAX_ITEMS,
    UNKNOWN,
    FollowedValue,
    chosen_of,
    filled,
    join_paths,
    object_of,
    repeated,
    sliced,
    texts_of,
    union,
)
from aegis.detect.languages.kinds import MEMBERS, SUBSCRIPTS, WRITTEN_OUT
from aegis.detect.languages.numeric import counted, number_of, operated, truth
from aegis.detect.languages.syntax import CodeLanguage, canonical, member_parts, sign_between, text_of

_JOINS: Final = frozenset({"+", ".", "<<", ".."})
_ONLY_NOTHING: Final = frozenset({"??", "?:", "//"})  # that take the other for nothing at all
_OTHERWISE: Final = frozenset({"||", "or", *_ONLY_NOTHING})
_ALSO: Final = frozenset({"&&", "and"})
_COMPARES: Final = frozenset({"==", "===", "!=", "!==", "<", ">", "<=", ">=", "eq", "ne"})
_NOTHING: Final = frozenset({"null", "nil", "none", "undefined"})
_ANYTHING: Final = ("~", "/tmp", "C:", ".")  # what a place begins with that is only supposed  # noqa: S108
SPANS: Final = frozenset({"range", "range_expression", "binary_expression"})
_SPANNED: Final = frozenset({"..", "...", "..=", "..<"})
_TO_ITS_END: Final[frozenset[CodeLanguage]] = frozenset({"ruby", "perl"})  # where `..` takes its end with it
FROM_ONE: Final[frozenset[CodeLanguage]] = frozenset({"lua", "r", "julia"})  # that count places from one


class Operations(ABC):
    """The operators of expressions, for who knows the values of their sides."""

    _conditions: Conditions
    _given: dict[str, FollowedValue]
    _names: Mapping[str, Sequence[BoundName]]
    _language: CodeLanguage

    @abstractmethod
    def value(self, node: Node, depth: int = 0) -> FollowedValue:
        """What a node may be; a hole where nothing is known."""

    def _binary(self, node: Node, depth: int) -> FollowedValue:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None:
            return UNKNOWN
        sign = text_of(node.child_by_field_name("operator")) or sign_between(node, left, right)
        if sign in _COMPARES:
            return truth(self._conditions.of(node, self._given))
        if sign in _ALSO:
            return self.value(left if self._conditions.of(left, self._given) is False else right, depth)
        one, other = self.value(left, depth), self.value(right, depth)
        if sign in _OTHERWISE and not (sign == "//" and one.number):
            return self._otherwise(sign, left, one, other)
        number = operated(sign, one, other)
        if number is not None:
            return number
        if sign in _JOINS:
            if one.items or other.items:
                return FollowedValue((), (*one.items, *other.items)[:MAX_ITEMS])
            return self._joined(one, other)
        if sign == "|" and one.members and other.members:
            return object_of((*one.members, *other.members))
        if sign == "/":
            return join_paths([one, other])
        if sign == "%":
            return filled(one, list(other.items) or [other], other)
        if sign in ("*", "x"):
            one, other = (other, one) if one.number and not other.number else (one, other)
            times = number_of(other)
            return UNKNOWN if times is None else repeated(one, str(max(times, 0)))
        return one if type(node) is not Node else UNKNOWN  # of signs that are read without precedence

    def _joined(self, *parts: FollowedValue) -> FollowedValue:
        return texts_of(
            ["".join(chosen)[:MAX_CHARS] for chosen in chosen_of([part.texts or (HOLE,) for part in parts])]
        )

    def _otherwise(self, sign: str, left: Node, one: FollowedValue, other: FollowedValue) -> FollowedValue:
        """What is taken in place of nothing: the other alone where the first surely is nothing."""
        told = self._conditions.exact(left, self._given)
        falsy = _NOTHING if sign in _ONLY_NOTHING or self._language == "ruby" else (*_NOTHING, "", "0")
        if self._lacks(left) or (told is not None and (told in falsy or (told == "false" and sign != "??"))):
            return other
        if told and not told.startswith(_ANYTHING):
            return one
        return union(part for part in (one, other) if part.known or part.items or part.members)

    def _lacks(self, node: Node) -> bool:
        """Whether a member is asked for that an object does not have which is written out."""
        if node.type not in MEMBERS and node.type not in SUBSCRIPTS:
            return False
        owner, last = member_parts(node)
        is_given = owner is not None and bool(self._given.get(text_of(owner), UNKNOWN).members)
        held = None if owner is None else self._conditions.stands_for(owner, self._given)
        if owner is None or last is None or not (is_given or (held is not None and held.type in WRITTEN_OUT)):
            return False
        names = (text_of(last),) if node.type in MEMBERS else self.value(last).known
        told = dict(self.value(owner).members)
        return (
            bool(told and names)
            and not {"", "...", *names} & told.keys()
            and canonical(text_of(node)) not in self._names
        )

    def _negated(self, node: Node, depth: int) -> FollowedValue | None:
        """What stands behind a sign that negates: `!ready`, `-width`, `~mask`; `None` for every other sign."""
        sign = text_of(node)[:1]
        inner = node.named_children[-1] if node.named_child_count else None
        if inner is None or sign not in "!n-~^":
            return None
        if sign in "!n":
            return truth(self._conditions.of(node, self._given))
        number = number_of(self.value(inner, depth))
        return None if number is None else counted(~number if sign == "~" else -number)

    # Parts by where they begin and end

    def _span(self, node: Node, depth: int) -> tuple[str, str] | None:
        """Where a span of places begins and ends, as Python cuts; `None` for what is none."""
        at = next((place for place, one in enumerate(node.children) if one.type in _SPANNED), None)
        if at is None or node.type not in SPANS:
            return None
        sides = []
        for several in (node.children[:at], node.children[at + 1 :]):
            told = [one for one in several if one.is_named][:1]
            number = number_of(self.value(told[0], depth)) if told else None
            if told and number is None:
                return None
            sides.append(number)
        begins, ends = sides
        if ends is not None and self._language in _TO_ITS_END and node.children[at].type == "..":
            ends = None if ends == -1 else ends + 1
        return tuple("" if side is None else str(side) for side in (begins, ends))  # type: ignore[return-value]

    def _cut(self, whole: Node, node: Node, depth: int) -> FollowedValue:
        """A part of a list or a text between what a node of Go names as its start and its end."""
        told = []
        for side in ("start", "end"):
            one = node.child_by_field_name(side)
            told.append("" if one is None else str(number_of(self.value(one, depth))))
        return sliced(self.value(whole, depth), ":".join(told))

    def _numbers(self, node: Node, depth: int) -> FollowedValue | None:
        """The numbers of a span, one by one."""
        told = self._span(node, depth)
        if told is None or not all(told):
            return None
        begins, ends = map(int, told)
        return FollowedValue((), tuple(map(counted, range(begins, min(ends, begins + MAX_ITEMS)))))

    def _taken(self, whole: FollowedValue, keys: list[Node], depth: int) -> FollowedValue | None:
        """A part of a list or a text between two places, or so much of it; `None` where one place is asked for."""
        key = keys[-1]
        if key.type == "slice":
            cut = ((":" if not one.is_named else str(number_of(self.value(one, depth)))) for one in key.children)
            return sliced(whole, "".join(cut))
        told = self._span(key, depth)
        if told is not None:
            return sliced(whole, ":".join(told))
        if len(keys) == 2 and self._language == "ruby":
            begins, count = (number_of(self.value(one, depth)) for one in keys)
            if begins is not None and count is not None:
                ends = begins + count
                return sliced(whole, f"{begins}:{'' if begins < 0 <= ends else ends}")
        return None
