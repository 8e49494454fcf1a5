"""Plans as pure values: what a call is to one, and which plan may take the place of another."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis.reasoning.plan import PlannedCall, PlanStep, SessionPlan, read_plan, to_wire

TOOLS = ("a", "b")
PATHS = ("x", "xy")


def call(tool: str, path: str = "x", effects: tuple[str, ...] = ("write",)) -> PlannedCall:
    return PlannedCall(tool, None, {"path": path, "in": {"n": 3, "ok": True}}, frozenset(effects))


@pytest.mark.parametrize(
    ("step", "fits"),
    [
        ({"tool": "a"}, True), ({"tool": "A"}, True), ({"tool": "b"}, False), ({"tool": "*"}, True),
        ({"tool": "s/a"}, False), ({"tool": "a", "arguments": {"path": "x"}}, True),
        ({"tool": "a", "arguments": {"path": ["y", "x*"]}}, True), ({"tool": "a", "arguments": {"path": "y"}}, False),
        ({"tool": "a", "arguments": {"/in/n": 3}}, True), ({"tool": "a", "arguments": {"/in/n": "3"}}, False),
        ({"tool": "a", "arguments": {"/in/ok": True}}, True), ({"tool": "a", "arguments": {"/in/ok": 1}}, False),
        ({"tool": "a", "arguments": {"none": None}}, False), ({"tool": "a", "arguments": {"/path/x": 1}}, False),
        ({"tool": "a", "effects": ["write"]}, True), ({"tool": "a", "effects": ["read"]}, False),
    ],
)  # fmt: skip
def test_a_step_takes_a_call_of_its_tool_within_its_arguments_and_effects(step: dict[str, object], fits: bool) -> None:
    plan = read_plan({"steps": [step]})
    assert (plan.place(call("a"), (0,))[0] == "next") is fits
    assert read_plan(to_wire(plan)) == plan


def test_an_ordered_plan_is_done_in_its_order_and_each_step_so_often() -> None:
    plan = read_plan({"steps": [{"tool": "a", "times": 2}, {"tool": "b"}], "ordered": True})
    assert plan.place(call("b"), (0, 0)) == ("order", 1)
    assert plan.place(call("a"), (1, 0)) == ("next", 0)
    assert plan.place(call("a"), (2, 0)) == ("done", 0)
    assert plan.place(call("b"), (1, 0)) == ("next", 1)
    assert plan.place(call("a"), (1, 1)) == ("order", 0)
    assert plan.place(call("c"), (0, 0)) == ("outside", -1)
    assert (plan.following((0, 0)), plan.following((1, 0)), plan.following((1, 1))) == (0, 1, 2)


STEPS = st.builds(
    PlanStep,
    tool=st.sampled_from(("a", "b", "*")),
    arguments=st.sampled_from(({}, {"path": ("x",)}, {"path": ("x*",)}, {"path": ("xy", "x")})),
    effects=st.sampled_from((None, ("write",), ("read", "write"), ("read",))),
    times=st.integers(1, 2),
)
PLANS = st.builds(SessionPlan, steps=st.lists(STEPS, min_size=1, max_size=3).map(tuple), ordered=st.booleans())
CALLS = [call(tool, path, effects) for tool in TOOLS for path in PATHS for effects in (("write",), ("read",))]


def runs(plan: SessionPlan, done: tuple[int, ...], calls: tuple[PlannedCall, ...]) -> bool:
    """Whether some way of counting lets all these calls through, one after the other."""
    if not calls:
        return True
    first, *rest = calls
    for number, step in enumerate(plan.steps):
        follows = not plan.ordered or (all(done[:number]) and not any(done[number + 1 :]))
        if done[number] < step.times and follows and step.takes(first):
            counted = (*done[:number], done[number] + 1, *done[number + 1 :])
            if runs(plan, counted, tuple(rest)):
                return True
    return False


def passed(plan: SessionPlan, done: tuple[int, ...], calls: tuple[PlannedCall, ...]) -> bool:
    """Whether the plan as it counts lets all these calls through."""
    for one in calls:
        standing, number = plan.place(one, done)
        if standing != "next":
            return False
        done = (*done[:number], done[number] + 1, *done[number + 1 :])
    return True


@given(before=PLANS, after=PLANS, done=st.lists(st.sampled_from(CALLS), max_size=2))
def test_a_plan_that_is_allowed_to_take_the_place_of_another_lets_nothing_more_through(
    before: SessionPlan, after: SessionPlan, done: list[PlannedCall]
) -> None:
    counts = (0,) * len(before.steps)
    for one in done:
        standing, number = before.place(one, counts)
        if standing == "next":
            counts = (*counts[:number], counts[number] + 1, *counts[number + 1 :])
    if not before.allows(after, counts):
        return
    fresh = (0,) * len(after.steps)
    for length in (1, 2):
        for calls in itertools.product(CALLS, repeat=length):
            if passed(after, fresh, calls):
                assert runs(before, counts, calls), (before, after, counts, calls)


@given(plan=PLANS)
def test_a_plan_may_take_its_own_place_before_anything_of_it_is_done(plan: SessionPlan) -> None:
    assert plan.allows(plan, (0,) * len(plan.steps)) or len({step.tool for step in plan.steps}) < len(plan.steps)
