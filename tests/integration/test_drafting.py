"""Policies drafted from plain words by a model on this machine: what is believed of its answer, and what is not."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.deployments import TOOLS
from support.people import Person, person
from support.scripted_model import ScriptedModel, scripted_model
from support.served import Answer, Served, served

CONFIG = f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\n{TOOLS}"
WISH = "hold every mail to somebody outside of example.com"
GOOD: dict[str, Any] = {
    "name": "mail-outside",
    "description": "mail to strangers waits",
    "select": {"tool": ["send_email"]},
    "schema": {"type": "object", "properties": {"to": {"type": "string", "pattern": "@example\\.com$"}}},
    "outcome": "block",
    "explanation": "Every mail whose address does not end in @example.com is caught.",
    "cases": [
        {"tool": "send_email", "arguments": {"to": "eve@elsewhere.org"}, "expect": "caught", "why": "a stranger"},
        {"tool": "send_email", "arguments": {"to": "ada@example.com"}, "expect": "passes"},
        {"tool": "read_file", "arguments": {"path": "a.txt"}, "expect": "caught", "why": "wrongly expected"},
    ],
}


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("drafting")
    (home / "key").write_text("sk-of-the-operator\n")
    (home / "key").chmod(0o600)
    drafting = (
        f"drafting:\n  timeout: 30s\n  model: {{api: openai, url: {model.url}/v1, name: drafter, private: true, "
        f"key: 'file:{home / 'key'}'}}\n"
    )
    with served(home / "home", CONFIG + drafting) as running:
        running.decide("send_email", arguments={"to": "hidden-value@example.com"}, call_id="earlier")
        yield running


@pytest.fixture(scope="module")
def dana(gateway: Served) -> Person:
    dana = person(gateway, "dana", "auditor", "admin")
    dana.sign_in()
    return dana


def drafted(gateway: Served, model: ScriptedModel, said: Any, wish: str = WISH) -> Answer:
    model.script = lambda _: said
    return gateway.ask("POST", "/v1/config:draft", {"wish": wish}, key="root")


def in_force(gateway: Served) -> str:
    digest: str = gateway.ask("GET", "/v1/config", key="root").json["digest"]
    return digest


def newest(gateway: Served) -> Any:
    return gateway.ask("GET", "/v1/receipts?kind=config&limit=1", key="auditor").json["items"][0]


@pytest.mark.claim("COK-15")
def test_a_draft_is_shown_with_what_became_of_its_cases_and_changes_nothing(
    gateway: Served, model: ScriptedModel
) -> None:
    before = in_force(gateway)
    found = drafted(gateway, model, GOOD).json
    assert found["valid"]
    assert (found["base"], in_force(gateway)) == (before, before)
    assert [(case["caught"], case["holds"]) for case in found["cases"]] == [(True, True), (False, True), (False, False)]
    assert found["cases"][0]["after"] == {"decision": "block", "reason": "schema_invalid"}
    assert found["cases"][1]["before"] == found["cases"][1]["after"]
    checked = gateway.ask("POST", "/v1/config:check", found["config"].encode(), key="root").json
    assert (checked["valid"], checked["digest"]) == (True, found["digest"])
    assert "profile" not in found["policy"]


@pytest.mark.claim("COK-16")
def test_a_request_is_on_record_and_tells_the_model_nothing_of_past_calls(
    gateway: Served, model: ScriptedModel
) -> None:
    drafted(gateway, model, GOOD)
    receipt = newest(gateway)
    assert (receipt["action"], receipt["principal"], receipt["policy_digest"]) == ("draft", "root", in_force(gateway))
    assert WISH not in json.dumps(receipt)
    asked = json.dumps(model.asked[-1])
    assert WISH in asked
    assert "send_email" in asked
    assert "hidden-value" not in asked
    assert "sk-of-the-operator" not in asked
    assert model.headers[-1]["authorization"] == "Bearer sk-of-the-operator"


def test_an_answer_inside_of_one_fence_is_read(gateway: Served, model: ScriptedModel) -> None:
    assert drafted(gateway, model, f"```json\n{json.dumps(GOOD)}\n```").json["valid"]


@pytest.mark.claim("COK-17")
@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param("<html><script>alert(1)</script></html>", "not one strict JSON object", id="html"),
        pytest.param("Sure! Here is the policy:\n" + json.dumps(GOOD), "not one strict JSON object", id="chatter"),
        pytest.param(json.dumps(GOOD) + json.dumps(GOOD), "not one strict JSON object", id="two"),
        pytest.param(json.dumps(GOOD)[:-1] + ', "name": "twice"}', "not one strict JSON object", id="a key twice"),
        pytest.param({**GOOD, "apply": True}, "`additionalProperties` at `/`", id="a member of its own"),
        pytest.param({**GOOD, "outcome": "allow"}, "`enum` at `/outcome`", id="allows"),
        pytest.param({**GOOD, "approvals": {"quorum": 1}}, "`additionalProperties`", id="chooses approvers"),
        pytest.param({**GOOD, "cedar": "permit(principal, action, resource);"}, "`additionalProperties`", id="cedar"),
        pytest.param({**GOOD, "deny": {}}, "`oneOf` at `/`", id="both forms"),
        pytest.param({**GOOD, "name": "x: {y}\nguards: off"}, "`pattern` at `/name`", id="a name that is more"),
        pytest.param({**GOOD, "explanation": "x" * 3_000}, "`maxLength` at `/explanation`", id="long"),
        pytest.param({**GOOD, "cases": GOOD["cases"] * 9}, "`maxItems` at `/cases`", id="many cases"),
        pytest.param({**GOOD, "schema": {"$ref": "http://169.254.169.254/"}}, "refers to other", id="reference"),
        pytest.param(
            {**GOOD, "schema": {"allOf": [{"pattern": "a{900}"}] * 25}}, "more than 24 patterns", id="many patterns"
        ),
        pytest.param({**GOOD, "schema": {"const": "x" * 20_000}}, "over 16384 bytes", id="large schema"),
        pytest.param({**GOOD, "schema": json.loads('{"not":' * 40 + "{}" + "}" * 40)}, "deeper than 32", id="deep"),
        pytest.param("x" * 70_000, "too long", id="long text"),
        pytest.param(b"<html>no</html>", "did not answer in its format", id="no API"),
        pytest.param(b" " * 50_000_000, "not reached", id="50 MB"),
        pytest.param([("apply_policy", {})], "not one strict JSON object", id="calls a tool"),
        pytest.param(500, "status 500", id="fails"),
        pytest.param(302, "status 302", id="redirects"),
    ],
)
def test_an_answer_that_is_no_draft_is_refused_with_its_reason(
    gateway: Served, model: ScriptedModel, said: Any, why: str
) -> None:
    before = in_force(gateway)
    answer = drafted(gateway, model, said)
    assert (answer.status, answer.code) == (502, "model_failed")
    assert why in answer.json["error"]["message"]
    assert "script" not in answer.body.decode()
    assert in_force(gateway) == before


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"schema": {"type": "objekt"}}, "not a valid JSON Schema", id="no schema"),
        pytest.param({"schema": {"properties": {"to": {"pattern": "(?=a)b"}}}}, "pattern does not compile", id="look"),
        pytest.param({"schema": {}}, "it would change nothing", id="allows everything"),
        pytest.param({"select": {"tool": ["never_called"]}}, "it would change nothing", id="of another tool"),
        pytest.param({"select": {"category": "nothing"}}, "no tool is of the category", id="unknown category"),
    ],
)
def test_a_draft_that_fails_is_shown_as_failed(
    gateway: Served, model: ScriptedModel, changes: dict[str, Any], why: str
) -> None:
    found = drafted(gateway, model, {**GOOD, **changes}).json
    assert not found["valid"]
    assert why in " ".join(one["message"] for one in found["problems"])
    assert found["digest"] is None


def test_what_does_not_compile_is_named_by_its_line(gateway: Served, model: ScriptedModel) -> None:
    found = drafted(gateway, model, {**GOOD, "schema": {"type": "objekt"}}).json
    line = found["problems"][0]["line"]
    assert "objekt" in "".join(found["config"].splitlines()[line - 2 : line])


def test_a_model_may_say_that_it_cannot(gateway: Served, model: ScriptedModel) -> None:
    found = drafted(gateway, model, {"cannot": "a policy never allows"}, "let bot send every mail").json
    assert (found["valid"], found["policy"], found["config"]) == (False, None, None)
    assert found["explanation"] == "a policy never allows"


def test_a_model_that_is_slow_or_gone_ends_in_a_word(model: ScriptedModel, tmp_path: Path) -> None:
    slow = f"drafting: {{timeout: 1s, model: {{api: openai, url: {model.url}/v1, name: slow, private: true}}}}\n"
    gone = "drafting: {model: {api: openai, url: 'http://127.0.0.1:9/v1', name: gone, private: true}}\n"
    public = "drafting: {model: {api: openai, url: 'http://127.0.0.1:9/v1', name: private}}\n"
    model.held.clear()
    try:
        for number, drafting in enumerate((slow, gone, public)):
            with served(tmp_path / str(number), CONFIG + drafting) as gateway:
                answer = gateway.ask("POST", "/v1/config:draft", {"wish": WISH}, key="root")
                assert (answer.status, answer.code) == (502, "model_failed")
                assert "was not reached" in answer.json["error"]["message"]
    finally:
        model.held.set()


def test_without_a_model_both_say_how_to_name_one(tmp_path: Path) -> None:
    with served(tmp_path / "home") as gateway:
        answer = gateway.ask("POST", "/v1/config:draft", {"wish": WISH}, key="root")
        assert (answer.status, answer.json["error"]["hint"]) == (404, "it stands in `drafting.model`")
        dana = person(gateway, "dana", "admin")
        dana.sign_in()
        page = dana.get("/policies/draft").body.decode()
        assert "No model is configured" in page
        assert "OPENAI_API_KEY" in page
        assert dana.post("/policies/draft", {"wish": WISH}).status == 303
        assert "No model is configured to draft policies" in settled(dana)


@pytest.mark.claim("COK-16")
def test_only_who_may_change_the_configuration_asks_for_a_draft(gateway: Served, dana: Person) -> None:
    for key in ("bot", "auditor", "ann"):
        assert gateway.ask("POST", "/v1/config:draft", {"wish": WISH}, key=key).status == 403
    other = person(gateway, "erin", "auditor", "approver")
    other.sign_in()
    assert (other.get("/policies/draft").status, other.post("/policies/draft", {"wish": WISH}).status) == (403, 403)
    assert dana.post("/policies/draft", {"wish": WISH}, {"sec-fetch-site": "cross-site"}).status == 403
    assert dana.post("/policies/draft", {"wish": " "}).status == 422
    assert dana.post("/policies/draft", {"wish": "x" * 2_001}).status == 422
    for body in ({}, {"wish": ""}, {"wish": "x" * 2_001}, {"wish": WISH, "apply": True}):
        assert gateway.ask("POST", "/v1/config:draft", body, key="root").status == 422


def settled(somebody: Person) -> str:
    """The page once nothing is under way."""
    page = somebody.get("/policies/draft").body.decode()
    while "the model is asked" in page:
        time.sleep(0.05)
        page = somebody.get("/policies/draft").body.decode()
    return page


@pytest.mark.claim("COK-15")
def test_the_page_leads_from_words_to_the_editor_where_a_person_puts_it_in_force(
    gateway: Served, dana: Person, model: ScriptedModel
) -> None:
    model.script = lambda _: {**GOOD, "explanation": "<img src=x onerror=alert(1)> \u202eevil"}
    before = in_force(gateway)
    assert dana.post("/policies/draft", {"wish": WISH}).status == 303
    page = settled(dana)
    assert "drafted" in page
    assert "<img" not in page
    assert "lets it pass, unexpectedly" in page
    assert "mail-outside" in page
    assert in_force(gateway) == before
    text = page.partition('aria-hidden="true">\n')[2].partition("</textarea>")[0]
    text = html.unescape(text)
    assert "Put in force" in dana.post("/policies/check", {"text": text}).body.decode()
    assert dana.post("/policies/apply", {"text": text, "base": before}).status == 303
    receipt = newest(gateway)
    assert (receipt["action"], receipt["principal"]) == ("api", "dana")
    refused = gateway.decide("send_email", arguments={"to": "eve@elsewhere.org"}, call_id="after")
    assert (refused.json["decision"], refused.json["reason"]) == ("block", "schema_invalid")
    assert "The draft is what the configuration says now" in dana.get("/policies/draft").body.decode()
    again = drafted(gateway, model, GOOD).json
    assert "is there twice" in again["problems"][0]["message"]


def test_one_draft_at_a_time_and_it_can_be_cancelled(gateway: Served, dana: Person, model: ScriptedModel) -> None:
    model.held.clear()
    try:
        assert dana.post("/policies/draft", {"wish": WISH}).status == 303
        assert "the model is asked" in dana.get("/policies/draft").body.decode()
        assert dana.post("/policies/draft", {"wish": WISH}).status == 409
        assert dana.post("/policies/draft/cancel").status == 303
        assert "cancelled" in settled(dana)
    finally:
        model.held.set()
