"""Scoped "always": the third yes to alike calls proposes a rule, replayed first, and written when a person says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aegis.approvals.values import Approval
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome
from support.approvals import resolve
from support.deployments import deployment
from support.shell import aegis, read_json

CONFIG = """version: 1
profile: standard
approvals:
  # ours
  timeout: 1h
tools:
  send_email: {risk: high, irreversible: true, effects: [external_send]}
  deploy: {risk: low, effects: [none], approvals: {always: true}}
"""


class Desk:
    """A home whose agent asks, and people who answer."""

    def __init__(self, home: Path):
        self.home = home
        self.config = home / "aegis.yaml"
        deployment(home, CONFIG).close()
        self.config.write_text(CONFIG)
        self.keys = {
            name: {"AEGIS_API_KEY": self._key(*roles)}
            for name, roles in (("approver", ("approver",)), ("admin", ("approver", "admin")))
        }

    def _key(self, *roles: str) -> str:
        options = [word for role in roles for word in ("--role", role)]
        name = "-".join(roles)
        return aegis("keys", "create", *options, "--name", name, "--home", self.home).stdout.strip()

    def decide(self, tool: str, arguments: dict[str, Any], *answers: str, agent: str = "bot") -> Decision:
        running = deployment(self.home, self.config.read_text(), agent=agent)
        try:
            decision = running.gate.decide(ToolCall(tool=tool, arguments=arguments))
            for word in answers:
                self._answer(running.gate, decision, word)
            return decision
        finally:
            running.close()

    @staticmethod
    def _answer(gate: Any, decision: Decision, word: str) -> Approval:
        assert decision.approval is not None
        return resolve(gate, decision.approval.id, "approve" if word == "yes" else "deny", reason="seen")

    def ask(self, *words: str, key: str = "approver") -> Any:
        return aegis(*words, "--home", self.home, "--config", self.config, env=self.keys[key])

    def proposed(self, decision: Decision, *more: str, key: str = "approver") -> dict[str, Any]:
        assert decision.approval is not None
        told: dict[str, Any] = read_json(
            self.ask("approvals", "always", decision.approval.id, "--json", *more, key=key)
        )
        return told


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "home")


def mail(name: str, host: str = "b.example") -> dict[str, Any]:
    return {"to": f"{name}@{host}", "subject": "report", "body": f"dear {name}"}


def approved(desk: Desk, *names: str) -> Decision:
    last = None
    for name in names:
        last = desk.decide("send_email", mail(name), "yes")
        assert last.outcome is Outcome.REQUIRE_APPROVAL
    assert last is not None
    return last


def test_the_third_yes_proposes_the_narrowest_rule_and_shows_what_else_it_would_let_through(desk: Desk) -> None:
    other = desk.decide("send_email", mail("eve"))
    desk.decide("send_email", mail("bob", "else.example"))
    desk.decide("send_email", mail("bob") | {"cc": "x@else.example"})
    second = approved(desk, "ann", "bob")
    assert "approved: 2;" in desk.proposed(second)["why_not"]
    third = approved(desk, "joe")
    told = desk.proposed(third)
    assert len(told["approved"]) == 3
    assert told["replay"]["approved"] == 3
    assert [one["receipt_id"] for one in told["replay"]["receipts"]] == [other.decision_id]
    assert "@b\\.example$" in told["lines"]
    assert desk.config.read_text() == CONFIG
    assert third.approval is not None
    assert "approved 3 such calls" in desk.ask("approvals", "show", third.approval.id).stderr
    assert "1 other: receipts" in desk.ask("approvals", "always", third.approval.id).stdout


def test_it_is_written_with_reason_and_end_by_an_administrator_and_lets_those_calls_run_alone(desk: Desk) -> None:
    third = approved(desk, "ann", "bob", "joe")
    assert third.approval is not None
    write = ("approvals", "always", third.approval.id, "--write")
    assert desk.ask(*write, key="admin").returncode == 2
    assert desk.ask(*write, "--reason", "our own people").returncode == 2
    assert desk.config.read_text() == CONFIG
    assert desk.proposed(third, "--write", "--reason", "our own people", "--days", "7", key="admin")["written"]
    text = desk.config.read_text()
    assert "our own people" in text
    assert "# ours" in text
    assert desk.decide("send_email", mail("zoe")).outcome is Outcome.ALLOW
    for arguments in (
        mail("ann", "b.example.evil.example"),
        mail("ann", "bxexample"),
        mail("ann") | {"cc": "x@else.example"},
        mail("ann") | {"subject": "another"},
        mail("ann") | {"to": ["ann@b.example"]},
        mail("ann\nx"),
        mail("ann") | {"body": "x" * 400},
    ):
        assert desk.decide("send_email", arguments).outcome is not Outcome.ALLOW
    assert desk.decide("send_email", mail("zoe"), agent="other").outcome is Outcome.REQUIRE_APPROVAL
    desk.config.write_text(text.replace("expires: ", "expires: '2020-01-01' #"))
    assert desk.decide("send_email", mail("zoe")).outcome is Outcome.REQUIRE_APPROVAL


def test_one_no_among_alike_calls_ends_it(desk: Desk) -> None:
    desk.decide("send_email", mail("eve"), "no", agent="other")
    told = desk.proposed(approved(desk, "ann", "bob", "joe"))
    assert (told["digest"], len(told["denied"])) == (None, 1)
    assert "denied" in told["why_not"]


ALIKE: list[tuple[list[dict[str, Any]], dict[str, Any] | None, list[dict[str, Any]]]] = [
    (
        [{"file": f"reports/{name}.txt"} for name in "abc"],
        {"file": "reports/d.txt"},
        [{"file": "reports/../keys"}, {"file": "reports/x/y"}, {"file": "/reports/a.txt"}, {"file": "reports/.env"}],
    ),
    (
        [{"command": f"kubectl rollout restart web{name}"} for name in (1, 2, 3)],
        {"command": "kubectl rollout restart web9"},
        [
            {"command": "kubectl rollout restart web9; true"},
            {"command": "kubectl rollout restart --all"},
            {"command": "kubectl rollout undo web1"},
        ],
    ),
    (
        [{"ticket_id": f"A-{name}", "amount": name} for name in (1, 20, 5)],
        {"ticket_id": "A-77", "amount": 19},
        [{"ticket_id": "A-77", "amount": 21}, {"ticket_id": "B-1", "amount": 5}, {"ticket_id": "A-7", "amount": "5"}],
    ),
    ([{"account": str(name)} for name in (1, 2, 3)], None, []),
    ([{"sql": f"select {name}"} for name in (1, 2, 3)], None, []),
    ([{"command": f"docker compose {name}"} for name in ("stop", "kill", "restart")], None, []),
]


@pytest.mark.parametrize(("calls", "covered", "others"), ALIKE)
def test_a_rule_covers_what_varied_and_in_the_way_it_varied(
    desk: Desk, calls: list[dict[str, Any]], covered: dict[str, Any] | None, others: list[dict[str, Any]]
) -> None:
    for arguments in calls:
        last = desk.decide("deploy", arguments, "yes")
    if covered is None:
        assert desk.proposed(last)["digest"] is None
        return
    assert desk.proposed(last, "--write", "--reason", "routine", key="admin")["written"]
    assert desk.decide("deploy", covered).outcome is Outcome.ALLOW
    for arguments in others:
        assert desk.decide("deploy", arguments).outcome is not Outcome.ALLOW
