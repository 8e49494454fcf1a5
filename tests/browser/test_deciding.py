"""Deciding in a real browser: held calls, two approvers, the switch, the configuration."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import aegis
from browser.conftest import Opened
from support.scripted_model import ScriptedModel
from support.served import Served

DRAFT = {
    "name": "no-salaries",
    "select": {"tool": ["post_note"]},
    "deny": {"properties": {"text": {"pattern": "(?i)salary"}}, "required": ["text"]},
    "outcome": "block",
    "explanation": "Notes that speak of a salary are caught.",
    "cases": [
        {"tool": "post_note", "arguments": {"text": "her Salary"}, "expect": "caught"},
        {"tool": "post_note", "arguments": {"text": "what she earns"}, "expect": "caught"},
    ],
}
MAIL = {"to": "ada@example.com", "subject": "Receipt 4411", "body": "Thank you, it is paid."}


def hold(gateway: Served, call_id: str, **arguments: Any) -> str:
    answer = gateway.decide("send_email", arguments={**MAIL, **arguments}, call_id=call_id, session="s-deciding")
    assert answer.status == 202
    approval: str = answer.json["approval"]["id"]
    return approval


def test_a_call_appears_on_the_page_as_it_is_decided(gateway: Served, signed_in: Opened) -> None:
    page = signed_in()
    expect(page.locator("#live-state")).to_have_text("live")
    gateway.decide(arguments={"path": "appears.txt"}, call_id="appears", session="s-live")
    gateway.decide("query_db", arguments={"sql": "SELECT 1; DROP TABLE t; --"}, call_id="drops", session="s-live")
    first = page.locator("#feed tr").first
    expect(first).to_contain_text("query_db")
    expect(first).to_contain_text("blocked")
    expect(page.locator("#feed tr").nth(1)).to_contain_text("read_file")
    page.get_by_role("link", name="blocked", exact=True).click()
    expect(page.locator("#feed")).not_to_contain_text("read_file")
    expect(page.locator("#live-state")).to_have_text("live")
    gateway.decide(arguments={"path": "filtered.txt"}, call_id="filtered", session="s-live")
    gateway.decide("query_db", arguments={"sql": "SELECT 2; DROP TABLE t; --"}, call_id="drops-2", session="s-live")
    expect(page.locator("#feed tr.new")).to_have_count(1)


def test_a_flood_of_calls_leaves_a_bounded_page(gateway: Served, signed_in: Opened) -> None:
    page = signed_in()
    expect(page.locator("#live-state")).to_have_text("live")
    for number in range(3):
        calls = [{"tool": f"flood_{number}", "arguments": {"n": at}, "session": "s-flood"} for at in range(200)]
        assert gateway.ask("POST", "/v1/decisions:batch", {"calls": calls}).status == 200
    expect(page.locator("#feed tr").first).to_contain_text("flood_2")
    assert page.locator("#feed tr").count() <= 120


@pytest.mark.claim("COK-06")
def test_an_agent_waits_a_person_approves_and_the_agent_goes_on(gateway: Served, signed_in: Opened) -> None:
    page = signed_in(start="/approvals")
    url, key = f"http://127.0.0.1:{gateway.port}", gateway.credentials.text("bot")
    call = aegis.ToolCall(tool="send_email", arguments=dict(MAIL), call_id="waits", session="s-deciding")

    def agent() -> Any:
        client = aegis.Client(url, api_key=key)
        try:
            return client.wait(call, client.decide(call), timeout=30)
        finally:
            client.close()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(agent)
        page.get_by_role("link", name="Review").first.click()
        expect(page.locator(".says")).to_contain_text("recipient")
        expect(page.locator(".args")).to_contain_text("Thank you, it is paid.")
        expect(page.locator(".countdown").first).to_be_visible()
        page.get_by_label("Reason").fill("the customer asked for it")
        page.get_by_role("button", name="Approve").click()
        expect(page.locator("#standing")).to_contain_text("dana")
        decision = waiting.result(timeout=30)
    assert decision.allowed


def test_a_call_is_approved_with_less(gateway: Served, signed_in: Opened) -> None:
    wide = ["bob@example.com", "carol@example.com"]
    approval = hold(gateway, "narrows", cc=wide)
    page = signed_in(start=f"/approvals/{approval}")
    page.get_by_text("Approve with less").click()
    page.get_by_role("button", name="Approve what remains").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was left out")
    page.get_by_label("Leave out 1").check()
    page.get_by_role("button", name="Approve what remains").click()
    expect(page.locator("#standing")).to_contain_text("approved")
    expect(page.locator(".args")).not_to_contain_text("carol@example.com")
    again = gateway.decide("send_email", arguments={**MAIL, "cc": wide}, call_id="narrows", session="s-deciding").json
    assert (again["decision"], again["arguments"]["cc"]) == ("sanitize", ["bob@example.com"])


def test_a_denial_needs_a_reason(gateway: Served, signed_in: Opened) -> None:
    approval = hold(gateway, "denies")
    page = signed_in(start=f"/approvals/{approval}")
    page.get_by_role("button", name="Deny").click()
    expect(page.locator("#standing")).to_contain_text("waits")
    page.get_by_label("Reason").fill("not to outsiders")
    page.get_by_role("button", name="Deny").click()
    expect(page.locator("#standing")).to_contain_text("not to outsiders")
    assert (
        gateway.decide("send_email", arguments=MAIL, call_id="denies", session="s-deciding").json["decision"] == "block"
    )


@pytest.mark.claim("COK-06")
def test_of_two_approvers_one_answers_and_the_other_is_told(gateway: Served, signed_in: Opened) -> None:
    approval = hold(gateway, "race")
    dana, erin = signed_in("dana", f"/approvals/{approval}"), signed_in("erin", f"/approvals/{approval}")
    for page in (dana, erin):
        # Erin's page must still offer the answer that comes too late.
        page.evaluate("document.getElementById('standing').removeAttribute('data-refresh')")
    dana.get_by_role("button", name="Approve").click()
    expect(dana.locator("#standing")).to_contain_text("approved")
    erin.get_by_label("Reason").fill("too late")
    erin.get_by_role("button", name="Deny").click()
    expect(erin.get_by_role("alert")).to_be_visible()
    expect(erin.locator("#standing")).to_contain_text("approved")
    expect(erin.locator("#standing")).to_contain_text("dana")


def test_an_open_page_tells_that_the_gateway_is_gone_and_that_somebody_else_answered(
    gateway: Served, signed_in: Opened
) -> None:
    approval = hold(gateway, "watched")
    page = signed_in(start="")
    page.clock.install()
    page.goto(f"/approvals/{approval}")
    gone = page.get_by_text("The gateway does not answer")
    expect(gone).to_be_hidden()
    page.route("**/approvals/*", lambda route: route.abort())
    page.clock.run_for(4_000)
    expect(gone).to_be_visible()
    page.unroute("**/approvals/*")
    page.clock.run_for(4_000)
    expect(gone).to_be_hidden()
    expect(page.get_by_role("button", name="Deny")).to_be_visible()
    answer = {"decision": "deny", "reason": "no"}
    assert gateway.ask("POST", f"/v1/approvals/{approval}", answer, key="ann").status == 200
    page.clock.run_for(4_000)
    expect(page.locator("#standing")).to_contain_text("denied")
    expect(page.get_by_role("button", name="Deny")).to_be_hidden()


def test_the_switch_stops_an_agent_and_lets_it_go_on(gateway: Served, signed_in: Opened) -> None:
    gateway.decide(key="other", call_id="first")
    page = signed_in(start="/agents/other")
    page.get_by_label("Reason").fill("it behaves oddly")
    page.get_by_role("button", name="Stop this agent").click()
    expect(page.get_by_text("Stopped by dana")).to_be_visible()
    assert gateway.decide(key="other", call_id="second").json["reason"] == "revoked"
    page.get_by_label("Reason").fill("explained")
    page.get_by_role("button", name="Restore").click()
    expect(page.get_by_role("button", name="Stop this agent")).to_be_visible()
    assert gateway.decide(key="other", call_id="third").json["decision"] == "allow"


def test_a_policy_is_edited_replayed_put_in_force_and_rolled_back(gateway: Served, signed_in: Opened) -> None:
    gateway.decide(arguments={"path": "replayed.txt"}, call_id="replayed")
    page = signed_in(start="/policies")
    editor = page.get_by_label("Configuration")
    before = editor.input_value()
    editor.fill(before.replace("risk: low", "risk: sometimes"))
    page.get_by_role("button", name="Check and replay").click()
    expect(page.get_by_role("alert").first).to_contain_text("Line")
    expect(page.get_by_role("button", name="Put in force")).to_have_count(0)
    page.get_by_label("Configuration").fill(before.replace("risk: low", "risk: critical"))
    page.get_by_role("button", name="Check and replay").click()
    expect(page.locator(".diff .add")).to_contain_text("risk: critical")
    expect(page.locator("#replay")).to_contain_text("Newly refused or held")
    page.get_by_role("button", name="Put in force").click()
    expect(page.get_by_text("is in force, and on the record")).to_be_visible()
    assert gateway.decide(arguments={"path": "x"}, call_id="stricter").json["decision"] == "block"
    page.get_by_role("link", name="Go back to this").last.click()
    expect(page.locator(".diff .add")).to_contain_text("risk: low")
    page.get_by_role("button", name="Put in force").click()
    expect(page.get_by_text("is in force, and on the record")).to_be_visible()
    assert gateway.decide(arguments={"path": "x"}, call_id="looser").json["decision"] == "allow"
    expect(page.get_by_text("in force", exact=True)).to_have_count(1)


@pytest.mark.claim("COK-15")
def test_a_policy_is_drafted_in_plain_words_and_put_in_force_by_a_person(
    gateway: Served, signed_in: Opened, model: ScriptedModel
) -> None:
    model.script = lambda _: DRAFT
    model.held.clear()
    page = signed_in(start="/policies")
    page.get_by_role("link", name="Draft in plain words").click()
    expect(page.get_by_text("Nothing drafted yet")).to_be_visible()
    page.get_by_label("What is to be refused").fill("nobody posts notes about salaries")
    page.get_by_role("button", name="Draft", exact=True).click()
    expect(page.get_by_text("the model is asked")).to_be_visible()
    model.held.set()
    expect(page.get_by_text("lets it pass, unexpectedly")).to_be_visible()
    expect(page.get_by_text("catches it", exact=True)).to_be_visible()
    expect(page.locator(".diff .line.add").first).to_be_visible()
    note = {"text": "the salary of ada"}
    assert gateway.decide("post_note", arguments=note, call_id="undrafted").json["decision"] == "allow"
    page.get_by_role("button", name="Check and replay").click()
    expect(page.get_by_text("Newly refused or held")).to_be_visible()
    page.get_by_role("button", name="Put in force").click()
    expect(page.get_by_text("The configuration is in force")).to_be_visible()
    assert gateway.decide("post_note", arguments=note, call_id="drafted").json["decision"] == "block"


def test_a_session_that_ended_leads_to_sign_in_and_back(gateway: Served, signed_in: Opened) -> None:
    page = signed_in(start="/audit?kind=decision")
    page.context.clear_cookies()
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert "next=%2Faudit%3Fkind%3Ddecision" in page.url
    page.get_by_label("Name").fill("dana")
    page.get_by_label("Password").fill("correct horse battery staple")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()


def test_a_held_call_is_answered_with_the_keyboard_alone(gateway: Served, signed_in: Opened) -> None:
    approval = hold(gateway, "keyboard")
    page = signed_in(start=f"/approvals/{approval}")
    for _ in range(60):
        page.keyboard.press("Tab")
        if focused(page) == "Approve":
            break
    assert focused(page) == "Approve"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.keyboard.press("Enter")
    expect(page.locator("#standing")).to_contain_text("approved")


def focused(page: Page) -> str:
    text: str = page.evaluate("document.activeElement.textContent.trim()")
    return text
