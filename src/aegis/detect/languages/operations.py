"""What operators make of values: arithmetic, comparisons, negations, what is taken in place of nothing, spans; and the
lists and objects that are written out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tree_sitter import Node

from aegis.detect.languages.bindings import BoundName
from aegis.detect.languages.branches import Conditions
from aegis.detect.languages.computed import COMPUTED, matched
from aegis.detect.languages.followed import (
    HOLE,
    MAX_CHARS,
    MAX_ITEMS,
    PATTERN,
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
from aegis.detect.languages.kinds import (
    LISTS,
    LITERALS,
    MEMBERS,
    NAMES,
    PAIRS,
    REGEXES,
    SPREADS,
    SUBSCRIPTS,
    WRITTEN_OUT,
)
from aegis.detect.languages.numeric import counted, moved, number_of, operated, truth
from aegis.detect.languages.syntax import (
    STRINGS,
    Called,
    CodeLanguage,
    canonical,
    member_parts,
    sign_between,
    text_of,
    unwrapped,
)

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

    _of_call: Callable[[Called, Any], FollowedValue | None]

    @abstractmethod
    def stands_for(self, node: Node) -> Node:
        """The expression that a name or a member surely is; itself for every other."""

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
        if sign == "=~" and (other.texts[0] if other.texts else "")[:1] == PATTERN:  # of Perl and Ruby
            return FollowedValue((), matched([one, other]).items[1:])
        number = operated(sign, one, other) or (moved(sign, one, other) if self._language == "python" else None)
        if number is not None:
            return number
        if sign in "|+" and one.members and other.members:
            first, last = (other, one) if sign == "+" else (one, other)
            return object_of((*first.members, *last.members))
        if sign in _JOINS:
            if self._language == "ruby" and text_of(self.stands_for(left)).lstrip("(").startswith("Pathname"):
                return join_paths([one, other])
            if one.items or other.items:
                return FollowedValue((), (*one.items, *other.items)[:MAX_ITEMS])
            return self._joined(one, other)
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
        if key.type == "list_expression":  # of Perl
            places = (self.value(one, depth) for one in key.named_children[:MAX_ITEMS])
            return FollowedValue((), tuple(COMPUTED["at"]([whole, place]) for place in places))
        if keys[0].type in REGEXES:  # `text[/^(.+)-/, 1]` of Ruby
            found = matched([whole, self.value(keys[0], depth)])
            return COMPUTED["at"]([found, self.value(key, depth) if len(keys) == 2 else counted(0)])
        if len(keys) == 2 and self._language == "ruby":
            begins, count = (number_of(self.value(one, depth)) for one in keys)
            if begins is not None and count is not None:
                ends = begins + count
                return sliced(whole, f"{begins}:{'' if begins < 0 <= ends else ends}")
        return None

    # What is written out

    def _list(self, node: Node, depth: int) -> FollowedValue:
        """A list; what is spread in it is put between its items, several results of a function have their places."""
        items: list[FollowedValue] = []
        for one in node.named_children[:MAX_ITEMS]:
            value = self.value(unwrapped(one), depth)
            inner = one.named_children[0] if one.type == "argument" and one.named_child_count else one
            if inner.type in SPREADS:
                value = COMPUTED["chars"]([value])
            items += value.items if inner.type in SPREADS and value.items else (value,)
        placed = tuple((f"={at}", item) for at, item in enumerate(items)) if node.type == "expression_list" else ()
        return FollowedValue((), tuple(items[:MAX_ITEMS]), placed)

    def _literal(self, node: Node, depth: int) -> FollowedValue:
        """A value of Go by its type: an object of a structure whose members are given in their order, or several."""
        body, kind = node.child_by_field_name("body"), text_of(node.child_by_field_name("type"))
        if body is None:
            return UNKNOWN
        name = kind.rpartition("]")[2].lstrip("*")
        if kind[:1] == "[":
            made = (self._record(name, unwrapped(one), depth) for one in body.named_children[:MAX_ITEMS])
            return FollowedValue((), tuple(made))
        return self._record(name, body, depth)

    def _record(self, name: str, body: Node, depth: int) -> FollowedValue:
        if body.type == "literal_value" and not any(one.type in PAIRS for one in body.named_children[:1]):
            made = self._of_call(Called(None, name, tuple(body.named_children)), self)
            if made is not None and made.members:
                return made
        return self.value(body, depth)

    def _object(self, node: Node, depth: int) -> FollowedValue:
        members: list[tuple[str, FollowedValue]] = []
        children = node.named_children[: 2 * MAX_ITEMS]
        if node.type == "anonymous_object_creation_expression":  # of C#
            pairs = zip(children[::2], children[1::2], strict=False)
            return FollowedValue((HOLE,), (), tuple((text_of(one), self.value(other, depth)) for one, other in pairs))
        if node.type == "anonymous_hash_expression":  # of Perl
            flat = [one for child in children for one in (child.named_children if child.type in LISTS else (child,))]
            children = []
            for one, other in zip(flat[::2], flat[1::2], strict=False):
                members.append(((*self.value(one, depth).texts, "")[0], self.value(other, depth)))
        for pair in children[:MAX_ITEMS]:
            if pair.type in SPREADS and pair.named_child_count:
                members += self.value(pair.named_children[0], depth).members or (("...", UNKNOWN),)
                continue
            key, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
            if key is None and pair.type in PAIRS and pair.named_child_count == 2:
                key, value = map(unwrapped, pair.named_children)
            if pair.type == "assignment_expression":  # `["key"] = value` of C#
                key, value = pair.child_by_field_name("left"), pair.child_by_field_name("right")
                while key is not None and key.type not in STRINGS and key.named_child_count == 1:
                    key = key.named_children[0]
            if pair.type == "initializer_expression" and pair.named_child_count == 2:
                key, value = pair.named_children
            if pair.type == "shorthand_property_identifier":
                members.append((text_of(pair), self.value(pair, depth)))
            if key is not None and value is not None:
                names = node.type == "dictionary" and key.type in NAMES  # of Python, whose keys are expressions
                is_told = names or key.type in STRINGS or key.type in LITERALS
                known = self.value(key, depth).known if is_told else (text_of(key).strip("'\":"),)
                members.append((known[0] if known else "", self.value(value, depth)))
        return object_of(members)
