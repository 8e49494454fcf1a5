from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from aegis.policy.guards import rate
from aegis.policy.guards.rate import MAX_LIMIT, ByteRate, Rate, RateGuard, Windows
from support.cases import make_case
from support.threads import together

SECOND = 1_000_000
MINUTE = 60 * SECOND


def test_the_window_slides_exactly() -> None:
    guard = RateGuard(Rate(limit=3, seconds=60))
    for now in (0, 10 * SECOND, 20 * SECOND):
        assert guard.check(make_case(now=now)).outcome is Outcome.ALLOW
    refused = guard.check(make_case(now=MINUTE - 1))
    assert (refused.outcome, refused.reason, refused.retry_after) == (Outcome.BLOCK, Reason.RATE_LIMITED, 1)
    assert guard.check(make_case(now=MINUTE)).outcome is Outcome.ALLOW
    refused = guard.check(make_case(now=MINUTE))
    assert refused.retry_after == 10


def test_the_call_passes_after_the_time_that_the_refusal_names() -> None:
    guard = RateGuard(Rate(limit=1, seconds=7))
    guard.check(make_case(now=123_456))
    refused = guard.check(make_case(now=123_457))
    assert refused.retry_after == 7
    assert guard.check(make_case(now=123_457 + 7 * SECOND)).outcome is Outcome.ALLOW


def test_refused_calls_are_not_counted() -> None:
    guard = RateGuard(Rate(limit=1, seconds=60))
    for now in range(0, MINUTE, SECOND):
        guard.check(make_case(now=now))
    assert guard.check(make_case(now=MINUTE)).outcome is Outcome.ALLOW


def test_agents_are_counted_apart_and_by_their_credential() -> None:
    guard = RateGuard(Rate(limit=1, seconds=60))
    one = Principal(id="k1", roles=frozenset({"agent"}), agent="one")
    two = Principal(id="k2", roles=frozenset({"agent"}), agent="two")
    assert guard.check(make_case(principal=one, agent="x")).outcome is Outcome.ALLOW
    assert guard.check(make_case(principal=two, agent="x")).outcome is Outcome.ALLOW
    assert guard.check(make_case(principal=one, agent="y")).outcome is Outcome.BLOCK


def test_a_clock_that_runs_backwards_frees_no_place() -> None:
    guard = RateGuard(Rate(limit=2, seconds=60))
    guard.check(make_case(now=MINUTE))
    guard.check(make_case(now=0))
    assert guard.check(make_case(now=MINUTE + 1)).outcome is Outcome.BLOCK
    assert guard.check(make_case(now=0)).outcome is Outcome.BLOCK


def test_time_stands_still_while_the_clock_is_behind() -> None:
    windows, limit = Windows(), Rate(limit=2, seconds=60)
    windows.charge("a", 10 * SECOND, limit)
    windows.charge("a", 20 * SECOND, limit)
    assert windows.charge("a", 15 * SECOND, limit) == 50 * SECOND


def test_a_credential_without_an_agent_is_counted_by_itself() -> None:
    guard = RateGuard(Rate(limit=1, seconds=60))
    one, two = (Principal(id=name, roles=frozenset({"agent"})) for name in ("k1", "k2"))
    assert guard.check(make_case(principal=one)).outcome is Outcome.ALLOW
    assert guard.check(make_case(principal=two)).outcome is Outcome.ALLOW
    assert guard.check(make_case(principal=one)).outcome is Outcome.BLOCK


def test_a_forked_child_counts_on_though_the_lock_was_held_at_the_fork() -> None:
    windows, limit = Windows(), Rate(limit=1, seconds=60)
    windows.charge("a", 0, limit)
    with windows._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if windows.charge("a", 0, limit) == MINUTE else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_the_finding_names_the_limit_and_nothing_of_the_call() -> None:
    guard = RateGuard(Rate(limit=1, seconds=60))
    guard.check(make_case())
    (finding,) = guard.check(make_case()).findings
    assert (finding.guard, finding.rule, finding.category, finding.evidence) == ("rate", "rate-limit", "rate", "")


def test_unlimited_counts_nothing() -> None:
    guard = RateGuard(None)
    assert all(guard.check(make_case()).outcome is Outcome.ALLOW for _ in range(1_000))


def test_another_guard_over_the_same_windows_goes_on_counting() -> None:
    windows = Windows()
    RateGuard(Rate(limit=2, seconds=60), windows).check(make_case(now=0))
    RateGuard(Rate(limit=2, seconds=60), windows).check(make_case(now=0))
    lower = RateGuard(Rate(limit=1, seconds=60), windows).check(make_case(now=30 * SECOND))
    assert (lower.outcome, lower.retry_after) == (Outcome.BLOCK, 30)


def test_agents_beyond_the_bound_wait_until_an_idle_one_can_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "MAX_AGENTS", 2)
    windows = Windows()
    limit = Rate(limit=5, seconds=60)
    assert windows.charge("a", 0, limit) == 0
    assert windows.charge("b", SECOND, limit) == 0
    assert windows.charge("c", 2 * SECOND, limit) == 58 * SECOND
    assert windows.charge("a", 59 * SECOND, limit) == 0
    assert windows.charge("c", 61 * SECOND, limit) == 0
    assert windows.charge("a", 61 * SECOND, limit) == 0


def test_an_agent_is_forgotten_only_when_its_last_call_left_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "MAX_AGENTS", 1)
    windows, limit = Windows(), Rate(limit=5, seconds=60)
    windows.charge("a", 0, limit)
    windows.charge("a", 30 * SECOND, limit)
    assert windows.charge("b", 61 * SECOND, limit) == 29 * SECOND
    assert windows.charge("b", 90 * SECOND - 1, limit) == 1
    assert windows.charge("b", 90 * SECOND, limit) == 0


def test_threads_never_pass_more_than_the_limit() -> None:
    guard = RateGuard(Rate(limit=100, seconds=60))
    passed: list[bool] = []

    def call() -> None:
        passed.extend(guard.check(make_case(now=1)).outcome is Outcome.ALLOW for _ in range(50))

    together(8, call)
    assert sum(passed) == 100


def test_the_highest_rate_is_one() -> None:
    assert Rate(limit=MAX_LIMIT, seconds=1).limit == 100_000


@pytest.mark.parametrize("limit", [0, -1, MAX_LIMIT + 1])
def test_a_rate_without_bounds_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="between 1 and"):
        Rate(limit=limit, seconds=60)


@given(st.lists(st.tuples(st.integers(0, 20 * SECOND), st.integers(1, 80)), max_size=80))
def test_a_window_of_bytes_never_holds_more_than_its_rate_and_one_call(calls: list[tuple[int, int]]) -> None:
    rate_of_bytes = ByteRate(limit=100, seconds=60)
    guard = RateGuard(None, byte_rate=rate_of_bytes)
    now, taken = 0, list[tuple[int, int]]()
    for later, size in calls:
        now += later
        report = guard.check(make_case(now=now, size=size))
        inside = sum(held for moment, held in taken if moment > now - MINUTE)
        if report.outcome is Outcome.ALLOW:
            assert inside < rate_of_bytes.limit
            taken.append((now, size))
            continue
        assert report.reason is Reason.RATE_LIMITED
        assert report.retry_after is not None
        after = now + report.retry_after * SECOND
        assert guard.check(make_case(now=after, size=1)).outcome is Outcome.ALLOW
        now = after
        taken.append((now, 1))


def test_what_is_larger_than_the_window_fits_into_an_empty_one_and_the_next_waits() -> None:
    guard = RateGuard(None, byte_rate=ByteRate(limit=100, seconds=60))
    assert guard.check(make_case(now=0, size=1_000)).outcome is Outcome.ALLOW
    assert guard.charge_result("bot", 1 * SECOND, 5) == 60
    assert guard.check(make_case(now=30 * SECOND, size=1)).findings[0].rule == "byte-rate-limit"
    assert guard.charge_result("bot", 61 * SECOND, 5) == 0


def test_a_call_beyond_the_rate_of_calls_takes_no_bytes() -> None:
    guard = RateGuard(Rate(limit=1, seconds=60), byte_rate=ByteRate(limit=100, seconds=3_600))
    assert guard.check(make_case(now=0, size=10)).outcome is Outcome.ALLOW
    for second in range(50):
        assert guard.check(make_case(now=second * SECOND, size=90)).findings[0].rule == "rate-limit"
    assert guard.check(make_case(now=61 * SECOND, size=10)).outcome is Outcome.ALLOW
