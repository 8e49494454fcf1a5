"""The schemas of tools and policies, compiled into the schema guard."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs

from aegis.core.names import Selector, SelectorMap
from aegis.core.outcome import outcome_of
from aegis.core.pointer import tokens
from aegis.errors import ConfigError, Problem
from aegis.guards.schema import SchemaGuard, SchemaPolicy, compile_schema
from aegis.pipeline.config import Config
from aegis.pipeline.settings_tools import PolicySettings

# JSON Schema, drafts 3 to 2020-12: keywords that hold one schema, a list or a mapping of them.
_ONE: Final = frozenset({
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "extends", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_LIST: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_MAPPING: Final = frozenset({
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties",
})  # fmt: skip
_PLAIN: Final = frozenset({
    "$anchor", "$comment", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef", "$ref",
    "$schema", "$vocabulary", "const", "contentEncoding", "contentMediaType", "default", "dependentRequired",
    "deprecated", "description", "enum", "examples", "exclusiveMaximum", "exclusiveMinimum", "format", "id",
    "maxContains", "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength",
    "minProperties", "minimum", "multipleOf", "pattern", "readOnly", "required", "title", "type", "uniqueItems",
    "writeOnly",
})  # fmt: skip
# Of the dialects that tools are described in: OpenAPI 3.0 (Schema Object), Gemini (`propertyOrdering`), draft 3.
_OTHER: Final = frozenset({
    "disallow", "discriminator", "divisibleBy", "example", "externalDocs", "nullable", "propertyOrdering", "xml",
})  # fmt: skip
_KEYWORDS: Final = _ONE | _LIST | _MAPPING | _PLAIN | _OTHER
_OWN: Final = "x-"  # begins keywords that somebody made for themselves


def compile_schema_guard(config: Config, problems: list[Problem]) -> SchemaGuard:
    """The schema guard of a configuration; what is wrong is added to `problems`."""
    tools: dict[str, jsonschema_rs.Validator] = {}
    for name, tool in config.settings.tools.items():
        if tool.schema_ is not None:
            # Schemas of tools are often written by others, with formats of their own (`int32`).
            validator = _compile(config, ("tools", name, "schema"), tool.schema_, problems, known_formats_only=False)
            if validator is not None:
                tools[name] = validator
    policies: list[SchemaPolicy] = []
    for position, policy in enumerate(config.settings.policies):
        deny = policy.deny is not None
        schema = policy.deny if deny else policy.schema_
        if schema is not None:
            where = ("policies", position, "deny" if deny else "schema")
            validator = _compile(config, where, schema, problems, known_formats_only=True)
            if validator is not None:
                policies.append(_policy(policy, validator, deny=deny))
    return SchemaGuard(SelectorMap(tools), policies)


def _policy(policy: PolicySettings, validator: jsonschema_rs.Validator, *, deny: bool) -> SchemaPolicy:
    select = policy.select
    return SchemaPolicy(
        name=policy.name,
        validator=validator,
        tools=() if select is None else tuple(Selector(text) for text in select.tool or ()),
        category="" if select is None else select.category or "",
        effect=None if select is None else select.effect,
        deny=deny,
        outcome=outcome_of(policy.outcome),
    )


def _compile(
    config: Config,
    where: tuple[str | int, ...],
    schema: dict[str, Any],
    problems: list[Problem],
    *,
    known_formats_only: bool,
) -> jsonschema_rs.Validator | None:
    before = len(problems)
    for place, keyword in _unknown(schema, ()):
        message = f"`{keyword}` is no keyword of JSON Schema, and would check nothing"
        close = difflib.get_close_matches(keyword[:40], _KEYWORDS, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"begin a keyword of your own with `{_OWN}`"
        problems.append(config.problem((*where, *place, keyword), message, hint))
    try:
        validator = compile_schema(schema, known_formats_only=known_formats_only)
    except ConfigError as error:
        problems.extend(
            config.problem((*where, *tokens(found.pointer)), found.message, found.hint) for found in error.problems
        )
        return None
    return validator if len(problems) == before else None


def _unknown(schema: object, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Keywords that no dialect knows, with the place of their schema; names and values may be any words."""
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        here = (*place, keyword)
        if keyword not in _KEYWORDS:
            if not keyword.startswith(_OWN):
                yield place, keyword
        elif keyword in _MAPPING and isinstance(value, dict):
            for name, inner in value.items():
                yield from _unknown(inner, (*here, name))
        elif keyword in _LIST and isinstance(value, list):
            for position, inner in enumerate(value):
                yield from _unknown(inner, (*here, str(position)))
        elif keyword in _ONE:
            yield from _unknown(value, here)
