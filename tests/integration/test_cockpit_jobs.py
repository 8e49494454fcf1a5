"""Work beside requests: a replay over every call of a period, and the erasing of old payloads."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aegis.approvals import retention
from aegis.cockpit import policies, work
from aegis.cockpit.policies import AT_ONCE
from aegis.cockpit.work import MOST, Job
from aegis.core.times import MICROS, system_clock
from support.deployments import TOOLS
from support.people import Person, person
from support.served import Served, served

WAIT_S = 120
CALLS = 24


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "home") as running:
        calls = [{"tool": "read_file", "arguments": {"path": f"n{at}.txt"}, "call_id": f"c{at}"} for at in range(CALLS)]
        assert running.ask("POST", "/v1/decisions:batch", {"calls": calls}).status == 200
        yield running


@pytest.fixture
def dana(gateway: Served) -> Person:
    dana = person(gateway, "dana", "approver", "auditor", "admin")
    dana.sign_in()
    return dana


def until(found: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)


def ended(job: Job) -> None:
    until(lambda: not job.running)


def candidate(gateway: Served) -> str:
    assert gateway.deployment.config_path is not None
    text = gateway.deployment.config_path.read_text()
    return text.replace("risk: low, effects: [read]", "risk: critical, effects: [read]")


def test_a_replay_over_http_goes_on_by_its_cursor(gateway: Served) -> None:
    seen, path = 0, "/v1/config:replay?limit=10"
    pages = 0
    cursor: str | None = ""
    while cursor is not None:
        more = f"&cursor={cursor}" if cursor else ""
        found = gateway.ask("POST", path + more, candidate(gateway).encode(), key="root")
        assert found.status == 200
        seen, cursor, pages = seen + len(found.json["changed"]), found.json["next"], pages + 1
    assert (seen, pages) == (CALLS, 3)


def test_every_call_of_the_period_is_replayed_beyond_one_step(
    gateway: Served, dana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "REPLAY_STEP", 7)
    assert dana.post("/policies/replay", {"text": candidate(gateway), "days": "30"}).status == 303
    ended(gateway.app.cockpit.replays.job)
    page = dana.get("/policies/replay").body.decode()
    assert f"{CALLS} calls decided again, newest first" in page
    assert "all of the last 30 days" in page
    assert "Not all of" not in page
    assert re.search(r'href="/audit\?[^"]*tool=read_file[^"]*"[^>]*>' + str(CALLS), page)
    assert re.search(rf"Newly refused or held <span[^>]*>{CALLS}</span>", page)
    assert gateway.app.cockpit.replays.job.standing.by == "dana"
    assert gateway.decide(arguments={"path": "x"}, call_id="after").json["decision"] == "allow"


@pytest.mark.claim("COK-19")
def test_a_replay_is_bounded_and_says_so(gateway: Served, dana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "REPLAY_STEP", 5)
    monkeypatch.setattr(work, "MOST", 10)
    monkeypatch.setattr(work, "KEPT", 3)
    dana.post("/policies/replay", {"text": candidate(gateway), "days": "1"})
    ended(gateway.app.cockpit.replays.job)
    found = gateway.app.cockpit.replays.found
    assert (found.replayed, len(found.changes["stricter"]), found.counts["stricter"]) == (10, 3, 10)
    page = dana.get("/policies/replay").body.decode()
    assert "Not all of the last 1 day." in page
    assert "a replay ends with 10 calls" in page
    assert "No call of these days would have ended otherwise" not in page
    assert MOST > 10


@pytest.mark.claim("COK-19")
def test_the_editor_says_which_calls_it_speaks_of(
    gateway: Served, dana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = dana.post("/policies/check", {"text": candidate(gateway), "days": "7"}).body.decode()
    assert f"{CALLS} calls decided again" in whole
    assert "all of the last 7 days" in whole
    monkeypatch.setattr(policies, "MAX_REPLAYED", 3)
    assert gateway.deployment.config_path is not None
    same = gateway.deployment.config_path.read_text() + "# read again\n"
    part = dana.post("/policies/check", {"text": same, "days": "7"}).body.decode()
    looked = 3 * AT_ONCE
    assert "Not all of the last 7 days." in part
    assert f"None of these {looked} calls would have ended otherwise." in part
    assert "Replay all calls of these days" in part


def test_a_replay_is_cancelled_and_another_waits_for_its_end(
    gateway: Served, dana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "REPLAY_STEP", 1)
    monkeypatch.setattr("aegis.cockpit.work.PAUSE_S", 30.0)  # it stays in its first pause
    form = {"text": candidate(gateway), "days": "1"}
    assert dana.post("/policies/replay", form).status == 303
    until(lambda: gateway.app.cockpit.replays.found.replayed == 1)
    assert "Cancel" in dana.get("/policies/replay").body.decode()
    assert dana.post("/policies/replay", form).status == 409
    assert dana.post("/policies/replay/cancel").status == 303
    ended(gateway.app.cockpit.replays.job)
    assert "cancelled" in dana.get("/policies/replay").body.decode()
    assert gateway.app.cockpit.replays.found.replayed == 1


@pytest.mark.parametrize("form", [{"days": "0"}, {"days": "many"}, {"days": "1", "text": "tools: ["}])
def test_a_replay_that_cannot_be_is_refused(gateway: Served, dana: Person, form: dict[str, str]) -> None:
    assert dana.post("/policies/replay", {"text": candidate(gateway), **form}).status == 422
    assert not gateway.app.cockpit.replays.job.running


@pytest.mark.claim("COK-13")
def test_old_payloads_are_erased_on_record_but_not_those_that_somebody_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "STEP", 9)
    text = f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\napprovals: {{timeout: 7d}}\n{TOOLS}"
    with served(tmp_path / "home", text) as gateway:
        for number in range(20):
            gateway.decide(arguments={"path": f"n{number}.txt"}, call_id=f"c{number}")
        held = gateway.decide("send_email", arguments={"to": "ada@example.com"}, call_id="held").json["approval"]["id"]
        gateway.decide(key="other", arguments={"path": "kept.txt"}, call_id="other")
        dana = person(gateway, "dana", "approver", "auditor", "admin")
        dana.sign_in()
        told = gateway.app.cockpit.retention
        assert dana.post("/audit/retention", {"days": "1"}).status == 422
        assert dana.post("/audit/retention", {"days": "0", "sure": "yes"}).status == 422
        assert dana.post("/audit/retention", {"days": "1", "sure": "yes"}).status == 303
        ended(told.job)
        assert told.told.erased == 0  # nothing is a day old
        later = 2 * 24 * 3_600 * MICROS
        object.__setattr__(gateway.app.services.gate.parts, "clock", lambda: system_clock() + later)
        dana.sign_in()
        assert dana.post("/audit/retention", {"days": "1", "agent": "bot", "sure": "yes"}).status == 303
        ended(told.job)
        assert (told.told.erased, told.told.held) == (20, 1)
        page = dana.get("/audit").body.decode()
        assert "20 payloads older than 1 day of bot" in page
        assert "1 left" in page
        erasures = gateway.ask("GET", "/v1/receipts?kind=erasure&limit=100", key="auditor").json["items"]
        assert len(erasures) == 20
        assert {one["principal"] for one in erasures} == {"dana"}
        for call_id, kept in (("c3", False), ("other", True)):
            receipt = gateway.ask("GET", f"/v1/receipts?call_id={call_id}", key="auditor").json["items"][0][
                "receipt_id"
            ]
            found = gateway.ask("GET", f"/v1/receipts/{receipt}", key="auditor").json["payload"]
            assert (found is not None) is kept
        assert gateway.ask("GET", f"/v1/approvals/{held}", key="ann").json["arguments"] == {"to": "ada@example.com"}
