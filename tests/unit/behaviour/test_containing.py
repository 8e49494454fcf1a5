"""Counting against conditions: exact inside of their time, bounded, and deterministic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aegis.behaviour.containing import Caller, EventCounts, Noted, counted, may_count, note
from aegis.core.behaviour import ContainmentRule
from aegis.core.outcome import Risk
from aegis.core.times import MICROS

FIVE = ContainmentRule(counts={"blocked": 5}, within=600 * MICROS, of="agent", does="suspend", lasts=3_600 * MICROS)
BLOCKED = Noted(measures=frozenset({"blocked"}), receipt="r", subjects={"agent": "bot"}, severity=Risk.HIGH)


def attack(**members: object) -> dict[str, object]:
    return {
        "kind": "decision", "decision": "block", "reason": "attack_detected", "receipt_id": "r", "agent": "bot",
        "session": "s", "tool": "run", "principal": "bot", "risk": "high", "guards": [], **members,
    }  # fmt: skip


def test_the_fifth_within_the_time_fires_and_the_count_starts_from_nothing() -> None:
    tally = EventCounts()
    fired = [counted(tally, [FIVE], BLOCKED, "agent", moment * MICROS) for moment in range(10)]
    assert [one is not None for one in fired] == [False, False, False, False, True] * 2


def test_what_lies_outside_of_the_time_does_not_count() -> None:
    tally = EventCounts()
    for moment in range(4):
        assert counted(tally, [FIVE], BLOCKED, "agent", moment) is None
    assert counted(tally, [FIVE], BLOCKED, "agent", 600 * MICROS + 1) is None


def test_the_first_condition_that_holds_wins() -> None:
    loud = ContainmentRule(counts={"blocked": 5}, within=600 * MICROS, of="agent", does="revoke")
    tally = EventCounts()
    fired = [counted(tally, [FIVE, loud], BLOCKED, "agent", moment) for moment in range(5)]
    assert fired[-1] is FIVE


def test_reason_and_severity_narrow_what_counts() -> None:
    rule = ContainmentRule(
        counts={"blocked": 1}, within=MICROS, of="agent", does="alert", reason="attack_detected", severity=Risk.HIGH
    )
    cases = {("attack_detected", Risk.HIGH): True, ("attack_detected", Risk.MEDIUM): False, ("none", Risk.HIGH): False}
    for (reason, severity), fires in cases.items():
        noted = Noted(
            measures=frozenset({"blocked"}), receipt="r", subjects={"agent": "a"}, reason=reason, severity=severity
        )
        assert (counted(EventCounts(), [rule], noted, "agent", 1) is not None) is fires


def test_refusals_that_follow_from_a_stop_or_say_to_wait_do_not_count() -> None:
    rule = ContainmentRule(counts={"blocked": 1}, within=MICROS, of="agent", does="suspend", lasts=MICROS)
    for reason, fires in {"revoked": False, "rate_limited": False, "policy_denied": True}.items():
        noted = note(attack(reason=reason), (), Caller("bot"))
        assert noted is not None
        assert (counted(EventCounts(), [rule], noted, "agent", 1) is not None) is fires


def test_categories_are_different_kinds_of_attack() -> None:
    rule = ContainmentRule(counts={"categories": 2}, within=100, of="agent", does="alert")
    tally = EventCounts()
    said = [("sql_injection", 1), ("sql_injection", 2), ("pii", 3), ("ssrf", 4)]
    fired = []
    for category, moment in said:
        noted = note(attack(), [{"category": category, "severity": "high"}], Caller("bot"))
        assert noted is not None
        fired.append(counted(tally, [rule], noted, "agent", moment) is not None)
    assert fired == [False, False, False, True]


def test_an_allowed_call_counts_for_nothing() -> None:
    assert not may_count(attack(decision="allow", reason="none"))
    assert may_count(attack())
    assert may_count({"kind": "alarm"})
    assert may_count({"kind": "approval", "action": "denied"})
    assert not may_count({"kind": "approval", "action": "approved"})


def test_undecided_bodies_are_alarms_too() -> None:
    noted = note(
        {"kind": "alarm", "action": "uncovered", "receipt_id": "r", "principal": "p", "agent": "a"}, (), Caller("p")
    )
    assert noted is not None
    assert noted.measures == {"alarms", "undecided"}


@given(st.lists(st.integers(0, 2_000), min_size=1, max_size=80))
def test_a_condition_fires_exactly_when_enough_lie_inside_of_its_time_and_keeps_no_more(steps: list[int]) -> None:
    rule = ContainmentRule(counts={"blocked": 3}, within=1_000, of="agent", does="alert")
    tally, now, since_fired = EventCounts(), 0, list[int]()
    for step in steps:
        now += step
        since_fired.append(now)
        expected = sum(moment > now - rule.within for moment in since_fired) >= 3
        assert (counted(tally, [rule], BLOCKED, "agent", now) is not None) is expected
        if expected:
            since_fired.clear()
        kept = tally.moments.get(rule.key, {}).get("blocked", [])
        assert len(kept) <= 3


def test_a_condition_that_is_not_configured_any_more_is_forgotten() -> None:
    tally = EventCounts()
    counted(tally, [FIVE], BLOCKED, "agent", 1)
    counted(tally, [], BLOCKED, "agent", 2)
    assert tally.moments == {}
    assert tally.is_over([FIVE], 1)
