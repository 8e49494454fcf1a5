"""What the pages show and do, asked as a browser asks: without a browser."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from pypdf import PdfReader

from aegis.bootstrap.credentials import alter_account
from aegis.cockpit.surface import PAGES
from support.missions import claims
from support.people import Person, person, state_of
from support.served import Served, served

SECRET = "ghp_" + "x7Kq2mVt9RbL4wNc8PzY1sDf6HgJ3aEu5QoT"  # made up: no service knows it


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("pages") / "home") as running:
        for number in range(12):
            running.decide(arguments={"path": f"notes{number}.txt"}, call_id=f"read-{number}", session="s-1")
        running.decide(
            "query_db", arguments={"sql": "SELECT 1; DROP TABLE invoices; --"}, call_id="drop", session="s-1"
        )
        running.decide("post_note", arguments={"text": f"token {SECRET}"}, call_id="secret", session="s-1")
        yield running


@pytest.fixture(scope="module")
def dana(gateway: Served) -> Person:
    dana = person(gateway, "dana", "approver", "auditor", "admin", "issuer")
    dana.sign_in()
    return dana


def newest(gateway: Served, **filters: str) -> Any:
    query = "&".join(f"{name}={value}" for name, value in {**filters, "limit": "1"}.items())
    return gateway.ask("GET", f"/v1/receipts?{query}", key="auditor").json["items"][0]


def held(gateway: Served, call_id: str, **arguments: Any) -> str:
    answer = gateway.decide("send_email", arguments={"to": "ada@example.com", **arguments}, call_id=call_id)
    assert answer.status == 202
    approval: str = answer.json["approval"]["id"]
    return approval


def digests(gateway: Served, approval: str) -> dict[str, str]:
    found = gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json
    return {name: found[name] for name in ("call_digest", "policy_digest")}


def test_every_page_of_the_navigation_answers(dana: Person) -> None:
    for page in PAGES:
        if page.method == "GET" and "{" not in page.path and page.path not in ("/live", "/welcome"):
            answer = dana.get(page.path + ("?since=2026-01-01&until=2099-01-01" if page.path.endswith(".pdf") else ""))
            assert answer.status == 200, (page.path, answer.body[:300])


@pytest.mark.claim("COK-05")
def test_values_are_masked_until_they_are_revealed_on_record(gateway: Served, dana: Person) -> None:
    receipt = newest(gateway, call_id="secret", kind="decision")["receipt_id"]
    assert SECRET not in dana.get(f"/calls/{receipt}").body.decode()
    answer = dana.post(f"/calls/{receipt}/reveal")
    assert SECRET in answer.body.decode().replace("<mark>", "").replace("</mark>", "")
    access = newest(gateway, kind="access")
    assert (access["action"], access["parent"], access["principal"]) == ("reveal", receipt, "dana")


@pytest.mark.claim("COK-06")
def test_an_answer_is_bound_to_what_was_shown(gateway: Served, dana: Person) -> None:
    approval = held(gateway, "bound")
    shown = digests(gateway, approval)
    wrong = {**shown, "call_digest": "sha-256:" + "0" * 64}
    assert dana.post(f"/approvals/{approval}", {"decision": "approve", **wrong}).status == 409
    assert dana.post(f"/approvals/{approval}", {"decision": "approve"}).status == 422
    assert dana.post(f"/approvals/{approval}", {"decision": "approve", "reason": "fine", **shown}).status == 303
    late = dana.post(f"/approvals/{approval}", {"decision": "deny", "reason": "no", **shown})
    assert late.status == 409
    assert b"Dana has answered before you" in late.body
    assert gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json["resolved_by"] == "dana"


def test_the_address_of_a_form_leads_back_to_its_page(gateway: Served, dana: Person) -> None:
    approval = held(gateway, "sent-on")
    for path, page in ((f"/approvals/{approval}/reveal", f"/approvals/{approval}"), ("/policies/check", "/policies")):
        answer = dana.get(path)
        assert (answer.status, answer.headers["location"]) == (303, page)


def test_past_answers_lead_to_their_calls_with_the_reasons_that_were_given(gateway: Served, dana: Person) -> None:
    before, now = held(gateway, "answered"), held(gateway, "asked-again")
    form = {"decision": "deny", "reason": "not on a Sunday", **digests(gateway, before)}
    assert dana.post(f"/approvals/{before}", form).status == 303
    answers = dana.get(f"/approvals/{now}").body.decode().partition("How such calls were answered")[2]
    assert f'href="/approvals/{before}"' in answers
    assert "not on a Sunday" in answers


@pytest.mark.claim("COK-10")
def test_a_yes_of_somebody_whose_account_was_disabled_releases_nothing(gateway: Served) -> None:
    leaver = person(gateway, "leaver", "approver")
    leaver.sign_in()
    for call_id in ("stays", "leaves"):
        approval = held(gateway, call_id)
        assert (
            leaver.post(f"/approvals/{approval}", {"decision": "approve", **digests(gateway, approval)}).status == 303
        )
    mail = {"to": "ada@example.com"}
    assert gateway.decide("send_email", arguments=mail, call_id="stays").json["decision"] == "allow"
    alter_account(state_of(gateway), "leaver", "disable", to="disabled", by="operator:test")
    assert gateway.decide("send_email", arguments=mail, call_id="leaves").json["decision"] != "allow"


def test_a_denial_reaches_the_agent_with_its_reason_on_record(gateway: Served, dana: Person) -> None:
    approval = held(gateway, "denied")
    form = {"decision": "deny", "reason": "not to outsiders", **digests(gateway, approval)}
    assert dana.post(f"/approvals/{approval}", form).status == 303
    again = gateway.decide("send_email", arguments={"to": "ada@example.com"}, call_id="denied")
    assert (again.json["decision"], again.json["reason"]) == ("block", "approval_denied")
    assert "not to outsiders" in dana.get(f"/approvals/{approval}").body.decode()


def test_an_auditor_sees_no_queue_and_an_approver_no_receipts(gateway: Served) -> None:
    approver, auditor = person(gateway, "only-approves", "approver"), person(gateway, "only-audits", "auditor")
    approver.sign_in()
    auditor.sign_in()
    receipt = newest(gateway)["receipt_id"]
    assert (approver.get("/approvals").status, auditor.get("/approvals").status) == (200, 403)
    assert (approver.get(f"/calls/{receipt}").status, auditor.get(f"/calls/{receipt}").status) == (403, 200)
    assert (approver.get("/policies").status, auditor.get("/policies").status) == (403, 403)
    assert auditor.post("/agents/bot/switch", {"to": "revoke", "reason": "mine"}).status == 403
    approval = held(gateway, "led-to")
    assert f'href="/approvals/{approval}"' in approver.get("/").body.decode()
    assert f'href="/approvals/{approval}"' not in auditor.get("/").body.decode()


@pytest.mark.claim("COK-07")
def test_the_kill_switch_works_on_the_next_call(gateway: Served, dana: Person) -> None:
    gateway.decide(key="other", call_id="before")
    assert dana.post("/agents/other/switch", {"to": "revoke", "reason": "it behaves oddly"}).status == 303
    stopped = gateway.decide(key="other", call_id="after")
    assert (stopped.json["decision"], stopped.json["reason"]) == ("block", "revoked")
    assert "it behaves oddly" in dana.get("/agents/other").body.decode()
    assert dana.post("/agents/other/switch", {"to": "restore", "reason": "explained"}).status == 303
    assert gateway.decide(key="other", call_id="later").json["decision"] == "allow"


def test_missions_are_shown_with_their_budgets_and_suspended(gateway: Served, dana: Person) -> None:
    gateway.credentials.add("issuer", "issuer")
    mission = claims(purpose="read the reports", budgets={"calls": 4})
    issued = gateway.ask("POST", "/v1/missions", {"mission": mission}, key="issuer").json
    opened = {"session": "s-mission", "mission": issued["mission_id"], "available_tools": [], "task": "read"}
    assert gateway.ask("POST", "/v1/sessions", opened).status == 201
    read = gateway.decide(arguments={"path": "/ws/a.txt"}, session="s-mission", call_id="of-mission")
    assert read.json["decision"] == "allow"
    page = dana.get("/agents").body.decode()
    assert "read the reports" in page
    assert "1 of 4" in page
    assert dana.post(f"/missions/{issued['mission_id']}", {"to": "suspend"}).status == 303
    stopped = gateway.decide(arguments={"path": "/ws/b.txt"}, session="s-mission", call_id="of-suspended")
    assert stopped.json["decision"] == "block"
    assert dana.post(f"/missions/{issued['mission_id']}", {"to": "promote"}).status == 422


def test_a_configuration_is_checked_replayed_put_in_force_and_taken_back(gateway: Served, dana: Person) -> None:
    before = gateway.ask("GET", "/v1/config", key="root").json["digest"]
    page = dana.get("/policies").body.decode()
    text = gateway.deployment.config_path.read_text() if gateway.deployment.config_path else ""
    assert "read_file: {risk: low" in page
    bad = dana.post("/policies/check", {"text": text + "guards: {content: {mode: sometimes}}\n"})
    assert bad.status == 422
    assert f'data-line="{text.count(chr(10)) + 1}"' in bad.body.decode()
    stricter = text.replace("risk: low, effects: [read]", "risk: critical, effects: [read]")
    checked = dana.post("/policies/check", {"text": stricter.replace("\n", "\r\n"), "days": "7"}).body.decode()
    assert "Newly refused or held" in checked
    assert "Put in force" in checked
    assert gateway.ask("GET", "/v1/config", key="root").json["digest"] == before
    assert dana.post("/policies/apply", {"text": stricter, "base": "sha-256:stale"}).status == 409
    assert gateway.ask("GET", "/v1/config", key="root").json["digest"] == before
    assert dana.post("/policies/apply", {"text": stricter, "base": before}).status == 303
    assert gateway.decide(arguments={"path": "notes.txt"}, call_id="strict").json["decision"] == "block"
    history = dana.get("/policies").body.decode()
    assert "Go back to this" in history
    back = dana.get(f"/policies?from={before}").body.decode()
    assert "Newly let through" in back or "What it would have changed" in back
    current = gateway.ask("GET", "/v1/config", key="root").json["digest"]
    assert dana.post("/policies/apply", {"text": text, "base": current}).status == 303
    assert gateway.ask("GET", "/v1/config", key="root").json["digest"] == before


def test_a_false_alarm_becomes_a_scoped_exception_that_nobody_put_in_force(gateway: Served, dana: Person) -> None:
    before = gateway.ask("GET", "/v1/config", key="root").json["digest"]
    body = dana.post("/violations/false-alarm", {"rule": "sql-executed", "tool": "query_db"}).body.decode()
    assert "rule: sql-executed" in body
    assert "tool: query_db" in body
    assert "expires:" in body
    assert gateway.ask("GET", "/v1/config", key="root").json["digest"] == before
    assert dana.post("/violations/false-alarm", {"rule": "rate", "tool": "query_db"}).status == 422


def test_the_playground_decides_without_recording(gateway: Served, dana: Person) -> None:
    size = gateway.ask("GET", "/v1/log/checkpoint", key="auditor").body.split(b"\n")[1]
    call = '{"tool": "query_db", "arguments": {"sql": "SELECT 1; DROP TABLE t; --"}}'
    body = dana.post("/policies/playground", {"call": call}).body.decode()
    assert "attack detected" in body
    assert dana.post("/policies/playground", {"call": '{"tool": "x"}'}).status == 422
    assert dana.post("/policies/playground", {"call": '{"tool": "x", "tool": "y", "arguments": {}}'}).status == 422
    assert gateway.ask("GET", "/v1/log/checkpoint", key="auditor").body.split(b"\n")[1] == size


def test_a_search_is_exported_as_a_table_that_no_spreadsheet_takes_for_formulas(gateway: Served, dana: Person) -> None:
    gateway.decide("=HYPERLINK(1)", arguments={}, call_id="formula")
    answer = dana.get("/audit/receipts.csv?call_id=formula&kind=decision")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
    assert [row["tool"] for row in rows] == ["'=HYPERLINK(1)"]
    assert dana.get("/audit/receipts.csv?since=yesterday").status == 422


def test_the_export_of_the_log_is_the_log(gateway: Served, dana: Person) -> None:
    lines = dana.get("/audit/receipts.jsonl").body.splitlines()
    assert [orjson.loads(line)["index"] for line in lines] == list(range(len(lines)))
    assert orjson.loads(dana.get("/audit/keys.json").body)["keys"]
    assert dana.get("/audit/checkpoint").body.startswith(orjson.loads(lines[0])["log"].encode())


def test_the_report_counts_what_the_log_holds(gateway: Served, dana: Person) -> None:
    gateway.decide("<b>odd</b> & t\u00f6\u0561l", arguments={}, call_id="odd")
    answer = dana.get("/audit/report.pdf?since=2020-01-01&until=2099-12-31")
    assert answer.headers["content-type"] == "application/pdf"
    text = "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(answer.body)).pages)
    for word in ("Coverage", "Decisions", "Approvals", "Violations", "sql-executed", "Chain and checkpoint", "dana"):
        assert word in text
    assert "<b>odd</b> & t\u00f6\\u0561l" in text
    assert f"\u2014 {gateway.app.services.log} " in " ".join(text.split())  # a checkpoint that can be verified
    assert dana.get("/audit/report.pdf?since=2026-02-01&until=2026-01-01").status == 422


def test_an_erased_payload_is_gone_and_its_receipt_is_not(gateway: Served, dana: Person) -> None:
    gateway.decide(arguments={"path": "secret-plan.txt"}, call_id="erased")
    receipt = newest(gateway, call_id="erased")["receipt_id"]
    assert dana.post(f"/calls/{receipt}/erase").status == 422
    assert dana.post(f"/calls/{receipt}/erase", {"sure": "yes"}).status == 303
    assert "Erased" in dana.get(f"/calls/{receipt}").body.decode()


def test_a_session_is_traced_and_exported(dana: Person) -> None:
    body = dana.get("/sessions/s-1?principal=bot").body.decode()
    assert body.count("read_file") >= 12
    assert len(dana.get("/session-export/s-1?principal=bot").body.splitlines()) >= 14
    assert dana.get("/sessions/never").status == 404


@pytest.mark.slow
def test_the_log_is_verified_from_its_page(gateway: Served, dana: Person) -> None:
    assert dana.post("/audit/verify").status == 303
    for _ in range(240):
        page = dana.get("/audit").body.decode()
        if "under way" not in page:
            break
        time.sleep(0.25)
    assert "the log verifies" in page


def test_a_session_shows_its_calls_with_what_people_answered(gateway: Served, dana: Person) -> None:
    mail = {"to": "ada@example.com"}
    for key in ("bot", "other"):
        held = gateway.decide("send_email", arguments=mail, call_id="in-one", session="s-whole", key=key)
        form = {"decision": "deny", "reason": "no", **digests(gateway, held.json["approval"]["id"])}
        assert dana.post(f"/approvals/{held.json['approval']['id']}", form).status == 303
    listed = dana.get("/sessions").body.decode()
    assert listed.count('href="/sessions/s-whole?agent=bot"') == 1
    assert listed.count('href="/sessions/s-whole?agent=other"') == 1
    page = dana.get("/sessions/s-whole?agent=bot").body.decode()
    assert '<span class="dim">denied' in page
    exported = dana.get("/session-export/s-whole?agent=bot").body.splitlines()
    assert {orjson.loads(line)["agent"] for line in exported} == {"bot"}
    assert {orjson.loads(line)["kind"] for line in exported} >= {"decision", "approval"}


def test_an_integer_of_any_size_is_shown_with_its_digits(gateway: Served, dana: Person) -> None:
    arguments = {"to": "a@example.com", "amount": 123_456_789_012_345_678_901_234_567_890}
    answer = gateway.decide("send_email", arguments=arguments, call_id="wide")
    assert answer.status == 202
    page = dana.get(f"/approvals/{answer.json['approval']['id']}").body.decode()
    assert "123456789012345678901234567890" in page
