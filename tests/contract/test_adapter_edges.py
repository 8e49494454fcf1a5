"""What single paths of the SDKs promise beyond the contract: typed results, final values, live streams, odd calls."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import anthropic
import openai
import pydantic
import pytest
from anthropic import beta_tool
from openai.lib.responses_tool_runner import RegisteredFunction, ResponsesToolRunner

from aegis.cli.demo.provider import Call, ScriptedProvider, Turn
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.errors import UnhookedFramework
from contract import anthropic_paths, openai_paths
from support.decider import ScriptedDecider, allowed, blocked, held, withheld
from support.raw_server import Received, answer, serving
from support.threads import together
from support.worlds import MAIL, READ, hooked, scripted, world


class Verdict(pydantic.BaseModel):
    fine: bool


def test_a_parsed_completion_stays_parsed_and_says_why_it_is_empty() -> None:
    with hooked(scripted(send_email=blocked)), world(Turn(calls=(MAIL,)), Turn(text='{"fine": true}')) as agent:
        parse = openai_paths.client(agent).chat.completions.parse
        ask: Any = {"model": "m", "messages": [{"role": "user", "content": "go"}], "response_format": Verdict}
        message = parse(**ask).choices[0].message
        assert message.parsed is None
        assert message.refusal is not None
        assert "`send_email` was not run" in message.refusal
        assert parse(**ask).choices[0].message.parsed == Verdict(fine=True)


def test_a_parsed_response_stays_parsed_and_says_why_it_is_empty() -> None:
    with hooked(scripted(send_email=blocked)), world(Turn(calls=(MAIL,))) as agent:
        response = openai_paths.client(agent).responses.parse(model="m", input="go", text_format=Verdict)
    assert response.output_parsed is None
    (item,) = response.output
    assert item.type == "message"
    assert "`send_email` was not run" in str(item.content[0])


def test_a_parsed_message_stays_parsed_and_says_why_it_is_empty() -> None:
    with hooked(scripted(send_email=blocked)), world(Turn(calls=(MAIL,))) as agent:
        message = anthropic_paths.client(agent).messages.parse(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "go"}], output_format=Verdict
        )
    assert (message.content, message.stop_reason) == ([], "refusal")
    assert message.stop_details is not None
    assert "`send_email` was not run" in str(message.stop_details.explanation)


def test_a_runner_asks_about_validated_and_defaulted_values() -> None:
    decider = scripted()
    ran: list[Any] = []
    with (
        hooked(decider),
        world(Turn(calls=(Call(tool="order", arguments={"count": "3"}),)), Turn(text="done")) as agent,
    ):

        @beta_tool
        def order(count: int, item: str = "tea") -> str:
            ran.append((count, item))
            return "ordered"

        runner = anthropic_paths.client(agent).beta.messages.tool_runner(
            model="m", max_tokens=9, tools=[order], messages=[{"role": "user", "content": "go"}]
        )
        runner.until_done()
    assert decider.decided[0].arguments == {"count": 3, "item": "tea"}
    assert ran == [(3, "tea")]


@pytest.mark.parametrize("arguments", [{"count": "many"}, {}, {"count": 1, "colour": "red"}])
def test_a_runner_refuses_arguments_that_its_tool_would_not_take(arguments: dict[str, Any]) -> None:
    decider = scripted()
    with hooked(decider), world(Turn(calls=(Call(tool="order", arguments=arguments),)), Turn(text="done")) as agent:

        @beta_tool
        def order(count: int) -> str:
            raise AssertionError("must not run")

        runner = anthropic_paths.client(agent).beta.messages.tool_runner(
            model="m", max_tokens=9, tools=[order], messages=[{"role": "user", "content": "go"}]
        )
        assert runner.until_done().stop_reason == "end_turn"
        (refusal,) = agent.results_sent(1).values()
    assert "call it again" in refusal
    assert decider.decided == []


def test_a_call_to_a_tool_that_a_runner_does_not_run_is_decided_in_the_answer() -> None:
    decider = scripted(raw_tool=blocked)
    turn = Turn(calls=(Call(tool="raw_tool", arguments={"x": 1}, id="call_raw"), READ))
    with hooked(decider), world(turn, Turn(text="done")) as agent:

        @beta_tool
        def read_file(path: str) -> str:
            return "text"

        runner = anthropic_paths.client(agent).beta.messages.tool_runner(
            model="m",
            max_tokens=9,
            tools=[read_file, {"name": "raw_tool", "input_schema": {"type": "object"}}],
            messages=[{"role": "user", "content": "go"}],
        )
        for message in runner:
            assert "raw_tool" not in [block.name for block in message.content if block.type == "tool_use"]
        results = agent.results_sent(1)
    assert "`raw_tool` was not run" in results["call_raw"]
    assert results["call_read_0123456789"] == "text"


def test_typed_functions_of_a_runner_get_their_model_anew() -> None:
    class Order(pydantic.BaseModel):
        count: int
        item: str = "tea"

    got: list[Any] = []

    def execute(order: Order) -> str:
        got.append(order)
        return "ordered"

    tool = openai.pydantic_responses_function_tool(Order, name="order")
    call = Call(tool="order", arguments={"count": 3})
    decider = scripted()
    with hooked(decider), world(Turn(calls=(call,)), Turn(text="done")) as agent:
        run = ResponsesToolRunner(functions=[RegisteredFunction.from_tool(tool, execute=execute)]).run
        assert run(openai_paths.client(agent), {"model": "m", "input": "go"}).output_text == "done"
    assert decider.decided[0].arguments == {"count": 3, "item": "tea"}
    assert got == [Order(count=3)]


def test_text_reaches_the_reader_before_a_held_call_is_decided() -> None:
    approved = threading.Event()

    def resolve(call: ToolCall) -> Decision:
        assert approved.wait(60)
        return allowed(call)

    decider = ScriptedDecider(rules={"send_email": held}, resolve=resolve)
    with hooked(decider), world(Turn(text="I will send it now", calls=(MAIL,))) as agent:
        user: Any = [{"role": "user", "content": "go"}]
        said = ""
        for chunk in openai_paths.client(agent).chat.completions.create(model="m", messages=user, stream=True):
            said += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            if said == "I will send it now" and not approved.is_set():
                assert decider.waited == []
                approved.set()
    assert decider.waited != []


def test_a_stream_that_breaks_off_before_the_call_is_whole_runs_nothing() -> None:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "send_email", "arguments": '{"to":'}}
    chunks = [{**head, "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}]
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    sent = answer(200, body).replace(b"application/json", b"text/event-stream")
    decider = scripted()
    with hooked(decider), serving(lambda _: sent) as server:
        client = openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)
        seen = list(client.chat.completions.create(model="m", messages=[], stream=True))
    assert not any(chunk.choices and chunk.choices[0].delta.tool_calls for chunk in seen)
    assert decider.decided == []


def test_a_stream_in_an_encoding_that_is_not_covered_is_refused() -> None:
    sent = answer(200, b"\x00\x00", "x: y").replace(b"application/json", b"application/vnd.amazon.eventstream")
    with hooked(scripted()), serving(lambda _: sent) as server:
        client = anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0)
        with pytest.raises(UnhookedFramework):
            client.messages.create(model="m", max_tokens=1, messages=[], stream=True)


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", ""])
def test_an_answer_is_looked_at_whatever_it_calls_itself(kind: str) -> None:
    # The SDK reads JSON out of answers of any type, so that the type protects nothing.
    message = {"role": "assistant", "tool_calls": [_function("send_email", {"to": "x"})]}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    sent = answer(200, {**body, "choices": [choice]}).replace(b"application/json", kind.encode() or b"x/y")
    with hooked(scripted(send_email=blocked)), serving(lambda _: sent) as server:
        client = openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)
        completion = client.chat.completions.create(model="m", messages=[])
    assert completion.choices[0].message.tool_calls is None


def _function(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def test_errors_of_the_provider_stay_what_they_are() -> None:
    with hooked(scripted()), serving(lambda _: answer(429, {"error": {"message": "slow down"}})) as server:
        client = openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)
        with pytest.raises(openai.RateLimitError):
            client.chat.completions.create(model="m", messages=[])
        claude = anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0)
        with pytest.raises(anthropic.RateLimitError):
            claude.messages.create(model="m", max_tokens=1, messages=[])


def test_other_paths_of_the_sdk_are_left_alone() -> None:
    def handler(request: Received) -> bytes:
        return answer(
            200, {"object": "list", "data": [], "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        )

    with hooked(scripted()) as _, serving(handler) as server:
        client = openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)
        assert client.models.list().data == []
        assert client.embeddings.create(model="m", input="x", encoding_format="float").data == []


def test_a_result_of_a_refused_call_is_never_shown_to_the_model() -> None:
    decider = scripted(send_email=blocked)
    with hooked(decider), world(Turn(calls=(MAIL, READ)), Turn(text="done")) as agent:
        client = openai_paths.client(agent)
        user: Any = {"role": "user", "content": "go"}
        first = client.chat.completions.create(model="m", messages=[user]).choices[0].message
        # Somebody ran the refused call all the same.
        ran: Any = {"role": "tool", "tool_call_id": "call_mail_0123456789", "content": "a secret"}
        read: Any = {"role": "tool", "tool_call_id": "call_read_0123456789", "content": "text"}
        client.chat.completions.create(model="m", messages=[user, first, ran, read])  # type: ignore[list-item]
        sent = json.dumps(agent.asked[1].body)
    assert "a secret" not in sent
    assert "must not have run" in sent


def test_an_agent_with_calls_in_parallel_threads_is_decided_call_by_call() -> None:
    decider = scripted(send_email=blocked)
    turns = [Turn(calls=(MAIL, READ)), Turn(text="done")]

    def run(results: list[list[str]]) -> None:
        with ScriptedProvider(turns) as provider:
            agent = world_of(provider)
            openai_paths.MANUAL["openai chat.create"](agent, ["go"])
            results.append([tool for tool, _ in agent.ran])

    results: list[list[str]] = []
    with hooked(decider):
        together(8, lambda: run(results))
    assert results == [["read_file"]] * 8


def world_of(provider: ScriptedProvider) -> Any:
    from support.worlds import World

    return World(provider=provider)


async def test_an_event_loop_is_not_blocked_while_a_call_waits() -> None:
    class Slow(ScriptedDecider):
        async def await_decision(
            self,
            call: ToolCall,
            decision: Decision,
            timeout: float | None = None,  # noqa: ASYNC109
        ) -> Decision:
            await asyncio.sleep(0.3)
            return allowed(call)

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    with hooked(Slow(rules={"send_email": held})), world(Turn(calls=(MAIL,))) as agent:
        ticker = asyncio.create_task(tick())
        ask: Any = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
        completion = await openai_paths.aclient(agent).chat.completions.create(**ask)
        ticker.cancel()
    assert completion.choices[0].message.tool_calls is not None
    assert ticks >= 10


def test_withheld_results_are_withheld_in_every_later_request_and_asked_about_once() -> None:
    decider = scripted()
    decider.inspect = withheld
    with hooked(decider), world(Turn(calls=(READ,)), Turn(text="a"), Turn(text="b")) as agent:
        openai_paths.MANUAL["openai chat.create"](agent, ["go", "again"])
        assert [agent.results_sent(number)["call_read_0123456789"] for number in (1, 2)] == [
            "the result was withheld: injected (reason: attack_detected)"
        ] * 2
    assert len(decider.observed) == 1


def test_the_adapter_costs_little_beside_the_decision() -> None:
    # Not a measurement: a guard against work that grows with the conversation in the wrong way.
    decider = scripted()
    history: list[Any] = [{"role": "user", "content": "x" * 100}] * 2_000
    with hooked(decider), world(Turn(text="hi")) as agent:
        started = time.perf_counter()
        openai_paths.client(agent).chat.completions.create(model="m", messages=history)
        assert time.perf_counter() - started < 10
