"""What assignments, declarations and loops bind: each name, the value, and which part of that value it gets; and what
functions take and give back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from tree_sitter import Node

from aegis.core.patterns import Lazy
from aegis.detect.languages.followed import WITHIN, FollowedValue
from aegis.detect.languages.syntax import BY_WORD, called, canonical, text_of, unwrapped


class BoundName(NamedTuple):
    """A name that gets a value: `adds` where it is put behind what the name held, `each` where it is each item.

    `begins` says that the name is an empty text or an empty list before anything is added; `front` that what is added
    stands before it.
    `given` is a parameter: what every call gives it, wherever the call stands. `part` is the place or the member of
    the value that the name gets, `whole_too` says that it gets all of a value that has no parts; `keyed` that a loop
    goes over the members of an object, or over a list with its places.
    """

    name: str
    value: Node
    whole: Node
    adds: bool = False
    each: bool = False
    begins: Literal["", "text", "list"] = ""
    front: bool = False
    given: bool = False
    part: str = ""
    whole_too: bool = True
    keyed: bool = False
    inside: tuple[int, int] = (0, 0)  # from where to where the name is that of a parameter; nothing for everywhere

    @property
    def order(self) -> tuple[int, int]:
        """Where the name gets the value, before and behind others."""
        return self.whole.start_byte, self.value.end_byte


_WALKED: Final = 3  # names that a loop over a tree of folders binds: the folder, folders in it, files in it
_MOST_PARTS: Final = 16  # of one value that get names
_ADDS: Final = frozenset({"augmented_assignment", "augmented_assignment_expression", "operator_assignment", "binary"})
_ADDING: Final = (b".=", b"+=")
_NAMED: Final = ("left", "name", "property", "variable", "alias")
_VALUED: Final = ("right", "value", "default_value", "collection", "list")
_LOOPS: Final = frozenset({"foreach_statement", "for_statement", "for"})
_PATTERNS: Final = frozenset({
    "expression_list", "pattern_list", "left_assignment_list", "tuple_pattern", "list_pattern", "array_pattern",
    "list_literal", "array_creation_expression", "destructured_left_assignment", "parenthesized_variable_designation",
})  # fmt: skip
_OBJECT_PATTERNS: Final = frozenset({"object_pattern", "dictionary_pattern"})
_DEFAULTS: Final = frozenset({"object_assignment_pattern", "assignment_pattern"})
_RESTS: Final = frozenset({
    "rest_pattern", "list_splat_pattern", "splat_parameter", "rest_assignment", "variadic_parameter",
    "variadic_parameter_declaration",
})  # fmt: skip
NAMED_RESTS: Final = frozenset({"dictionary_splat_pattern", "hash_splat_parameter"})
_OF_GO: Final = frozenset({"short_var_declaration", "assignment_statement", "var_spec", "const_spec"})
_SUBSCRIPTS: Final = frozenset({"subscript", "subscript_expression", "element_reference", "element_access_expression"})
_KEY: Final = Lazy(r"\[\s*[\"'`:]?([^\"'\]\[]{1,60})[\"'`]?\s*\]$")


class _Part(NamedTuple):
    """A name of a pattern, the part of the value that it gets, and what it is where there is no such part."""

    node: Node
    part: str
    default: Node | None = None


def bound(node: Node) -> Iterator[BoundName]:
    """The names that an assignment, a declaration or a loop binds."""
    if node.type == "use_statement":
        yield from _constants(node)
        return
    left = next((found for field in _NAMED if (found := node.child_by_field_name(field)) is not None), None)
    right = next((found for field in _VALUED if (found := node.child_by_field_name(field)) is not None), None)
    children = node.named_children
    if node.type == "as_pattern" and right is None and children:
        right = children[0]
    if node.type in _LOOPS and (right is None or left is None):
        parts = [child for child in children if child.type not in ("block", "compound_statement", "do")]
        if len(parts) < 2:
            return
        # PHP: the list, then the name; Perl, C# and Ruby: the name, then the list.
        left, right = (
            (parts[1], parts[0]) if node.type == "foreach_statement" and left is None else (parts[-2], parts[-1])
        )
    if right is None and node.type in ("variable_declarator", "const_element") and len(children) > 1:
        left, right = children[0], children[-1]
    if left is None or right is None:
        return
    while node.type == "binary" and left.type == "binary":  # `text << "a" << "b"` of Ruby
        left = left.named_children[0]
    each = "for" in node.type or node.type in ("range_clause", "enhanced_for_statement")
    if each:
        yield from _gone_over(left, right, node)
        return
    adds = node.type in _ADDS or (
        node.type in ("assignment_expression", "assignment_statement")
        and any(sign in _between(left, right, node) for sign in _ADDING)
    )
    else_only = any(sign in _between(left, right, node) for sign in (b"|", b"??", b"&&"))  # `name ||= "value"`
    adds, names, values = adds and not else_only, parts_of(left), _listed(right)
    if right.type == "expression_list" and len(names) == len(values):
        for one, value in zip(names, values, strict=True):
            yield BoundName(name_of(one.node), value, node, adds)
        return
    if right.type == "expression_list" and len(values) == 1:
        right = values[0]
    several = node.type in _OF_GO and len(names) > 1  # what a function gives back is no list there
    for one in names:
        name = name_of(one.node)
        if one.node.type in _SUBSCRIPTS and name.endswith("[]"):  # `$list[] = "x"` of PHP
            yield BoundName(name[:-2], right, node, adds=True)
            continue
        part = f"={one.part}" if several else one.part
        yield BoundName(name, right, node, adds, part=part, given=else_only or one.default is not None)
        if one.default is not None:
            yield BoundName(name, one.default, node, given=True)


def _constants(node: Node) -> Iterator[BoundName]:
    """The constants that `use constant` of Perl names."""
    listed = node.named_children[-1] if node.named_child_count > 1 else None
    while listed is not None and listed.type == "anonymous_hash_expression" and listed.named_child_count:
        listed = listed.named_children[0]
    if listed is not None and text_of(node.child_by_field_name("module")) == "constant":
        for name, value in zip(listed.named_children[::2], listed.named_children[1::2], strict=False):
            yield BoundName(text_of(name), value, node)


def _gone_over(left: Node, right: Node, node: Node) -> Iterator[BoundName]:
    """What a loop binds: of a tree of folders the first name is the folder; of what has no parts the last is it."""
    names = parts_of(left)
    keyed = node.type == "range_clause" or left.type == "pair"
    for at, one in enumerate(names):
        whole_too = at == (0 if len(names) == _WALKED else len(names) - 1)
        part = one.part or ("0" if node.type == "range_clause" else "")
        yield BoundName(name_of(one.node), right, node, each=True, part=part, whole_too=whole_too, keyed=keyed)


def parts_of(left: Node) -> list[_Part]:
    """The names of a pattern, each with the part of the value that it gets; parts of parts are told by both places."""
    found: list[_Part] = []
    for one in _parts_of(left):
        inner = [one] if one.node is left else _parts_of(one.node)
        if len(inner) == 1:
            found.append(one)
        else:
            found += [_Part(further.node, f"{one.part}{WITHIN}{further.part}", further.default) for further in inner]
    return found


def _parts_of(left: Node) -> list[_Part]:
    if left.type in _OBJECT_PATTERNS:
        return [_member_part(one) for one in left.named_children[:_MOST_PARTS]]
    children = left.named_children
    if left.type == "variable_declaration" and children:  # of Perl
        listed = left.child_by_field_name("variables") is not None
        return [_Part(one, str(at) if listed else "") for at, one in enumerate(children[:_MOST_PARTS])]
    if left.type == "pair" and len(children) == 2:  # `$key => $value` of PHP
        return [_Part(one, str(at)) for at, one in enumerate(children)]
    if left.type not in _PATTERNS or not children:
        return [_Part(left, "")]
    if left.type == "list_literal" and children[0].type in ("string", "encapsed_string"):  # `["key" => $name]` of PHP
        pairs = zip(children[::2], children[1::2], strict=False)
        return [_Part(name, text_of(key).strip("'\"")) for key, name in list(pairs)[:_MOST_PARTS]]
    if len(children) == 1 and left.type == "expression_list":
        return [_Part(children[0], "")]
    found = []
    for at, one in enumerate(children[:_MOST_PARTS]):
        if one.type in _RESTS and one.named_child_count:
            found.append(_Part(one.named_children[0], f"{at}:"))
        elif one.type in _DEFAULTS and one.named_child_count > 1:
            found.append(_Part(one.named_children[0], str(at), one.named_children[-1]))
        else:
            found.append(_Part(one, str(at)))
    return found


def _member_part(one: Node) -> _Part:
    """A member of an object that gets a name: `{name}`, `{name: other}`, `{name = default}`."""
    if one.type in _DEFAULTS and one.named_child_count > 1:
        return _Part(one.named_children[0], text_of(one.named_children[0]), one.named_children[-1])
    value = one.child_by_field_name("value")
    if value is None:
        return _Part(one, text_of(one))
    key = text_of(one.child_by_field_name("key"))
    if value.type in _DEFAULTS and value.named_child_count > 1:
        return _Part(value.named_children[0], key, value.named_children[-1])
    return _Part(value, key)


def _between(left: Node, right: Node, node: Node) -> bytes:
    raw = node.text or b""
    return raw[left.end_byte - node.start_byte : right.start_byte - node.start_byte]


def _listed(node: Node) -> Sequence[Node]:
    return node.named_children if node.type == "expression_list" else [node]


def name_of(node: Node) -> str:
    """The name that a node of a pattern is; an item of something by the key that it is asked for with."""
    text = text_of(node).removeprefix("my ").removeprefix("our ").removeprefix("local ").strip()[:80]
    return item_name(text) if node.type in _SUBSCRIPTS else text


def item_name(text: str) -> str:
    """`config["root"]` as every way of writing its key is known: `config[root]`."""
    return canonical(str(_KEY.sub(r"[\1]", text)))


ROOTS: Final = (("/",), ("C:/",))


def elements_of(found: FollowedValue, one: BoundName) -> Sequence[FollowedValue]:
    """What a loop goes over, item by item; what lists the roots of a machine is known as one of them."""
    if found.items and one.keyed:
        return [FollowedValue((), (FollowedValue((str(at),)), item)) for at, item in enumerate(found.items)]
    if found.items:
        return found.items
    if found.members:
        pairs = [FollowedValue((), (FollowedValue((key,)), value)) for key, value in found.members]
        return pairs if one.part else [pair.items[one.whole.type == "foreach_statement"] for pair in pairs]
    return [found] if found.known[:1] in ROOTS else []


_FAR: Final = 12  # nodes around a binding that are looked at
_BLOCKS: Final = frozenset({
    "block", "statement_block", "compound_statement", "body_statement", "module", "program", "source_file",
    "compilation_unit", "statement_list", "block_body", "do", "then",
})  # fmt: skip


_SEVERAL: Final = frozenset({"assignment", "assignment_expression"})  # that may swap names


def within(node: Node, bound: BoundName) -> bool:
    """Whether a name stands in what is to become its own value: there it is still what it was."""
    side = bound.whole.child_by_field_name("right") if bound.whole.type in _SEVERAL else None
    side = bound.value if side is None or side.end_byte < bound.value.end_byte else side
    return not bound.each and side.start_byte <= node.start_byte and node.end_byte <= side.end_byte


def holds(bound: Node, use: Node) -> bool:
    """Whether what a name is bound to is what it is at a later use: the use lies in the block of the binding."""
    block = bound.parent
    for _ in range(_FAR):
        if block is None or block.type in _BLOCKS:
            break
        block = block.parent
    return block is None or (block.start_byte <= use.start_byte and use.end_byte <= block.end_byte)


# Functions

_PARAMETER: Final = frozenset({
    "identifier", "default_parameter", "typed_parameter", "typed_default_parameter", "simple_parameter",
    "formal_parameter", "parameter", "parameter_declaration", "required_parameter", "optional_parameter",
    "assignment_pattern", "keyword_parameter", "variable_name", "property_promotion_parameter",
})  # fmt: skip
LAMBDAS: Final = frozenset({
    "arrow_function", "function_expression", "lambda", "lambda_expression", "func_literal", "anonymous_function",
    "anonymous_function_creation_expression", "generator_function", "block", "do_block",
    "anonymous_subroutine_expression",
})  # fmt: skip


FUNCTIONS: Final = LAMBDAS - {"block", "do_block"}  # that are values


class FunctionResults(NamedTuple):
    """The expressions that a function gives back; `yields` where they are the items of a list."""

    nodes: tuple[Node, ...] = ()
    yields: bool = False
    branches: tuple[Node, ...] = ()  # choices that may lie in front of them


def results_of(function: Node) -> FunctionResults:
    """What a function gives back: what it is, what it returns or yields wherever that stands, its last statement."""
    body = function.child_by_field_name("body")
    if body is None:
        return FunctionResults()
    if function.type.endswith("method") and body.type not in _BODIES:  # of Ruby, on one line
        return FunctionResults((body,))
    if body.type == "arrow_expression_clause":
        return FunctionResults(tuple(body.named_children[:1]))
    if function.type in LAMBDAS and not body.type.endswith(
        ("block", "compound_statement", "block_body", "body_statement")
    ):
        return FunctionResults((body,))
    found: list[Node] = []
    branches: list[Node] = []
    yields = False
    waiting = [body]
    for node in waiting:
        for child in node.named_children[:_MOST_STATEMENTS]:
            if child.type in _RETURNS and child.named_child_count:
                found.append(child.named_children[0])
            elif child.type in _YIELDS and child.named_child_count:
                found.append(child.named_children[0])
                yields = True
            elif child.type in _STATEMENTS and len(waiting) < _MOST_STATEMENTS:
                waiting.append(child)
                if child.type in _BRANCHES:
                    branches.append(child)
    last = body.named_children[-1] if body.named_child_count else None
    if last is not None and function.type in _LAST_COUNTS and last.type not in _RETURNS:
        while last.type in ("statement_list", "expression_statement", "block_body") and last.named_child_count:
            last = last.named_children[-1]
        found.append(last)
    return FunctionResults(tuple(found[:_MOST_RESULTS]), yields, tuple(branches))


_BODIES: Final = frozenset({"body_statement", "block", "block_body"})
_RETURNS: Final = frozenset({"return_statement", "return", "return_expression"})
_YIELDS: Final = frozenset({"yield", "yield_expression", "yield_statement"})
_LAST_COUNTS: Final = frozenset({
    "method", "singleton_method", "lambda", "block", "do_block", "subroutine_declaration_statement",
    "anonymous_subroutine_expression",
})  # fmt: skip
_STATEMENTS: Final = frozenset({
    "if_statement", "else_clause", "elif_clause", "else_if_clause", "if", "if_modifier", "unless_modifier", "then",
    "else", "case", "when", "do", "switch_statement", "switch_body", "switch_block", "switch_section", "switch_case",
    "switch_default", "expression_switch_statement", "expression_case", "default_case", "match_statement",
    "case_clause", "for_statement", "for_in_statement", "foreach_statement", "while_statement", "try_statement",
    "except_clause", "finally_clause", "catch_clause", "with_statement", "statement_block", "statement_list", "block",
    "compound_statement", "conditional_statement", "expression_statement",
})  # fmt: skip
_BRANCHES: Final = frozenset({
    "if_statement", "elif_clause", "else_if_clause", "if", "elsif", "unless", "if_modifier", "unless_modifier",
    "conditional_statement", "postfix_conditional_expression", "switch_statement", "expression_switch_statement",
    "match_statement", "case",
})  # fmt: skip
_MOST_STATEMENTS: Final = 64  # of a function that are looked at for what it gives back
_MOST_RESULTS: Final = 8


def patterns(function: Node) -> list[tuple[int, Node]]:
    """The parameters of a function that take a value apart, each with its place among all."""
    listed = function.child_by_field_name("parameters")
    children = () if listed is None else listed.named_children
    return [(at, one) for at, one in enumerate(children) if one.type in ("object_pattern", "array_pattern")]


def parameters(function: Node, field: str = "parameters") -> list[str]:
    """The names of the parameters of a function or a block, in their order."""
    listed = function.child_by_field_name(field) or (
        function.child_by_field_name("parameter") if field == "parameters" else None
    )
    if listed is None:
        return []
    if listed.type in ("identifier", "implicit_parameter"):
        return [text_of(listed)]
    found = []
    for one in listed.named_children:
        if one.type in _RESTS or one == listed.child_by_field_name("name"):
            break  # those behind it are given by their names alone
        if one.type not in _PARAMETER:
            continue
        name = (
            one.child_by_field_name("name")
            or one.child_by_field_name("left")
            or one.child_by_field_name("pattern")
            or one
        )
        if name.type not in ("identifier", "variable_name") and name.named_child_count:
            name = next((child for child in name.named_children if child.type in ("identifier", "variable_name")), name)
        found.append(text_of(name))
    return found[1:] if found[:1] in (["self"], ["cls"]) else found


def rest_of(function: Node, kinds: Collection[str] = _RESTS) -> str:
    """The parameter that takes the arguments behind those that have parameters of their own; empty where none does."""
    listed = function.child_by_field_name("parameters")
    own = None if listed is None else listed.child_by_field_name("name")  # `params string[] args` of C#
    if own is not None and kinds is _RESTS:
        return text_of(own)
    last = next((one for one in (() if listed is None else listed.named_children) if one.type in kinds), None)
    if last is None or not last.named_child_count:
        return ""
    return text_of(last.child_by_field_name("name") or last.named_children[0])


def defaults(function: Node) -> list[tuple[str, Node | None]]:
    """The parameters of a function, each with what it is where nothing is given."""
    names = parameters(function)
    listed = function.child_by_field_name("parameters")
    if listed is None or not names:
        return [(name, None) for name in names]
    values: dict[str, Node] = {}
    for one in listed.named_children:
        value = one.child_by_field_name("value") or one.child_by_field_name("default_value")
        value = value or (one.child_by_field_name("right") if one.type == "assignment_pattern" else None)
        if value is not None:
            name = one.child_by_field_name("name") or one.child_by_field_name("pattern") or one.named_children[0]
            values[text_of(name)] = value
    return [(name, values.get(name)) for name in names]


# Choices

_ARMS: Final = frozenset({
    "switch_expression_arm", "match_conditional_expression", "match_default_expression", "when", "else", "then",
    "match_block",
})  # fmt: skip
_MOST_ARMS: Final = 16


def arms_of(node: Node) -> list[Node]:
    """The values that a choice between several is one of."""
    found: list[Node] = []
    waiting = list(node.named_children)
    for one in waiting[:_MOST_ARMS]:
        body = one.child_by_field_name("body") or one.child_by_field_name("return_expression")
        if one.type in ("match_block", "then"):
            found += [inner for arm in one.named_children[:_MOST_ARMS] for inner in _arm(arm)]
        elif one.type in _ARMS and one.named_child_count:
            found += _arm(one) if body is None or one.type != "when" else body.named_children[-1:]
    return found


def _arm(node: Node) -> list[Node]:
    return node.named_children[-1:] if node.type in _ARMS else [node]


_OBJECTS: Final = frozenset({"dictionary", "object", "hash"})


def member_of(held: Node, name: str) -> Node | None:
    """What an object that is written out holds under a name."""
    if held.type == "composite_literal":  # of Go
        body = held.child_by_field_name("body")
        pairs = [unwrapped(one) for one in (() if body is None else body.named_children)]
        told = [one.named_children for one in pairs if one.type == "keyed_element" and one.named_child_count == 2]
        return next((unwrapped(value) for key, value in told if text_of(key) == name), None)
    for pair in held.named_children if held.type in _OBJECTS else ():
        if text_of(pair.child_by_field_name("key")).strip("'\"`:") == name:
            return pair.child_by_field_name("value")
    return None


# Calls and assignments by their sides

_NAMELESS: Final = BY_WORD | {"object_creation_expression"}
_SINGLE: Final = frozenset({"expression_list", "variable_declaration"})


def called_name(node: Node) -> str:
    """The last part of the name of what a call calls, in as few steps as that takes; empty for none."""
    function = (
        node.child_by_field_name("function")
        or node.child_by_field_name("constructor")
        or node.child_by_field_name("method")
        or node.child_by_field_name("name")
        or node.child_by_field_name("type")
    )
    if function is None:
        return called(node).name if node.type in _NAMELESS else ""
    if function.named_child_count and function.type not in ("identifier", "name"):
        return text_of(function.named_children[-1])
    return text_of(function)


def left_of(node: Node) -> Node | None:
    """What gets a value in an assignment."""
    left = node.child_by_field_name("name") or node.child_by_field_name("left")
    single = left is not None and left.type in _SINGLE and left.named_child_count == 1
    return left.named_children[0] if left is not None and single else left


def right_of(node: Node) -> Node | None:
    """The value of an assignment."""
    right = node.child_by_field_name("value") or node.child_by_field_name("right")
    if right is None and node.type == "variable_declarator" and node.named_child_count > 1:
        return node.named_children[-1]
    single = right is not None and right.type in _SINGLE and right.named_child_count == 1
    return right.named_children[0] if right is not None and single else right
