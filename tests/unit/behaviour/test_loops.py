"""What counts as going round in circles."""

from __future__ import annotations

from aegis.behaviour.loops import MAX_CALLS, LoopStep, Trail
from aegis.core.behaviour import OFF, LoopRules, Times

RULES = LoopRules(
    mode="enforce",
    identical=Times(count=3, within=100),
    similar=Times(count=5, within=100),
    alternating=Times(count=4, within=100),
)


def names(trail: Trail, steps: list[LoopStep], rules: LoopRules = RULES) -> list[str]:
    found = [trail.enter(step, rules) for step in steps]
    return ["" if one is None else one[0] for one in found]


def step(time: int, exact: int, similar: int = -1, tool: str = "read") -> LoopStep:
    return LoopStep(time, f"c{time}", exact, similar if similar >= 0 else exact + 1_000, tool)


def test_the_same_call_goes_beyond_its_count_and_a_person_lets_it_go_on_as_often_again() -> None:
    trail = Trail()
    assert names(trail, [step(moment, 7) for moment in range(1, 5)]) == ["", "", "", "identical"]
    trail.release(step(5, 7))
    assert names(trail, [step(moment, 7) for moment in range(6, 10)]) == ["", "", "", "identical"]


def test_the_same_call_far_apart_is_no_loop() -> None:
    assert names(Trail(), [step(101 * moment, 7) for moment in range(1, 30)]) == [""] * 29


def test_calls_that_differ_in_numbers_alone_are_a_loop_later() -> None:
    assert names(Trail(), [step(moment, moment, similar=9) for moment in range(1, 8)]) == [
        *[""] * 5,
        "similar",
        "similar",
    ]


def test_two_tools_that_answer_each_other_are_a_loop() -> None:
    steps = [step(moment, 100 + moment, similar=1 + moment % 2, tool="ab"[moment % 2]) for moment in range(1, 12)]
    rules = LoopRules(mode="enforce", alternating=Times(count=4, within=100))
    assert names(Trail(), steps, rules) == [*[""] * 9, "alternating", "alternating"]


def test_one_tool_with_two_arguments_is_none() -> None:
    steps = [step(moment, 100 + moment, similar=1 + moment % 2) for moment in range(1, 30)]
    assert set(names(Trail(), steps, LoopRules(mode="enforce", alternating=Times(count=4, within=100)))) == {""}


def test_a_call_that_is_decided_twice_counts_once() -> None:
    trail = Trail()
    assert names(trail, [step(1, 7)] * 10) == [""] * 10


def test_a_clock_that_is_set_back_frees_nothing() -> None:
    trail = Trail()
    assert names(trail, [step(50, 7), step(51, 7), step(10, 7), step(11, 7)]) == ["", "", "", "identical"]


def test_what_is_remembered_of_one_session_is_bounded() -> None:
    trail = Trail()
    names(trail, [step(moment, moment) for moment in range(1, 4 * MAX_CALLS)])
    assert len(trail.times) <= MAX_CALLS


def test_what_is_off_is_not_looked_at() -> None:
    assert RULES.identical != OFF
    assert set(names(Trail(), [step(moment, 7) for moment in range(1, 50)], LoopRules())) == {""}
