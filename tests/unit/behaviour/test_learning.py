"""What is learned of an agent, what is far from it, and how far anybody can move it."""

from __future__ import annotations

from itertools import count
from typing import Any

import orjson
import pytest
from benchmarks.behaviour import fleets
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from aegis.behaviour.features import SLOTS, LearnedCall, called_of
from aegis.behaviour.learning import DRIFT_BITS, AgentModel
from aegis.behaviour.trust import trust_of
from aegis.core.ports import Entry
from aegis.core.times import MICROS

START = 1_790_000_000 // 86_400 * 86_400 + 9 * 3_600


def call(number: int, tool: str = "fetch", **arguments: Any) -> LearnedCall:
    wanted = arguments or {"url": f"https://docs.example/{number}"}
    time = (START + number * 20) * MICROS
    return called_of(time=time, server=None, tool=tool, arguments=wanted, size=60, effects=["network"])


def learned(calls: int = 600) -> AgentModel:
    model = AgentModel()
    for number in range(calls):
        called = call(number)
        model.learn(called, model.score(called))
    return model


def test_a_usual_call_is_no_surprise_and_a_first_host_is_with_its_name() -> None:
    model = learned()
    assert model.score(call(600)).bits == 0
    found = model.score(call(600, url="https://paste.example/x"))
    assert found.is_unusual
    assert found.reasons == ("first time to `paste.example`",)


def test_the_three_largest_reasons_are_said_in_words() -> None:
    model = learned()
    night = called_of(
        time=(START + 14 * 3_600) * MICROS, server=None, tool="fetch", size=60_000, effects=["network"],
        arguments={"url": "https://paste.example/x"},
    )  # fmt: skip
    reasons = model.score(night).reasons
    assert len(reasons) == 3
    assert any("23 h" in one for one in reasons)


def test_a_model_is_a_function_of_its_calls_and_survives_being_written() -> None:
    assert learned().encode() == learned().encode()
    model = learned()
    again = AgentModel.decode(model.encode())
    assert again.score(call(600, tool="drop")) == model.score(call(600, tool="drop"))
    with pytest.raises(ValueError, match="not a model"):
        AgentModel.decode(b"x")


def test_a_model_takes_at_most_four_kilobytes_whatever_it_learns() -> None:
    model = AgentModel()
    for number in range(3_000):
        called = call(number, url=f"https://h{number}.example/{number}", note=f"n{number}")
        model.learn(called, model.score(called))
    assert len(model.encode()) <= 4_096


def test_what_a_person_called_fine_is_known_from_then_on() -> None:
    model = learned()
    strange = call(600, url="https://paste.example/x")
    model.learn(strange, model.score(strange), taught=True)
    assert not model.score(call(601, url="https://paste.example/y")).is_unusual


def test_one_day_teaches_only_so_much_that_is_new() -> None:
    model = learned(600)
    for number in range(1_000):  # until the evening of the same day
        called = call(600 + number, url=f"https://warm{number}.example/")
        model.learn(called, model.score(called))
    assert model._drift >= DRIFT_BITS
    last = call(1_700, url="https://warm999.example/")
    assert model.score(last).bits > 0


def test_a_clock_that_jumps_moves_the_hour_and_one_day_of_drift_and_nothing_else() -> None:
    model = learned(600)

    def at(number: int, jump: int, **arguments: Any) -> LearnedCall:
        time = (START + number * 20 + jump) * MICROS
        return called_of(
            time=time, server=None, tool="fetch", size=60, effects=["network"],
            arguments=arguments or {"url": "https://docs.example/1"},
        )  # fmt: skip

    for jump in (-10 * 365 * 86_400, 10 * 365 * 86_400, -(10**9), 0):
        surprise = model.score(at(601, jump))
        model.learn(at(601, jump), surprise)
        assert all("h UTC" in reason or "never at" in reason for reason in surprise.reasons)
    spent = model._drift
    for number in range(1_000):  # a clock that runs backwards day by day gives no day's bound again
        back = at(602, -86_400 * number, url=f"https://warm{number}.example/")
        surprise = model.score(back)
        model.learn(back, surprise)
    assert spent < DRIFT_BITS <= model._drift <= DRIFT_BITS + 100


def test_whoever_warms_a_model_up_is_unusual_from_the_first_call_on_and_held_calls_teach_nothing() -> None:
    model = learned(SLOTS)
    for number in range(500):
        called = call(SLOTS + number, url=f"https://warm{number}.example/")
        surprise = model.score(called)
        assert surprise.is_unusual
        model.learn(call(SLOTS + number), model.score(call(SLOTS + number)))


def test_unusual_calls_lift_the_limit_by_small_steps_alone() -> None:
    model = learned(SLOTS)
    limit = model.limit
    for number in range(3):
        called = call(SLOTS + number, tool=f"drop{number}", everything=10**9 * (number + 1))
        model.learn(called, model.score(called))
    assert limit < model.limit < limit + 8


def test_an_agent_that_meets_other_hosts_all_the_time_is_not_surprising_by_one() -> None:
    model = AgentModel()
    for number in range(500):
        called = call(number, url=f"https://h{number}.example/")
        model.learn(called, model.score(called))
    assert not model.score(call(500, url="https://h500.example/")).is_unusual
    assert model.score(call(500, url="https://h500.example/", bcc="all")).is_unusual


def test_each_kind_of_value_is_held_against_its_own_past_too() -> None:
    model = learned()
    model._bits[80] = 9  # its calls as a whole were surprising now and then, and never by their size
    large = called_of(
        time=(START + 600 * 20) * MICROS, server=None, tool="fetch", size=2**16, effects=["network"],
        arguments={"url": "https://docs.example/1"},
    )  # fmt: skip
    surprise = model.score(large)
    assert surprise.is_unusual
    assert model.limit > surprise.bits > surprise.limit
    assert surprise.reasons[0].startswith("never so large before")


def test_a_rate_that_grows_call_by_call_makes_no_room_for_itself() -> None:
    model = learned()
    limit = model.limit
    for number in range(200):
        quick = structs.replace(call(600), time=(START + 700 * 20) * MICROS + number)
        model.learn(quick, model.score(quick))
    assert model.limit == limit


def test_a_burst_is_no_excuse_for_itself() -> None:
    model, found = learned(), []
    for number in range(100):
        quick = called_of(
            time=(START + 600 * 20) * MICROS + number, server=None, tool="fetch", size=60, effects=["network"],
            arguments={"url": "https://docs.example/9"},
        )  # fmt: skip
        surprise = model.score(quick)
        found.append(surprise.is_unusual)
        model.learn(quick, surprise)
    assert not found[3] and found[-1]


def test_a_clock_that_jumps_changes_no_more_than_the_hour() -> None:
    model = learned()
    far = called_of(
        time=(START + 10**9) * MICROS, server=None, tool="fetch", size=60, effects=["network"],
        arguments={"url": "https://docs.example/9"},
    )  # fmt: skip
    model.learn(far, model.score(far))
    assert model.score(call(601)).bits == 0


def test_fleets_with_strange_calls_of_ten_kinds() -> None:
    counts = fleets(8, 1_500, seed=3)
    share = {kind: counts.found[kind] / counts.put[kind] for kind in counts.put}
    assert min(share.values()) >= 0.8
    assert 1_000 * counts.false / counts.honest <= 1


PLACES = count()


def entry(day: int, decision: str, reason: str = "none", kind: str = "decision") -> Entry:
    return Entry(
        index=next(PLACES), leaf_hash=b"", body=b"", receipt_id="", time=day * 86_400 * MICROS, kind=kind,
        principal="p", agent="a", decision=decision, reason=reason,
    )  # fmt: skip


def test_trust_begins_in_the_middle_grows_with_work_falls_with_attacks_and_forgets() -> None:
    assert trust_of(()).score == 50
    work = [entry(0, "allow")] * 400
    assert trust_of(work).score > 90
    attacked = [*work, *[entry(1, "block", "attack_detected")] * 10]
    fallen = trust_of(attacked).score
    assert fallen < 50
    assert trust_of([*attacked, *[entry(60, "allow")] * 50]).score > fallen
    assert [day for day, _ in trust_of(attacked).days] == ["1970-01-01", "1970-01-02"]


def answered(action: str, *approvers: str) -> Entry:
    body = orjson.dumps({"action": action, "approvers": approvers})
    return structs.replace(entry(0, "", kind="approval"), body=body, principal="ann")


def test_what_people_answer_counts_more_than_what_nobody_looked_at_and_what_they_did_not_answer_not_at_all() -> None:
    work = [entry(0, "allow") for _ in range(10)]
    alone = trust_of(work).score
    assert trust_of([*work, answered("denied", "ann")]).score < trust_of([*work, entry(0, "block")]).score < alone
    assert trust_of([*work, answered("approved", "ann")]).score > trust_of([*work, entry(0, "allow")]).score
    assert trust_of([*work, answered("approved"), answered("expired", "ann")]).score == alone
    noted = structs.replace(entry(0, "allow"), body=b'{"guards":[{"rules":["unusual"]}]}')
    assert trust_of([*work, noted]).score < alone


def test_a_result_that_is_not_attested_counts_against_and_one_that_is_counts_nothing() -> None:
    work = [entry(0, "allow") for _ in range(40)]
    assert trust_of([*work, entry(0, "allow", kind="result")]).score == trust_of(work).score
    unsigned = trust_of([*work, entry(0, "block", "insufficient_evidence", "result")]).score
    failed = trust_of([*work, entry(0, "block", "postcondition_failed", "result")]).score
    assert failed < unsigned < trust_of(work).score


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["allow", "block"]), st.integers(0, 90)), max_size=40))
def test_what_others_of_a_program_did_never_lifts_the_trust_in_one(made: list[tuple[bool, str, int]]) -> None:
    own, others = list[Entry](), list[Entry]()
    for mine, decision, day in sorted(made, key=lambda one: one[2]):
        reason = "attack_detected" if decision == "block" or not mine else "none"
        (own if mine else others).append(entry(day, decision if mine else "block", reason))
    alone = trust_of(own)
    assert trust_of(own, others).score <= alone.score
    assert trust_of(own, others).bad <= round(alone.bad + 3.0, 2) + 0.01
