"""What pages tell beside the receipt: judges, what is usual of an agent, delegation, and the flow of data."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aegis.behaviour import baseline as unusual
from aegis.behaviour.baseline import RECENT_US, baseline
from aegis.cockpit.surface import PAGES
from aegis.core.times import system_clock
from support.missions import TOOLS, claims
from support.people import Person, person
from support.scripted_model import BAD, ScriptedModel, scripted_model
from support.served import Served, served

SAID = "it mails the ledger to account DE89370400440532013000"


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel) -> Iterator[Served]:
    tools = "tools:\n  write_note: {risk: low, effects: [write]}\n  send_email: {risk: high, irreversible: true}\n"
    judged = f"judges: [{{name: look, model: {model.openai}, criteria: serve the task}}]\n"
    text = f"version: 1\nlimits: {{rate: unlimited}}\n{tools}{judged}"
    with served(tmp_path_factory.mktemp("views") / "home", text) as running:
        yield running


@pytest.fixture(scope="module")
def dana(gateway: Served) -> Person:
    dana = person(gateway, "dana", "approver", "auditor", "admin", "issuer")
    dana.sign_in()
    return dana


def decision_id(gateway: Served, call_id: str) -> str:
    found = gateway.ask("GET", f"/v1/receipts?kind=decision&call_id={call_id}", key="auditor").json["items"]
    receipt: str = found[0]["receipt_id"]
    return receipt


def test_a_judges_word_stands_on_the_receipt_and_its_reasoning_with_the_values(
    gateway: Served, dana: Person, model: ScriptedModel
) -> None:
    model.script = lambda _: {**BAD, "reasoning": SAID}
    answer = gateway.decide("write_note", arguments={"text": "hello"}, call_id="judged")
    assert answer.json["reason"] == "judge_rejected"
    receipt = decision_id(gateway, "judged")
    page = dana.get(f"/calls/{receipt}").body.decode()
    assert "score 0.10, confidence 0.80" in page
    assert "What it wrote is shown with the values" in page
    assert SAID not in page
    assert SAID in dana.post(f"/calls/{receipt}/reveal").body.decode()


def test_an_approver_reads_the_judges_reasoning_without_what_is_private(
    gateway: Served, dana: Person, model: ScriptedModel
) -> None:
    model.script = lambda _: {**BAD, "score": 0.9, "reasoning": SAID}
    mail = {"to": "ada@example.com", "body": "pay DE89370400440532013000"}
    held = gateway.decide("send_email", arguments=mail, call_id="held")
    assert held.status == 202
    page = dana.get(f"/approvals/{held.json['approval']['id']}").body.decode()
    assert "it mails the ledger to account DE****00" in page
    assert "DE89370400440532013000" not in page


def test_the_health_of_judges_is_told_now(gateway: Served, dana: Person, model: ScriptedModel) -> None:
    model.script = lambda _: 500
    for number in range(4):
        gateway.decide("write_note", arguments={"text": f"n {number}"}, call_id=f"fails-{number}")
    page = dana.get("/").body.decode()
    assert "judge look" in page
    assert re.search(r"\d+ of its last \d+ runs failed, most often by", page)


def test_what_is_usual_of_an_agent_is_told_on_its_page(gateway: Served, dana: Person, model: ScriptedModel) -> None:
    model.script = lambda _: BAD
    gateway.decide("write_note", arguments={"text": "hello again"}, call_id="usual")
    page = dana.get("/agents/bot").body.decode()
    assert "What is usual" in page
    assert re.search(r'<td class="mono">write_note</td><td class="right num inline">\d+<span', page)


@pytest.fixture(scope="module")
def missions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    text = f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\n{TOOLS}"
    with served(tmp_path_factory.mktemp("lineage") / "home", text) as running:
        running.credentials.add("issuer", "issuer")
        yield running


def test_delegation_is_a_graph_and_refused_flows_lead_to_what_was_read(missions: Served) -> None:
    reader = person(missions, "reader", "auditor", "admin", "issuer")
    reader.sign_in()
    flow: dict[str, Any] = {
        "classes": {"in-house": {"tools": ["read_file"]}, "outside": {"tools": ["fetch_url"]}}, "rules": [],
    }  # fmt: skip
    root = claims(purpose="read the reports", flow=flow, delegation={"depth": 1, "subjects": ["bot"]})
    issued = missions.ask("POST", "/v1/missions", {"mission": root}, key="issuer")
    assert issued.status == 201, issued.body
    asked = {"mission": claims(purpose="only the first one", flow=flow), "request_id": "r-1"}
    mission = issued.json["mission_id"]
    child = missions.ask("POST", f"/v1/missions/{mission}/delegate", asked, key="issuer")
    assert child.status in (200, 201), child.body
    opened = {"session": "s-flow", "mission": child.json["mission_id"], "available_tools": [], "task": "read"}
    assert missions.ask("POST", "/v1/sessions", opened).status == 201
    read = missions.decide("read_file", arguments={"path": "/ws/a.txt"}, session="s-flow", call_id="reads").json
    assert read["decision"] == "allow"
    missions.ask("POST", "/v1/results", {"decision_id": read["decision_id"], "result": "the numbers"})
    url = {"url": "https://api.example.com/x"}
    sent = missions.decide("fetch_url", arguments=url, session="s-flow", call_id="sends").json
    assert sent["reason"] == "exfiltration"
    page = reader.get("/sessions/s-flow?principal=bot").body.decode()
    assert "in-house → outside refused" in page
    assert f'href="#r-{read["receipt"]["id"]}"' in page
    assert f'id="r-{read["receipt"]["id"]}"' in page
    for path in ("/sessions/s-flow?principal=bot", "/agents"):
        assert "read the reports delegated to only the first one" in reader.get(path).body.decode()


def test_alike_calls_of_a_session_are_one_line_and_what_was_blocked_among_them_stays_in_sight(missions: Served) -> None:
    reader = person(missions, "traces", "auditor")
    reader.sign_in()
    paths = [*(f"/ws/{number}.txt" for number in range(6)), "/etc/shadow", "/ws/after.txt"]
    made = [missions.decide("read_file", arguments={"path": path}, session="s-alike").json for path in paths]
    page = reader.get("/sessions/s-alike?principal=bot").body.decode()
    folded, _, rest = page.partition("</details>")
    assert "reads data, 6 times" in folded
    ids = [one["receipt"]["id"] for one in made]
    assert all(f'id="r-{one}"' in folded for one in ids[:6])
    assert all(f'id="r-{one}"' in rest for one in ids[6:])
    assert "times" not in rest


def test_what_is_unusual_of_agents_is_listed_beside_the_violations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path / "home") as gateway:
        dana = person(gateway, "dana", "auditor", "admin")
        dana.sign_in()
        for number in range(30):
            gateway.decide(arguments={"path": f"{number}.txt"}, call_id=f"usual-{number}")
        boundary = system_clock()
        gateway.decide("<b>fresh</b>", call_id="fresh")
        gateway.decide(key="other", call_id="only")
        monkeypatch.setattr(unusual, "baseline", lambda entries, _: baseline(entries, boundary + RECENT_US))
        until = time.monotonic() + 60
        while "as of" not in (page := dana.get("/violations").body.decode()):
            assert time.monotonic() < until, page
            time.sleep(0.05)
        section = page.partition('id="unusual"')[2]
        assert "calls that it did not make before: &lt;b&gt;fresh&lt;/b&gt;" in section
        assert 'href="/agents/bot"' in section
        assert "/agents/other" not in section
        assert "Nothing unusual" in dana.get("/violations?agent=other").body.decode()
        assert 'id="unusual"' not in dana.get("/violations?rule=sql-executed").body.decode()


@pytest.mark.claim("COK-21")
def test_violations_are_counted_by_outcome_and_a_hold_that_everybody_gets_is_none(tmp_path: Path) -> None:
    with served(tmp_path / "home") as gateway:
        dana = person(gateway, "dana", "auditor")
        dana.sign_in()
        mail = {"to": "a@example.com", "body": "hello"}
        assert gateway.decide("send_email", arguments=mail, call_id="held").status == 202
        for number in range(2):
            assert gateway.decide(arguments={"path": "/etc/shadow"}, call_id=f"v{number}").json["decision"] == "block"
        page = dana.get("/violations").body.decode()
        groups = gateway.app.cockpit.rollup.tally.groups.values()
        assert {(group.tool, tuple(group.counts)) for group in groups} == {("read_file", (0, 0, 0, 2))}
        assert "send_email" not in page


@pytest.mark.claim("COK-20")
def test_a_filter_that_a_page_does_not_know_is_an_error(tmp_path: Path) -> None:
    with served(tmp_path / "home") as gateway:
        dana = person(gateway, "dana", "auditor", "approver", "admin")
        dana.sign_in()
        for page in PAGES:
            if page.method == "GET" and "{" not in page.path:
                answer = dana.get(f"{page.path}?colour=blue")
                assert answer.status == 422, page.path
                assert "no filter" in answer.body.decode()
        for path in ("/?decision=perhaps", "/audit?kind=story", "/approvals?state=lost", "/?reason=because"):
            assert dana.get(path).status == 422, path


@pytest.mark.claim("COK-20")
def test_figures_are_those_of_the_filters(tmp_path: Path) -> None:
    with served(tmp_path / "home") as gateway:
        dana = person(gateway, "dana", "auditor", "approver")
        dana.sign_in()
        for number in range(3):
            gateway.decide(arguments={"path": f"{number}.txt"})
        gateway.decide(arguments={"path": "x.txt"}, key="other")
        assert _figures(dana.get("/").body.decode())[0] == "4"
        assert _figures(dana.get("/?agent=other").body.decode())[0] == "1"
        assert _figures(dana.get("/?agent=other&decision=block").body.decode())[0] == "0"


def _figures(page: str) -> list[str]:
    return re.findall(r'<span class="value[^"]*">(\d+)</span>', page)
