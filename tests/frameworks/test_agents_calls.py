"""OpenAI Agents SDK: calls that are no function tool's, over models that an SDK underneath answers for and others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, CustomTool, Model, ModelResponse, Runner, ShellTool, function_tool
from agents.usage import Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCustomToolCall,
    ResponseFunctionShellToolCall,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from openai.types.responses.response_function_shell_tool_call import Action

from aegis.cli.demo.provider import Turn
from aegis.context.flow import flow_of
from aegis.enforce.scope import Session, session_context
from frameworks.drivers.openai_agents import FRAMEWORK, responses, tools
from frameworks.model import MAIL, agent, hooked
from support.decider import ScriptedDecider, blocked, sanitized, withheld
from support.deployments import deployment
from support.raw_server import Received, answer, serving
from support.worlds import scripted

CUSTOM = ResponseCustomToolCall(
    type="custom_tool_call", id="ctc_1", call_id="call_custom_0123456789", name="note", input="x"
)
SHELL = ResponseFunctionShellToolCall(
    type="shell_call", id="sh_1", call_id="call_shell_01234567890", status="completed",
    action=Action(commands=["echo hi"], timeout_ms=None, max_output_length=None),
)  # fmt: skip
HANDOFF = ResponseFunctionToolCall(
    type="function_call", id="fc_1", call_id="call_handoff_0123456789", name="transfer_to_helper", arguments="{}"
)
SAID = ResponseOutputMessage(
    id="msg_1", type="message", role="assistant", status="completed",
    content=[ResponseOutputText(type="output_text", text="done", annotations=[], logprobs=[])],
)  # fmt: skip


class Own(Model):  # type: ignore[misc]
    """A model of the host's own: nothing underneath it is hooked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [[one] for one in answers]
        self.asked: list[Any] = []

    def _next(self, given: Any) -> list[Any]:
        self.asked.append(given)
        return self.answers.pop(0)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse(output=self._next(kwargs["input"]), usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        response = Response.model_construct(id="r", object="response", output=self._next(args[1]), usage=None)
        yield ResponseCompletedEvent.model_construct(type="response.completed", response=response, sequence_number=0)


def custom(ran: list[str]) -> CustomTool:
    async def note(context: Any, given: str) -> str:
        ran.append(given)
        return "noted"

    return CustomTool(name="note", description="Note.", on_invoke_tool=note)


def shell(ran: list[str]) -> ShellTool:
    def execute(request: Any) -> str:
        ran.extend(request.data.action.commands)
        return "hi"

    return ShellTool(executor=execute)


def over_responses(item: Any) -> Callable[[Received], bytes]:
    """A provider that answers with an item first, and with words then."""

    def serve(request: Received) -> bytes:
        given = request.json["input"]
        first = not any("output" in str(one.get("type")) for one in given if isinstance(one, dict))
        output = [(item if first else SAID).model_dump(exclude_none=True)]
        whole = {
            "id": f"resp_{len(given)}",
            "object": "response",
            "output": output,
            "status": "completed",
            "model": "m",
        }
        return answer(200, whole)

    return serve


@pytest.mark.parametrize(("make", "item"), [(custom, CUSTOM), (shell, SHELL)], ids=["custom", "shell"])
def test_a_blocked_call_that_is_no_functions_does_not_run_over_http(make: Any, item: Any) -> None:
    ran: list[str] = []
    with hooked(FRAMEWORK, scripted(note=blocked, shell=blocked)), serving(over_responses(item)) as server:
        import openai
        from agents import OpenAIResponsesModel

        client = openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0)
        made = Agent(name="a", model=OpenAIResponsesModel(model="m", openai_client=client), tools=[make(ran)])
        asyncio.run(Runner.run(made, "go"))
    assert ran == []


async def run(made: Agent[Any], *, stream: bool) -> str:
    if not stream:
        return str((await Runner.run(made, "go")).final_output)
    result = Runner.run_streamed(made, "go")
    async for _ in result.stream_events():
        continue
    return str(result.final_output)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("make", "item"), [(custom, CUSTOM), (shell, SHELL)], ids=["custom", "shell"])
def test_calls_of_a_model_of_the_hosts_own_are_decided(make: Any, item: Any, stream: bool) -> None:
    ran: list[str] = []
    decider = scripted()
    with hooked(FRAMEWORK, decider):
        assert asyncio.run(run(Agent(name="a", model=Own(item, SAID), tools=[make(ran)]), stream=stream)) == "done"
    assert len(ran) == len(decider.decided) == len(decider.observed) == 1

    with hooked(FRAMEWORK, scripted(note=blocked, shell=blocked)):
        text = asyncio.run(run(Agent(name="a", model=Own(item, SAID), tools=[make(ran)]), stream=stream))
    assert "was not run" in text
    assert len(ran) == 1


def test_arguments_and_results_over_a_model_of_the_hosts_own_are_those_that_may_be_seen() -> None:
    ran: list[str] = []
    decider = ScriptedDecider(rules={"note": sanitized(input="safe")}, inspect=withheld)
    model = Own(CUSTOM, SAID)
    with hooked(FRAMEWORK, decider):
        asyncio.run(run(Agent(name="a", model=model, tools=[custom(ran)]), stream=False))
    assert ran == ["safe"]
    assert "withheld" in str(model.asked[1])
    assert "noted" not in str(model.asked[1])


def test_a_blocked_handoff_of_a_model_of_the_hosts_own_does_not_happen() -> None:
    helper: Agent[Any] = Agent(name="helper", model=Own(SAID))
    first = Own(HANDOFF)
    with hooked(FRAMEWORK, scripted(transfer_to_helper=blocked)):
        result = asyncio.run(Runner.run(Agent(name="a", model=first, handoffs=[helper]), "go"))
    assert "was not run" in str(result.final_output)
    assert result.last_agent.name == "a"


def test_a_call_that_an_sdk_decided_is_not_decided_again() -> None:
    decider = scripted()
    with (
        hooked(FRAMEWORK, decider),
        agent(FRAMEWORK, FRAMEWORK.ways[1], Turn(calls=(MAIL,)), Turn(text="done")) as world,
    ):
        helper: Agent[Any] = Agent(name="helper", model=responses(world), tools=tools(world))
        made: Agent[Any] = Agent(name="a", model=responses(world), tools=tools(world), handoffs=[helper])
        assert asyncio.run(run(made, stream=False)) == "done"
    assert len(decider.decided) == 1


READER = ResponseFunctionToolCall(
    type="function_call", id="fc_2", call_id="call_reader_0123456789", name="ask_reader", arguments='{"input": "read"}'
)
READING = ResponseFunctionToolCall(
    type="function_call", id="fc_3", call_id="call_reading_012345678", name="read_bill", arguments="{}"
)
PAYING = ResponseFunctionToolCall(
    type="function_call", id="fc_4", call_id="call_paying_0123456789", name="pay_bill",
    arguments='{"account": "DE75512108001245126199"}',
)  # fmt: skip
HOUSE = """
version: 1
limits: {rate: unlimited}
tools:
  read_bill: {risk: low, effects: [read], result: {trust: untrusted}}
  pay_bill: {risk: medium, does: pay, arguments: {account: {is: account, sink: true}}}
"""


@pytest.mark.parametrize("delegated", ["tool", "handoff"])
def test_what_one_agent_read_and_another_pays_is_traced_to_its_document(delegated: str, tmp_path: Path) -> None:
    paid: list[str] = []

    @function_tool  # type: ignore[untyped-decorator]
    def read_bill() -> str:
        return "Invoice 7. Our account is DE75512108001245126199."

    @function_tool  # type: ignore[untyped-decorator]
    def pay_bill(account: str) -> str:
        paid.append(account)
        return "paid"

    if delegated == "tool":
        reader: Agent[Any] = Agent(name="reader", model=Own(READING, SAID), tools=[read_bill])
        tool = reader.as_tool(tool_name="ask_reader", tool_description="Reads.")
        desk: Agent[Any] = Agent(name="desk", model=Own(READER, PAYING, SAID), tools=[tool, pay_bill])
    else:
        helper: Agent[Any] = Agent(name="helper", model=Own(PAYING, SAID), tools=[pay_bill])
        desk = Agent(name="desk", model=Own(READING, HANDOFF), tools=[read_bill], handoffs=[helper])
    place = deployment(tmp_path / "home", HOUSE)
    try:
        place.gate.open_session("s", task="Sum up my mail, please")
        with hooked(FRAMEWORK, place.gate, on_approval="block"), session_context(Session(name="s")):
            asyncio.run(Runner.run(desk, "Sum up my mail, please"))
        with place.store.reader() as kept:
            flow = flow_of(place.gate.parts, kept, "s", place.gate.principal.id)
    finally:
        place.close()
    assert paid == []
    (edge,) = [one for one in flow["edges"] if one["holds"]]
    (source,) = [one for one in flow["sources"] if one["receipt"] == edge["from"]["receipt"]]
    assert (source["tool"], edge["is"], edge["to"]["path"]) == ("read_bill", "account", "/account")
