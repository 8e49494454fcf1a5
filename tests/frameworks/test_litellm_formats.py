"""LiteLLM's own clients: formats by address, streams whatever their label, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import litellm
import pytest
from litellm.rust_bridge.configuration import Decision, Rollout, decision, rust

from aegis.cli.demo.provider import Turn
from aegis.enforce.scope import Session, session_context
from frameworks.conftest import framework
from frameworks.drivers.litellm import TOOLS
from frameworks.model import MAIL, READ, hooked
from support.decider import ScriptedDecider, blocked, sanitized
from support.gemini import gemini
from support.raw_server import Received, answer, serving
from support.worlds import scripted

ASKED = [{"role": "user", "content": "go"}]
BOTH = [Turn(text="let me", calls=(MAIL, READ))]
Ask = Callable[[dict[str, Any]], list[Any]]


def whole(model: dict[str, Any]) -> list[Any]:
    answered = litellm.completion(messages=ASKED, tools=TOOLS, **model)
    return list(answered.choices[0].message.tool_calls or ())


def whole_async(model: dict[str, Any]) -> list[Any]:
    async def ask() -> Any:
        return await litellm.acompletion(messages=ASKED, tools=TOOLS, **model)

    return list(asyncio.run(ask()).choices[0].message.tool_calls or ())


def streamed(model: dict[str, Any]) -> list[Any]:
    chunks = list(litellm.completion(messages=ASKED, tools=TOOLS, stream=True, **model))
    return list(litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls or ())


def streamed_async(model: dict[str, Any]) -> list[Any]:
    async def ask() -> Any:
        return [one async for one in await litellm.acompletion(messages=ASKED, tools=TOOLS, stream=True, **model)]

    return list(litellm.stream_chunk_builder(asyncio.run(ask())).choices[0].message.tool_calls or ())


WAYS: dict[str, Ask] = {
    "whole": whole,
    "whole, async": whole_async,
    "streamed": streamed,
    "streamed, async": streamed_async,
}


@pytest.fixture(params=WAYS)
def ask(request: pytest.FixtureRequest) -> Ask:
    return WAYS[request.param]


def test_calls_of_gemini_are_decided(ask: Ask) -> None:
    decider = scripted(send_email=blocked)
    # Its streams are labelled as JSON here, and read as streams all the same.
    with hooked(framework(), decider), gemini(BOTH) as provider:
        calls = ask({"model": "gemini/m", "api_base": f"{provider.url}/models/m", "api_key": "k"})
    assert [call.function.name for call in calls] == ["read_file"]
    assert {call.tool for call in decider.decided} == {"send_email", "read_file"}


def test_calls_belong_to_the_session_in_every_thread(ask: Ask) -> None:
    decider = scripted()
    with hooked(framework(), decider), gemini(BOTH) as provider, session_context(Session(name="s-1")):
        ask({"model": "gemini/m", "api_base": f"{provider.url}/models/m", "api_key": "k"})
    assert {call.session for call in decider.decided} == {"s-1"}


CONVERSE = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"toolUse": {"toolUseId": "tooluse_mail_0123456789", "name": "send_email", "input": {"to": "a"}}},
                {"toolUse": {"toolUseId": "tooluse_read_0123456789", "name": "read_file", "input": {"path": "p"}}},
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
    "metrics": {"latencyMs": 1},
}


@contextmanager
def answering(body: Any) -> Iterator[tuple[str, list[Received]]]:
    with serving(lambda _: answer(200, body)) as server:
        yield server.url, server.received


def bedrock(url: str) -> dict[str, Any]:
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "k", "aws_region_name": "us-east-1"}
    return {"model": "bedrock/converse/anthropic.claude-m", "api_base": url, **keys}


@pytest.mark.parametrize("ask_whole", [whole, whole_async], ids=["sync", "async"])
def test_calls_of_bedrock_are_decided(ask_whole: Ask) -> None:
    with hooked(framework(), scripted(send_email=blocked)), answering(CONVERSE) as (url, received):
        calls = ask_whole(bedrock(f"{url}/model/m/converse"))
    assert received
    assert [call.function.name for call in calls] == ["read_file"]


def refused(model: Callable[[str], dict[str, Any]], ask: Ask) -> str:
    """Why a request was refused; nothing may have been sent."""
    with hooked(framework(), ScriptedDecider()), answering({}) as (url, received):
        with pytest.raises(Exception, match="not covered") as error:
            ask(model(url))
        assert not received
    return str(error.value)


def test_tools_in_a_format_that_is_not_known_are_refused(ask: Ask) -> None:
    refused(lambda url: {"model": "ollama_chat/m", "api_base": url, "max_retries": 0}, ask)


@pytest.mark.parametrize("ask_stream", [streamed, streamed_async], ids=["sync", "async"])
def test_bedrock_streams_with_tools_are_refused(ask_stream: Ask) -> None:
    refused(lambda url: bedrock(f"{url}/model/m/converse-stream"), ask_stream)


def test_models_over_another_client_are_refused() -> None:
    refused(lambda url: {"model": "aiohttp_openai/m", "api_base": url, "api_key": "k"}, whole)


def test_what_gives_no_tools_passes() -> None:
    said = {"model": "m", "message": {"role": "assistant", "content": "hi"}, "done": True}
    with hooked(framework(), ScriptedDecider()), answering(said) as (url, received):
        answered = litellm.completion(model="ollama_chat/m", api_base=url, messages=ASKED)
    assert received
    assert answered.choices[0].message.content == "hi"


def test_the_native_routes_are_off_while_the_hooks_are_on() -> None:
    rust(True)
    try:
        assert decision(Rollout.RUST_OPT_IN) is not Decision.PYTHON
        with hooked(framework(), ScriptedDecider()):
            assert decision(Rollout.RUST_OPT_IN) is Decision.PYTHON
            assert decision(Rollout.RUST_OPT_OUT) is Decision.PYTHON
            assert decision(Rollout.RUST_REQUIRED) is Decision.RUST_REQUIRED
        assert decision(Rollout.RUST_OPT_IN) is not Decision.PYTHON
    finally:
        rust(None)


def test_a_request_that_nothing_changes_in_is_sent_as_it_was_signed() -> None:
    with answering(CONVERSE) as (url, plain):
        whole(bedrock(f"{url}/model/m/converse"))
        with hooked(framework(), scripted()):
            whole(bedrock(f"{url}/model/m/converse"))
    assert len({json.dumps(one.json, sort_keys=True) for one in plain}) == 1
    assert len({one.body for one in plain}) == 1


def test_the_tools_that_a_proxy_has_itself_are_decided() -> None:
    from litellm.proxy._experimental.mcp_server import operations
    from litellm.proxy._experimental.mcp_server.tool_registry import global_mcp_tool_registry

    ran: list[str] = []

    def look_up(name: str) -> str:
        ran.append(name)
        return "found"

    global_mcp_tool_registry.register_tool("look_up", "d", {"type": "object"}, look_up)
    with hooked(framework(), scripted(look_up=sanitized(name="safe"))):
        answered = asyncio.run(operations._handle_local_mcp_tool("look_up", {"name": "Ann"}))
    assert answered.content[0].text == "found"
    with hooked(framework(), scripted(look_up=blocked)):
        refusal = asyncio.run(operations._handle_local_mcp_tool("look_up", {"name": "Ann"}))
    assert refusal.is_error
    assert "`look_up` was not run" in refusal.content[0].text
    assert ran == ["safe"]


FETCHED = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": one.id,
            "name": one.tool,
            "arguments": json.dumps(one.arguments),
        }
        for one in (MAIL, READ)
    ],
}


@pytest.mark.parametrize("fetch", ["get_responses", "aget_responses", "acancel_responses"])
def test_calls_of_an_answer_that_was_made_in_the_background_are_decided(fetch: str) -> None:
    with hooked(framework(), scripted(send_email=blocked)), answering(FETCHED) as (url, _):
        asked = getattr(litellm, fetch)(response_id="resp_1", custom_llm_provider="openai", api_base=url, api_key="k")
        found: Any = asyncio.run(_awaited(asked)) if fetch.startswith("a") else asked
    assert [item.name for item in found.output if item.type == "function_call"] == ["read_file"]


async def _awaited(asked: Any) -> Any:
    return await asked
