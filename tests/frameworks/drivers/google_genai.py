"""`google-genai`: automatic function calling of models and chats, and loops by hand, sync, async and streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from google import genai
from google.genai import types

from frameworks.model import EVERYTHING, Framework, Way
from frameworks.model import blocking_functions as functions
from support.gemini import gemini
from support.worlds import World

_clients: list[genai.Client] = []


def client(world: World) -> genai.Client:
    made = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=world.provider.url))
    # A client that nobody holds closes its connections.
    _clients[:] = [made]
    return made


def async_functions(world: World) -> list[Callable[..., Any]]:
    sync = {one.__name__: one for one in functions(world)}

    async def send_email(to: str, subject: str = "hello") -> str:
        """Send a mail."""
        return sync["send_email"](to, subject)

    async def read_file(path: str) -> str:
        """Read a file."""
        return sync["read_file"](path)

    return [send_email, read_file, sync["book"]]


def automatic(world: World) -> Any:
    return types.GenerateContentConfig(tools=functions(world))


def generate(world: World) -> str:
    return client(world).models.generate_content(model="m", contents="go", config=automatic(world)).text or ""


def generate_async(world: World) -> str:
    async def run() -> Any:
        config = types.GenerateContentConfig(tools=async_functions(world))
        return await client(world).aio.models.generate_content(model="m", contents="go", config=config)

    return asyncio.run(run()).text or ""


def generate_stream(world: World) -> str:
    chunks = client(world).models.generate_content_stream(model="m", contents="go", config=automatic(world))
    return [chunk.text for chunk in chunks if chunk.text][-1]


def generate_stream_async(world: World) -> str:
    async def run() -> str:
        stream = await client(world).aio.models.generate_content_stream(
            model="m", contents="go", config=automatic(world)
        )
        return [chunk.text async for chunk in stream if chunk.text][-1]

    return asyncio.run(run())


def chat(world: World) -> str:
    return client(world).chats.create(model="m", config=automatic(world)).send_message("go").text or ""


def chat_stream(world: World) -> str:
    talk = client(world).chats.create(model="m", config=automatic(world))
    return [chunk.text for chunk in talk.send_message_stream("go") if chunk.text][-1]


def by_hand(world: World) -> str:
    """A loop that runs the calls of an answer itself."""
    named = {one.__name__: one for one in functions(world)}
    off = types.AutomaticFunctionCallingConfig(disable=True)
    config = types.GenerateContentConfig(tools=functions(world), automatic_function_calling=off)
    contents: list[Any] = [types.Content(role="user", parts=[types.Part(text="go")])]
    text = ""
    for _ in range(6):
        response = client(world).models.generate_content(model="m", contents=contents, config=config)
        contents.append(response.candidates[0].content)
        text = "".join(part.text or "" for part in response.candidates[0].content.parts)
        if not response.function_calls:
            if len(contents) > 3 or "not run" not in text:
                break
            contents.append(types.Content(role="user", parts=[types.Part(text="and now?")]))
            continue
        results = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id, name=call.name, response={"result": named[call.name or ""](**(call.args or {}))}
                )
            )
            for call in response.function_calls
        ]
        contents.append(types.Content(role="user", parts=results))
    return text


AUTOMATIC = EVERYTHING - {"broken", "coerces"}
FRAMEWORK = Framework(
    adapters=("google_genai",),
    unheard=frozenset({"*"}),
    again="the package has no middleware, and runs a function once for every call of an answer",
    provide=gemini,
    ways=[
        Way(name="automatic", drive=generate, can=AUTOMATIC),
        Way(name="automatic async", drive=generate_async, can=AUTOMATIC),
        Way(name="automatic stream", drive=generate_stream, can=AUTOMATIC),
        Way(name="automatic stream async", drive=generate_stream_async, can=AUTOMATIC),
        Way(name="chat", drive=chat, can=AUTOMATIC),
        Way(name="chat stream", drive=chat_stream, can=AUTOMATIC),
        Way(name="by hand", drive=by_hand, can=frozenset({"ids"})),
    ],
)
