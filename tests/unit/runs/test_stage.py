"""A stage: one outcome a guard, in order, and nothing that goes wrong lets a run go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from aegis.runs.state import GuardContext, RunGuard, RunReport, RunView, Stage
from aegis.runs.tools import StageResult, run_stage

VIEW = RunView(
    run_id="r",
    stage="ingress",
    route="default",
    principal=Principal(id="p", roles=frozenset({"agent"})),
    agent="bot",
    messages=({"role": "user", "content": "one"},),
)
CONTEXT = cast(GuardContext, None)  # the guards below use none of it


class Says:
    """A guard that answers what it is told to."""

    stages: frozenset[Stage] = frozenset({"ingress"})

    def __init__(self, name: str, answer: Callable[[RunView], Any]) -> None:
        self.name = name
        self._answer = answer
        self.asked: list[RunView] = []

    def check(self, view: RunView, _: GuardContext) -> Any:
        self.asked.append(view)
        return self._answer(view)


async def nobody(*_: object) -> tuple[bool, Reason]:
    raise AssertionError("nobody is asked")


async def stage(*guards: RunGuard, ask: Any = nobody) -> StageResult:
    return await run_stage(guards, VIEW, CONTEXT, ask)


def adds(word: str) -> Callable[[RunView], RunReport]:
    def answer(view: RunView) -> RunReport:
        message = {**view.messages[0], "content": view.messages[0]["content"] + word}
        return RunReport(outcome=Outcome.SANITIZE, messages=(message,))

    return answer


async def test_sanitising_answers_compose_in_order() -> None:
    result = await stage(Says("a", adds(" two")), Says("b", adds(" three")))
    assert result.view.messages[0]["content"] == "one two three"
    assert result.outcome is Outcome.SANITIZE
    assert [row["guard"] for row in result.rows] == ["a", "b"]


async def test_labels_are_how_guards_speak_to_each_other() -> None:
    reader = Says("reader", lambda view: RunReport())
    await stage(Says("writer", lambda view: RunReport(labels={"classification": "secret"})), reader)
    assert reader.asked[0].labels == {"classification": "secret"}


async def test_a_block_ends_the_stage_and_every_guard_that_was_asked_has_a_row() -> None:
    last = Says("last", lambda view: RunReport())
    blocks = Says("blocks", lambda view: RunReport(outcome=Outcome.BLOCK, reason=Reason.POLICY_DENIED, message="no"))
    result = await stage(Says("first", lambda view: RunReport()), blocks, last)
    assert (result.outcome, result.reason, result.message) == (Outcome.BLOCK, Reason.POLICY_DENIED, "no")
    assert [(row["guard"], row["outcome"]) for row in result.rows] == [("first", "allow"), ("blocks", "block")]
    assert last.asked == []


def raises(_: RunView) -> RunReport:
    raise RuntimeError("with a secret in its text")


@pytest.mark.parametrize(
    "answer",
    [
        raises,
        lambda view: None,
        lambda view: "allow",
        lambda view: True,
        lambda view: RunReport(outcome=Outcome.SANITIZE),
        lambda view: RunReport(messages=()),
    ],
    ids=["raises", "nothing", "a word", "a truth", "changes nothing", "changes in silence"],
)
async def test_a_guard_that_does_not_answer_properly_blocks(answer: Callable[[RunView], Any]) -> None:
    result = await stage(Says("bad", answer))
    assert (result.outcome, result.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_held_run_goes_on_only_after_a_persons_yes(allowed: bool) -> None:
    async def person(*_: object) -> tuple[bool, Reason]:
        return allowed, Reason.NONE if allowed else Reason.APPROVAL_DENIED

    after = Says("after", lambda view: RunReport())
    result = await stage(Says("asks", lambda view: RunReport(outcome=Outcome.REQUIRE_APPROVAL)), after, ask=person)
    assert len(after.asked) == allowed
    assert result.outcome is (Outcome.ALLOW if allowed else Outcome.BLOCK)
    assert result.reason is (Reason.NONE if allowed else Reason.APPROVAL_DENIED)


async def test_a_guard_may_be_asynchronous() -> None:
    async def later(view: RunView) -> RunReport:
        return RunReport(labels={"a": "b"})

    assert (await stage(Says("later", later))).view.labels == {"a": "b"}
