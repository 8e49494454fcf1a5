"""Every way in which the `openai` package hands tool calls to an agent, driven to the end of a run."""

from __future__ import annotations

import asyncio
import functools
import json
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import openai
from openai.lib.responses_tool_runner import (
    AsyncRegisteredFunction,
    AsyncResponsesToolRunner,
    RegisteredFunction,
    ResponsesToolRunner,
)
from openai.lib.streaming.chat import ChatCompletionStreamState

from support.worlds import REQUIRED, SCHEMAS, Path, World, loads

MAX_TURNS = 4
TLS = ssl.create_default_context()  # made once: it costs more than all the rest of a client
CHAT_TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in SCHEMAS.items()
]
RESPONSE_TOOLS: Any = [
    {"type": "function", "name": name, "strict": False,
     "parameters": {"type": "object", "properties": properties, "required": REQUIRED[name]}}
    for name, properties in SCHEMAS.items()
]  # fmt: skip


def client(world: World) -> openai.OpenAI:
    http = openai.DefaultHttpxClient(verify=TLS)
    return openai.OpenAI(base_url=world.url, api_key=world.key, max_retries=0, http_client=http)


def aclient(world: World) -> openai.AsyncOpenAI:
    http = openai.DefaultAsyncHttpxClient(verify=TLS)
    return openai.AsyncOpenAI(base_url=world.url, api_key=world.key, max_retries=0, http_client=http)


# One answer to a conversation, as the SDK gives it.
Ask = Callable[[World, list[Any]], Any]


def chat(ask: Ask) -> Path:
    """An agent over chat completions, of which `ask` gives one completion."""

    def drive(world: World, prompts: Sequence[str]) -> str:
        messages: list[Any] = []
        text = ""
        for prompt in prompts:
            messages.append({"role": "user", "content": prompt})
            for _ in range(MAX_TURNS):
                message = ask(world, messages).choices[0].message
                messages.append(message)
                text = message.content or message.refusal or ""
                if not message.tool_calls:
                    break
                for call in message.tool_calls:
                    result = world.run(call.function.name, loads(call.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        return text

    return drive


def responses(ask: Ask, *, kept: bool = False) -> Path:
    """An agent over responses; with `kept` the provider keeps the conversation."""

    def drive(world: World, prompts: Sequence[str]) -> str:
        items: list[Any] = []
        text = ""
        for prompt in prompts:
            items.append({"role": "user", "content": prompt})
            for _ in range(MAX_TURNS):
                response = ask(world, items)
                text = response.output_text
                calls = [item for item in response.output if item.type == "function_call"]
                items = [("previous", response.id)] if kept else [*items, *response.output]
                if not calls:
                    break
                for call in calls:
                    result = world.run(call.name, loads(call.arguments))
                    items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
        return text

    return drive


def asynchronously(ask: Callable[[World, list[Any]], Awaitable[Any]]) -> Ask:
    return lambda world, items: asyncio.run(_awaited(ask, world, items))


async def _awaited(ask: Callable[[World, list[Any]], Awaitable[Any]], world: World, items: list[Any]) -> Any:
    return await ask(world, items)


def _create(world: World, messages: list[Any]) -> Any:
    return client(world).chat.completions.create(model="m", messages=messages, tools=CHAT_TOOLS)


async def _acreate(world: World, messages: list[Any]) -> Any:
    return await aclient(world).chat.completions.create(model="m", messages=messages, tools=CHAT_TOOLS)


def _raw(world: World, messages: list[Any]) -> Any:
    return client(world).chat.completions.with_raw_response.create(model="m", messages=messages).parse()


def _body(world: World, messages: list[Any]) -> Any:
    # An agent that reads the bytes itself.
    raw = client(world).chat.completions.with_raw_response.create(model="m", messages=messages)
    return openai.types.chat.ChatCompletion.model_validate(json.loads(raw.text))


def _streaming_response(world: World, messages: list[Any]) -> Any:
    with client(world).chat.completions.with_streaming_response.create(model="m", messages=messages) as response:
        return openai.types.chat.ChatCompletion.model_validate_json(b"".join(response.iter_bytes()))


async def _astreaming_response(world: World, messages: list[Any]) -> Any:
    create = aclient(world).chat.completions.with_streaming_response.create
    async with create(model="m", messages=messages) as response:
        return await response.parse()


def _parse(world: World, messages: list[Any]) -> Any:
    return client(world).chat.completions.parse(model="m", messages=messages)


def _stream_helper(world: World, messages: list[Any]) -> Any:
    with client(world).chat.completions.stream(model="m", messages=messages) as stream:
        for _ in stream:
            continue
        return stream.get_final_completion()


async def _astream_helper(world: World, messages: list[Any]) -> Any:
    async with aclient(world).chat.completions.stream(model="m", messages=messages) as stream:
        return await stream.get_final_completion()


def _stream(world: World, messages: list[Any]) -> Any:
    state = ChatCompletionStreamState()
    for chunk in client(world).chat.completions.create(model="m", messages=messages, stream=True):
        state.handle_chunk(chunk)
    return state.get_final_completion()


async def _astream(world: World, messages: list[Any]) -> Any:
    state = ChatCompletionStreamState()
    async for chunk in await aclient(world).chat.completions.create(model="m", messages=messages, stream=True):
        state.handle_chunk(chunk)
    return state.get_final_completion()


def _body_stream(world: World, messages: list[Any]) -> Any:
    # An agent that reads the lines itself.
    state = ChatCompletionStreamState()
    create = client(world).chat.completions.with_streaming_response.create
    with create(model="m", messages=messages, stream=True) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                state.handle_chunk(openai.types.chat.ChatCompletionChunk.model_validate_json(line[6:]))
    return state.get_final_completion()


def _given(items: list[Any]) -> dict[str, Any]:
    """The request's input; a kept conversation is continued from the answer before."""
    if items and isinstance(items[0], tuple):
        return {"previous_response_id": items[0][1], "input": items[1:]}
    return {"input": list(items)}


def _respond(world: World, items: list[Any]) -> Any:
    return client(world).responses.create(model="m", tools=RESPONSE_TOOLS, **_given(items))


async def _arespond(world: World, items: list[Any]) -> Any:
    return await aclient(world).responses.create(model="m", tools=RESPONSE_TOOLS, **_given(items))


def _respond_raw(world: World, items: list[Any]) -> Any:
    return client(world).responses.with_raw_response.create(model="m", **_given(items)).parse()


def _respond_parse(world: World, items: list[Any]) -> Any:
    return client(world).responses.parse(model="m", **_given(items))


def _respond_stream_helper(world: World, items: list[Any]) -> Any:
    with client(world).responses.stream(model="m", **_given(items)) as stream:
        return stream.get_final_response()


async def _arespond_stream_helper(world: World, items: list[Any]) -> Any:
    async with aclient(world).responses.stream(model="m", **_given(items)) as stream:
        return await stream.get_final_response()


def _respond_stream(world: World, items: list[Any]) -> Any:
    ended = None
    finished = []
    for event in client(world).responses.create(model="m", stream=True, **_given(items)):
        if event.type == "response.output_item.done":
            finished.append(event.item)
        if event.type == "response.completed":
            ended = event.response
    assert ended is not None
    # Agents act on the items as they come, or on the response at the end: both must be the same.
    assert [item.to_dict() for item in finished] == [item.to_dict() for item in ended.output]
    return ended


def runner(*, stream: bool = False, eager: bool = False) -> Path:
    """The package's own loop, which runs the tools itself."""

    def drive(world: World, prompts: Sequence[str]) -> str:
        functions = [
            RegisteredFunction(tool, execute=functools.partial(world.run, tool["name"])) for tool in RESPONSE_TOOLS
        ]
        run = ResponsesToolRunner(functions=functions).run
        given: Any = {"model": "m", "input": prompts[0]}
        return run(client(world), given, stream=stream, eager=eager).output_text

    return drive


def arunner(*, stream: bool = False, eager: bool = False) -> Path:
    """The async twin of `runner`."""

    async def execute(world: World, name: str, given: dict[str, Any]) -> str:
        return world.run(name, given)

    async def run(world: World, prompts: Sequence[str]) -> str:
        functions = [
            AsyncRegisteredFunction(tool, execute=functools.partial(execute, world, tool["name"]))
            for tool in RESPONSE_TOOLS
        ]
        given: Any = {"model": "m", "input": prompts[0]}
        loop = AsyncResponsesToolRunner(functions=functions)
        return (await loop.run(aclient(world), given, stream=stream, eager=eager)).output_text

    return lambda world, prompts: asyncio.run(run(world, prompts))


MANUAL: dict[str, Path] = {
    "openai chat.create": chat(_create),
    "openai chat.create async": chat(asynchronously(_acreate)),
    "openai chat.create raw": chat(_raw),
    "openai chat.create raw bytes": chat(_body),
    "openai chat.create streaming response": chat(_streaming_response),
    "openai chat.create streaming response async": chat(asynchronously(_astreaming_response)),
    "openai chat.parse": chat(_parse),
    "openai chat.stream": chat(_stream_helper),
    "openai chat.stream async": chat(asynchronously(_astream_helper)),
    "openai chat.create stream": chat(_stream),
    "openai chat.create stream async": chat(asynchronously(_astream)),
    "openai chat.create stream bytes": chat(_body_stream),
    "openai responses.create": responses(_respond),
    "openai responses.create async": responses(asynchronously(_arespond)),
    "openai responses.create raw": responses(_respond_raw),
    "openai responses.parse": responses(_respond_parse),
    "openai responses.stream": responses(_respond_stream_helper),
    "openai responses.stream async": responses(asynchronously(_arespond_stream_helper)),
    "openai responses.create stream": responses(_respond_stream),
    "openai responses.create kept by the provider": responses(_respond, kept=True),
}
RUNNERS: dict[str, Path] = {
    "openai responses runner": runner(),
    "openai responses runner stream": runner(stream=True),
    "openai responses runner eager": runner(stream=True, eager=True),
    "openai responses runner async": arunner(),
    "openai responses runner async eager": arunner(stream=True, eager=True),
}
