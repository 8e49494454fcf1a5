"""Reading in a real browser: hostile text, proofs, a tampered log, downloads, every size, every person."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from pypdf import PdfReader

from browser.conftest import ROLES, Opened
from support.markup import HOSTILE
from support.people import PASSWORD, Person, person
from support.scripted_model import ScriptedModel
from support.served import Served, served

WIDTHS = (320, 768, 3840)
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def drafted(gateway: Served, model: ScriptedModel, text: str) -> None:
    """Have a policy drafted by a model whose every word is hostile."""
    model.script = lambda _: {
        "name": "drafted", "description": text[:500],
        "deny": {"properties": {text: {"const": text}}, "required": [text]},
        "outcome": "block", "explanation": text[:2_000],
        "cases": [{"tool": text[:200], "arguments": {text: text}, "expect": "passes", "why": text[:300]}],
    }  # fmt: skip
    erin = Person(gateway=gateway, name="erin")
    erin.sign_in()
    assert erin.post("/policies/draft", {"wish": text[:1_900]}).status == 303
    while b"the model is asked" in erin.get("/policies/draft").body:
        time.sleep(0.05)


@pytest.fixture(scope="module", autouse=True)
def hostile(gateway: Served, model: ScriptedModel) -> dict[str, str]:
    """Calls whose every name and value is hostile; gives a page of each kind that shows them."""
    for number, text in enumerate(HOSTILE):
        plain = text.replace("\x00", "")
        gateway.decide(plain[:100], arguments={text: text, "deep": [{"x": text}]}, call_id=f"h{number}", session=plain)
    long = "\n".join(HOSTILE)
    answer = gateway.decide(
        "send_email",
        arguments={"to": "ada@example.com", "note": "see \u202ethe b\u043edy", "size": 12},
        call_id="held",
        session="s-held",
        task=long,
    )
    gateway.decide("post_note", arguments={"text": long}, call_id="all", session="s-held")
    gateway.ask("POST", "/v1/agents/other/revoke", {"reason": long[:900]}, key="root")
    drafted(gateway, model, "".join(char for char in long if char.isprintable() or char == "\n"))
    receipts = gateway.ask("GET", "/v1/receipts?call_id=all", key="auditor").json["items"]
    return {
        "call": f"/calls/{receipts[0]['receipt_id']}",
        "approval": f"/approvals/{answer.json['approval']['id']}",
    }


@pytest.fixture
def paths(hostile: dict[str, str]) -> list[str]:
    return [
        "/", "/approvals", hostile["approval"], hostile["call"], "/sessions", "/sessions/s-held?principal=bot",
        "/violations", "/policies", "/policies/playground", "/policies/replay", "/policies/draft",
        "/agents", "/agents/other", "/alerts", "/audit", "/account",
    ]  # fmt: skip


@pytest.mark.claim("COK-04")
def test_hostile_text_stays_text_on_every_page(signed_in: Opened, paths: list[str], gateway: Served) -> None:
    page = signed_in(start="")
    asked: list[str] = []
    page.context.on("request", lambda request: asked.append(request.url))
    page.add_init_script("window.pwned = (n) => { document.documentElement.dataset.pwned = n; }")
    refused: list[str] = []
    page.on("console", lambda said: refused.append(said.text) if "Content Security Policy" in said.text else None)
    for path in paths:
        page.goto(path)
        page.wait_for_load_state("load")
        assert page.evaluate("document.documentElement.dataset.pwned || ''") == "", path
        assert page.locator("main iframe, main base, main meta, main style, main script").count() == 0, path
        assert page.evaluate("[...document.querySelectorAll('a')].every((a) => a.protocol.startsWith('http'))"), path
    expect(page.locator("body")).to_be_visible()
    assert [url for url in asked if "outside.invalid" in url] == []
    assert refused == []  # nothing even tried


@pytest.mark.claim("COK-04")
def test_hostile_text_stays_text_in_the_live_feed(signed_in: Opened, gateway: Served) -> None:
    page = signed_in(start="")
    page.add_init_script("window.pwned = (n) => { document.documentElement.dataset.pwned = n; }")
    page.goto("/")
    expect(page.locator("#live-state")).to_have_text("live")
    for number, text in enumerate(HOSTILE[:8]):
        gateway.decide(text, arguments={}, call_id=f"feed-{number}", session=text)
    expect(page.locator("#feed tr.new").first).to_contain_text(HOSTILE[7][:20])
    assert page.evaluate("document.documentElement.dataset.pwned || ''") == ""


def test_what_cannot_be_seen_is_shown_to_an_approver(signed_in: Opened, hostile: dict[str, str]) -> None:
    page = signed_in(start=hostile["approval"])
    expect(page.locator(".args .hidden-char")).to_have_text("U+202E")
    expect(page.locator(".args .lookalike")).to_have_attribute("title", re.compile("looks like o"))


def test_every_page_is_accessible(browser: Browser, gateway: Served, paths: list[str]) -> None:
    # Axe is injected into the page, which the page's own policy would not allow.
    context = browser.new_context(
        base_url=f"http://127.0.0.1:{gateway.port}", bypass_csp=True, color_scheme="light", reduced_motion="reduce"
    )
    try:
        page = context.new_page()
        page.goto("/sign-in")
        wrong = violations(page)
        sign_in(page)
        for path in paths:
            page.goto(path)
            page.wait_for_load_state("load")
            wrong += [f"{path}: {one}" for one in violations(page)]
        page.set_viewport_size({"width": 360, "height": 740})
        page.goto("/")
        page.get_by_role("button", name="Menu").click()
        wrong += [f"menu: {one}" for one in violations(page)]
    finally:
        context.close()
    assert wrong == []


def test_no_page_scrolls_sideways(signed_in: Opened, paths: list[str]) -> None:
    page = signed_in(start="")
    too_wide = []
    for path in paths:
        page.goto(path)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                too_wide.append((path, width))
    assert too_wide == []


@pytest.mark.claim("COK-08")
def test_the_browser_proves_that_a_receipt_is_in_the_log(signed_in: Opened, hostile: dict[str, str]) -> None:
    page = signed_in(start=hostile["call"])
    expect(page.locator("#proof-state")).to_have_text("in the log")
    page.reload()
    expect(page.locator("#proof-steps")).to_contain_text("that this browser saw before")
    expect(page.locator("#proof-state")).to_have_text("in the log")


@pytest.mark.claim("COK-08")
@pytest.mark.parametrize("what", ["leaf", "path", "note"])
def test_a_proof_with_one_changed_byte_fails_visibly(signed_in: Opened, hostile: dict[str, str], what: str) -> None:
    page = signed_in(start="")

    def tamper(route: Any) -> None:
        response = route.fetch()
        if what == "leaf":
            body = response.body().replace(b'"decision"', b'"Decision"', 1)
        else:
            found = response.json()
            if what == "path":
                first = found["inclusion"]["path"][0]
                found["inclusion"]["path"][0] = ("0" if first[0] != "0" else "1") + first[1:]
            else:
                origin, size, *rest = found["note"].split("\n")
                found["note"] = "\n".join([origin, str(int(size) + 1), *rest])
            body = json.dumps(found).encode()
        route.fulfill(response=response, body=body)

    page.route("**/leaf" if what == "leaf" else "**/calls/*/proof*", tamper)
    page.goto(hostile["call"])
    expect(page.locator("#proof-state")).to_have_text("does not hold")
    expect(page.locator("#proof-steps .bad").first).to_be_visible()


@pytest.mark.claim("COK-09")
def test_a_tampered_log_fails_visibly(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path / "home") as gateway:
        person(gateway, "dana", *ROLES)
        for number in range(5):
            gateway.decide(arguments={"path": f"{number}.txt"}, call_id=f"c{number}")
        context = browser.new_context(base_url=f"http://127.0.0.1:{gateway.port}")
        try:
            page = context.new_page()
            page.goto("/sign-in")
            sign_in(page)
            with sqlite3.connect(tmp_path / "home" / "aegis.db") as connection:
                index = connection.execute("SELECT max(idx) FROM leaf WHERE kind = 'decision'").fetchone()[0]
                connection.execute(
                    "UPDATE leaf SET body = CAST(replace(CAST(body AS TEXT), '\"allow\"', '\"block\"') AS BLOB)"
                    " WHERE idx = ?",
                    (index,),
                )
            verify(page)
            expect(page.locator("#verification")).to_contain_text("broken", timeout=60_000)
            expect(page.locator("#verification").get_by_role("alert")).to_be_visible()
        finally:
            context.close()


def test_the_report_and_the_export_are_downloaded(signed_in: Opened, tmp_path: Path) -> None:
    page = signed_in(start="/audit")
    with page.expect_download() as told:
        page.get_by_role("button", name="Report as PDF").click()
    told.value.save_as(tmp_path / "report.pdf")
    assert "Coverage" in PdfReader(tmp_path / "report.pdf").pages[0].extract_text()
    with page.expect_download() as told:
        page.get_by_role("link", name="receipts.jsonl").click()
    assert told.value.suggested_filename == "receipts.jsonl"


def test_pages_are_whole_without_script(browser: Browser, gateway: Served, paths: list[str]) -> None:
    context = browser.new_context(base_url=f"http://127.0.0.1:{gateway.port}", java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto("/sign-in")
        sign_in(page)
        for path in paths:
            page.goto(path)
            expect(page.locator("h1")).to_be_visible()
    finally:
        context.close()


def test_motion_is_reduced_for_those_who_ask(signed_in: Opened, gateway: Served) -> None:
    page = signed_in(reduced_motion="reduce")
    expect(page.locator("#live-state")).to_have_text("live")
    gateway.decide(arguments={"path": "still.txt"}, call_id="still")
    expect(page.locator("#feed tr.new").first).to_be_visible()
    assert page.evaluate("getComputedStyle(document.querySelector('#feed tr.new td')).animationName") == "none"


def sign_in(page: Page) -> None:
    page.get_by_label("Name").fill("dana")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/")


def verify(page: Page) -> None:
    page.goto("/audit")
    page.get_by_role("button", name="Verify the whole log").click()


def violations(page: Page) -> list[str]:
    """What axe says of the page in light, and of its colours in dark: nothing else of it depends on the scheme."""
    found = Axe().run(page, options={"runOnly": STANDARDS}).response["violations"]
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate("axe.run({runOnly: {type: 'rule', values: ['color-contrast']}})")["violations"]
    page.emulate_media(color_scheme="light")
    return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:160]}" for one in [*found, *dark]]


def test_the_flow_of_data_is_drawn_and_read_at_every_size(signed_in: Opened, gateway: Served) -> None:
    iban = "DE44500105175407324931"
    gateway.ask("POST", "/v1/sessions", {"session": "drawn", "task": "Please pay the bill 'bill.txt'"})
    for number in range(50):
        made = gateway.decide(f"read_{number}", session="drawn").json
        text = f"Bill {number}\nIBAN: {iban if number == 20 else f'DE{10 + number}500105175407324999'}\n{HOSTILE[0]}"
        gateway.ask("POST", "/v1/results", {"decision_id": made["decision_id"], "result": text})
    assert gateway.decide("send_money", arguments={"recipient": iban, "amount": 9}, session="drawn").status == 202
    page = signed_in(start="/sessions/drawn?agent=bot")
    drawing = page.locator("svg.data-flow")
    expect(drawing.locator("a")).to_have_count(101)
    held = drawing.locator("path.require_approval")
    expect(held).to_have_count(1)
    quiet = page.evaluate("getComputedStyle(document.querySelector('.data-flow a rect')).stroke")
    assert held.evaluate("one => getComputedStyle(one).stroke") != quiet
    page.get_by_text("As a list").click()
    expect(page.get_by_text("because of it")).to_be_visible()
    assert iban not in page.content()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(page, options={"runOnly": STANDARDS})
    assert found.response["violations"] == []
    drawing.locator("a.require_approval").click()
    expect(page.get_by_role("heading", name="send_money")).to_be_visible()
