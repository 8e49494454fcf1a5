"""Ways around an SDK's own front door: middleware, threads, connections, turns that a host answers, foreign headers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path as File
from typing import Any

import anthropic
import openai
import pytest
from anthropic import beta_tool
from openai.lib.responses_tool_runner import (
    AsyncRegisteredFunction,
    AsyncResponsesToolRunner,
    RegisteredFunction,
    ResponsesToolRunner,
)

from aegis.adapters.openai import CONNECTING
from aegis.cli.demo.provider import Turn
from aegis.errors import UnhookedFramework
from contract import anthropic_paths, openai_paths
from contract.anthropic_paths import COMMON
from contract.openai_paths import RESPONSE_TOOLS
from support.asking import Mode, both_modes
from support.decider import blocked, sanitized, withheld
from support.worlds import MAIL, READ, Path, World, hooked, scripted, world

BOTH = Turn(text="let me", calls=(MAIL, READ))
DONE = Turn(text="done")
GO: Any = {"role": "user", "content": "go"}


def _pass(request: Any, call_next: Any) -> Any:
    return call_next(request)


async def _apass(request: Any, call_next: Any) -> Any:
    return await call_next(request)


def _between(world: World) -> anthropic.Anthropic:
    return anthropic_paths.client(world).with_middleware(_pass)


def _create(world: World, history: list[Any]) -> Any:
    return _between(world).messages.create(messages=history, **COMMON)


async def _acreate(world: World, history: list[Any]) -> Any:
    client = anthropic_paths.aclient(world).with_middleware(_apass)
    return await client.messages.create(messages=history, **COMMON)


def _raw(world: World, history: list[Any]) -> Any:
    return _between(world).messages.with_raw_response.create(messages=history, **COMMON).parse()


def _stream(world: World, history: list[Any]) -> Any:
    with _between(world).messages.stream(messages=history, **COMMON) as stream:
        return stream.get_final_message()


def _sent(thread: Any, *messages: Any) -> Any:
    return thread.send(*messages)


def _parsed(thread: Any, *messages: Any) -> Any:
    return thread.parse(*messages)


def _streamed(thread: Any, *messages: Any) -> Any:
    with thread.stream(*messages) as stream:
        return stream.get_final_message()


def threaded(ask: Callable[..., Any]) -> Path:
    """An agent over a conversation that the provider keeps, to which only new messages are sent."""

    def drive(world: World, prompts: Any) -> str:
        thread = anthropic_paths.client(world).beta.messages.thread(**COMMON)
        message = ask(thread, GO)
        while uses := [block for block in message.content if block.type == "tool_use"]:
            results: list[Any] = [
                {"type": "tool_result", "tool_use_id": use.id, "content": world.run(use.name, dict(use.input))}
                for use in uses
            ]
            message = ask(thread, {"role": "user", "content": results})
        return "".join(block.text for block in message.content)

    return drive


def thread_runner(world: World, prompts: Any) -> str:
    """A thread's own loop, with a tool that it is given after it was made."""

    @beta_tool
    def send_email(to: str, subject: str = "hello") -> str:
        """Send."""
        return world.run("send_email", {"to": to, "subject": subject})

    @beta_tool
    def read_file(path: str) -> str:
        """Read."""
        return world.run("read_file", {"path": path})

    client = anthropic_paths.client(world)
    thread = client.beta.messages.thread(model="m", max_tokens=9, tools=[read_file], messages=[GO])
    runner = thread.tool_runner()
    runner.add_tools(send_email)
    return "".join(block.text for block in runner.until_done().content if block.type == "text")


PATHS: dict[str, Path] = {
    "middleware": anthropic_paths.messages(_create),
    "middleware async": anthropic_paths.messages(openai_paths.asynchronously(_acreate)),
    "middleware raw": anthropic_paths.messages(_raw),
    "middleware stream": anthropic_paths.messages(_stream),
    "thread": threaded(_sent),
    "thread parse": threaded(_parsed),
    "thread stream": threaded(_streamed),
    "thread runner": thread_runner,
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_a_blocked_call_never_runs_whatever_stands_around_the_client(path: Path) -> None:
    with hooked(scripted(send_email=blocked)), world(BOTH, DONE) as agent:
        assert path(agent, ["go"]) == "done"
        results = agent.results_sent(1)
    assert [tool for tool, _ in agent.ran] == ["read_file"]
    assert "`send_email` was not run" in results[MAIL.id]
    assert results[READ.id] == "text"


def test_a_header_that_a_host_hands_on_lets_no_call_pass() -> None:
    with hooked(scripted(send_email=blocked)), world(BOTH) as agent:
        message = anthropic_paths.client(agent).messages.create(
            messages=[GO], extra_headers={"x-aegis-deferred": '["send_email"]'}, **COMMON
        )
    assert [block.name for block in message.content if block.type == "tool_use"] == ["read_file"]


CONNECTIONS: dict[str, Callable[[Any], Any]] = {
    "responses": lambda client: client.responses.connect(),
    "beta responses": lambda client: client.beta.responses.connect(),
    "realtime": lambda client: client.realtime.connect(model="m"),
    "live": lambda client: client.live.connect(),
    "live sideband": lambda client: client.live.sideband.connect(session_id="s"),
    "live fork": lambda client: client.live.forks.connect(session_id="s"),
}


@pytest.mark.parametrize("connect", CONNECTIONS.values(), ids=CONNECTIONS.keys())
@pytest.mark.parametrize("client", [openai.OpenAI, openai.AsyncOpenAI])
def test_a_connection_on_which_calls_would_arrive_unseen_is_refused(client: Any, connect: Any) -> None:
    with hooked(scripted()), pytest.raises(UnhookedFramework):
        connect(client(api_key="k"))


def test_every_module_of_the_package_that_opens_connections_is_known() -> None:
    root = File(openai.__file__).parent
    connecting = {
        ".".join(("openai", *file.relative_to(root).with_suffix("").parts))
        for file in (root / "resources").rglob("*.py")
        if "    def connect(" in file.read_text()
    }
    # Translations hold no calls.
    assert connecting - set(CONNECTING) == {"openai.resources.realtime.translations.translations"}


def supplied(decider: Any, mode: Mode, turn: Turn, *, supply: bool = True) -> tuple[World, list[tuple[str, str]]]:
    """A run whose host executes the calls that its turns hold, and what it executed."""
    by_host: list[tuple[str, str]] = []

    def answer(turn: Any) -> None:
        calls = [item for item in turn.response.output if item.type == "function_call"]
        if calls and supply:
            by_host.extend((call.name, call.arguments) for call in calls)
            outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "mine"} for call in calls]
            turn.supply_outputs(outputs)

    def sync(agent: World) -> None:
        functions = [
            RegisteredFunction(tool, execute=lambda given: agent.run("send_email", given), allow_output_override=True)
            for tool in RESPONSE_TOOLS
        ]
        runner = ResponsesToolRunner(functions=functions)
        for one in runner.iterate(openai_paths.client(agent), {"model": "m", "input": "go"}):
            answer(one)

    async def asynchronous(agent: World) -> None:
        async def execute(given: dict[str, object]) -> str:
            return agent.run("send_email", given)

        functions = [AsyncRegisteredFunction(tool, execute, allow_output_override=True) for tool in RESPONSE_TOOLS]
        runner = AsyncResponsesToolRunner(functions=functions)
        async for one in runner.iterate(openai_paths.aclient(agent), {"model": "m", "input": "go"}):
            answer(one)

    with hooked(decider), world(turn, DONE) as agent:
        if mode == "sync":
            sync(agent)
        else:
            asyncio.run(asynchronous(agent))
    return agent, by_host


@both_modes
def test_a_call_that_the_host_may_answer_is_decided_before_it_gets_the_turn(mode: Mode) -> None:
    agent, by_host = supplied(scripted(send_email=blocked), mode, BOTH)
    assert by_host == [("read_file", '{"path":"notes.txt"}')]
    assert agent.ran == []
    results = agent.results_sent(1)
    assert "`send_email` was not run" in results[MAIL.id]
    assert results[READ.id] == "mine"


@both_modes
def test_a_host_that_answers_gets_the_arguments_that_may_run_and_its_answer_is_observed(mode: Mode) -> None:
    decider = scripted(send_email=sanitized(to="safe@example.com"))
    decider.inspect = withheld
    agent, by_host = supplied(decider, mode, Turn(calls=(MAIL,)))
    assert by_host == [("send_email", '{"to":"safe@example.com"}')]
    assert "withheld" in agent.results_sent(1)[MAIL.id]


@both_modes
def test_a_call_that_the_host_does_not_answer_runs_as_it_was_decided(mode: Mode) -> None:
    decider = scripted(send_email=sanitized(to="safe@example.com"))
    agent, _ = supplied(decider, mode, Turn(calls=(MAIL,)), supply=False)
    assert agent.ran == [("send_email", {"to": "safe@example.com"})]
    assert len(decider.decided) == 1
