"""LiteLLM: loops by hand over every way to ask a model, through the `openai` package and through its own clients."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks for one as it is imported

import litellm

from frameworks.model import EVERYTHING, Framework, Way
from support.worlds import World

litellm.suppress_debug_info = True
litellm.request_timeout = 120.0  # instead of a hundred minutes, which no run has
NAMES = ("send_email", "read_file", "book")
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "description": "d", "parameters": {"type": "object"}}}
    for name in NAMES
]
FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]
BLOCKS = [{"name": name, "description": "d", "input_schema": {"type": "object"}} for name in NAMES]
Message = dict[str, Any]


def openai_model(world: World) -> dict[str, Any]:
    return {"model": "openai/m", "api_base": world.provider.url, "api_key": "k", "max_retries": 0}


def anthropic_model(world: World) -> dict[str, Any]:
    return {"model": "anthropic/claude-m", "api_base": world.provider.anthropic_url, "api_key": "k"}


def like_model(world: World) -> dict[str, Any]:
    """A model that speaks OpenAI's format and is reached without its package."""
    return {"model": "hosted_vllm/m", "api_base": world.provider.url, "api_key": "k"}


Model = Callable[[World], dict[str, Any]]
Ask = Callable[[dict[str, Any], list[Message]], Message]


def whole(model: dict[str, Any], messages: list[Message]) -> Message:
    return litellm.completion(messages=messages, tools=TOOLS, **model).choices[0].message.model_dump()


def whole_async(model: dict[str, Any], messages: list[Message]) -> Message:
    async def ask() -> Any:
        return await litellm.acompletion(messages=messages, tools=TOOLS, **model)

    return asyncio.run(ask()).choices[0].message.model_dump()


def stream(model: dict[str, Any], messages: list[Message]) -> Message:
    chunks = list(litellm.completion(messages=messages, tools=TOOLS, stream=True, **model))
    return litellm.stream_chunk_builder(chunks).choices[0].message.model_dump()


def stream_async(model: dict[str, Any], messages: list[Message]) -> Message:
    async def ask() -> Any:
        return [one async for one in await litellm.acompletion(messages=messages, tools=TOOLS, stream=True, **model)]

    return litellm.stream_chunk_builder(asyncio.run(ask())).choices[0].message.model_dump()


def routed(model: dict[str, Any], messages: list[Message]) -> Message:
    router = litellm.Router(model_list=[{"model_name": "any", "litellm_params": model}], num_retries=0)
    return router.completion(model="any", messages=messages, tools=TOOLS).choices[0].message.model_dump()


def loop(make: Model, ask: Ask) -> Callable[[World], str]:
    """An agent by hand over chat completions."""

    def drive(world: World) -> str:
        messages: list[Message] = [{"role": "user", "content": "go"}]
        for _ in range(6):
            message = ask(make(world), messages)
            calls = message.get("tool_calls") or []
            said = {"role": "assistant", "content": message["content"]}
            messages.append({**said, "tool_calls": calls} if calls else said)
            if not calls and "not run" not in message["content"]:
                break
            messages += [_result(world, call) for call in calls] or [{"role": "user", "content": "and now?"}]
        return str(messages[-1]["content"])

    return drive


def _result(world: World, call: Any) -> Message:
    content = _ran(world, call["function"]["name"], json.loads(call["function"]["arguments"]))
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def _ran(world: World, name: str, given: dict[str, Any]) -> str:
    return world.run(name, {"subject": "hello", **given} if name == "send_email" else given)


def responses(world: World) -> str:
    """An agent by hand over responses."""
    items: list[Any] = [{"role": "user", "content": "go"}]
    text = ""
    for _ in range(6):
        answer = litellm.responses(input=items, tools=FLAT, **openai_model(world)).model_dump()
        items += answer["output"]
        calls = [item for item in answer["output"] if item["type"] == "function_call"]
        text = "".join(part["text"] for item in answer["output"] for part in item.get("content") or ())
        if not calls and "not run" not in text:
            break
        outputs = [(call["call_id"], _ran(world, call["name"], json.loads(call["arguments"]))) for call in calls]
        items += [{"type": "function_call_output", "call_id": key, "output": output} for key, output in outputs]
    return text


def messages(world: World) -> str:
    """An agent by hand over Anthropic's messages."""
    said: list[Message] = [{"role": "user", "content": "go"}]
    text = ""
    for _ in range(6):
        asked = litellm.anthropic_messages(messages=said, tools=BLOCKS, max_tokens=99, **anthropic_model(world))
        content = asyncio.run(asked)["content"]
        said.append({"role": "assistant", "content": content})
        calls = [block for block in content if block["type"] == "tool_use"]
        text = "".join(block["text"] for block in content if block["type"] == "text")
        if not calls and "not run" not in text:
            break
        results = [(block["id"], _ran(world, block["name"], block["input"])) for block in calls]
        blocks = [{"type": "tool_result", "tool_use_id": key, "content": result} for key, result in results]
        said.append({"role": "user", "content": blocks or "and now?"})
    return text


BY_HAND = EVERYTHING - {"coerces", "defaults", "validates", "runs"}
OWN = BY_HAND - {"broken"}
FRAMEWORK = Framework(
    adapters=("openai", "litellm"),
    unheard=frozenset(
        {
            "own client",
            "own client async",
            "own client stream",
            "own client stream async",
            "own client, OpenAI format",
            "responses",
            "anthropic messages",
        }
    ),
    again="the host's own code runs the tools",
    ways=[
        Way(name="completion", drive=loop(openai_model, whole), can=BY_HAND),
        Way(name="completion async", drive=loop(openai_model, whole_async), can=BY_HAND),
        Way(name="completion stream", drive=loop(openai_model, stream), can=BY_HAND),
        Way(name="completion stream async", drive=loop(openai_model, stream_async), can=BY_HAND),
        Way(name="router", drive=loop(openai_model, routed), can=BY_HAND),
        Way(name="own client", drive=loop(anthropic_model, whole), can=OWN),
        Way(name="own client async", drive=loop(anthropic_model, whole_async), can=OWN),
        Way(name="own client stream", drive=loop(anthropic_model, stream), can=OWN),
        Way(name="own client stream async", drive=loop(anthropic_model, stream_async), can=OWN),
        Way(name="own client, OpenAI format", drive=loop(like_model, whole), can=BY_HAND),
        Way(name="responses", drive=responses, can=BY_HAND),
        Way(name="anthropic messages", drive=messages, can=OWN),
    ],
)
