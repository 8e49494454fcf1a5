"""Every ready-made configuration compiles and decides its cases as written beside it."""

from __future__ import annotations

import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aegis.config.compile import Policy, compile_policy
from aegis.config.config import load_config, policies_folder
from aegis.config.document import plain, read
from aegis.policy.model import Incoming
from support.cases import AGENT

NOON = "2026-03-02T12:00:00+00:00"
CONFIGURATIONS = sorted(path for path in policies_folder().glob("*.yaml") if not path.name.endswith(".cases.yaml"))


def cases(path: Path) -> list[dict[str, Any]]:
    file = path.with_suffix(".cases.yaml")
    found = plain(read(file.read_text(encoding="utf-8"), file=file.name))
    assert isinstance(found, list)
    return found


@cache
def policy(path: Path) -> Policy:
    return compile_policy(load_config(path))


CASES = [
    pytest.param(path, case, id=f"{path.stem}-{number}")
    for path in CONFIGURATIONS
    for number, case in enumerate(cases(path))
]


def test_there_are_configurations() -> None:
    assert len(CONFIGURATIONS) >= 4


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.stem)
def test_a_configuration_has_cases_on_both_sides(path: Path) -> None:
    decisions = {case["expect"]["decision"] for case in cases(path)}
    assert "allow" in decisions
    assert decisions & {"block", "require_approval"}


@pytest.mark.parametrize(("path", "case"), CASES)
def test_a_case_is_decided_as_it_says(path: Path, case: dict[str, Any]) -> None:
    call, expect = case["call"], case["expect"]
    assert set(case) <= {"call", "expect", "at"}
    assert set(expect) <= {"decision", "reason", "rule"}
    now = datetime.datetime.fromisoformat(case.get("at", NOON))
    combined = (
        policy(path)
        .evaluate(
            Incoming(
                tool=call["tool"],
                server=call.get("server"),
                arguments=call["arguments"],
                principal=AGENT,
                agent="bot",
                session="",
                call_id="c",
                now=int(now.timestamp() * 1_000_000),
                charge=False,
            )
        )
        .combined
    )
    assert combined.outcome.word == expect["decision"], combined.findings
    assert combined.reason.value == expect.get("reason", combined.reason.value)
    if "rule" in expect:
        assert expect["rule"] in {finding.rule for finding in combined.findings}
