"""What a person reads at the terminal: a line at the start, and one for each call that does not run."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import aegis
from aegis.core.call import ToolCall
from aegis.core.decision import ApprovalRef, Decision, ReceiptRef
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.enforce.enforcement import Attempt, Enforcer
from aegis.notices import notice
from aegis.sdk import hooking
from aegis.sdk.runtime import RuntimeSettings, open_runtime, replace_runtime


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that configured no logging; the runner of the tests did."""
    monkeypatch.setattr(logging.getLogger("aegis"), "hasHandlers", lambda: False)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def own(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Of what was logged meanwhile: other packages log at any time, when their objects are collected."""
    return [record for record in caplog.records if record.name == "aegis"]


def decision(outcome: Outcome, reason: Reason) -> Decision:
    held = outcome is Outcome.REQUIRE_APPROVAL
    return Decision(
        outcome=outcome, verdict=Verdict.VIOLATION, risk=Risk.HIGH, reason=reason, message="", decision_id="d",
        call_id="c", request_digest="r", call_digest="r", policy_digest="", salt="",
        approval=ApprovalRef(id="a" * 32, expires_at="2030-01-01T00:05:00Z") if held else None,
        receipt=ReceiptRef(id="b" * 32, index=7, leaf_hash=""),
    )  # fmt: skip


def told(settings: RuntimeSettings, said: Decision, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = open_runtime(settings)
    try:
        monkeypatch.setattr(runtime.enforcer.decider, "decide", lambda _call: said)
        runtime.enforcer.on_approval = "block"
        runtime.enforcer.run(runtime.enforcer.enforce([Attempt(tool="pay\x1b[2J", arguments={"iban": "SECRET"})]))
    finally:
        runtime.close()


def test_auto_says_in_one_line_what_it_took(
    bare: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        report = hooking.auto(home=tmp_path / "home", on_unhooked="warn")
        (line,) = lines(capsys)
        assert line.startswith("aegis: hooked ")
        assert all(f"{one.framework} {one.version}" in line for one in report.hooked)
        assert str(tmp_path / "home") in line
        assert "profile `standard`" in line
        monkeypatch.setenv("AEGIS_QUIET", "1")
        hooking.auto(home=tmp_path / "home", on_unhooked="warn")
        assert lines(capsys) == []
    finally:
        hooking.unhook()


def test_that_nothing_is_hooked_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooking, "installed_adapters", lambda: iter(()))
    try:
        hooking.auto(home=tmp_path / "home")
    finally:
        hooking.unhook()
    (record,) = own(caplog)
    assert record.levelname == "WARNING"
    assert "nothing is hooked" in record.getMessage()


def test_protect_alone_says_what_decides(
    bare: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AEGIS_HOME", str(tmp_path / "home"))

    @aegis.protect
    def search(query: str) -> str:
        return query

    try:
        assert search("opening hours") == "opening hours"
        assert search("closing hours") == "closing hours"
    finally:
        replace_runtime(None)
    (line,) = lines(capsys)
    assert line.startswith("aegis: decisions by a gate in this process")


@pytest.mark.parametrize(
    ("url", "links"),
    [
        (None, ("aegis why 7 --home ", "aegis approvals show aaaa")),
        ("http://127.0.0.1:9", (f"http://127.0.0.1:9/calls/{'b' * 32}", f"http://127.0.0.1:9/approvals/{'a' * 32}")),
    ],
)
def test_each_call_that_does_not_run_is_one_line_with_what_to_do(
    bare: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    url: str | None,
    links: tuple[str, str],
) -> None:
    settings = RuntimeSettings(url=url, api_key="ak_x", home=tmp_path / "home")
    told(settings, decision(Outcome.BLOCK, Reason.ATTACK_DETECTED), monkeypatch)
    (line,) = lines(capsys)
    assert "was not run (attack_detected)" in line
    assert links[0] in line
    told(settings, decision(Outcome.REQUIRE_APPROVAL, Reason.IRREVERSIBLE), monkeypatch)
    (line,) = lines(capsys)
    assert "waits for a person until 2030-01-01T00:05:00Z (irreversible)" in line
    assert links[1] in line
    assert "SECRET" not in line, "values are never named"
    assert "\x1b" not in line


def test_a_gateway_that_does_not_answer_is_one_line_with_what_to_do(
    bare: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = open_runtime(RuntimeSettings(url="http://127.0.0.1:9", api_key="ak_x", home=tmp_path / "home"))
    try:
        (done,) = runtime.enforcer.run(runtime.enforcer.enforce([Attempt(tool="search", arguments={})]))
    finally:
        runtime.close()
    assert done.decision.reason is Reason.UNAVAILABLE
    (line,) = lines(capsys)
    assert "the gateway at http://127.0.0.1:9 did not answer; `aegis serve` starts it" in line


def test_an_applications_own_logging_takes_the_lines(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    notice("one line")
    assert [record.getMessage() for record in own(caplog)] == ["one line"]
    assert lines(capsys) == []


def test_an_enforcer_of_a_gateway_tells_nobody(bare: None, capsys: pytest.CaptureFixture[str]) -> None:
    class Refusing:
        def decide(self, _call: ToolCall) -> Decision:
            return decision(Outcome.BLOCK, Reason.ATTACK_DETECTED)

    enforcer = Enforcer(Refusing())  # type: ignore[arg-type]
    enforcer.run(enforcer.enforce([Attempt(tool="search", arguments={})]))
    assert lines(capsys) == []
