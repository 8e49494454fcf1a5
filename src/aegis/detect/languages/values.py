"""What an expression may be: constants, and what is simply computed of them, as far as a reader would follow it.

Followed are assignments, concatenation, interpolation, joined paths, formats, loops over lists, members of objects
that were written out, constant encodings, and functions of the text itself, once. What comes from outside is a hole in
the text around it, so that `"/home/" + user + "/.ssh/authorized_keys"` still names what it names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from tree_sitter import Node

from aegis.core.patterns import Lazy
from aegis.detect.languages.bindings import (
    FUNCTIONS,
    ROOTS,
    BoundName,
    arms_of,
    called_name,
    elements_of,
    holds,
    item_name,
    parts_of,
    within,
)
from aegis.detect.languages.branches import Conditions, branch_of, is_outside, unreached
from aegis.detect.languages.computed import COMPUTED, written_pattern
from aegis.detect.languages.followed import (
    ANY_NAME,
    HOLE,
    MAX_CHARS,
    MAX_ITEMS,
    MAX_TEXTS,
    UNKNOWN,
    FollowedValue,
    FunctionValue,
    chosen_of,
    escaped,
    texts_of,
    union,
    unquoted,
)
from aegis.detect.languages.kinds import (
    ASKS,
    BINARY,
    CALLS,
    CHOICES,
    COMPREHENSIONS,
    LISTS,
    LITERALS,
    MATCHES,
    MEMBERS,
    NAMES,
    NUMBERS,
    OBJECTS,
    PAIRS,
    PARTS,
    REGEXES,
    SUBSCRIPTS,
    WRAPPERS,
)
from aegis.detect.languages.numeric import counted, number_of, operated, truth
from aegis.detect.languages.operations import FROM_ONE, SPANS, Operations
from aegis.detect.languages.syntax import (
    CONTENT,
    FILLED,
    SHELLS_OUT,
    SKIPPED,
    STRINGS,
    Called,
    CodeLanguage,
    arguments_of,
    behind_line,
    called,
    canonical,
    code_words,
    member_parts,
    text_of,
    unwrapped,
)

MAX_DEPTH: Final = 12  # expressions inside each other that are followed
MAX_STEPS: Final = 1_200  # expressions that are looked at for one text: bounds what many names for one thing cost
_MOST_OF_ONE: Final = 200  # ... and for one value of it

_AROUND_TEXT: Final = CALLS | {
    "assignment", "argument_list", "binary", "operator_assignment", "parenthesized_statements",
}  # fmt: skip
_FILLED_IN: Final = Lazy(r"#\{[^{}]*\}")
_LOOPS: Final = frozenset({"for_statement", "for_in_statement", "foreach_statement", "for", "range_clause"})
_Parts = Sequence[tuple[str, str]]
_LONGEST_ITEM: Final = 80  # characters of what an item is asked for with
_NAME_OF: Final = frozenset({"name", "Name", "pid", "Id"})  # members of what a folder holds that tell its name


class NameScope(Operations):
    """The names of one text, and what its expressions may be; `of_call` says what a call of somebody else makes."""

    def __init__(
        self,
        names: Mapping[str, Sequence[BoundName]],
        of_call: Callable[[Called, NameScope], FollowedValue | None],
        language: CodeLanguage,
    ):
        self._names = names
        self._of_call = of_call
        self._memo: dict[int, FollowedValue] = {}
        self._owned: dict[str, list[BoundName]] | None = None
        self._given: dict[str, FollowedValue] = {}  # what names stand for while an expression is read with them
        self._steps, self._open, self._here = MAX_STEPS, 0, 0
        self._language = language
        self._conditions = Conditions(self.value, self.bounds_of, language)

    def lets_through(self, given: Mapping[str, FollowedValue], node: Node) -> bool | None:
        """Whether a condition is met where names stand for what they are given."""
        with self.standing_for(given):
            return self._conditions.of(node, self._given)

    @property
    def named_now(self) -> Collection[str]:
        """The names that stand for something given just now."""
        return self._given

    def given(self) -> tuple[tuple[str, FollowedValue], ...]:
        """What names stand for just now."""
        return tuple(self._given.items())

    def unreached(self, branches: Iterable[Node]) -> list[tuple[int, int]]:
        """From where to where a text is never reached, by those of its choices whose condition is known."""
        return unreached(branches, self._conditions, self._given)

    def stands_for(self, node: Node) -> Node:
        """The expression that a name or a member surely is; itself for every other."""
        bound = self.bounds_of(text_of(node))
        if len(bound) == 1 and not bound[0].each:
            return bound[0].value
        return self._conditions.stands_for(node, self._given) or node

    def reached(self, nodes: Sequence[Node], branches: Sequence[Node]) -> Sequence[Node]:
        """Those of some nodes that are reached with what names stand for; all where none would be."""
        spans = self.unreached(branches) if branches and len(nodes) > 1 else []
        return [node for node in nodes if is_outside(node, spans)] or nodes if spans else nodes

    def value(self, node: Node, depth: int = 0) -> FollowedValue:
        """What a node may be; a hole where nothing is known."""
        known = self._memo.get(node.id)
        if known is not None:
            return known
        self._here = _MOST_OF_ONE if not self._open else self._here - 1
        if depth > MAX_DEPTH or min(self._steps, self._here) <= 0 or self._open > 4 * MAX_DEPTH:
            return UNKNOWN  # functions in each other begin anew
        self._steps, self._open = self._steps - 1, self._open + 1
        self._memo[node.id] = UNKNOWN  # a name that is made of itself
        found = self._memo[node.id] = self._value(unwrapped(node), depth + 1)
        self._open -= 1
        return found

    def renew(self, steps: int) -> None:
        """Let at least so many expressions more be followed."""
        self._steps = max(self._steps, steps)

    def bounds_of(self, name: str) -> Sequence[BoundName]:
        """What a name is bound to."""
        return self._names.get(name, ())[:MAX_TEXTS]

    def named(self, name: str) -> FollowedValue:
        """What a name may be, wherever it is asked for."""
        return union(self._bound(one, 1) for one in self.bounds_of(name))

    def of_owner(self, owner: str) -> Sequence[BoundName]:
        """What the members and items of a name get, one by one: `body.spec = ...`, `policy.bindings.append(...)`."""
        if self._owned is None:
            self._owned = {}
            for name, several in self._names.items():
                head, dot, _ = name.replace("[", ".").partition(".")
                if dot:
                    self._owned.setdefault(head, []).extend(several[:MAX_TEXTS])
        return self._owned.get(owner, ())

    def value_with(self, given: Mapping[str, FollowedValue], node: Node, depth: int = 0) -> FollowedValue:
        """What a node may be where names stand for what they are given: of a function, or of each item of a list."""
        with self.standing_for(given):
            return self.value(node, depth)

    @contextmanager
    def standing_for(self, given: Mapping[str, FollowedValue]) -> Iterator[None]:
        """Read expressions with names that stand for what they are given."""
        memo, before = self._memo, self._given
        self._memo, self._given = {}, {**before, **given}
        try:
            yield
        finally:
            self._memo, self._given = memo, before

    def _value(self, node: Node, depth: int) -> FollowedValue:
        kind = node.type
        if kind in STRINGS and kind != "array":
            return texts_of(self._string(node, depth))
        if kind in REGEXES:
            return written_pattern(text_of(node).lstrip("mqr"), once="script" in self._language)
        if kind == "heredoc_beginning":
            above = node
            while above.parent is not None and above.parent.type in _AROUND_TEXT:
                above = above.parent
            body = above.next_named_sibling if type(node) is Node else None
            if body is None or body.type != "heredoc_body":
                return texts_of([str(_FILLED_IN.sub(HOLE, behind_line(node)[:MAX_CHARS]))])
            found = (text.strip("\n").split("\n") for text in self._string(body, depth))
            return texts_of("\n".join(line.strip() for line in lines) for lines in found)
        if kind == "concatenated_string" or kind == "chained_string":
            return self._joined(*(self.value(child, depth) for child in node.named_children))
        if kind in NAMES and not (kind == "array" and text_of(node)[:1] == "["):
            return self._name(text_of(node), node, depth)
        if kind == "dynamic_variable_name" and node.named_child_count:  # `$$name` of PHP
            told = self.value(node.named_children[0], depth).known
            return union(self._name(f"${name}", node, depth) for name in told)
        if kind in BINARY:
            spanned = self._numbers(node, depth) if kind in SPANS else None
            return spanned or self._binary(node, depth)
        if kind in SPANS:
            return self._numbers(node, depth) or UNKNOWN
        if kind in ASKS:
            return truth(self._conditions.of(node, self._given))
        if kind in PARTS and node.named_child_count > 1:
            operand = node.child_by_field_name("operand")  # of Go
            return self._item(node, depth) if operand is None else self._cut(operand, node, depth)
        if kind in CALLS:
            return self._call(node, depth)
        if kind in FUNCTIONS:
            return FollowedValue((HOLE,), function=FunctionValue(node, self.given()))
        if kind.endswith("array_creation_expression") and node.named_children[-1:]:
            last = node.named_children[-1]
            if last.type == "initializer_expression":  # behind the type of its items
                return self.value(last, depth)
        if kind == "argument_list" and node.named_child_count and node.named_children[0].type == "pair":  # of Ruby
            return self._object(node, depth)
        if kind in LISTS and any(
            child.type in PAIRS and child.named_child_count == 2 for child in node.named_children[:1]
        ):
            return self._object(node, depth)
        if kind in LISTS:
            return self._list(node, depth)
        if kind == "composite_literal":
            return self._literal(node, depth)
        if kind == "quoted_word_list":
            texts = text_of(node).partition("w")[2][1:-1].split()
            return FollowedValue((), tuple(FollowedValue((text,)) for text in texts[:MAX_ITEMS]))
        if kind in COMPREHENSIONS:
            return self._comprehension(node, depth)
        if kind == "map_grep_expression":  # of Perl
            listed, body = node.child_by_field_name("list"), node.child_by_field_name("callback")
            if listed is None or body is None:
                return UNKNOWN
            if not text_of(node).startswith("grep"):
                return self.each(self.value(listed, depth), [("$_", "")], body, depth)
            while body.type in ("block", "expression_statement") and body.named_child_count == 1:
                body = body.named_children[0]
            items = self.value(listed, depth).items
            return FollowedValue((), tuple(one for one in items if self.lets_through({"$_": one}, body) is not False))
        if kind == "block" and node.named_child_count == 1:  # an expression alone, between braces
            return self.value(node.named_children[0], depth)
        if kind in OBJECTS or kind == "anonymous_object_creation_expression":
            return self._object(node, depth)
        if kind in ("begin", "do_statement") and node.named_child_count:  # of Ruby
            return self.value(node.named_children[0], depth)
        if kind in MATCHES:
            return union(self.value(arm, depth) for arm in self.reached(arms_of(node), [node]))
        if kind in MEMBERS:
            return self._member(node, depth)
        if kind in SUBSCRIPTS:
            return self._item(node, depth)
        if kind in CHOICES:
            parts = [self.value(child, depth) for child in self._chosen(node)]
            several = len(parts) > 1
            return union(part for part in parts if not several or part.known or part.items or part.members)
        negated = self._negated(node, depth) if kind.startswith(("unary", "prefix_unary")) else None
        if negated is not None:
            return negated
        if kind == "unary" and text_of(node)[:1] == "+":  # of Ruby: the text, to be changed
            return self.value(node.named_children[-1], depth)
        if kind in WRAPPERS and node.named_child_count:
            inner = node.child_by_field_name("value") or node.child_by_field_name("expression")
            number = number_of(self.value(node.named_children[-1], depth)) if kind == "cast_expression" else None
            if number is not None:  # a member of an enumeration, perhaps
                named = self._of_call(Called(node.named_children[0], str(number), ()), self)
                return counted(number) if named is None else named
            return self.value(inner or node.named_children[-1 if "argument" in kind else 0], depth)
        if kind in ("autoquoted_bareword", "bare_symbol", "simple_symbol", "hash_key_symbol"):
            return FollowedValue((text_of(node).strip(":"),))
        if kind in LITERALS:
            return FollowedValue((text_of(node).lower(),), number=kind in NUMBERS)
        return UNKNOWN

    def _chosen(self, node: Node) -> Sequence[Node]:
        """The expressions that a choice may be."""
        branch = branch_of(node)
        if branch is None:
            return [node.named_children[0], node.named_children[-1]]
        met = self._conditions.of(branch.condition, self._given)
        return [*(branch.so if met is not False else ()), *(branch.otherwise if met is not True else ())]

    def _string(self, node: Node, depth: int) -> list[str]:
        """The texts that a string may be, what is filled in put in."""
        raw = node.text or b""
        if not node.children:
            return [unquoted(raw.decode("utf-8", "replace"))]
        pieces: list[tuple[str, ...]] = []
        self._pieces(node, pieces, depth)
        return ["".join(chosen)[:MAX_CHARS] for chosen in chosen_of(pieces)]

    def _pieces(self, node: Node, pieces: list[tuple[str, ...]], depth: int) -> None:
        raw, start = node.text or b"", node.start_byte
        at = start
        inside = node.type in CONTENT
        for child in node.children:
            if inside and child.start_byte > at:
                pieces.append((raw[at - start : child.start_byte - start].decode("utf-8", "replace"),))
            at = child.end_byte
            if child.type in CONTENT:
                if child.children:
                    self._pieces(child, pieces, depth)
                else:
                    pieces.append((text_of(child),))
            elif child.type == "escape_sequence":
                pieces.append((escaped(text_of(child)),))
            elif child.type in STRINGS:
                pieces.append(tuple(self._string(child, depth)))
            elif child.type in FILLED:
                inner = child
                if child.type in ("interpolation", "template_substitution"):
                    held = [one for one in child.named_children if one.type not in SKIPPED]
                    if not held:
                        continue
                    inner = held[0]
                value = self.value(inner, depth)
                words = tuple((item.texts or (HOLE,))[0] for item in value.items)
                pieces.append(value.texts or ((" ".join(words),) if words and node.type in SHELLS_OUT else (HOLE,)))
            elif child.type not in SKIPPED and child.is_named:
                pieces.append((HOLE,))
            elif inside and not child.is_named:
                pieces.append((text_of(child),))
        if inside and at < node.end_byte:
            pieces.append((raw[at - start :].decode("utf-8", "replace"),))

    def _comprehension(self, node: Node, depth: int) -> FollowedValue:
        """Each item of a list, made to what the expression before it says."""
        body = node.child_by_field_name("body")
        loops = [child for child in node.named_children if child.type == "for_in_clause"]
        name = loops[0].child_by_field_name("left") if len(loops) == 1 else None
        listed = None if name is None else loops[0].child_by_field_name("right")
        if body is None or name is None or listed is None:
            return UNKNOWN
        parts = [(text_of(one.node), one.part) for one in parts_of(name)]
        tests = [one.named_children[0] for one in node.named_children if one.type == "if_clause"]
        return self.each(self.value(listed, depth), parts, body, depth, tests)

    def each(
        self, listed: FollowedValue, named: _Parts, body: Node, depth: int = 0, tests: Sequence[Node] = ()
    ) -> FollowedValue:
        """What an expression makes of each item of a list, or of each character of a text; `named` are the names that
        it is given, each with the part of the item that it is. Items that surely fail one of the `tests` are left out.
        """
        items = listed.items or tuple(FollowedValue((char,)) for text in listed.known[:1] for char in text)
        given = [{name: item.part(part, whole_too=not part) for name, part in named} for item in items[:MAX_ITEMS]]
        kept = [one for one in given if all(self.lets_through(one, test) is not False for test in tests)]
        made = tuple(self.value_with(one, body, depth) for one in kept)
        return FollowedValue((), made) if made else UNKNOWN

    def _name(self, name: str, node: Node, depth: int) -> FollowedValue:
        if name in self._given:
            return self._given[name]
        bounds = self._names.get(name)
        if not bounds:
            made = self._of_call(Called(None, name, (), is_name=True), self)
            return UNKNOWN if made is None else made
        bounds = [one for one in bounds if not one.inside[1] or one.inside[0] <= node.start_byte < one.inside[1]]
        before = [
            one for one in bounds if one.given or (one.whole.start_byte < node.start_byte and not within(node, one))
        ]
        chosen: list[BoundName] = []
        for one in reversed(before):
            chosen.append(one)
            if not (one.each or one.given) and holds(one.whole, node):  # what is added to is a part of what it is then
                break
        return union(self._bound(one, depth) for one in (chosen or bounds)[:MAX_TEXTS])

    def _looped(self, one: BoundName, depth: int) -> FollowedValue | None:
        """What a name is behind a loop that makes it of itself and of each item; `None` for every other."""
        words = set(code_words(text_of(one.value)[:_LONGEST_ITEM]))
        if one.each or not (one.adds or one.name.lstrip("$@") in words):
            return None
        loop = one.whole.parent
        while loop is not None and loop.type not in _LOOPS:
            loop = loop.parent
        starts = -1 if loop is None else loop.start_byte
        before = [each for each in self._names[one.name] if each.whole.start_byte < starts]
        named = [
            each for word in words for name in (word, f"${word}") for each in self._names.get(name, ())
            if each.each and loop is not None and each.whole.id == loop.id and not each.part
        ]  # fmt: skip
        if len(named) != 1 or not before or depth >= MAX_DEPTH:
            return None
        held = self._bound(before[-1], depth + 1)
        for item in elements_of(self.value(named[0].value, depth), named[0])[:MAX_ITEMS]:
            made = self.value_with({named[0].name: item, one.name: held}, one.value, depth)
            held = made if not one.adds else self._joined(held, made)
        return held

    def _bound(self, one: BoundName, depth: int) -> FollowedValue:
        looped = self._looped(one, depth) if not one.given and not one.inside[1] else None
        if looped is not None:
            return looped
        found = self.value(one.value, depth)
        if one.each:
            return union(item.part(one.part, whole_too=one.whole_too) for item in elements_of(found, one))
        if one.adds:
            before = [each for each in self._names[one.name] if each.order < one.order]
            if not before or depth >= MAX_DEPTH:
                begun = FollowedValue((), found.items or (found,)) if one.begins == "list" else found
                return begun if one.begins else UNKNOWN
            held = self._bound(before[-1], depth + 1)
            if held.items or not held.texts:
                more = found.items or (found,)
                return FollowedValue((), ((*more, *held.items) if one.front else (*held.items, *more))[:MAX_ITEMS])
            number = operated(text_of(one.whole)[len(one.name) :].strip()[:1], held, found)
            return number or (self._joined(found, held) if one.front else self._joined(held, found))
        return found.part(one.part, whole_too=one.whole_too)

    def _call(self, node: Node, depth: int) -> FollowedValue:
        parts = called(node)
        function = node.child_by_field_name("function")
        if function is not None and (function.type in SUBSCRIPTS or called_name(function) == "getattr"):
            owner, *keys = (*arguments_of(function), *function.named_children, function)[:2]
            told = [text for one in keys for text in self.value(one, depth).known]  # `os["tmpdir"]()`
            parts = Called(owner, told[0], parts.arguments) if len(told) == 1 else parts
        block = node.child_by_field_name("block")
        made = self._of_call(parts if block is None else parts._replace(block=block), self)
        if made is not None:
            return made
        initializer = node.child_by_field_name("initializer")  # of C#: what a list or an object is made with
        if initializer is None:
            return UNKNOWN
        first = next(iter(initializer.named_children), None)
        pairs = first is not None and first.type in ("assignment_expression", "initializer_expression")
        return self._object(initializer, depth) if pairs else self._list(initializer, depth)

    def _member(self, node: Node, depth: int) -> FollowedValue:
        whole = canonical(text_of(node)).replace(".$", ".")
        if whole in self._names:
            return self._name(whole, node, depth)
        owner, last = member_parts(node)
        if owner is None or last is None:
            return UNKNOWN
        made = self._of_call(Called(owner, text_of(last), ()), self)
        if made is not None:
            return made
        held, name = self.value(owner, depth), text_of(last)
        is_name = name in _NAME_OF and (held.texts == ANY_NAME or held.known[:1] in ROOTS)
        return held if is_name else held.part(name, whole_too=False)

    def _item(self, node: Node, depth: int) -> FollowedValue:
        children = node.named_children
        if len(children) < 2:
            return UNKNOWN
        named = item_name(text_of(node)[:_LONGEST_ITEM])
        if named in self._names:
            return self._name(named, node, depth)
        made = self._of_call(Called(children[0], "[]", tuple(children[1:])), self)
        if made is not None:
            return made
        whole = self._container(children[0], node, depth)
        key = children[-1]
        if key.type == "bracketed_argument_list" and key.named_child_count == 1:  # of C#
            key = unwrapped(key.named_children[0])
        part = self._taken(whole, [*children[1:-1], key], depth)
        if part is not None:
            return part
        index = self.value(key, depth)
        if not index.known:
            return union(whole.items) if whole.items else UNKNOWN
        if self._language == "r" and whole.members and not (index.number or index.known[0] in dict(whole.members)):
            return FollowedValue(("",))  # nothing
        return COMPUTED["at-place" if self._language in FROM_ONE else "at"]([whole, index])

    def _container(self, owner: Node, node: Node, depth: int) -> FollowedValue:
        """What an item is taken of; Perl calls the item of a list or of an object by another sign than the whole."""
        if not owner.type.endswith("container_variable"):
            return self.value(owner, depth)
        name = text_of(owner).lstrip("$@%")
        if node.type == "hash_element_expression":
            items = self._name(f"%{name}", owner, depth).items
            pairs = zip(items[::2], items[1::2], strict=False)
            return FollowedValue((), (), tuple((key.texts[0], value) for key, value in pairs if key.texts))
        return self._name(f"@{name}", owner, depth)
