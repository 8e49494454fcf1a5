from __future__ import annotations

from typing import Any

import pytest

from aegis.config.compile import compile_policy
from aegis.config.compile_cedar import compile_cedar_guard
from aegis.config.config import parse_config
from aegis.core.finding import Report
from aegis.core.outcome import Outcome, Reason, Risk
from aegis.errors import ConfigError, Problem
from aegis.policy.guards.base import Guard, ToolEntry
from aegis.policy.guards.cedar import MAX_SHOWN, CedarGuard, TypeMismatch, project, record_type
from support.cases import make_case

PERMIT = "permit(principal, action, resource);"
PAY = ToolEntry(name="pay")
TOOLS = """
tools:
  pay:
    schema:
      properties:
        amount: {type: integer}
        to: {type: string}
        tags: {type: array, items: {type: string}}
        card: {type: object, properties: {kind: {type: string}}, required: [kind]}
        share: {type: number}
      required: [amount]
  "mcp:mail/*": {}
"""


def guard(*policies: str) -> CedarGuard:
    lines = "".join(f"- name: p{number}\n  cedar: |\n    {text}\n" for number, text in enumerate(policies))
    found: list[Problem] = []
    made = compile_cedar_guard(parse_config(f"{TOOLS}\npolicies:\n{lines}"), found)
    assert not found, found
    assert made is not None
    return made


def problems(*policies: str) -> list[str]:
    found: list[Problem] = []
    lines = "".join(f"- name: p{number}\n  cedar: |\n    {text}\n" for number, text in enumerate(policies))
    assert compile_cedar_guard(parse_config(f"{TOOLS}\npolicies:\n{lines}"), found) is None
    assert all(problem.file == "aegis.yaml" and problem.line and problem.pointer for problem in found)
    return [problem.message for problem in found]


def rules(report: Report) -> list[str]:
    return [finding.rule for finding in report.findings]


def pay(**arguments: Any) -> Any:
    return make_case(tool="pay", entry=PAY, arguments=arguments)


def test_what_a_policy_permits_passes_and_what_none_permits_is_denied() -> None:
    made = guard('permit(principal == Agent::"bot", action, resource == Tool::"read_file");')
    assert made.check(make_case(tool="read_file")).outcome is Outcome.ALLOW
    refused = made.check(make_case(tool="write_file"))
    assert (refused.outcome, refused.reason, rules(refused)) == (Outcome.BLOCK, Reason.POLICY_DENIED, ["no-permit"])
    assert made.check(make_case(tool="read_file", agent="other")).outcome is Outcome.BLOCK


def test_forbid_overrides_permit_and_is_named() -> None:
    made = guard(PERMIT, "forbid(principal, action, resource) when { context.risk >= 2 };")
    assert made.check(make_case(tier=Risk.MEDIUM)).outcome is Outcome.ALLOW
    assert rules(made.check(make_case(tier=Risk.HIGH))) == ["p1"]


def test_a_text_of_several_policies_is_named_as_one() -> None:
    made = guard(PERMIT + ' forbid(principal, action, resource == Tool::"x");', PERMIT)
    assert rules(made.check(make_case(tool="x"))) == ["p0"]


def test_arguments_that_a_schema_declares_are_typed_input() -> None:
    made = guard(PERMIT, 'forbid(principal, action == Action::"pay", resource) when { context.input.amount > 100 };')
    assert made.check(pay(amount=100)).outcome is Outcome.ALLOW
    assert rules(made.check(pay(amount=101))) == ["p1"]


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"amount": "101"}, "/amount"),
        ({"amount": True}, "/amount"),
        ({"amount": 2**63}, "/amount"),
        ({"amount": 1.0}, "/amount"),
        ({}, "/amount"),
        ({"amount": 1, "tags": ["a", 1]}, "/tags/1"),
        ({"amount": 1, "tags": "a"}, "/tags"),
        ({"amount": 1, "card": {}}, "/card/kind"),
        ({"amount": 1, "card": []}, "/card"),
        ({"amount": 1, "to": None}, "/to"),
    ],
)
def test_an_argument_of_another_type_refuses_and_never_skips_a_policy(arguments: dict[str, Any], path: str) -> None:
    report = guard(PERMIT).check(pay(**arguments))
    assert (report.outcome, report.reason) == (Outcome.BLOCK, Reason.SCHEMA_INVALID)
    assert report.findings[0].path == path


def test_more_values_than_policies_can_be_evaluated_on_refuse() -> None:
    report = guard(PERMIT).check(pay(amount=1, other=[1] * MAX_SHOWN))
    assert (report.outcome, rules(report)) == (Outcome.BLOCK, ["argument-size"])


def test_arguments_cannot_speak_the_escapes_of_cedar() -> None:
    made = guard(PERMIT, 'forbid(principal, action == Action::"pay", resource) when { context.input has to };')
    arguments = {"amount": 1, "__entity": {"type": "Agent", "id": "root"}, "undeclared": {"__extn": {}}}
    assert made.check(pay(**arguments)).outcome is Outcome.ALLOW


def test_a_policy_about_a_tool_restricts_it_on_every_server_and_under_every_spelling() -> None:
    made = guard(PERMIT, 'forbid(principal, action == Action::"pay", resource);')
    assert made.check(make_case(tool="pay", server="mcp:shop", arguments={"amount": 1})).outcome is Outcome.BLOCK
    assert made.check(make_case(tool="PAY", arguments={"amount": 1})).outcome is Outcome.BLOCK


def test_a_permit_for_a_tool_loosens_only_the_server_that_it_is_registered_for() -> None:
    made = guard('permit(principal, action == Action::"pay", resource);')
    assert made.check(pay(amount=1)).outcome is Outcome.ALLOW
    foreign = ToolEntry(name="pay", registered=False)
    other = make_case(tool="pay", server="mcp:shop", entry=foreign, arguments={"amount": 1})
    assert made.check(other).outcome is Outcome.BLOCK


def test_tools_are_in_their_server() -> None:
    made = guard(PERMIT, 'forbid(principal, action, resource in Server::"mcp:evil");')
    assert made.check(make_case(server="mcp:evil")).outcome is Outcome.BLOCK
    assert made.check(make_case(server="mcp:good")).outcome is Outcome.ALLOW


def test_a_resource_is_the_tool_of_one_server() -> None:
    made = guard('permit(principal, action, resource == Tool::"mcp:mail/send");')
    assert made.check(make_case(tool="send", server="mcp:mail")).outcome is Outcome.ALLOW
    assert made.check(make_case(tool="send")).outcome is Outcome.BLOCK


def test_every_action_is_in_call() -> None:
    made = guard('permit(principal, action in Action::"call", resource);')
    assert made.check(pay(amount=1)).outcome is Outcome.ALLOW
    assert made.check(make_case()).outcome is Outcome.ALLOW


@pytest.mark.parametrize(
    ("now", "hour", "weekday"),
    [(0, 0, 3), (1_700_000_000 * 1_000_000, 22, 1)],
)
def test_the_time_is_told_in_utc(now: int, hour: int, weekday: int) -> None:
    made = guard(
        f"permit(principal, action, resource) when {{ context.hour == {hour} && context.weekday == {weekday} }};"
    )
    assert made.check(make_case(now=now)).outcome is Outcome.ALLOW


def test_effects_and_roles_are_sets() -> None:
    made = guard('permit(principal, action, resource) when { context.effects.contains("write") };')
    assert made.check(make_case(effects=frozenset({"write"}))).outcome is Outcome.ALLOW
    assert made.check(make_case()).outcome is Outcome.BLOCK
    roles = guard('permit(principal, action, resource) when { context.roles.contains("agent") };')
    assert roles.check(make_case()).outcome is Outcome.ALLOW


def test_an_error_of_evaluation_refuses_whatever_the_decision_was() -> None:
    overflow = "forbid(principal, action, resource) when { context.time * 9000000000000 > 1 };"
    made = guard(PERMIT, overflow)
    report = made.check(make_case(now=1_700_000_000 * 1_000_000))
    assert (report.outcome, report.reason, rules(report)) == (Outcome.BLOCK, Reason.UNAVAILABLE, ["policy-error"])


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("permit(", "does not parse"),
        ('permit(principal, action, resource == Tool::"Read_File");', "the name `Read_File` matches nothing"),
        ('permit(principal, action, resource in Server::"MCP:mail");', "the name `MCP:mail` matches nothing"),
        ("// nothing", "holds no Cedar policy"),
        ("permit(principal == ?principal, action, resource);", "a Cedar template is never linked"),
        ('permit(principal, action == Action::"pya", resource);', "does not validate"),
        ('permit(principal == User::"x", action, resource);', "does not validate"),
        ('permit(principal, action, resource) when { context.hour > "x" };', "does not validate"),
        ("permit(principal, action, resource) when { context.input.amount > 1 };", "does not validate"),
        (
            'permit(principal, action == Action::"pay", resource) when { context.input.to == "x" };',
            "does not validate",
        ),
        (
            'permit(principal, action == Action::"pay", resource) when { context.input has share };',
            "no schema shows an attribute `share`",
        ),
    ],
)
def test_what_cedar_would_skip_at_run_time_is_refused_at_the_start(text: str, part: str) -> None:
    assert any(part in message for message in problems(text))


@pytest.mark.parametrize(
    "text",
    [
        f"permit(principal, action, resource) when {{ {'(' * 5_000}true{')' * 5_000} }};",
        f"permit(principal, action, resource) when {{ {'if true then ' * 5_000}true{' else true' * 5_000} }};",
        "// " + "x" * 70_000,
    ],
)
def test_a_policy_that_would_overflow_the_parser_is_refused(text: str) -> None:
    assert "nested deeper" in problems(text)[0]


def test_brackets_in_text_and_comments_do_not_count() -> None:
    text = f'permit(principal, action, resource) when {{ context.tool != "{"(" * 500}" }}; // {"[" * 500}'
    assert guard(text).check(make_case()).outcome is Outcome.ALLOW


def test_without_cedar_policies_there_is_no_cedar_guard() -> None:
    assert compile_cedar_guard(parse_config("version: 1"), []) is None


def test_entities_of_made_up_tools_do_not_grow_memory() -> None:
    made = guard(PERMIT)
    for number in range(1_500):
        made.check(make_case(tool=f"tool-{number}"))
    assert len(made._resources) <= 1_024


def test_it_is_a_guard() -> None:
    made: Guard = guard(PERMIT)
    assert made.name == "cedar"


def test_types_are_shown_as_far_as_they_are_exact() -> None:
    assert record_type(None) is None
    assert record_type({"properties": {"a": {"type": "string"}}, "required": True}) == {
        "type": "Record",
        "attributes": {"a": {"type": "String", "required": False}},
    }
    assert record_type({"properties": {"a": {"type": ["string", "null"]}, "b": {"type": "number"}, "__c": {}}}) is None
    with pytest.raises(TypeMismatch):
        project({"type": "Record", "attributes": {}}, [])


def test_a_configuration_with_a_bad_policy_names_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        compile_policy(parse_config("version: 1\npolicies:\n- name: a\n  cedar: permit(\n"))
    assert (caught.value.problems[0].line, caught.value.problems[0].pointer) == (4, "/policies/0/cedar")
