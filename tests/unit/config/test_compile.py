from __future__ import annotations

from pathlib import Path

import pytest

from aegis.config.compile import compile_policy
from aegis.config.config import load_config, parse_config
from aegis.detect.rules.cache import default_cache_folder
from aegis.errors import ConfigError, Problem


def only(text: str) -> Problem:
    with pytest.raises(ConfigError) as caught:
        compile_policy(parse_config(text), cache=default_cache_folder())
    assert len(caught.value.problems) == 1, caught.value.problems
    return caught.value.problems[0]


def digest(text: str) -> str:
    return compile_policy(parse_config(text), cache=default_cache_folder()).digest


def test_the_same_meaning_has_the_same_digest() -> None:
    plain = compile_policy(load_config(), cache=default_cache_folder()).digest
    assert digest("version: 1") == plain
    assert digest("# a comment\nlimits: {max_bytes: 1048576, rate: 100/minute}\nversion: 1") == plain
    assert digest("approvals: {timeout: 300s}") == plain
    assert digest("store: 'sqlite:///other.db'\ndurability: os") == plain


def test_a_value_has_the_same_meaning_whatever_profile_it_came_from() -> None:
    strict = digest("profile: strict")
    copied = digest(
        "registry: {allow_unregistered: block, escalation_threshold: medium}\n"
        "guards:\n"
        "  loops: {mode: enforce}\n"
        "  reasoning: {changed: hold, instructed: hold, missing: note, reads: hold}\n"
        "  content:\n"
        "    {egress: hold, inside: mask, workspace: block, overrides: [{rule: slot-odd, tool: '*',"
        " outcome: require_approval, reason: the profile takes values by what their names say}]}\n"
        "approvals: {session_grant: off, hourly_limit: 60}\n"
        "limits: {byte_rate: 32MiB/minute}\npreviews: {mounts: []}\njudging: {feedback: code}\n"
        "sessions: {unclassified: restricted}\n"
        "proxies: {documents: readable}\n"
        "cascade: {do: suspend}\n"
        "containment:\n"
        "  - {when: {blocked: 5, reason: attack_detected, severity: high, within: 10m}, do: suspend, for: 1h}\n"
        "  - {when: {canary: 1, within: 1h}, do: suspend, for: 1d}"
    )
    assert copied == strict


@pytest.mark.parametrize(
    "text",
    [
        "limits: {rate: 101/minute}",
        "guards: {content: {mode: observe}}",
        "insufficient_evidence: require-approval",
        "tools: {a: {}}",
        "pipeline: {call: [registry, rate, schema, content, cedar]}",
        "policies: [{name: a, select: {tool: x}, schema: {type: object}}]",
        "approvals: {quorum: 2}",
    ],
)
def test_another_meaning_has_another_digest(text: str) -> None:
    assert digest(text) != digest("version: 1")


def test_order_and_descriptions_have_no_meaning() -> None:
    assert digest("tools: {a: {effects: [write, read], description: x}, b: {}}") == digest(
        "tools: {b: {}, a: {effects: [read, write]}}"
    )


def test_other_rules_are_another_policy(tmp_path: Path) -> None:
    config = load_config()
    (tmp_path / "none").mkdir()
    assert (
        compile_policy(config, scanner_folders=[tmp_path], cache=default_cache_folder()).digest
        != compile_policy(config, cache=default_cache_folder()).digest
    )


@pytest.mark.parametrize(
    ("text", "line", "pointer", "part", "hint"),
    [
        (
            "tools:\n  a:\n    schema:\n      properties:\n        x: {type: strin}",
            5,
            "/tools/a/schema/properties/x/type",
            "not a valid JSON Schema",
            "",
        ),
        (
            "policies:\n- name: p\n  select: {tool: x}\n  deny:\n    pattern: '(?=x)'",
            5,
            "/policies/0/deny/pattern",
            "the pattern does not compile",
            "patterns have no look-around and no back-references",
        ),
        (
            "policies:\n- name: p\n  select: {tool: x}\n  schema:\n    properties: {a: {maxLenght: 3}}",
            5,
            "/policies/0/schema/properties/a/maxLenght",
            "`maxLenght` is no keyword",
            "did you mean `maxLength`?",
        ),
        (
            "guards:\n  content:\n    exceptions:\n    - {rule: sql-tautologi, tool: a, reason: x}",
            4,
            "/guards/content/exceptions/0/rule",
            "there is no rule `sql-tautologi`",
            "did you mean `sql-tautology`?",
        ),
        (
            "guards:\n  content:\n    exceptions:\n    - {rule: '*', tool: a, reason: x}",
            4,
            "/guards/content/exceptions/0/rule",
            "would switch most rules off",
            "name the rules that do not count, or set `guards.content.mode` to `observe`",
        ),
        (
            "guards:\n  content:\n    overrides:\n    - {rule: '*-*', tool: '*', reason: x, outcome: allow}",
            4,
            "/guards/content/overrides/0/rule",
            "would switch most rules off",
            "name the rules that do not count, or set `guards.content.mode` to `observe`",
        ),
        (
            "guards:\n  content:\n    exceptions:\n    - {rule: sqll-*, tool: a, reason: x}",
            4,
            "/guards/content/exceptions/0/rule",
            "no rule is named like `sqll-*`",
            "`aegis rules list` names them",
        ),
        (
            "guards:\n  content:\n    exceptions:\n    - {rule: sql-*, tool: a, path: name, reason: x}",
            4,
            "/guards/content/exceptions/0/path",
            "`name` is no JSON pointer",
            "write `/name`",
        ),
    ],
)
def test_what_does_not_compile_is_named_with_file_line_and_hint(
    text: str, line: int, pointer: str, part: str, hint: str
) -> None:
    problem = only(text)
    assert part in problem.message
    assert (problem.file, problem.line, problem.pointer, problem.hint) == ("aegis.yaml", line, pointer, hint)


UNKNOWN = ("requierd", "maxLenght", "propertys", "aditionalProperties", "foo", "Type", "min_length")
INSIDE = (
    "{KEY: 1}",
    "{properties: {a: {KEY: 1}}}",
    "{items: {KEY: 1}}",
    "{prefixItems: [{}, {KEY: 1}]}",
    "{anyOf: [{}, {allOf: [{KEY: 1}]}]}",
    "{$defs: {a: {not: {KEY: 1}}}}",
    "{if: {then: {else: {KEY: 1}}}}",
    "{dependencies: {a: {KEY: 1}}}",
    "{patternProperties: {'^a': {additionalProperties: {KEY: 1}}}}",
    "{unevaluatedProperties: {propertyNames: {contains: {KEY: 1}}}}",
)
SCHEMAS = (
    "tools: {x: {schema: SCHEMA}}",
    "policies: [{name: p, schema: SCHEMA}]",
    "policies: [{name: p, deny: SCHEMA}]",
)


@pytest.mark.claim("CFG-10")
@pytest.mark.parametrize("place", SCHEMAS)
@pytest.mark.parametrize("inside", INSIDE)
def test_a_keyword_that_no_dialect_knows_is_refused_wherever_a_schema_stands(inside: str, place: str) -> None:
    for keyword in UNKNOWN:
        problem = only(place.replace("SCHEMA", inside.replace("KEY", keyword)))
        assert f"`{keyword}` is no keyword" in problem.message
        assert problem.pointer.endswith(f"/{keyword}")
        assert problem.hint


@pytest.mark.claim("CFG-10")
@pytest.mark.parametrize("place", SCHEMAS)
@pytest.mark.parametrize(
    "schema",
    [
        "{x-mine: 1, properties: {requierd: {x-order: 2}, foo: {}}}",
        "{enum: [{requierd: 1}], const: {requierd: 1}, default: {requierd: 1}, examples: [{requierd: 1}]}",
        "{required: [foo], dependentRequired: {foo: [bar]}, $defs: {requierd: {}}}",
        "{properties: {a: {nullable: true, example: 1, discriminator: {propertyName: b}}}}",
        "{$schema: 'https://json-schema.org/draft/2020-12/schema', $comment: a, title: b, format: email, contains: {}}",
        "{dependencies: {a: [b]}, additionalProperties: false, items: true}",
    ],
)
def test_names_values_and_keywords_of_ones_own_may_be_any_words(schema: str, place: str) -> None:
    compile_policy(parse_config(place.replace("SCHEMA", schema)), cache=default_cache_folder())


def test_a_property_may_be_called_like_a_misspelt_keyword() -> None:
    text = "policies: [{name: p, select: {tool: x}, schema: {properties: {typ: {enum: [{formt: 1}]}}}}]"
    assert (
        compile_policy(parse_config(text), cache=default_cache_folder()).digest
        != compile_policy(parse_config("version: 1"), cache=default_cache_folder()).digest
    )


def test_formats_that_nobody_knows_are_allowed_in_schemas_of_tools_alone() -> None:
    compile_policy(
        parse_config("tools: {a: {schema: {properties: {n: {type: integer, format: int32}}}}}"),
        cache=default_cache_folder(),
    )
    text = "policies: [{name: p, select: {tool: x}, schema: {properties: {n: {format: int32}}}}]"
    assert "Unknown format" in only(text).message


@pytest.mark.parametrize("text", ["pipeline: {call: [cedar]}", "pipeline: {result: [postconditions]}"])
def test_a_pipeline_in_which_no_guard_has_anything_to_do_is_refused(text: str) -> None:
    assert "has anything to do" in only(f"{text}\nguards: {{schema: {{mode: off}}}}").message


def test_a_guard_that_is_off_is_not_asked() -> None:
    policy = compile_policy(
        parse_config("guards: {rate: {mode: off}, content: {mode: observe}}"), cache=default_cache_folder()
    )
    assert policy.settings == {"mode": "enforce", "insufficient_evidence": "fail-closed"}
