"""Every ready-made configuration compiles and decides its cases as written beside it."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aegis.config.compile import Policy, compile_policy
from aegis.config.config import load_config, policies_folder
from aegis.config.document import plain, read
from aegis.detect.rules.cache import default_cache_folder
from aegis.policy.dataflow.reading import ReadDocument, SessionView, read_result
from aegis.policy.dataflow.words import read_words
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
    return compile_policy(load_config(path), cache=default_cache_folder())


def session(
    made: Policy,
    *,
    said: Sequence[str] = (),
    read: Sequence[dict[str, Any]] = (),
    labels: Sequence[str] = (),
    **known: Any,
) -> SessionView:
    """A session that said and read this; `known` are other fields of it."""
    view = SessionView(id="s", key=b"k" * 16, labels=frozenset(labels), **known)
    view.words = read_words(list(said)) if said else None
    for number, one in enumerate(read):
        flow = made.flow(None, one["tool"])
        reading = read_result(one["result"], view.key, flow)
        trust = flow.result.trust or "mixed"
        document = ReadDocument(
            receipt=f"r{number}", tool=one["tool"], trust=trust, sensitivity="internal", named=one.get("named", False)
        )
        view.add(document, reading)
        view.untrusted = view.untrusted or reading.text or trust == "untrusted"
    return view


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
    assert set(case) <= {"call", "expect", "at", "session"}
    assert set(expect) <= {"decision", "reason", "rule", "quorum"}
    now = datetime.datetime.fromisoformat(case.get("at", NOON))
    context = None if "session" not in case else session(policy(path), **case["session"])
    evaluation = policy(path).evaluate(
        Incoming(
            tool=call["tool"],
            server=call.get("server"),
            arguments=copy.deepcopy(call["arguments"]),
            principal=AGENT,
            agent="bot",
            session="" if context is None else context.id,
            call_id="c",
            now=int(now.timestamp() * 1_000_000),
            charge=False,
            context=context,
        )
    )
    combined = evaluation.combined
    assert combined.outcome.word == expect["decision"], combined.findings
    assert combined.reason.value == expect.get("reason", combined.reason.value)
    if "rule" in expect:
        assert expect["rule"] in {finding.rule for finding in combined.findings}
    if "quorum" in expect:
        assert evaluation.approval is not None
        assert evaluation.approval.quorum == expect["quorum"]
