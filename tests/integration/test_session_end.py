"""The end of a session: nothing follows it, what waited or was granted ends, and missing results are on record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from aegis.approvals import grants
from aegis.approvals.answering import Answer
from aegis.approvals.queue import find
from aegis.behaviour.trust import trust_in
from aegis.bootstrap import Deployment
from aegis.cockpit.rollup import Tally
from aegis.context.ending import PAGE, end_idle
from aegis.core.call import ToolCall, ToolResult
from aegis.core.decision import Decision, ParentSession
from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Search, never_came
from aegis.core.principal import Principal
from aegis.core.times import MICROS
from aegis.errors import InvalidCall
from aegis.gate.parts import Parts
from aegis.server.events import shape
from support.deployments import deployment

ANN = Principal(id="ann", roles=frozenset({"approver"}))
IBAN = "DE44500105175407324931"
CONFIG = """
version: 1
store: 'memory:'
limits: {rate: unlimited}
insufficient_evidence: defer
guards: {loops: {mode: off}}
tools:
  read_bill: {risk: low, effects: [read]}
  deploy: {risk: high, irreversible: true, effects: [exec]}
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    opened = deployment(tmp_path / "home", CONFIG)
    yield opened
    opened.close()


def call(place: Deployment, tool: str, call_id: str | None = None, **more: Any) -> Decision:
    arguments = more.pop("arguments", {})
    return place.gate.decide(ToolCall(tool=tool, arguments=arguments, call_id=call_id, session="s", **more))


def receipts(place: Deployment, kind: str) -> list[dict[str, Any]]:
    with place.store.reader() as reader:
        return [orjson.loads(one.body) for one in reader.search(Search(kind=kind, session="s", limit=2_000))]


def refused(code: str, status: int) -> Any:
    return pytest.raises(InvalidCall, check=lambda error: (error.code, error.status) == (code, status))


def test_nothing_is_said_opened_or_called_after_the_end(place: Deployment) -> None:
    place.gate.open_session("s", task="Read the bill")
    assert call(place, "read_bill").allowed
    ended = place.gate.end_session("s")
    assert ended.fresh
    after = call(place, "read_bill")
    assert (after.outcome, after.reason, after.message) == (Outcome.BLOCK, Reason.REVOKED, "this session has ended")
    for say in (
        lambda: place.gate.add_turn("s", "and another"),
        lambda: place.gate.open_session("s", task="Read the bill"),
        lambda: place.gate.open_session("below", parent=ParentSession(session="s")),
    ):
        with refused("session_ended", 409):
            say()
    again = place.gate.end_session("s")
    assert (again.fresh, again.receipt) == (False, ended.receipt)
    assert call(place, "read_bill", "other").message == "this session has ended"


def test_results_that_never_came_are_unknown_and_come_too_late(place: Deployment) -> None:
    told, silent = call(place, "read_bill", "told"), call(place, "read_bill", "silent")
    call(place, "deploy", "held")
    place.gate.observe(ToolResult(decision_id=told.decision_id, result="a bill"))
    place.gate.end_session("s")
    results = {one["call_id"]: one for one in receipts(place, "result")}
    assert {name: one["execution"] for name, one in results.items()} == {"told": "ok", "silent": "unknown"}
    assert (results["silent"]["parent"], results["silent"]["decision"]) == (silent.decision_id, "block")
    with refused("conflict", 409):
        place.gate.observe(ToolResult(decision_id=silent.decision_id, result="late"))
    place.gate.end_session("s")
    assert len(receipts(place, "result")) == 2


def test_a_result_that_never_came_is_nowhere_a_blocked_one(place: Deployment) -> None:
    call(place, "read_bill", "silent")
    with place.store.reader() as reader:
        before = trust_in(reader, "bot").bad
    place.gate.end_session("s")
    with place.store.reader() as reader:
        entries = list(reader.entries(0, reader.head().size))
        assert trust_in(reader, "bot").bad <= before
    silent, tally = [one for one in entries if one.kind == "result"], Tally()
    for one in entries:
        tally.add(one)
    assert [never_came(one) for one in silent] == [True]
    assert not tally.groups
    assert shape(place.store, silent) == []


def test_more_calls_than_a_page_are_all_settled(place: Deployment) -> None:
    for number in range(PAGE + 20):
        call(place, "read_bill", f"c{number}")
    place.gate.end_session("s")
    assert len({one["call_id"] for one in receipts(place, "result")}) == PAGE + 20


def test_what_waits_ends_with_the_session_and_so_does_what_was_granted(place: Deployment) -> None:
    place.gate.open_session("s", task="Please pay the bill 'bill.txt' for me")
    call(place, "read_bill", "first")
    deferred = call(place, "read_bill", "second", depends_on=("first",))
    held = call(place, "deploy", "third")
    granted = call(place, "deploy", "fourth", arguments={"to": "staging"})
    assert deferred.approval and held.approval and granted.approval
    place.gate.answer(granted.approval.id, Answer(decision="approve", scope="session"), principal=ANN)
    place.gate.end_session("s")
    with place.store.reader() as reader:
        states = [found.state for one in (deferred, held) if one.approval and (found := find(reader, one.approval.id))]
        active = reader.documents(grants.COLLECTION, state="active")
    assert (states, list(active)) == (["expired", "cancelled"], [])
    with pytest.raises(InvalidCall):
        place.gate.answer(held.approval.id, Answer(decision="approve"), principal=ANN)
    assert not call(place, "deploy", "fourth", arguments={"to": "staging"}).allowed


def test_a_session_that_nobody_knows_has_no_end(place: Deployment) -> None:
    with refused("not_found", 404):
        place.gate.end_session("elsewhere")


def test_without_memory_of_sessions_the_end_holds_as_well(tmp_path: Path) -> None:
    guards = "guards: {dataflow: {mode: off}, drift: {mode: off, alert: 60, hold: 80}}"
    place = deployment(tmp_path / "home", f"version: 1\nstore: 'memory:'\n{guards}\n")
    try:
        assert call(place, "read_bill").allowed
        place.gate.end_session("s")
        assert call(place, "read_bill").reason is Reason.REVOKED
    finally:
        place.close()


def test_sessions_that_nobody_used_for_as_long_as_configured_end(tmp_path: Path) -> None:
    place = deployment(tmp_path / "home", CONFIG + "sessions: {idle: 1h}\n")
    now = place.gate.parts.clock()
    later = replace(place.gate.parts, clock=lambda: now + 2 * 3_600 * MICROS)

    async def sweep(parts: Parts) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(end_idle(parts, place.gate, 0.01), 0.5)

    try:
        place.gate.open_session("never used", task="Read")
        assert call(place, "read_bill").allowed
        asyncio.run(sweep(place.gate.parts))
        assert call(place, "read_bill").allowed
        asyncio.run(sweep(later))
        assert call(place, "read_bill").message == "this session has ended"
        with refused("session_ended", 409):
            place.gate.add_turn("never used", "hello")
        assert [one["principal"] for one in receipts(place, "session")] == ["gate"]
        assert len(receipts(place, "result")) == 2
    finally:
        place.close()
