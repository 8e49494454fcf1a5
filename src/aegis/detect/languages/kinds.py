"""Kinds of nodes of the grammars, by what an expression of each may be."""

from __future__ import annotations

from typing import Final

NAMES: Final = frozenset({
    "identifier", "variable_name", "scalar", "constant", "instance_variable", "global_variable", "class_variable",
    "name", "type_identifier", "array", "shorthand_property_identifier", "base", "bareword",
})  # fmt: skip
BINARY: Final = frozenset({"binary_operator", "binary_expression", "binary", "infix_expression", "boolean_operator"})
LISTS: Final = frozenset({
    "list", "tuple", "set", "array", "array_creation_expression", "string_array", "literal_value", "array_initializer",
    "symbol_array",
    "initializer_expression", "collection_expression", "list_expression", "expression_list", "argument_list",
    "implicit_array_creation_expression", "arguments", "right_assignment_list", "tuple_expression",
    "anonymous_array_expression",
})  # fmt: skip
WRAPPERS: Final = frozenset({
    "parenthesized_expression", "await", "await_expression", "expression_statement", "as_expression",
    "non_null_expression", "satisfies_expression", "argument", "literal_element", "cast_expression", "unary_expression",
    "array_element_initializer", "type_assertion", "keyword_argument", "named_argument", "pair_value", "spread_element",
    "conversion_expression", "element_value", "filename", "variadic_argument", "variadic_unpacking", "splat_argument",
    "list_splat", "dictionary_splat", "block_argument",
})  # fmt: skip
CALLS: Final = frozenset({
    "call", "call_expression", "new_expression", "function_call_expression", "member_call_expression",
    "scoped_call_expression", "object_creation_expression", "method_invocation", "invocation_expression",
    "ambiguous_function_call_expression", "method_call_expression", "func1op_call_expression",
})  # fmt: skip
CHOICES: Final = frozenset({"conditional_expression", "ternary_expression", "conditional"})
MEMBERS: Final = frozenset({
    "attribute", "member_expression", "selector_expression", "member_access_expression", "field_access",
    "nullsafe_member_access_expression",
    "class_constant_access_expression", "scope_resolution", "scoped_property_access_expression",
})  # fmt: skip
SUBSCRIPTS: Final = frozenset({
    "subscript", "subscript_expression", "element_reference", "index_expression", "array_access",
    "element_access_expression", "hash_element_expression", "array_element_expression",
})  # fmt: skip
REGEXES: Final = frozenset({"regex", "match_regexp", "quoted_regexp"})
LITERALS: Final = frozenset({
    "true", "false", "none", "null", "nil", "boolean", "boolean_literal", "null_literal", "integer", "number",
    "int_literal", "decimal_integer_literal", "integer_literal",
})  # fmt: skip
NUMBERS: Final = frozenset({
    "integer", "number", "int_literal", "decimal_integer_literal", "integer_literal",
})  # fmt: skip
ASKS: Final = frozenset({  # that are true or false
    "comparison_operator", "not_operator", "equality_expression", "relational_expression",
})  # fmt: skip
PARTS: Final = frozenset({"slice_expression", "anonymous_slice_expression"})
PAIRS: Final = frozenset({"array_element_initializer", "keyed_element"})
COMPREHENSIONS: Final = frozenset({"generator_expression", "list_comprehension", "set_comprehension"})
OBJECTS: Final = frozenset({"dictionary", "object", "hash", "anonymous_hash_expression"})
SPREADS: Final = frozenset({
    "spread_element", "list_splat", "dictionary_splat", "splat_argument", "hash_splat_argument", "variadic_unpacking",
})  # fmt: skip
MATCHES: Final = frozenset({"switch_expression", "match_expression", "case", "if"})  # that are one of several values
WRITTEN_OUT: Final = OBJECTS | {"array_creation_expression", "composite_literal", "literal_value"}
