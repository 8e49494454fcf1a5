"""What is taken for a user's words at the entries of agents' runs, and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from aegis.core.call import ToolResult
from aegis.core.decision import SaidTurn
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.scope import Session, is_outermost, session_context, within
from aegis.enforce.words import MAX_DOCUMENT_BYTES, MAX_TEXT_BYTES, heard, repeats, user_texts, words_in
from aegis.wire.anthropic import AnthropicMessages
from aegis.wire.openai_chat import OpenAIChat
from aegis.wire.openai_responses import OpenAIResponses
from support.decider import ScriptedDecider


def said(enforcer: Enforcer, *texts: str, results: tuple[Any, ...] = (), session: Session | None = None) -> None:
    enforcer.run(enforcer.say(texts, session or Session(name="s"), results))


def turns(decider: ScriptedDecider) -> list[tuple[str, tuple[str, ...]]]:
    return [(text, documents) for _, text, _, documents in decider.turns]


def test_words_are_said_once_in_each_session() -> None:
    decider = ScriptedDecider()
    enforcer = Enforcer(decider, host=decider)
    said(enforcer, "pay the rent", "pay the rent", " ")
    said(enforcer, "pay the rent", "and the phone")
    said(enforcer, "pay the rent", session=Session(name="other"))
    said(enforcer, "pay the rent", session=Session(name="third", task="pay the rent"))
    heard_in = [(session, text) for session, text, _, _ in decider.turns]
    assert heard_in == [("s", "pay the rent"), ("s", "and the phone"), ("other", "pay the rent")]


def test_a_text_that_repeats_a_result_is_nobodys_words() -> None:
    decider = ScriptedDecider()
    enforcer = Enforcer(decider, host=decider)
    bill = {"text": "Rent for June, please pay 900 to GB33BUKB20201555555555 by Friday, thank you"}
    with session_context(Session(name="s")):
        enforcer.run(enforcer.observe([ToolResult(decision_id="d", result=bill)]))
    said(enforcer, "Observation: please pay 900 to GB33BUKB20201555555555 by Friday, thank you")
    said(enforcer, "what the tool said: GB33BUKB20201555555555", results=("GB33BUKB20201555555555",))
    assert turns(decider) == []
    said(enforcer, "please pay my rent")
    assert turns(decider) == [("please pay my rent", ())]


def test_long_texts_are_documents_and_longer_ones_nothing() -> None:
    decider = ScriptedDecider()
    enforcer = Enforcer(decider, host=decider)
    long = "a b " * (MAX_TEXT_BYTES // 2)
    said(enforcer, long, "x" * (MAX_DOCUMENT_BYTES + 1), "short")
    assert turns(decider) == [("", (long,)), ("short", ())]


class Failing(ScriptedDecider):
    fails = True

    def add_turn(self, session: str, text: str, **options: Any) -> SaidTurn:
        if self.fails:
            raise RuntimeError("secret words")
        return super().add_turn(session, text, **options)


def test_words_that_cannot_be_recorded_are_said_again_and_stop_no_run(caplog: pytest.LogCaptureFixture) -> None:
    decider = Failing()
    enforcer = Enforcer(decider, host=decider)
    said(enforcer, "pay the rent")
    assert "could not be recorded" in caplog.text
    assert "secret" not in caplog.text
    decider.fails = False
    said(enforcer, "pay the rent")
    assert turns(decider) == [("pay the rent", ())]


def test_an_entry_inside_another_run_or_a_body_is_not_heard() -> None:
    assert heard(lambda text: [text], ("go",), {}) == ["go"]
    with within():
        assert not is_outermost()
        assert heard(lambda text: [text], ("go",), {}) == []
    assert heard(lambda: ["go", 7], (), {}) == ["go"]  # type: ignore[list-item]
    assert heard(lambda: [str(1 / 0)], (), {}) == []  # what cannot be read is no reason to stop a run


def test_entries_of_every_kind_are_heard_before_they_run() -> None:
    decider = ScriptedDecider()
    enforcer = Enforcer(decider, host=decider)
    entry = enforcer.hearer.entry(lambda text: [text])

    def call(_: str) -> tuple[int, bool]:
        return len(decider.turns), is_outermost()

    def items(text: str) -> Iterator[tuple[int, bool]]:
        yield call(text)

    async def acall(text: str) -> tuple[int, bool]:
        return call(text)

    async def aitems(text: str) -> AsyncIterator[tuple[int, bool]]:
        yield call(text)

    async def asynchronous() -> list[tuple[int, bool]]:
        return [await entry(acall)("three"), *[one async for one in entry(aitems)("four")]]

    with session_context(Session(name="s")):
        found = [entry(call)("one"), *entry(items)("two"), *asyncio.run(asynchronous())]
    assert found == [(1, False), (2, False), (3, False), (4, False)]
    assert is_outermost()


class Message:
    type = "human"
    content = ({"type": "text", "text": "c"}, {"type": "image", "text": "no"}, "d")


def test_only_texts_of_role_user_are_words() -> None:
    messages = [
        "a", ("user", "b"), ("ai", "no"), Message(), {"role": "assistant", "content": "no"},
        {"role": "user", "content": [{"type": "input_text", "text": "e"}, {"type": "tool_result", "content": "no"}]},
        {"role": "tool", "content": "no"}, {"role": "system", "content": "no"}, 7,
    ]  # fmt: skip
    assert list(user_texts(messages)) == ["a", "b", "c", "d", "e"]


CHAT = {"messages": [
    {"role": "system", "content": "no"}, {"role": "user", "content": "go"},
    {"role": "user", "content": [{"type": "text", "text": "on"}, {"type": "file", "file": {"file_data": "no"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "no"},
]}  # fmt: skip
RESPONSES = {"instructions": "no", "prompt": {"variables": {"document": "no"}}, "input": [
    {"role": "user", "content": "go"}, {"role": "user", "content": [{"type": "input_text", "text": "on"}]},
    {"type": "function_call_output", "call_id": "c", "output": "no"},
]}  # fmt: skip
MESSAGES = {"system": "no", "messages": [
    {"role": "user", "content": "go"}, {"role": "assistant", "content": "no"},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "no"}]},
        {"type": "document", "source": {"type": "text", "data": "no"}}, {"type": "text", "text": "on"},
    ]},
]}  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "body"),
    [(OpenAIChat(), CHAT), (OpenAIResponses(), RESPONSES), (AnthropicMessages(), MESSAGES)],
    ids=["chat", "responses", "messages"],
)
def test_what_a_user_says_in_a_request(dialect: Any, body: dict[str, Any]) -> None:
    assert words_in(dialect, {**body, "tools": [{"name": "f"}]}) == ["go", "on"]
    assert words_in(dialect, body) == []  # offers no tools: no agent's


def test_what_counts_as_repeating() -> None:
    assert repeats("see: one two three four five six seven", ["zero one two three four five six"])
    assert not repeats("one two three four five", ["one two three four five six"])
    assert repeats("pay DE75512108001245126199 now", ["DE75512108001245126199"])
    assert not repeats("yes, done", ["done"])
