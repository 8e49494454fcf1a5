from __future__ import annotations

from typing import Any

import pytest

from aegis.core.names import Selector, SelectorMap
from aegis.core.outcome import Outcome, Reason
from aegis.errors import ConfigError
from aegis.policy.guards.base import ToolEntry
from aegis.policy.guards.schema import MAX_ERRORS, MAX_EXPLAINED, SchemaGuard, SchemaPolicy, compile_schema
from support.cases import make_case

PAYMENT = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "maximum": 100}, "to": {"type": "string", "format": "email"}},
    "required": ["amount"],
    "additionalProperties": False,
}


def guard(schema: dict[str, Any], *policies: SchemaPolicy) -> SchemaGuard:
    return SchemaGuard(SelectorMap({"pay": compile_schema(schema, known_formats_only=False)}), policies)


def policy(schema: dict[str, Any], **members: Any) -> SchemaPolicy:
    return SchemaPolicy(name="rule", validator=compile_schema(schema, known_formats_only=True), **members)


def test_arguments_that_fit_the_schema_of_their_tool_pass() -> None:
    assert guard(PAYMENT).check(make_case(tool="pay", arguments={"amount": 5})).outcome is Outcome.ALLOW


@pytest.mark.parametrize(
    ("arguments", "path", "keyword"),
    [
        ({"amount": 101}, "/amount", "maximum"),
        ({"amount": 10**40}, "/amount", "maximum"),
        ({"amount": 1, "to": "nobody"}, "/to", "format"),
        ({"amount": 1, "a/b": 1}, "", "additionalProperties"),
        ({}, "", "required"),
    ],
)
def test_a_finding_names_place_and_keyword_and_never_the_value(
    arguments: dict[str, Any], path: str, keyword: str
) -> None:
    report = guard(PAYMENT).check(make_case(tool="pay", arguments=arguments))
    assert (report.outcome, report.reason) == (Outcome.BLOCK, Reason.SCHEMA_INVALID)
    (finding,) = report.findings
    assert (finding.path, finding.evidence) == (path, "")
    assert finding.message == f"the argument does not satisfy `{keyword}`"


def test_schemas_of_a_tool_hold_on_every_server_and_for_every_spelling() -> None:
    checked = guard(PAYMENT)
    assert checked.check(make_case(tool="pay", server="mcp:bank")).outcome is Outcome.BLOCK
    assert checked.check(make_case(tool="PAY")).outcome is Outcome.BLOCK
    assert checked.check(make_case(tool="repay")).outcome is Outcome.ALLOW


def test_policies_are_selected_by_tool_category_and_effect_together() -> None:
    rule = policy({"required": ["ticket"]}, tools=(Selector("run_*"),), category="database", effect="write")
    entry = ToolEntry(name="run_*", category="database")

    def outcome(**members: Any) -> Outcome:
        return SchemaGuard(SelectorMap({}), [rule]).check(make_case(**members)).outcome

    assert outcome(tool="run_sql", entry=entry, effects=frozenset({"write"})) is Outcome.BLOCK
    assert outcome(tool="run_sql", entry=entry, effects=frozenset({"read"})) is Outcome.ALLOW
    assert outcome(tool="run_sql", entry=None, effects=frozenset({"write"})) is Outcome.ALLOW
    assert outcome(tool="rerun_sql", entry=entry, effects=frozenset({"write"})) is Outcome.ALLOW


def test_a_denying_policy_refuses_what_matches() -> None:
    deny = {"properties": {"path": {"pattern": "^/etc/"}}, "required": ["path"]}
    checked = SchemaGuard(SelectorMap({}), [policy(deny, deny=True)])
    report = checked.check(make_case(arguments={"path": "/etc/passwd"}))
    assert (report.outcome, report.reason) == (Outcome.BLOCK, Reason.POLICY_DENIED)
    assert checked.check(make_case(arguments={"path": "/srv"})).outcome is Outcome.ALLOW


def test_a_policy_can_ask_instead_of_refusing_and_the_stricter_wins() -> None:
    ask = policy({"properties": {"amount": {"maximum": 10}}}, outcome=Outcome.REQUIRE_APPROVAL)
    checked = SchemaGuard(SelectorMap({}), [ask])
    report = checked.check(make_case(arguments={"amount": 50}))
    assert (report.outcome, report.reason) == (Outcome.REQUIRE_APPROVAL, Reason.APPROVAL_REQUIRED)
    both = SchemaGuard(SelectorMap({}), [ask, policy({"properties": {"amount": {"maximum": 40}}})])
    report = both.check(make_case(arguments={"amount": 50}))
    assert (report.outcome, report.reason) == (Outcome.BLOCK, Reason.SCHEMA_INVALID)


def test_findings_of_one_schema_are_bounded() -> None:
    report = guard({"additionalProperties": {"type": "integer"}}).check(
        make_case(tool="pay", arguments={f"k{number}": "x" for number in range(100)})
    )
    assert len(report.findings) == MAX_ERRORS


@pytest.mark.parametrize(
    "value", [list(range(MAX_EXPLAINED)), {str(number): [] for number in range(MAX_EXPLAINED)}, [[[1] * 400]] * 2]
)
def test_large_arguments_are_refused_without_being_explained(value: Any) -> None:
    either = {"oneOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["z"]}]}
    (finding,) = guard(either).check(make_case(tool="pay", arguments={"a": value})).findings
    assert (finding.path, finding.message) == ("", "the arguments do not satisfy the schema")


def test_arguments_of_the_largest_size_that_is_explained_are_explained() -> None:
    values = [1] * (MAX_EXPLAINED - 2)
    (finding,) = (
        guard({"properties": {"a": {"type": "string"}}}).check(make_case(tool="pay", arguments={"a": values})).findings
    )
    assert finding.path == "/a"


def test_names_that_are_made_up_do_not_grow_memory() -> None:
    checked = guard(PAYMENT)
    for number in range(3_000):
        checked.check(make_case(tool=f"tool-{number}"))
    assert len(checked._selected) <= 1_024


@pytest.mark.parametrize(
    ("schema", "pointer", "part"),
    [
        ({"properties": {"a": {"type": "strin"}}}, "/properties/a/type", "not a valid JSON Schema"),
        ({"properties": {"a": {"pattern": "("}}}, "/properties/a/pattern", "the pattern does not compile"),
        ({"pattern": "(?=a)b"}, "/pattern", "the pattern does not compile"),
        ({"$ref": "http://127.0.0.1:9/x.json"}, "", "Retrieval is disabled"),
        ({"$schema": "http://127.0.0.1:9/x.json"}, "", "Unknown meta-schema"),
        ({"$ref": "#/nowhere"}, "", "not a valid JSON Schema"),
        ({"format": "emial"}, "/format", "Unknown format"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_refused_with_its_place(
    schema: dict[str, Any], pointer: str, part: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_schema(schema, known_formats_only=True)
    (problem,) = caught.value.problems
    assert problem.pointer == pointer
    assert part in problem.message
