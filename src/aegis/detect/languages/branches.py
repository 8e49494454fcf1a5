"""Which branches of a program are never taken: what a condition is where the program itself says so.

A name counts only where the text gives it one value, in one place that every use of it comes behind; what may be
changed in a way that is not followed (by reference, by its name as a text) is not known. A condition that is not known
takes no branch away.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from tree_sitter import Node

from aegis.core.patterns import Lazy
from aegis.detect.languages.bindings import BoundName, called_name, holds, item_name, member_of
from aegis.detect.languages.followed import HOLE, FollowedValue, unquoted
from aegis.detect.languages.numeric import number_of
from aegis.detect.languages.syntax import (
    CodeLanguage,
    called,
    canonical,
    member_parts,
    root_of,
    sign_between,
    text_of,
)

CHOOSES: Final = frozenset({
    "switch_statement", "expression_switch_statement", "match_statement", "case", "match_expression",
    "switch_expression",
})  # fmt: skip
_CASES: Final = frozenset({
    "switch_case", "switch_default", "expression_case", "default_case", "case_clause", "when", "else", "case_statement",
    "default_statement", "match_conditional_expression", "match_default_expression", "switch_section",
    "switch_expression_arm",
})  # fmt: skip
_FALLS_THROUGH: Final = frozenset({"switch_statement"})
_SUBJECTS: Final = ("value", "subject", "condition")
_PATTERNS: Final = frozenset({"pattern", "constant_pattern", "case_pattern"})
_LISTED: Final = frozenset({"expression_list", "match_condition_list"})
_MOST_CASES: Final = 16
MOST_BRANCHES: Final = 200  # of one text that are asked
_DEEPEST: Final = 8  # names and conditions in one another
_LONGEST_CONDITION: Final = 200  # characters
_TRUE: Final = frozenset({"true", "True", "TRUE"})
_FALSE: Final = frozenset({"false", "False", "FALSE"})
_NOTHING: Final = frozenset({"none", "null", "nil", "undefined", "null_literal"})
_NUMBERS: Final = frozenset({"integer", "number", "int_literal", "integer_literal"})
_TEXTS: Final = frozenset({
    "string", "string_literal", "interpreted_string_literal", "encapsed_string", "interpolated_string_literal",
})  # fmt: skip
_NAMES: Final = frozenset({
    "identifier", "variable_name", "scalar", "constant", "instance_variable", "global_variable", "name",
})  # fmt: skip
_MEMBERS: Final = frozenset({
    "attribute", "member_expression", "selector_expression", "member_access_expression",
    "class_constant_access_expression",
})  # fmt: skip
_SUBSCRIPTS: Final = frozenset({"subscript", "subscript_expression", "element_reference", "element_access_expression"})
_WRAPS: Final = frozenset({"parenthesized_expression", "parenthesized_statements", "expression_list", "argument"})
_NOT: Final = frozenset({"not_operator", "unary", "unary_expression", "unary_op_expression", "prefix_unary_expression"})
_CALLS: Final = frozenset({"call", "call_expression", "invocation_expression", "member_call_expression"})
_IS_EMPTY: Final = frozenset({"isEmpty", "isBlank", "empty?", "IsNullOrEmpty"})
_ALL: Final = frozenset({"and", "&&"})
_ANY: Final = frozenset({"or", "||"})
_COUNTS: Final = frozenset("(.#")
_RELATIONS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
_SAME: Final = frozenset({"==", "===", "eq", "is"})
_OTHER: Final = frozenset({"!=", "!==", "ne", "<>", "is not"})
_JOINED: Final = frozenset({"binary", "binary_expression", "boolean_operator", "comparison_operator",
                            "equality_expression", "relational_expression", "lowprec_logical_expression"})  # fmt: skip
_UNLESS: Final = frozenset({"unless", "unless_modifier"})
_FURTHER: Final = frozenset({"elif_clause", "else_if_clause"})  # whose other branches stand beside them
_DONE: Final = ("consequence", "body", "block", "consequent")
_FURTHER_OF_PERL: Final = frozenset({"elsif", "else"})
_ENDS: Final = Lazy(
    r"^(?:return|throw|raise|break|continue|next|last|exit|die|abort|sys\.exit|process\.exit|os\._exit|os\.Exit|quit|"
    r"Environment\.Exit|System\.exit|panic)\b"
)
_LEAVES: Final = frozenset({"return_statement", "throw_statement", "raise_statement"})
_HOLDS: Final = ("block", "then", "else", "else_clause", "statement", "statement_list", "body", "section", "case")
_DECLARES: Final = ("function", "method", "subroutine", "class")
_STATEMENTS: Final = frozenset({"expression_statement", "postfix_conditional_expression"})


class Branch(NamedTuple):
    """A choice: its condition, what is done where that is so, and what where it is not."""

    condition: Node
    so: Sequence[Node]
    otherwise: Sequence[Node]


class Conditions:
    """What conditions are, by what the names of one text are bound to (`bounds`) and expressions may be (`value`)."""

    def __init__(
        self,
        value: Callable[[Node], FollowedValue],
        bounds: Callable[[str], Sequence[BoundName]],
        language: CodeLanguage,
    ):
        self._value, self._bounds = value, bounds
        self._language = language
        self._text = ""
        self._root = 0

    def of(self, node: Node, given: Mapping[str, FollowedValue], depth: int = 0) -> bool | None:
        """Whether a condition is met; `None` where that is not known. `given` are names that a call gives values."""
        node = _inner(node)
        if depth > _DEEPEST or node.end_byte - node.start_byte > _LONGEST_CONDITION:
            return None
        told = self._told(node)
        if told is not None:
            return told
        if node.type in _NOT and node.named_child_count == 1 and text_of(node).lstrip()[:1] in ("!", "n"):
            inner = self.of(node.named_children[0], given, depth + 1)
            return None if inner is None else not inner
        if node.type in _JOINED:
            return self._joined(node, given, depth)
        parts = called(node) if node.type in _CALLS else None
        if parts is not None and parts.arguments:  # whether a text begins with another, whether a list holds it
            sides = [one for one in (parts.receiver, *parts.arguments[:2]) if one is not None]
            sure = all(self.exact(one, given) is not None or not self._bounds(text_of(one)) for one in sides)
            texts = self._value(node).texts if sure else ()
            return texts == ("true",) if texts in (("true",), ("false",)) else None
        if parts is not None and parts.name in _IS_EMPTY and parts.receiver is not None and not parts.arguments:
            text = self.exact(parts.receiver, given)
            return None if text is None else not text
        other = self.stands_for(node, given)
        return None if other is None else self.of(other, given, depth + 1)

    def _told(self, node: Node) -> bool | None:
        """What a value that is written out counts as."""
        text = text_of(node)
        if text in _TRUE:
            return True
        if text in _FALSE or node.type in _NOTHING or text in ("None", "null", "nil", "undefined"):
            return False
        if node.type in _NUMBERS and self._language not in ("ruby", "go", "csharp", "java"):
            return text != "0" if text.isdecimal() else None
        if node.type in _TEXTS and self._language in ("python", "javascript", "typescript", "php", "perl"):
            filled = self._language in ("php", "perl") and ("$" in text or "@" in text)
            filled = filled or any(child.type == "interpolation" for child in node.children)
            zero = ("0",) if self._language in ("php", "perl") else ()
            return None if filled or HOLE in text else bool(unquoted(text)) and unquoted(text) not in zero
        return None

    def _joined(self, node: Node, given: Mapping[str, FollowedValue], depth: int) -> bool | None:
        sides = [one for one in node.named_children if one.type != "operator"]
        if len(sides) != 2:
            return None
        left, right = sides
        word = text_of(node.child_by_field_name("operator")) or " ".join(sign_between(node, left, right).split())
        if word in _ALL or word in _ANY:
            parts = (self.of(left, given, depth + 1), self.of(right, given, depth + 1))
            decides = word in _ANY
            return decides if decides in parts else None if None in parts else not decides
        if word in _RELATIONS:
            texts = [self.exact(one, given) for one in (left, right)]
            told = [number for text in texts if text and (number := number_of(FollowedValue((text,)))) is not None]
            return _RELATIONS[word](*told) if len(told) == 2 else None
        if word in _SAME or word in _OTHER:
            one, other = self.exact(left, given), self.exact(right, given)
            return None if one is None or other is None else (one == other) is (word in _SAME)
        return None

    def exact(self, node: Node, given: Mapping[str, FollowedValue]) -> str | None:
        """The one text that an expression is, and surely."""
        node = _inner(node)
        if node.type in _NAMES and text_of(node) not in given and self.stands_for(node, given) is None:
            return None
        value = self._value(node)
        if value.number and not _COUNTS.isdisjoint(text_of(node)):  # what has been counted may have grown since
            return None
        sure = len(value.texts) == 1 and not value.items and not value.members and HOLE not in value.texts[0]
        return value.texts[0] if sure else None

    def stands_for(self, node: Node, given: Mapping[str, FollowedValue]) -> Node | None:
        """The expression that a name, a member or an item surely is."""
        if node.type in _NAMES:
            return None if text_of(node) in given else self._only(text_of(node), node)
        if node.type in _MEMBERS:
            found = self._only(canonical(text_of(node)), node)
            return found if found is not None else self._part(node)
        if node.type in _SUBSCRIPTS:
            found = self._only(item_name(text_of(node)), node)
            return found if found is not None else self._part(node)
        return None

    def _part(self, node: Node) -> Node | None:
        """What an object that is written out holds under the key that it is asked for with."""
        owner, key = member_parts(node)
        held = None if owner is None or owner.type not in _NAMES else self._only(text_of(owner), node)
        if held is None or key is None:
            return None
        name = text_of(key).strip("'\"`:")
        if self._bounds(f"{text_of(owner)}[{name}]") or self._bounds(f"{text_of(owner)}.{name}"):
            return None
        return member_of(held, name)

    def _only(self, name: str, use: Node) -> Node | None:
        """The value that a name gets in the one place of the text where it gets any."""
        several = self._bounds(name)
        if not several or any(one.each or one.adds or (one.part and not one.given) for one in several):
            return None
        first = several[0]
        value = member_of(first.value, first.part) if first.part else first.value
        last = name.rpartition(".")[2].lstrip("$@&")
        text = self._whole(use)
        if all(one.given for one in several):  # a parameter: each call gives the same
            same = len({(text_of(one.value), one.part) for one in several}) == 1
            return value if same and not _changed(last, text) and _is_called_only(several, text) else None
        if len(several) > 1 or not last.isidentifier() or _changed(last, text):
            return None
        begins = first.whole.start_byte < use.start_byte and (holds(first.whole, use) or "." in name)
        return value if begins and _times(rf"\b{last}\b\s*(?::[^=\n]{{1,40}})?:?=[^=~>]", text) == 1 else None

    def _whole(self, node: Node) -> str:
        root = root_of(node)
        if root is not None and root.id != self._root:
            self._root, self._text = root.id, text_of(root)
        return self._text


def _inner(node: Node) -> Node:
    """A node without the brackets around it."""
    while node.type in _WRAPS and node.named_child_count == 1:
        node = node.named_children[0]
    return node


def _times(pattern: str, text: str) -> int:
    return sum(1 for _ in _pattern(pattern).finditer(text))


@lru_cache(maxsize=256)
def _pattern(pattern: str) -> Lazy:
    return Lazy(pattern)


def _changed(name: str, text: str) -> bool:
    """Whether a text may change what has a name but by an assignment: by reference, by its name, by a step."""
    return (
        _pattern(
            rf"(?:&|\bout |\bref |\\)\s*\$?{name}\b|[\"']{name}[\"']\s*[\],)]"
            rf"|\b{name}\s*(?:\+\+|--|\|\|=|&&=|\?\?=|[-+*/|&]=)"
            rf"|(?:\+\+|--)\$?{name}\b|\b(?:chomp|read|extract)\b[^\n]{{0,60}}\b{name}\b"
        ).search(text)
        is not None
    )


def _is_called_only(given: Sequence[BoundName], text: str) -> bool:
    """Whether the function that calls give a value is named nowhere else: nobody else calls it with another."""
    name = called_name(given[0].whole)
    return name.isidentifier() and _times(rf"\b{name}\b", text) == len(given) + 1


def branch_of(node: Node) -> Branch | None:
    """The parts of a choice, whichever language it is of."""
    children = node.named_children
    condition = node.child_by_field_name("condition")
    if condition is None:
        if node.type == "conditional_expression" and len(children) == 3:  # of Python
            return Branch(children[1], children[:1], children[2:])
        return None
    so = next((found for field in _DONE if (found := node.child_by_field_name(field)) is not None), None)
    if so is None and node.type == "postfix_conditional_expression":
        so = children[0]
    if so is None:
        return None
    otherwise = node.children_by_field_name("alternative")
    if node.type in _FURTHER and node.parent is not None:
        beside = node.parent.children_by_field_name("alternative")
        otherwise = [one for one in beside if one.start_byte > node.start_byte]
    if not otherwise:
        otherwise = [one for one in children if one.type in _FURTHER_OF_PERL]
    if node.type in _UNLESS or any(child.type == "unless" for child in node.children[:2]):
        return Branch(condition, otherwise, [so])
    return Branch(condition, [so], otherwise)


def unreached(
    branches: Iterable[Node], conditions: Conditions, given: Mapping[str, FollowedValue]
) -> list[tuple[int, int]]:
    """From where to where a text is never reached, by those of its choices whose condition is known."""
    found: list[tuple[int, int]] = []
    for node, _ in zip(branches, range(MOST_BRANCHES), strict=False):
        if node.type in CHOOSES:
            found += _other_cases(node, conditions, given)
            continue
        branch = branch_of(node)
        met = None if branch is None else conditions.of(branch.condition, given)
        if branch is None or met is None:
            continue
        found += [(one.start_byte, one.end_byte) for one in (branch.otherwise if met else branch.so)]
        taken = branch.so if met else branch.otherwise
        if taken and _ends(taken[0]):
            found += _behind(node)
    return found


def _other_cases(node: Node, conditions: Conditions, given: Mapping[str, FollowedValue]) -> Iterator[tuple[int, int]]:
    """The cases of a choice that what it chooses by does not meet, where that is known of all."""
    subject = next((found for field in _SUBJECTS if (found := node.child_by_field_name(field)) is not None), None)
    subject = subject or next(iter(node.named_children), None)
    value = None if subject is None else conditions.exact(subject, given)
    if value is None:
        return
    cases = [one for one in (node.child_by_field_name("body") or node).named_children if one.type in _CASES]
    told = [[conditions.exact(one, given) for one in _patterns(case)] for case in cases[:_MOST_CASES]]
    if len(cases) > _MOST_CASES or any(text is None for several in told for text in several):
        return
    taken = next((at for at, several in enumerate(told) if value in several), None)
    if taken is None:
        taken = next((at for at, several in enumerate(told) if not several), None)
    goes_on = taken is not None and node.type in _FALLS_THROUGH and not _ends(cases[taken])
    for at, case in enumerate(cases):
        if at != taken and not (goes_on and taken is not None and at > taken):
            yield case.start_byte, case.end_byte


def _patterns(case: Node) -> list[Node]:
    """What a case is chosen by; nothing for the one that is chosen where no other is."""
    told = [one for field in ("value", "conditional_expressions") for one in case.children_by_field_name(field)]
    told = told or [one for one in case.named_children if one.type in _PATTERNS]
    found = []
    for one in told:
        listed = one.named_children if one.type in _LISTED else [one]
        found += [
            inner.named_children[0] if inner.type in _PATTERNS and inner.named_child_count else inner
            for inner in listed
        ]
    return [one for one in found if text_of(one) != "_"]


def _ends(block: Node) -> bool:
    """Whether a program does not go on behind a block."""
    last = block
    for _ in range(_DEEPEST):
        inner = [one for one in last.named_children if one.type != "comment"]
        if not inner or last.type in _LEAVES or not last.type.endswith(_HOLDS):
            break
        last = inner[-1]
    return _ENDS.match(text_of(last)[:60]) is not None


def _behind(node: Node) -> Iterator[tuple[int, int]]:
    """What stands behind a choice in its block, if no function is declared there."""
    at = node
    while at.parent is not None and at.parent.type in _STATEMENTS:
        at = at.parent
    block = at.parent
    if block is None:
        return
    rest = [one for one in block.named_children if one.start_byte >= at.end_byte]
    if rest and not any(word in one.type for one in rest for word in _DECLARES):
        yield rest[0].start_byte, block.end_byte


def is_outside(node: Node, spans: Sequence[tuple[int, int]]) -> bool:
    """Whether a node lies in none of some places of its text."""
    return not any(start <= node.start_byte and node.end_byte <= end for start, end in spans)
