"""What an expression may be: constants, and what is simply computed of them, as far as a reader would follow it.

Followed are assignments, concatenation, interpolation, joined paths, formats, loops over lists, members of objects
that were written out, constant encodings, and functions of the text itself, once. What comes from outside is a hole in
the text around it, so that `"/home/" + user + "/.ssh/authorized_keys"` still names what it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

from tree_sitter import Node

from aegis.core.patterns import Lazy
from aegis.detect.languages.syntax import BoundName, Called, called, canonical, member_parts, text_of, unwrapped

HOLE: Final = "\x1a"  # stands for text that comes from outside
MAX_TEXTS: Final = 8  # that one expression is followed to
MAX_ITEMS: Final = 64  # of one list
MAX_CHARS: Final = 4_096  # of one text
MAX_DEPTH: Final = 12  # expressions inside each other that are followed
MAX_STEPS: Final = 1_500  # expressions that are looked at for one text: bounds what many names for one thing cost


class FollowedValue(NamedTuple):
    """What an expression may be: texts, or a list of values, or an object by its members."""

    texts: tuple[str, ...] = ()
    items: tuple[FollowedValue, ...] = ()
    members: tuple[tuple[str, FollowedValue], ...] = ()

    @property
    def known(self) -> tuple[str, ...]:
        """The texts of which something is known."""
        return tuple(text for text in self.texts if text.strip(HOLE))

    @property
    def every(self) -> tuple[str, ...]:
        """The texts of a value and of its items."""
        found = dict.fromkeys(self.known)
        for item in self.items:
            found.update(dict.fromkeys(item.known))
        return tuple(found)

    def member(self, name: str) -> FollowedValue:
        """The member of an object that has a name; a hole where it has none."""
        return next((value for key, value in self.members if key == name), UNKNOWN)


UNKNOWN: Final = FollowedValue((HOLE,))
_STRINGS: Final = frozenset({
    "string", "string_literal", "interpreted_string_literal", "raw_string_literal", "template_string",
    "encapsed_string", "verbatim_string_literal", "interpolated_string_expression", "interpolated_string_literal",
    "heredoc", "nowdoc", "character_literal", "bare_string", "heredoc_body", "shell_command_expression", "subshell",
    "command_string",
})  # fmt: skip
_CONTENT: Final = frozenset({
    "string_content", "string_fragment", "interpreted_string_literal_content", "raw_string_literal_content",
    "string_literal_content", "heredoc_content", "multiline_string_fragment", "character_literal_content",
})  # fmt: skip
_SKIPPED: Final = frozenset({
    "string_start", "string_end", "interpolation_start", "interpolation_brace", "interpolation_quote",
    "heredoc_start", "heredoc_end", "heredoc_beginning", "format_specifier", "type_conversion",
    "string_literal_encoding",
})  # fmt: skip
_FILLED: Final = frozenset({
    "interpolation", "template_substitution", "variable_name", "scalar", "array", "hash", "dynamic_variable_name",
    "hash_element_expression", "array_element_expression", "subscript_expression", "member_access_expression",
})  # fmt: skip
_NAMES: Final = frozenset({
    "identifier", "variable_name", "scalar", "constant", "instance_variable", "global_variable", "class_variable",
    "name", "type_identifier", "array", "shorthand_property_identifier", "base",
})  # fmt: skip
_BINARY: Final = frozenset({"binary_operator", "binary_expression", "binary", "infix_expression"})
_LISTS: Final = frozenset({
    "list", "tuple", "set", "array", "array_creation_expression", "string_array", "literal_value", "array_initializer",
    "initializer_expression", "collection_expression", "list_expression", "expression_list", "argument_list",
    "implicit_array_creation_expression", "arguments",
})  # fmt: skip
_WRAPPERS: Final = frozenset({
    "parenthesized_expression", "await", "await_expression", "expression_statement", "as_expression",
    "non_null_expression", "satisfies_expression", "argument", "literal_element", "cast_expression", "unary_expression",
    "array_element_initializer", "type_assertion", "keyword_argument", "named_argument", "pair_value", "spread_element",
    "conversion_expression", "element_value", "variadic_argument", "variadic_unpacking", "splat_argument",
    "list_splat", "dictionary_splat", "block_argument",
})  # fmt: skip
_CALLS: Final = frozenset({
    "call", "call_expression", "new_expression", "function_call_expression", "member_call_expression",
    "scoped_call_expression", "object_creation_expression", "method_invocation", "invocation_expression",
    "ambiguous_function_call_expression", "method_call_expression", "func1op_call_expression",
})  # fmt: skip
_CHOICES: Final = frozenset({"conditional_expression", "ternary_expression", "boolean_operator", "conditional"})
_MEMBERS: Final = frozenset({
    "attribute", "member_expression", "selector_expression", "member_access_expression", "field_access",
    "class_constant_access_expression", "scope_resolution", "scoped_property_access_expression",
})  # fmt: skip
_SUBSCRIPTS: Final = frozenset({
    "subscript", "subscript_expression", "element_reference", "index_expression", "array_access",
    "element_access_expression", "hash_element_expression",
})  # fmt: skip
_PAIRS: Final = frozenset({"array_element_initializer", "keyed_element"})
_COMPREHENSIONS: Final = frozenset({"generator_expression", "list_comprehension", "set_comprehension"})
_OBJECTS: Final = frozenset({"dictionary", "object", "hash", "anonymous_hash_expression"})
_BLOCKS: Final = frozenset({
    "block", "statement_block", "compound_statement", "body_statement", "module", "program", "source_file",
    "compilation_unit", "statement_list", "block_body", "do", "then",
})  # fmt: skip
_ESCAPES: Final[Mapping[str, str]] = {
    "n": "\n", "t": "\t", "r": "\r", "0": "\0", "e": "\x1b", "a": "\a", "b": "\b", "f": "\f", "v": "\v",
}  # fmt: skip
ANY_NAME: Final = ("*",)  # of what a folder holds
_ROOTS: Final = (("/",), ("C:/",))
_NAME_OF: Final = frozenset({"name", "Name", "pid", "Id"})  # members of what a folder holds that tell its name
_NUMBER: Final = Lazy(r"^-?\d{1,4}$")
_FIELD: Final = Lazy(r"%(?:\(\w+\))?[-+ #0-9.]*[sdrvqxi]|\{\w*(?:![rsa])?(?::[^{}]*)?\}")


class NameScope:
    """The names of one text, and what its expressions may be; `of_call` says what a call of somebody else makes."""

    def __init__(
        self, names: Mapping[str, Sequence[BoundName]], of_call: Callable[[Called, NameScope], FollowedValue | None]
    ):
        self._names = names
        self._of_call = of_call
        self._memo: dict[int, FollowedValue] = {}
        self._given: dict[str, FollowedValue] = {}  # what names stand for while an expression is read with them
        self._steps, self._open = MAX_STEPS, 0

    def value(self, node: Node, depth: int = 0) -> FollowedValue:
        """What a node may be; a hole where nothing is known."""
        known = self._memo.get(node.id)
        if known is not None:
            return known
        if depth > MAX_DEPTH or self._steps <= 0 or self._open > 4 * MAX_DEPTH:  # functions in each other begin anew
            return UNKNOWN
        self._steps, self._open = self._steps - 1, self._open + 1
        self._memo[node.id] = UNKNOWN  # a name that is made of itself
        found = self._memo[node.id] = self._value(unwrapped(node), depth + 1)
        self._open -= 1
        return found

    def bounds_of(self, name: str) -> Sequence[BoundName]:
        """What a name is bound to."""
        return self._names.get(name, ())[:MAX_TEXTS]

    def value_with(self, given: Mapping[str, FollowedValue], node: Node, depth: int = 0) -> FollowedValue:
        """What a node may be where names stand for what they are given: of a function, or of each item of a list."""
        memo, before = self._memo, self._given
        self._memo, self._given = {}, {**before, **given}
        try:
            return self.value(node, depth)
        finally:
            self._memo, self._given = memo, before

    def _value(self, node: Node, depth: int) -> FollowedValue:
        kind = node.type
        if kind in _STRINGS and kind != "array":
            return texts_of(self._string(node, depth))
        if kind == "concatenated_string" or kind == "chained_string":
            return self._joined([self.value(child, depth) for child in node.named_children])
        if kind in _NAMES and not (kind == "array" and text_of(node)[:1] == "["):
            return self._name(text_of(node), node, depth)
        if kind in _BINARY:
            return self._binary(node, depth)
        if kind in _CALLS:
            return self._call(node, depth)
        if kind.endswith("array_creation_expression") and node.named_children[-1:]:
            last = node.named_children[-1]
            if last.type == "initializer_expression":  # behind the type of its items
                return self.value(last, depth)
        if kind in _LISTS and any(
            child.type in _PAIRS and child.named_child_count == 2 for child in node.named_children[:1]
        ):
            return self._object(node, depth)
        if kind in _LISTS:
            return FollowedValue(
                (), tuple(self.value(unwrapped(one), depth) for one in node.named_children[:MAX_ITEMS])
            )
        if kind == "composite_literal":
            body = node.child_by_field_name("body")
            return UNKNOWN if body is None else self.value(body, depth)
        if kind == "quoted_word_list":
            texts = text_of(node).partition("w")[2][1:-1].split()
            return FollowedValue((), tuple(FollowedValue((text,)) for text in texts[:MAX_ITEMS]))
        if kind in _COMPREHENSIONS:
            return self._comprehension(node, depth)
        if kind == "map_grep_expression":  # of Perl
            listed, body = node.child_by_field_name("list"), node.child_by_field_name("callback")
            if listed is None or body is None:
                return UNKNOWN
            return self.each(self.value(listed, depth), "$_", body, depth)
        if kind == "block" and node.named_child_count == 1:  # an expression alone, between braces
            return self.value(node.named_children[0], depth)
        if kind in _OBJECTS:
            return self._object(node, depth)
        if kind in _MEMBERS:
            return self._member(node, depth)
        if kind in _SUBSCRIPTS:
            return self._item(node, depth)
        if kind in _CHOICES:
            children = node.named_children
            chosen = (
                [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")]
                if node.child_by_field_name("alternative") is not None
                else [children[0], children[-1]]
            )
            parts = [self.value(child, depth) for child in chosen if child is not None]
            return _union(part for part in parts if part.known or part.items)
        if kind.startswith(("unary", "prefix_unary")) and _NUMBER.search(text_of(node)):
            return FollowedValue((text_of(node),))
        if kind == "unary" and text_of(node)[:1] == "+":  # of Ruby: the text, to be changed
            return self.value(node.named_children[-1], depth)
        if kind in _WRAPPERS and node.named_child_count:
            inner = node.child_by_field_name("value") or node.child_by_field_name("expression")
            return self.value(inner or node.named_children[-1 if "argument" in kind else 0], depth)
        if kind in ("autoquoted_bareword", "simple_symbol", "hash_key_symbol"):
            return FollowedValue((text_of(node).strip(":"),))
        if kind in ("integer", "number", "int_literal", "decimal_integer_literal", "integer_literal"):
            return FollowedValue((text_of(node),))
        return UNKNOWN

    def _string(self, node: Node, depth: int) -> list[str]:
        """The texts that a string may be, what is filled in put in."""
        raw = node.text or b""
        if not node.children:
            return [_unquoted(raw.decode("utf-8", "replace"))]
        pieces: list[tuple[str, ...]] = []
        self._pieces(node, pieces, depth)
        return ["".join(chosen)[:MAX_CHARS] for chosen in chosen_of(pieces)]

    def _pieces(self, node: Node, pieces: list[tuple[str, ...]], depth: int) -> None:
        raw, start = node.text or b"", node.start_byte
        at = start
        inside = node.type in _CONTENT
        for child in node.children:
            if inside and child.start_byte > at:
                pieces.append((raw[at - start : child.start_byte - start].decode("utf-8", "replace"),))
            at = child.end_byte
            if child.type in _CONTENT:
                if child.children:
                    self._pieces(child, pieces, depth)
                else:
                    pieces.append((text_of(child),))
            elif child.type == "escape_sequence":
                pieces.append((_escaped(text_of(child)),))
            elif child.type in _STRINGS:
                pieces.append(tuple(self._string(child, depth)))
            elif child.type in _FILLED:
                inner = child
                if child.type in ("interpolation", "template_substitution"):
                    held = [one for one in child.named_children if one.type not in _SKIPPED]
                    if not held:
                        continue
                    inner = held[0]
                pieces.append(self.value(inner, depth).texts or (HOLE,))
            elif child.type not in _SKIPPED and child.is_named:
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
        return self.each(self.value(listed, depth), text_of(name), body, depth)

    def each(self, listed: FollowedValue, name: str, body: Node, depth: int = 0) -> FollowedValue:
        """What an expression makes of each item of a list, or of each character of a text."""
        items = listed.items or tuple(FollowedValue((char,)) for text in listed.known[:1] for char in text)
        made = tuple(self.value_with({name: item}, body, depth) for item in items[:MAX_ITEMS])
        return FollowedValue((), made) if made else UNKNOWN

    def _name(self, name: str, node: Node, depth: int) -> FollowedValue:
        if name in self._given:
            return self._given[name]
        bounds = self._names.get(name)
        if not bounds:
            made = self._of_call(Called(None, name, ()), self) if name.isupper() else None
            return UNKNOWN if made is None else made
        before = [one for one in bounds if one.given or one.whole.start_byte < node.start_byte]
        chosen: list[BoundName] = []
        for one in reversed(before):
            chosen.append(one)
            if not (one.each or one.given) and _holds(one.whole, node):  # what is added to is a part of what it is then
                break
        return _union(self._bound(one, depth) for one in (chosen or bounds)[:MAX_TEXTS])

    def _bound(self, one: BoundName, depth: int) -> FollowedValue:
        found = self.value(one.value, depth)
        if one.each:  # what lists the roots of a machine is known as one of them
            return _union(found.items) if found.items else found if found.known[:1] in _ROOTS else UNKNOWN
        if one.adds:
            before = [each for each in self._names[one.name] if each.whole.start_byte < one.whole.start_byte]
            if not before or depth >= MAX_DEPTH:
                return found if one.begins else UNKNOWN
            held = self._bound(before[-1], depth + 1)
            if held.items:
                more = found.items or (found,)
                return FollowedValue((), ((*more, *held.items) if one.front else (*held.items, *more))[:MAX_ITEMS])
            return self._joined([found, held] if one.front else [held, found])
        return found

    def _binary(self, node: Node, depth: int) -> FollowedValue:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None:
            return UNKNOWN
        sign = text_of(node.child_by_field_name("operator")) or _sign(node, left, right)
        one, other = self.value(left, depth), self.value(right, depth)
        if sign in ("+", ".", "<<", ".."):
            if one.items or other.items:
                return FollowedValue((), (*one.items, *other.items)[:MAX_ITEMS])
            return self._joined([one, other])
        if sign == "/":
            return join_paths([one, other])
        if sign == "%":
            return filled(one, list(other.items) or [other])
        if sign in ("||", "??", "or", "//"):
            return _union(part for part in (one, other) if part.known)
        if sign == "*" and one.texts and len(one.texts) == 1 and other.texts and other.texts[0].isdigit():
            return FollowedValue((one.texts[0] * min(int(other.texts[0][:3]), 64),))
        return UNKNOWN

    def _joined(self, parts: Sequence[FollowedValue]) -> FollowedValue:
        return texts_of(
            ["".join(chosen)[:MAX_CHARS] for chosen in chosen_of([part.texts or (HOLE,) for part in parts])]
        )

    def _call(self, node: Node, depth: int) -> FollowedValue:
        parts = called(node)
        made = self._of_call(parts, self)
        return UNKNOWN if made is None else made

    def _object(self, node: Node, depth: int) -> FollowedValue:
        members = []
        for pair in node.named_children[:MAX_ITEMS]:
            key, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
            if key is None and pair.type in _PAIRS and pair.named_child_count == 2:
                key, value = map(unwrapped, pair.named_children)
            if key is not None and value is not None:
                name = self.value(key, depth).known if key.type in _STRINGS else (text_of(key).strip("'\":"),)
                members.append((name[0] if name else "", self.value(value, depth)))
        return FollowedValue((HOLE,), (), tuple(members))

    def _member(self, node: Node, depth: int) -> FollowedValue:
        whole = canonical(text_of(node))
        if whole in self._names:
            return self._name(whole, node, depth)
        owner, last = member_parts(node)
        if owner is None or last is None:
            return UNKNOWN
        made = self._of_call(Called(owner, text_of(last), ()), self)
        if made is not None:
            return made
        held, name = self.value(owner, depth), text_of(last)
        is_name = name in _NAME_OF and (held.texts == ANY_NAME or held.known[:1] in _ROOTS)
        return held if is_name else held.member(name)

    def _item(self, node: Node, depth: int) -> FollowedValue:
        children = node.named_children
        if len(children) < 2:
            return UNKNOWN
        made = self._of_call(Called(children[0], "[]", tuple(children[1:])), self)
        if made is not None:
            return made
        whole = self._container(children[0], node, depth)
        if children[-1].type == "slice":
            return sliced(whole, text_of(children[-1]))
        index = self.value(children[-1], depth).known
        if index and index[0].isdigit() and not whole.items and len(whole.known) == 1:
            return texts_of(char for text in whole.known if (char := text[int(index[0][:4]) :][:1]))
        if not index:
            return _union(whole.items) if whole.items else UNKNOWN
        if whole.items and index[0].isdigit() and int(index[0][:4]) < len(whole.items):
            return whole.items[int(index[0][:4])]
        return whole.member(index[0])

    def _container(self, owner: Node, node: Node, depth: int) -> FollowedValue:
        """What an item is taken of; Perl calls the item of a list or of an object by another sign than the whole."""
        if owner.type != "container_variable":
            return self.value(owner, depth)
        name = text_of(owner).lstrip("$@%")
        if node.type == "hash_element_expression":
            items = self._name(f"%{name}", owner, depth).items
            pairs = zip(items[::2], items[1::2], strict=False)
            return FollowedValue((), (), tuple((key.texts[0], value) for key, value in pairs if key.texts))
        return self._name(f"@{name}", owner, depth)


def _holds(bound: Node, use: Node) -> bool:
    """Whether what a name is bound to is what it is at a later use: the use lies in the block of the binding."""
    block = bound.parent
    for _ in range(MAX_DEPTH):
        if block is None or block.type in _BLOCKS:
            break
        block = block.parent
    return block is None or (block.start_byte <= use.start_byte and use.end_byte <= block.end_byte)


def _sign(node: Node, left: Node, right: Node) -> str:
    raw = node.text or b""
    return raw[left.end_byte - node.start_byte : right.start_byte - node.start_byte].decode("utf-8", "replace").strip()


def chosen_of(pieces: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The ways of choosing one of each, at most `MAX_TEXTS`."""
    wide = [piece[:MAX_TEXTS] for piece in pieces]
    found = []
    for chosen in product(*wide):
        found.append(chosen)
        if len(found) == MAX_TEXTS:
            break
    return found


def texts_of(texts: Iterable[str]) -> FollowedValue:
    return FollowedValue(tuple(dict.fromkeys(texts))[:MAX_TEXTS] or (HOLE,))


def _union(values: Iterable[FollowedValue]) -> FollowedValue:
    texts: dict[str, None] = {}
    items: list[FollowedValue] = []
    members: list[tuple[str, FollowedValue]] = []
    for value in values:
        texts.update(dict.fromkeys(value.texts))
        items.extend(value.items)
        members.extend(value.members)
    if not texts and not items:
        return UNKNOWN
    return FollowedValue(tuple(texts)[:MAX_TEXTS], tuple(items[:MAX_ITEMS]), tuple(members[:MAX_ITEMS]))


def _unquoted(text: str) -> str:
    """A literal without its quotes, whichever way its language writes them."""
    body = text.lstrip("@$rRbBuUfFqL").strip() if text[:1] not in "'\"`" else text
    for quote in ('"""', "'''"):
        if body.startswith(quote) and body.endswith(quote) and len(body) >= 6:
            return body[3:-3][:MAX_CHARS]
    return body[1:-1][:MAX_CHARS] if len(body) > 1 else body


def _escaped(text: str) -> str:
    """What an escape stands for."""
    body = text[1:]
    if body[:1] in "xuU" and body[1:].strip("{}"):
        try:
            return chr(int(body[1:].strip("{}"), 16))
        except (ValueError, OverflowError):
            return text
    if body.isdigit() and len(body) == 3:
        return chr(int(body, 8)) if body.strip("01234567") == "" else text
    return _ESCAPES.get(body, body)


# What calls of libraries make of their arguments


def join_paths(parts: Sequence[FollowedValue]) -> FollowedValue:
    """The paths that parts are joined to: an absolute part leaves out what stands before it."""
    found = []
    for chosen in chosen_of([part.texts or (HOLE,) for part in parts]):
        path = ""
        for part in chosen:
            absolute = part.startswith("/") or part[1:3] in (":\\", ":/")
            path = part if absolute or not path else f"{path.rstrip('/')}/{part}"
        found.append(path[:MAX_CHARS])
    return texts_of(found)


def filled(pattern: FollowedValue, arguments: Sequence[FollowedValue]) -> FollowedValue:
    """A format with its arguments put in, in their order."""
    found = []
    for text in pattern.known:
        for chosen in chosen_of([argument.texts or (HOLE,) for argument in arguments]):
            rest = iter(chosen)
            pieces, at = [], 0
            for match in _FIELD.finditer(text):
                pieces += [text[at : match.start()], next(rest, HOLE)]
                at = match.end()
            found.append("".join([*pieces, text[at:]])[:MAX_CHARS])
    return texts_of(found[:MAX_TEXTS])


def sliced(value: FollowedValue, cut: str) -> FollowedValue:
    """A part of a text or a list, cut as Python writes it: `1:4`, `::-1`."""
    numbers = [part.strip() for part in cut.split(":")]
    if not all(_NUMBER.match(number) for number in numbers if number) or not 2 <= len(numbers) <= 3:
        return UNKNOWN
    part = slice(*[int(number) if number else None for number in numbers])
    if part.step == 0:
        return UNKNOWN
    return FollowedValue(tuple(text if text == HOLE else text[part] for text in value.texts), value.items[part])
