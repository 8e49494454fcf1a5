"""`mistralai`: loops by hand over chat completions, sync, async and streamed, and runs of functions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from mistralai.client import Mistral
from mistralai.extra.run.context import RunContext

from frameworks.model import EVERYTHING, Framework, Way
from support.mistral import MistralProvider
from support.worlds import World


def client(world: World) -> Mistral:
    return Mistral(api_key="k", server_url=world.provider.anthropic_url)


def complete(mistral: Mistral, messages: list[Any]) -> Any:
    return mistral.chat.complete(model="m", messages=messages).choices[0].message.model_dump(exclude_unset=True)


def complete_async(mistral: Mistral, messages: list[Any]) -> Any:
    async def ask() -> Any:
        # A client of this loop: its connections are.
        own = Mistral(api_key="k", server_url=mistral.sdk_configuration.server_url)
        return await own.chat.complete_async(model="m", messages=messages)

    return asyncio.run(ask()).choices[0].message.model_dump(exclude_unset=True)


def stream(mistral: Mistral, messages: list[Any]) -> Any:
    """The message that the chunks of a stream make."""
    text = ""
    calls: dict[Any, Any] = {}
    for event in mistral.chat.stream(model="m", messages=messages):
        for choice in event.data.choices:
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                function = {"name": call.function.name, "arguments": call.function.arguments}
                calls[call.index] = {"id": call.id, "type": "function", "function": function}
    return {"role": "assistant", "content": text, "tool_calls": list(calls.values())}


def loop(ask: Callable[[Mistral, list[Any]], Any]) -> Callable[[World], str]:
    """An agent by hand."""

    def drive(world: World) -> str:
        mistral = client(world)
        messages: list[Any] = [{"role": "user", "content": "go"}]
        for _ in range(6):
            message = ask(mistral, messages)
            messages.append({"role": "assistant", **{name: value for name, value in message.items() if value}})
            calls = message.get("tool_calls") or []
            if not calls and "not run" not in message["content"]:
                break
            messages += [_result(world, call) for call in calls] or [{"role": "user", "content": "and now?"}]
        return str(messages[-1]["content"])

    return drive


def _result(world: World, call: Any) -> Any:
    name, given = call["function"]["name"], call["function"]["arguments"]
    arguments = json.loads(given) if isinstance(given, str) else given
    if name == "send_email":
        arguments = {"subject": "hello", **arguments}
    return {"role": "tool", "tool_call_id": call["id"], "name": name, "content": world.run(name, arguments)}


def functions(world: World) -> list[Any]:
    def send_email(to: str, subject: str = "hello") -> str:
        """Send a mail."""
        return world.run("send_email", {"to": to, "subject": subject})

    async def read_file(path: str) -> str:
        """Read a file."""
        return world.run("read_file", {"path": path})

    return [send_email, read_file]


def run(world: World) -> str:
    """A conversation whose functions a run context executes."""

    async def converse() -> str:
        async with RunContext(model="m") as context:
            for function in functions(world):
                context.register_func(function)
            result = await client(world).beta.conversations.run_async(run_ctx=context, inputs="go")
            return str(result.output_as_text).rpartition("\n")[2]

    return asyncio.run(converse())


def run_stream(world: World) -> str:
    """The same, as events."""

    async def converse() -> str:
        async with RunContext(model="m") as context:
            for function in functions(world):
                context.register_func(function)
            events = await client(world).beta.conversations.run_stream_async(run_ctx=context, inputs="go")
            last: Any = [event async for event in events][-1]
            return str(last.output_as_text).rpartition("\n")[2]

    return asyncio.run(converse())


BY_HAND = EVERYTHING - {"coerces", "defaults", "validates", "runs"}
FRAMEWORK = Framework(
    adapters=("mistral",),
    unheard=frozenset({"*"}),
    again="the package has no middleware, and runs a function once for every call of an answer",
    provide=MistralProvider,
    ways=[
        Way(name="complete", drive=loop(complete), can=BY_HAND),
        Way(name="complete async", drive=loop(complete_async), can=BY_HAND),
        Way(name="stream", drive=loop(stream), can=BY_HAND),
        Way(name="run context", drive=run, can=EVERYTHING - {"coerces"}),
        Way(name="run context streamed", drive=run_stream, can=EVERYTHING - {"coerces"}),
    ],
)
