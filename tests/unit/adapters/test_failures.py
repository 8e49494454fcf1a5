"""What a failing body says is a tool's words like any other: judged before a framework can tell them to a model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aegis.core.decision import ResultDecision
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.failures import MAX_ERRORS, words_of
from aegis.enforce.memory import Memory
from aegis.enforce.runner import Execution
from aegis.enforce.tools import Ran, ToolGate
from support.asking import Mode, both_modes
from support.decider import ScriptedDecider, changed, seen, withheld

PAY = Execution(tool="pay", call_id="call_pay_00123456789", answer_id=None, arguments=lambda: {"amount": 3})


class Stopped(Exception):
    """A framework's word for a body that waits for a person."""


class Host:
    """A framework that runs one tool."""

    def __init__(self, decider: ScriptedDecider, mode: Mode) -> None:
        pauses = (f"{__name__}.Stopped",)
        self._gate = ToolGate(Enforcer(decider), Memory(), pauses=pauses)
        self._mode = mode

    def call(self, *says: Any) -> Ran:
        """One call of a body that raises or gives these things, run after run."""
        queue = list(says)

        def body(_: dict[str, Any]) -> Any:
            said = queue.pop(0)
            if isinstance(said, Exception):
                raise said
            return said

        async def abody(given: dict[str, Any]) -> Any:
            return body(given)

        if self._mode == "sync":
            return self._gate.call(PAY, body)
        return asyncio.run(self._gate.acall(PAY, abody))


def judging(verdict: Any, part: str) -> ScriptedDecider:
    """A decider that has this verdict on texts that hold the part."""

    def inspect(value: Any) -> ResultDecision:
        judged: ResultDecision = verdict(value) if part in str(value) else seen(value)
        return judged

    return ScriptedDecider(inspect=inspect)


@both_modes
def test_an_exception_passes_as_it_is_where_its_words_may_be_seen(mode: Mode) -> None:
    decider, error = ScriptedDecider(), ValueError("no such account")
    with pytest.raises(ValueError, match="no such account") as raised:
        Host(decider, mode).call(error)
    assert raised.value is error
    (observed,) = decider.observed
    assert (observed.decision_id, observed.result, observed.further) == (
        "d-call_pay_00123456789",
        "no such account",
        True,
    )


@both_modes
def test_what_may_not_be_seen_is_a_withheld_result_without_the_exception(mode: Mode) -> None:
    ran = Host(judging(withheld, "evil"), mode).call(ValueError("evil"))
    assert (ran.withheld, ran.result) == (True, None)
    assert "withheld" in ran.seen
    ran = Host(judging(lambda _: changed("[masked]"), "evil"), mode).call(ValueError("evil"))
    assert (ran.withheld, ran.seen) == (True, "[masked]")


@both_modes
def test_a_call_that_failed_may_be_tried_again_and_then_has_its_result(mode: Mode) -> None:
    decider = judging(withheld, "evil")
    host = Host(decider, mode)
    assert host.call(ValueError("evil")).withheld
    assert host.call("paid").seen == "paid"
    assert host.call("paid twice").seen == "paid"
    assert [one.further for one in decider.observed] == [True, False]
    assert len(decider.decided) == 1


@both_modes
def test_a_body_that_only_stops_is_not_observed(mode: Mode) -> None:
    decider = judging(withheld, "")
    with pytest.raises(Stopped):
        Host(decider, mode).call(Stopped("which account?"))
    assert decider.observed == []


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@both_modes
def test_an_exception_whose_words_cannot_be_had_is_withheld(mode: Mode) -> None:
    decider = ScriptedDecider()
    assert Host(decider, mode).call(Wordless()).withheld
    assert Host(decider, mode).call(ValueError("half a character: \ud800")).withheld
    assert decider.observed == []


def test_an_observer_that_fails_withholds() -> None:
    def gone(value: Any) -> ResultDecision:
        raise RuntimeError("gone")

    assert Host(ScriptedDecider(inspect=gone), "sync").call(ValueError("evil")).withheld


def test_the_words_are_those_of_causes_notes_and_groups() -> None:
    inner = ValueError("inner")
    inner.add_note("a note")
    group = ExceptionGroup("group", [inner, KeyError("member")])
    group.__cause__ = OSError("cause")
    assert set(words_of(group).splitlines()) == {"group (2 sub-exceptions)", "inner", "a note", "'member'", "cause"}
    around = RuntimeError("around")
    around.__context__ = around.__cause__ = inner
    inner.__context__ = around
    assert words_of(around).splitlines() == ["around", "inner", "a note"]


def test_causes_without_end_have_no_words() -> None:
    error = first = ValueError("0")
    for number in range(MAX_ERRORS):
        error.__cause__ = error = ValueError(str(number))
    with pytest.raises(ValueError, match="too many"):
        words_of(first)
