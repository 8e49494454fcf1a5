"""The `google-genai` package: generated content sync and async, whole and streamed, and its automatic calling.

Calls for code that is not the package's are decided in the answer. Those that the package executes itself are
decided where the function runs, with its final arguments.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, Final

from aegis.adapters._enforce import Enforcer
from aegis.adapters._inspection import ainspected, inspected
from aegis.adapters._memory import Memory
from aegis.adapters._patch import Method, Patches
from aegis.adapters._scope import current_scope
from aegis.adapters._turn import Turn
from aegis.adapters.google_genai_afc import Loop, hook_loops
from aegis.adapters.seams import Seams
from aegis.dialects.gemini import GEMINI
from aegis.errors import UnhookedFramework

DISTRIBUTION: Final = "google-genai"
SUPPORTED: Final = ((2, 34), (4,))

_INTERACTIONS: Final = "/interactions"
_METHODS: Final = ("generateContent", "streamGenerateContent")


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; `bar` refuses the paths that are not covered. Raises `UnhookedFramework`."""
    transport = _Transport(enforcer, memory)

    def clients(module: Any) -> None:
        patches.replace(module.BaseApiClient, "request", transport.request)
        patches.replace(module.BaseApiClient, "async_request", transport.arequest)
        patches.replace(module.BaseApiClient, "request_streamed", transport.stream)
        patches.replace(module.BaseApiClient, "async_request_streamed", transport.astream)

    patches.when("google.genai._api_client", clients)
    loops = hook_loops(enforcer, memory, patches, bar=bar)
    if bar:
        patches.when("google.genai._gaos.basesdk", partial(_bar_interactions, patches))
    calls = ("calls that an interaction hands out",)
    return Seams(
        seams=("BaseApiClient.request", "BaseApiClient.request_streamed", *loops.seams),
        barred=(*loops.barred, *(calls if bar else ())),
        uncovered=("results of batches", *(() if bar else calls), *loops.uncovered),
    )


def _bar_interactions(patches: Patches, module: Any) -> None:
    """Refuse answers of interactions that hold a call: what is made of them is not seen."""

    def asked(original: Method) -> Method:
        def do_request(sdk: Any, hook_ctx: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            response = original(sdk, hook_ctx, request, *args, **kwargs)
            return inspected(response, _look) if _INTERACTIONS in request.url.path else response

        return do_request

    def aasked(original: Method) -> Method:
        async def do_request(sdk: Any, hook_ctx: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            response = await original(sdk, hook_ctx, request, *args, **kwargs)
            return await ainspected(response, _look) if _INTERACTIONS in request.url.path else response

        return do_request

    patches.replace(module.BaseSDK, "do_request", asked)
    patches.replace(module.AsyncBaseSDK, "do_request_async", aasked)


def _look(said: Any) -> None:
    """Raise for a step that is a call, wherever it stands."""
    waiting = [said]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if one.get("type") == "function_call":
                raise UnhookedFramework("calls of interactions are not covered; use `generate_content` or a chat")
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


class _Transport:
    """One request and its answer, in the JSON of the wire."""

    def __init__(self, enforcer: Enforcer, memory: Memory) -> None:
        self._enforcer = enforcer
        self._memory = memory
        self._run = enforcer.run
        self._arun = enforcer.arun

    def request(self, original: Method) -> Method:
        def request(client: Any, method: str, path: str, body: Any, *args: Any, **kwargs: Any) -> Any:
            turn = self._turn(path)
            if turn is None:
                return original(client, method, path, body, *args, **kwargs)
            response = original(client, method, path, self._run(turn.amended(body)), *args, **kwargs)
            return self._settled(turn, response)

        return request

    def arequest(self, original: Method) -> Method:
        async def request(client: Any, method: str, path: str, body: Any, *args: Any, **kwargs: Any) -> Any:
            turn = self._turn(path)
            if turn is None:
                return await original(client, method, path, body, *args, **kwargs)
            response = await original(client, method, path, await self._arun(turn.amended(body)), *args, **kwargs)
            return await self._asettled(turn, response)

        return request

    def stream(self, original: Method) -> Method:
        def stream(client: Any, method: str, path: str, body: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            turn = self._turn(path)
            if turn is None:
                yield from original(client, method, path, body, *args, **kwargs)
                return
            for chunk in original(client, method, path, self._run(turn.amended(body)), *args, **kwargs):
                yield self._settled(turn, chunk)

        return stream

    def astream(self, original: Method) -> Method:
        async def stream(client: Any, method: str, path: str, body: Any, *args: Any, **kwargs: Any) -> Any:
            turn = self._turn(path)
            if turn is None:
                return await original(client, method, path, body, *args, **kwargs)
            chunks = await original(client, method, path, await self._arun(turn.amended(body)), *args, **kwargs)
            return self._achunks(turn, chunks)

        return stream

    async def _achunks(self, turn: Turn, chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for chunk in chunks:
            yield await self._asettled(turn, chunk)

    def _turn(self, path: str) -> Turn | None:
        if path.partition("?")[0].rpartition(":")[2] not in _METHODS:
            return None
        loop = current_scope().loop
        deferred = current_scope().deferred
        if isinstance(loop, Loop):
            deferred |= loop.request()
        return Turn(self._enforcer, self._memory, GEMINI, deferred=deferred)

    def _settled(self, turn: Turn, response: Any) -> Any:
        answer = _wire(response)
        return response if answer is None else _with_body(response, answer, self._run(turn.settled(answer)))

    async def _asettled(self, turn: Turn, response: Any) -> Any:
        answer = _wire(response)
        return response if answer is None else _with_body(response, answer, await self._arun(turn.settled(answer)))


def _wire(response: Any) -> dict[str, Any] | None:
    """The answer's object; what is none, the package cannot read a call from either."""
    try:
        answer = json.loads(response.body or "null")
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _with_body(response: Any, answer: dict[str, Any], settled: dict[str, Any]) -> Any:
    if settled == answer:
        return response
    return response.model_copy(update={"body": json.dumps(settled)})
