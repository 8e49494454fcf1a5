"""An auditor sees where the values of a session's calls came from, and never the values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.people import person
from support.served import Served, served
from support.shell import aegis, read_json

IBAN = "DE44500105175407324931"
BILL = f"Bill of December\nTotal 98.70\nIBAN: {IBAN}\n"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("flow") / "home", "version: 1\nlimits: {rate: unlimited}\n") as running:
        yield running


def read(gateway: Served, session: str, result: Any = BILL, tool: str = "read_bill", key: str = "bot") -> str:
    made = gateway.decide(tool, arguments={"path": "bill.txt"}, session=session, key=key).json
    gateway.ask("POST", "/v1/results", {"decision_id": made["decision_id"], "result": result}, key=key)
    receipt: str = made["decision_id"]
    return receipt


@pytest.fixture(scope="module")
def held(gateway: Served) -> Any:
    gateway.ask("POST", "/v1/sessions", {"session": "s", "task": "Please pay the bill 'bill.txt' for me"}, key="bot")
    read(gateway, "s")
    gateway.decide("search_notes", arguments={"query": f"paid: {IBAN}"}, session="s")
    return gateway.decide("send_money", arguments={"recipient": IBAN, "amount": 98.7}, session="s").json


def test_the_flow_names_sources_calls_and_the_edge_that_held_and_no_value(gateway: Served, held: Any) -> None:
    answer = gateway.ask("GET", "/v1/sessions/s/flow", key="auditor")
    flow = answer.json
    assert IBAN not in str(flow)
    (source,) = flow["sources"]
    assert (source["tool"], source["trust"], source["sensitivity"]) == ("read_bill", "mixed", "confidential")
    assert [(one["tool"], one["decision"]) for one in flow["calls"]] == [
        ("read_bill", "allow"), ("search_notes", "allow"), ("send_money", "require_approval"),
    ]  # fmt: skip
    holding = [edge for edge in flow["edges"] if edge["holds"]]
    assert {(edge["from"]["receipt"], edge["to"]["receipt"], edge["is"]) for edge in holding} == {
        (source["receipt"], held["decision_id"], "account")
    }
    quiet = [edge for edge in flow["edges"] if not edge["holds"]]
    assert [(edge["to"]["path"], edge["is"]) for edge in quiet] == [("/query", "account")]
    assert flow["complete"] is True


def test_what_a_session_knows_stands_beside_its_receipts(gateway: Served, held: Any) -> None:
    told = gateway.ask("GET", "/v1/sessions/s", key="auditor").json
    assert (told["task"], told["turns"], told["untrusted"], told["calls"]) == (True, 1, True, 2)
    assert (told["labels"], told["sources"]) == (["confidential"], ["read_bill"])
    gateway.decide("ping", session="wordless")
    assert gateway.ask("GET", "/v1/sessions/wordless", key="auditor").json["drift"] is None


def test_only_auditors_see_it_and_two_sessions_of_one_name_are_told_apart(gateway: Served, held: Any) -> None:
    assert gateway.ask("GET", "/v1/sessions/s/flow", key="bot").status == 403
    assert gateway.ask("GET", "/v1/sessions/never/flow", key="auditor").status == 404
    for key in ("bot", "other"):
        gateway.decide("ping", session="two", key=key)
    for path in ("/v1/sessions/two", "/v1/sessions/two/flow"):
        answer = gateway.ask("GET", path, key="auditor")
        assert answer.status == 409
        assert gateway.ask("GET", f"{path}?principal=nobody", key="auditor").status in {200, 404}


def test_a_session_of_many_results_and_calls_is_bounded_and_drawn(gateway: Served) -> None:
    gateway.ask("POST", "/v1/sessions", {"session": "wide", "task": "Read all bills"}, key="bot")
    for number in range(60):
        read(gateway, "wide", f"IBAN: DE{44 + number}500105175407324931", tool=f"read_{number}")
        gateway.decide("save", arguments={"text": f"DE{44 + number}500105175407324931"}, session="wide")
    flow = gateway.ask("GET", "/v1/sessions/wide/flow", key="auditor").json
    assert (len(flow["sources"]), len(flow["calls"]), len(flow["edges"])) == (60, 120, 60)
    dana = person(gateway, "dana", "auditor", "approver")
    dana.sign_in()
    (row,) = (
        one for one in gateway.ask("GET", "/v1/sessions", key="auditor").json["items"] if one["session"] == "wide"
    )
    body = dana.get(f"/sessions/wide?principal={row['principal']}").body.decode()
    assert body.count('" d="M250 ') == 60
    assert "and 60 more results and calls" in body


def test_the_approval_says_where_the_value_stands(gateway: Served, held: Any) -> None:
    anna = person(gateway, "anna", "approver")
    anna.sign_in()
    body = anna.get(f"/approvals/{held['approval']['id']}").body.decode()
    assert "it stands only in what `read_bill` gave (call 1)" in body
    assert 'name="scope" value="document"' in body
    digests = {name: body.split(f'name="{name}" value="')[1].split('"')[0] for name in ("call_digest", "policy_digest")}
    answer = anna.post(
        f"/approvals/{held['approval']['id']}", {"decision": "approve", "scope": "document", "reason": "", **digests}
    )
    assert answer.status == 303
    paid = gateway.decide("send_money", arguments={"recipient": IBAN, "amount": 90}, session="s").json
    assert paid["decision"] == "allow"


def test_why_says_where_the_value_stands(gateway: Served, held: Any) -> None:
    home = gateway.deployment.home
    told = read_json(aegis("why", held["decision_id"], "--home", home, "--json"))
    found = next(one for one in told["findings"] if one["rule"] == "untrusted-sink")
    assert found["origins"] == "it stands only in what `read_bill` gave (call 1)"
    assert "where  it stands only in" in aegis("why", held["decision_id"], "--home", home).stdout
    assert IBAN not in str(told)
