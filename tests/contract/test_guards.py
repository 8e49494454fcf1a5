"""What every guard promises, whatever it looks for: one suite over all of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aegis.config.compile_cedar import compile_cedar_guard
from aegis.config.compile_tools import compile_schema_guard
from aegis.config.config import parse_config
from aegis.core.json import apply_patches
from aegis.core.outcome import Outcome, Risk
from aegis.detect.rules import Scanner, builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.policy.guards.base import Guard, ResultGuard, ToolEntry
from aegis.policy.guards.content import ContentGuard
from aegis.policy.guards.evidence import EvidenceGuard
from aegis.policy.guards.protected import ProtectedGuard
from aegis.policy.guards.rate import Rate, RateGuard
from aegis.policy.guards.registry import RegistryGuard, RegistryRules
from aegis.policy.guards.result import ResultContentGuard
from aegis.policy.model import ALWAYS, CALL_GUARDS, RESULT_GUARDS
from aegis.testing.guards import (
    HOSTILE,
    NAMES,
    check_arguments,
    check_guard,
    check_report,
    check_result_guard,
    deep,
    make_case,
    make_result_case,
)

CONFIG: Final = parse_config(
    """
tools:
  send_email:
    risk: high
    irreversible: true
    schema: {properties: {to: {type: string, format: email}, n: {type: integer, maximum: 9}}, required: [to]}
policies:
- {name: no-etc, select: {tool: "*"}, deny: {properties: {path: {pattern: "^/etc"}}, required: [path]}}
- {name: all, cedar: "permit(principal, action, resource);"}
- {name: never-low, cedar: "forbid(principal, action, resource) when { context.risk == 3 };"}
"""
)
SCANNER: Final = Scanner(load(builtin_folder()), cache=default_cache_folder())


def _cedar() -> Guard:
    made = compile_cedar_guard(CONFIG, [])
    assert made is not None
    return made


GUARDS: Final[dict[str, Callable[[], Guard]]] = {
    "rate": lambda: RateGuard(Rate(limit=2, seconds=60)),
    "registry": lambda: RegistryGuard(
        RegistryRules(
            unregistered="scan", max_allowed_tier=Risk.HIGH, allow_critical=False, escalation_threshold=Risk.HIGH
        ),
        names=CONFIG.settings.tools,
    ),
    "schema": lambda: compile_schema_guard(CONFIG, []),
    "content": lambda: ContentGuard(SCANNER),
    "cedar": _cedar,
    "protected": lambda: ProtectedGuard([Path("/home/ann/.aegis")], user_home=Path("/home/ann")),
    "evidence": lambda: EvidenceGuard(alone=True),
}
RESULTS: Final[dict[str, Callable[[], ResultGuard]]] = {"content": lambda: ResultContentGuard(SCANNER)}

_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


def test_every_guard_of_this_version_is_held_to_the_contract() -> None:
    assert set(GUARDS) == {*CALL_GUARDS, *ALWAYS}
    assert set(RESULTS) == set(RESULT_GUARDS)


@pytest.mark.parametrize("name", sorted(set(GUARDS) - {"rate"}))
def test_every_guard_meets_the_contract_that_packages_are_held_to(name: str) -> None:
    check_guard(GUARDS[name])


@pytest.mark.parametrize("name", RESULTS)
def test_every_guard_of_results_meets_the_contract_that_packages_are_held_to(name: str) -> None:
    check_result_guard(RESULTS[name])


@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.parametrize("position", range(len(HOSTILE)))
def test_hostile_arguments_get_a_report(name: str, position: int) -> None:
    check_arguments(GUARDS[name](), {"to": HOSTILE[position], "path": "/srv/x"})


@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.parametrize("tool", NAMES)
def test_hostile_names_get_a_report(name: str, tool: str) -> None:
    guard = GUARDS[name]()
    check_report(guard.check(make_case(tool=tool, server=tool, agent=tool, arguments={tool: tool})), name)
    check_report(guard.check(make_case(tool=tool, entry=ToolEntry(name=tool), arguments={})), name)


@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.parametrize("levels", [20, 90])
def test_nested_arguments_get_a_report(name: str, levels: int) -> None:
    check_report(GUARDS[name]().check(make_case(arguments={"a": deep(levels)})), name)


@pytest.mark.parametrize("name", GUARDS)
def test_beyond_the_limits_a_call_is_never_plainly_allowed(name: str) -> None:
    if name not in ("content", "evidence"):
        return
    report = GUARDS[name]().check(make_case(arguments={"a": ["x"] * 20_000}))
    assert report.outcome is Outcome.BLOCK
    assert {finding.category for finding in report.findings} == {"resource_limit"}


@pytest.mark.parametrize("name", sorted(set(GUARDS) - {"rate"}))
def test_the_same_case_gets_the_same_report(name: str) -> None:
    guard = GUARDS[name]()
    for value in HOSTILE[:12]:
        case = make_case(tool="send_email", arguments={"to": value})
        assert guard.check(case) == guard.check(case)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(arguments=st.dictionaries(_TEXT, JSON, max_size=4), tool=_TEXT.filter(str.strip))
@pytest.mark.parametrize("name", GUARDS)
def test_any_json_gets_a_report(name: str, arguments: dict[str, Any], tool: str) -> None:
    check_report(_ONCE[name].check(make_case(tool=tool, arguments=arguments)), name)


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("position", range(len(HOSTILE)))
def test_hostile_results_get_a_report(name: str, position: int) -> None:
    result = copy.deepcopy(HOSTILE[position])
    report = RESULTS[name]().check_result(make_result_case(result))
    check_report(report, name)
    assert result == HOSTILE[position]
    apply_patches(result, report.patches)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(result=JSON)
@pytest.mark.parametrize("name", RESULTS)
def test_any_json_result_gets_a_report(name: str, result: Any) -> None:
    check_report(_RESULT_ONCE[name].check_result(make_result_case(result)), name)


_ONCE: Final = {name: make() for name, make in GUARDS.items()}
_RESULT_ONCE: Final = {name: make() for name, make in RESULTS.items()}
