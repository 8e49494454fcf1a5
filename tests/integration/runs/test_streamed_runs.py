"""Streamed runs: words come as the model writes them, where no guard has to see all of them first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from support.run_world import Provider, call, config, provider, say, write_tools
from support.served import Served, served

CARD = "4539 1488 0343 6467"
OPEN = "{default: {models: [main], servers: [office], ingress: [mask], egress: [unmask]}}"


@contextmanager
def world(home: Path, monkeypatch: pytest.MonkeyPatch, routes: str = OPEN) -> Iterator[tuple[Served, Provider]]:
    monkeypatch.setenv("RUN_TEST_KEY", "sk-test-of-runs")
    command, _ = write_tools(home)
    with provider() as running, served(home / "home", config(running.url, command, routes=routes)) as gateway:
        yield gateway, running


def streamed(gateway: Served, text: str = "hello") -> Iterator[Any]:
    client = openai.OpenAI(
        base_url=f"http://127.0.0.1:{gateway.port}/v1/runs", api_key=gateway.credentials.text("bot"), max_retries=0
    )
    messages: Any = [{"role": "user", "content": text}]
    for chunk in client.chat.completions.create(model="default", messages=messages, stream=True):
        yield chunk.choices[0]


def said(choices: list[Any]) -> str:
    return "".join(choice.delta.content or "" for choice in choices)


def test_words_come_while_the_model_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, monkeypatch) as (gateway, running):
        running.script = [say("one two three")]
        choices = streamed(gateway)
        first = next(choice for choice in choices if choice.delta.content)
        assert first.delta.content == "one "  # and the model has not written more yet
        running.go_on.set()
        rest = list(choices)
        assert said([first, *rest]) == "one two three"
        assert rest[-1].finish_reason == "stop"


def test_placeholders_are_resolved_though_they_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, monkeypatch) as (gateway, running):
        running.go_on.set()
        running.piece = 1
        running.script = [say("a [list] and [[pii-card-number:1]] and [[pii-card-number:12]], or [")]
        choices = list(streamed(gateway, f"pay with {CARD}"))
        assert CARD not in str(running.seen)
        assert said(choices) == f"a [list] and {CARD} and [[pii-card-number:12]], or ["
        assert len(choices) > 20


def test_calls_of_a_stream_are_decided_and_every_turn_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, monkeypatch) as (gateway, running):
        running.go_on.set()
        running.script = [{**call("read_note", {"name": "a"}), "content": "let me look"}, say("it says a")]
        assert said(list(streamed(gateway))) == "let me look\n\nit says a"
        assert running.seen[-1]["messages"][-1]["role"] == "tool"
        (decision,) = gateway.ask("GET", "/v1/receipts?kind=decision", key="auditor").json["items"]
        assert (decision["tool"], decision["decision"]) == ("read_note", "allow")


def test_nothing_is_heard_before_a_guard_that_needs_the_whole_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    routes = "{default: {models: [main], egress: [output, unmask]}}"
    with world(tmp_path, monkeypatch, routes) as (gateway, running):
        running.script = [say("the key is AKIAIOSFODNN7EXAMPLZ")]
        choices = list(streamed(gateway))
        assert "stream" not in running.seen[0]
        assert said(choices) == "the key is [masked]"


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_fails_is_followed_by_the_next_of_the_route(
    stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUN_TEST_KEY", "sk-test-of-runs")
    with provider() as broken, provider() as healthy:
        broken.status = 500
        healthy.go_on.set()
        broken.go_on.set()
        broken.script = healthy.script = [say("here I am")]
        more = f'    there: {{dialect: openai, url: "{broken.url}", key: "${{env:RUN_TEST_KEY}}", private: true}}'
        text = config(healthy.url, ["true"], routes="{default: {models: [first, main], egress: [unmask]}}", more=more)
        text = text.replace("  models:\n", "  models:\n    first: {provider: there, model: m-0, region: eu}\n")
        with served(tmp_path / "home", text) as gateway:
            if stream:
                assert said(list(streamed(gateway))) == "here I am"
            else:
                run = gateway.ask("POST", "/v1/runs", {"messages": [{"role": "user", "content": "x"}]}).json
                assert (run["output"], run["model"]) == ("here I am", "main")
                turns = [(one["guard"], one["outcome"]) for one in run["events"] if one["stage"] == "model"]
                assert turns == [("first", "block"), ("main", "allow")]
            assert [one["model"] for one in broken.seen] == ["m-0"]


def test_an_answer_that_breaks_off_ends_as_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, monkeypatch) as (gateway, running):
        running.go_on.set()
        running.breaks = True
        running.script = [say("one two three")]
        choices = list(streamed(gateway))
        assert said(choices) == "one two \n\nno model answered"
        assert choices[-1].finish_reason == "content_filter"


def test_what_is_refused_before_a_word_is_an_ordinary_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, monkeypatch) as (gateway, _):
        body = {"model": "none", "messages": [{"role": "user", "content": "x"}], "stream": True}
        assert gateway.ask("POST", "/v1/runs/chat/completions", body).status == 404
