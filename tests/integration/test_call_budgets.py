"""Budgets of agents and sessions without a mission, as agents and the person who is asked meet them."""

from __future__ import annotations

from pathlib import Path

from aegis.behaviour.budgets import BudgetAccount
from aegis.bootstrap import Deployment
from aegis.core.behaviour import BudgetRule
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome, Reason
from support.approvals import resolve
from support.deployments import TOOLS, deployment

QUOTES = "missions: {quotes: [{tool: ask_model, money: {EUR: 30}, tokens: 400}]}\n"


def config(budget: str) -> str:
    return (
        f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\n{TOOLS}{QUOTES}"
        f"guards: {{loops: {{mode: off}}, behaviour: {{mode: off}}}}\nbudgets: [{budget}]\n"
    )


def call(number: int, tool: str = "read_file", session: str | None = None) -> ToolCall:
    arguments = {"path": f"/srv/{number}.txt"} if tool == "read_file" else {"question": str(number)}
    return ToolCall(tool=tool, arguments=arguments, call_id=f"call-{number}", session=session)


def decide(place: Deployment, number: int, tool: str = "read_file", session: str | None = None) -> Decision:
    return place.gate.decide(call(number, tool, session))


def test_a_budget_asks_once_before_it_blocks_and_a_yes_gives_so_many_more(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home", config("{calls: 3, more: 2}"))
    try:
        assert [decide(place, number).outcome for number in range(3)] == [Outcome.ALLOW] * 3
        held = decide(place, 3)
        assert (held.outcome, held.reason) == (Outcome.REQUIRE_APPROVAL, Reason.BUDGET_EXHAUSTED)
        assert "a yes lets 2 more calls run" in held.findings[-1].message
        meanwhile = decide(place, 4)
        assert (meanwhile.outcome, meanwhile.reason) == (Outcome.BLOCK, Reason.BUDGET_EXHAUSTED)
        assert decide(place, 3).approval == held.approval
        assert held.approval is not None
        resolve(place.gate, held.approval.id)
        assert decide(place, 5).outcome is Outcome.ALLOW, "whichever call comes first after the yes"
        assert decide(place, 3).outcome is Outcome.ALLOW
        again = decide(place, 6)
        assert (again.outcome, again.reason) == (Outcome.REQUIRE_APPROVAL, Reason.BUDGET_EXHAUSTED)
        assert decide(place, 0).outcome is Outcome.ALLOW, "a repeat of a call that ran takes nothing"
    finally:
        place.close()


def test_a_no_blocks_what_is_used_up(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home", config("{calls: 1, within: 1h}"))
    try:
        decide(place, 0)
        held = decide(place, 1)
        assert held.approval is not None
        resolve(place.gate, held.approval.id, "deny")
        assert decide(place, 1).outcome is Outcome.BLOCK
        refused = decide(place, 2)
        assert (refused.outcome, refused.reason) == (Outcome.BLOCK, Reason.BUDGET_EXHAUSTED)
        assert "refused more" in refused.findings[-1].message
    finally:
        place.close()


def test_an_account_begins_anew_with_its_time_and_a_clock_that_is_set_back_begins_none() -> None:
    rule = BudgetRule(of="agent", ceilings={"calls": 1}, within=3_600)
    account = BudgetAccount(began=7_300, last=7_300, used={"calls": 1}, refused=True)
    assert account.at(rule, 7_400) is account
    assert account.at(rule, 100) is account
    assert account.at(rule, 10_800).used == {}
    assert not account.at(rule, 10_800).refused


def test_several_gateways_on_one_store_count_as_one(tmp_path: Path) -> None:
    home, budget = tmp_path / "home", config("{calls: 10}")
    first, second = deployment(home, budget), deployment(home, budget)
    try:
        found = [decide((first, second)[number % 2], number).outcome for number in range(12)]
        assert found[:10] == [Outcome.ALLOW] * 10
        assert Outcome.ALLOW not in found[10:]
    finally:
        first.close()
        second.close()


def test_tokens_and_money_count_by_their_quotes_and_sessions_apart(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home", config("{of: session, tokens: 1000}, {of: agent, money: {EUR: 100}}"))
    try:
        assert decide(place, 0, "ask_model", "a").allowed
        assert decide(place, 1, "ask_model", "a").allowed
        assert decide(place, 2, "ask_model", "a").reason is Reason.BUDGET_EXHAUSTED
        assert decide(place, 3, "ask_model", "b").allowed
        held = decide(place, 4, "ask_model", "b")
        assert held.reason is Reason.BUDGET_EXHAUSTED
        assert "100 money.EUR" in held.findings[-1].message
        assert decide(place, 5, "read_file", "b").allowed, "what costs nothing passes no ceiling of money"
    finally:
        place.close()
