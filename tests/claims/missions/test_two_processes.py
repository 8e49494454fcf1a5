"""What one process remembers of a session lets nothing through that another process took, stopped or voided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aegis.bootstrap import open_deployment
from aegis.core.call import ToolCall
from aegis.core.canonical import canonical, sha256
from aegis.core.outcome import Outcome, Reason
from aegis.errors import StoreUnavailable
from aegis.missions.results import Usage, sign_result
from aegis.store.sqlite.store import SqliteTransaction
from support.missions import Desk, b64, desk, jwk, signer

TOOL_KEY = signer(6)
QUOTES = (
    f"missions: {{quotes: [{{tool: ask_model, money: {{EUR: 60}}}}], tool_keys: {{ask_model: {b64(TOOL_KEY.public)}}}}}"
)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[tuple[Desk, Desk]]:
    """The same home opened twice, with stores, caches and memories of their own."""
    one = desk(tmp_path / "home", QUOTES)
    other = Desk(home=open_deployment(tmp_path / "home" / "aegis.yaml", tmp_path / "home", agent="bot"), calls=1_000)
    yield one, other
    one.home.close()
    other.home.close()


def remembered(one: Desk, other: Desk, **changes: Any) -> str:
    """A mission with a session of which both have seen calls."""
    mission = one.issue(**changes)
    one.open(mission)
    for place in (one, other, one, other):
        assert place.call("list_rows").allowed
    return mission


def test_a_budget_is_exact_whoever_remembers_what(places: tuple[Desk, Desk]) -> None:
    one, other = places
    remembered(one, other, budgets={"calls": 10})
    allowed = sum(place.call("list_rows").allowed for _ in range(6) for place in (one, other, other))
    assert allowed == 6
    assert one.call("list_rows").reason is other.call("list_rows").reason is Reason.BUDGET_EXHAUSTED


def test_a_mission_that_was_stopped_elsewhere_is_stopped_here(places: tuple[Desk, Desk]) -> None:
    one, other = places
    mission = remembered(one, other)
    other.move(mission, "revoked")
    assert one.call("list_rows").reason is Reason.REVOKED


def test_a_session_that_was_voided_elsewhere_is_void_here(places: tuple[Desk, Desk]) -> None:
    one, other = places
    condition = {"id": "clean", "check": "no_pii", "recourse": ["withhold", "void_session"]}
    remembered(one, other, postconditions=[condition])
    decision = other.call("list_rows")
    assert not other.result(decision, "SSN 536-90-4399").allowed
    assert one.call("list_rows").outcome is Outcome.BLOCK


def test_denials_count_wherever_they_happened(places: tuple[Desk, Desk]) -> None:
    one, other = places
    remembered(one, other, max_denials=2)
    for _ in range(2):
        assert not other.call(path="/srv/x").allowed
    assert one.call("list_rows").reason is Reason.CHAIN_BLOCKED


def test_what_was_given_back_elsewhere_is_there_again(places: tuple[Desk, Desk]) -> None:
    one, other = places
    remembered(one, other, budgets={"money": {"EUR": 100}})
    held = one.call("ask_model", prompt="a")
    assert held.allowed
    assert other.call("ask_model", prompt="b").reason is Reason.BUDGET_EXHAUSTED
    assert one.call("ask_model", prompt="c").reason is Reason.BUDGET_EXHAUSTED
    usage = Usage(money={"EUR": 10})
    digest = sha256(canonical("an answer"))
    proof = sign_result(TOOL_KEY, decision_id=held.decision_id, result_digest=digest, usage=usage)
    assert other.result(held, "an answer", provenance=proof).allowed
    assert one.call("ask_model", prompt="d").allowed


def test_a_record_that_was_lost_leaves_nothing_in_memory(
    places: tuple[Desk, Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = places
    remembered(one, other, budgets={"calls": 100, "money": {"EUR": 100}})

    def lost(*_: object) -> None:
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(SqliteTransaction, "append", lost)
        assert one.call("list_rows").reason is Reason.UNAVAILABLE
    assert other.call("ask_model", prompt="a").allowed
    assert one.call("list_rows").allowed
    assert other.call("ask_model", prompt="b").reason is Reason.BUDGET_EXHAUSTED


def test_ledgers_of_a_whole_lineage_are_exact_whoever_remembers_what(places: tuple[Desk, Desk]) -> None:
    one, other = places
    root = one.issue(budgets={"calls": 20}, delegation={"depth": 1, "subjects": ["*"]})
    child = one.delegate(root, budgets={"calls": 10}, session_budgets={"calls": 7})
    sibling = one.delegate(root, request="r-2", budgets={"calls": 15})
    for mission, session in ((child, "s-1"), (child, "s-2"), (sibling, "s-3")):
        one.open(mission, session)

    def allowed(session: str) -> int:
        return sum(place.call("list_rows", session=session).allowed for _ in range(8) for place in (one, other))

    assert [allowed("s-1"), allowed("s-2"), allowed("s-3")] == [7, 3, 10]


def test_a_number_is_used_once_whoever_remembers_what(places: tuple[Desk, Desk]) -> None:
    one, other = places
    key = signer(9)
    mission = one.issue(cnf=jwk(key), evidence=["call_proof"], budgets={"calls": 100})
    one.open(mission, key=key)
    for number in range(1, 5):
        proved = one.proved(key, number)
        assert one.ask(proved).allowed
        again = replace(proved, call_id=f"again-{number}")
        assert other.ask(again).reason is one.ask(again).reason is Reason.PROOF_INVALID
    assert other.ask(other.proved(key, 5)).allowed
    assert one.ask(one.proved(key, 5)).reason is Reason.PROOF_INVALID
    assert one.ask(one.proved(key, 6)).allowed


def test_a_refused_call_is_counted_by_the_rate_once(tmp_path: Path) -> None:
    place = desk(tmp_path / "home")
    file = tmp_path / "home" / "aegis.yaml"
    file.write_text(file.read_text().replace("rate: unlimited", "rate: 6/minute"))
    place.home.close()
    place = Desk(home=open_deployment(file, tmp_path / "home", agent="bot"))
    place.open(place.issue(budgets={"calls": 1}))
    reasons = [place.ask(ToolCall(tool="list_rows", session="s-1", call_id=f"r-{n}")).reason for n in range(8)]
    assert reasons == [Reason.NONE, *[Reason.BUDGET_EXHAUSTED] * 5, *[Reason.RATE_LIMITED] * 2]
    place.home.close()
