"""LiteLLM: every model that it reaches over its own HTTP clients, whatever function asked for it.

Models that it reaches through the `openai` package are decided at the hooks of that package. All others are sent over
one method of two clients, in the wire format of their provider: the format is told by the address, and a request that
gives a model tools in a format that is not known is refused. The native routes that go round these clients are off.
A proxy is covered in its own process; the tools of MCP servers behind it are decided at the hooks of `mcp`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from aegis.adapters.mcp import result_of, view_of
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution
from aegis.enforce.scope import current_scope
from aegis.enforce.tools import ToolGate
from aegis.enforce.transport import with_async_stream, with_body, with_settled_abody, with_settled_body, with_stream
from aegis.enforce.turn import ProviderTurn, StreamedTurn, aread_events, read_events
from aegis.errors import UnhookedFramework
from aegis.wire.anthropic import AnthropicMessages
from aegis.wire.bedrock import BEDROCK
from aegis.wire.gemini import GEMINI
from aegis.wire.model import Dialect, WireEvent
from aegis.wire.openai_chat import OpenAIChat
from aegis.wire.openai_responses import OpenAIResponses
from aegis.wire.sse import SseReader, sse_bytes

DISTRIBUTION: Final = "litellm"
SUPPORTED: Final = ((1, 106, 2), (2,))

_RESPONSES: Final = "responses"
# By the last part of an address: formats whose streams are filtered event by event.
_FILTERED: Final[dict[str, Dialect]] = {
    "messages": AnthropicMessages(),
    "completions": OpenAIChat(),
    _RESPONSES: OpenAIResponses(),
}
# Formats in which every event of a stream is an answer of its own, or there is no stream.
_WHOLE: Final = {"generateContent": GEMINI, "streamGenerateContent": GEMINI, "converse": BEDROCK}
_TOOLS: Final = ("tools", "functions", "toolConfig", "tool_config", "function_declarations")


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; `bar` refuses the paths that are not covered. Raises `UnhookedFramework`."""
    clients = _Clients(enforcer, memory, bar=bar)

    gate = ToolGate(enforcer, memory)
    http = "litellm.llms.custom_httpx.http_handler"
    patches.methods(http, "HTTPHandler", post=clients.post, get=clients.get)
    patches.methods(http, "AsyncHTTPHandler", post=clients.apost, get=clients.aget)
    patches.methods(
        "litellm.proxy._experimental.mcp_server.operations",
        "",
        _handle_local_mcp_tool=lambda original: _running(gate, original),
    )
    patches.when(
        "litellm.rust_bridge.configuration",
        lambda module: patches.replace(module, "decide", lambda original: _in_python(module, original)),
    )
    unseen = ("tools in a format that is not known", "`aiohttp_openai` models")
    if bar:
        patches.when("litellm.llms.custom_httpx.aiohttp_handler", lambda module: _bar_aiohttp(module, patches))
    return Seams(
        seams=("HTTPHandler", "AsyncHTTPHandler", "the MCP tools that a proxy has itself"),
        barred=unseen if bar else (),
        uncovered=("answers out of a cache", "requests that are passed through as they are", "realtime sessions")
        + (() if bar else unseen),
    )


def _in_python(module: Any, original: Method) -> Method:
    """A route that has both goes the way of Python, where it is seen."""

    def decide(rollout: Any, **overrides: Any) -> Any:
        if rollout in (module.Rollout.RUST_OPT_IN, module.Rollout.RUST_OPT_OUT):
            return module.Decision.PYTHON
        return original(rollout, **overrides)

    return decide


def _running(gate: ToolGate, original: Method) -> Method:
    """The tools of APIs that a proxy offers over MCP are run by itself; those of servers, over a client of MCP."""

    async def run(name: str, arguments: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        execution = Execution(tool=name, call_id="", answer_id=None, arguments=lambda: arguments)
        ran = await gate.acall(execution, lambda given: original(name, given, *args, **kwargs), view_of)
        return result_of(ran)

    return run


def _bar_aiohttp(module: Any, patches: Patches) -> None:
    for name in ("completion", "async_completion"):
        patches.bar(module.BaseLLMAIOHTTPHandler, name)


class _Clients:
    """What the sync and the async client send, and what comes back."""

    def __init__(self, enforcer: Enforcer, memory: Memory, *, bar: bool) -> None:
        self._enforcer = enforcer
        self._memory = memory
        self._bar = bar

    def post(self, original: Method) -> Method:
        def post(client: Any, url: Any, *args: Any, **kwargs: Any) -> Any:
            sent = _Sent(inspect.signature(original).bind(client, url, *args, **kwargs).arguments)
            turn = self._turn(sent)
            if turn is None or sent.body is None:
                return original(client, url, *args, **kwargs)
            given = sent.given(self._enforcer.run(turn.amended(sent.body)))
            response = original(**given)
            if _is_stream(response, given):
                return with_stream(response, turn.chunks(response.iter_bytes()))
            if _unlabelled(given, body := response.read()):
                return with_body(response, b"".join(turn.chunks(iter((body,)))))
            return with_settled_body(response, turn)

        return post

    def apost(self, original: Method) -> Method:
        async def post(client: Any, url: Any, *args: Any, **kwargs: Any) -> Any:
            sent = _Sent(inspect.signature(original).bind(client, url, *args, **kwargs).arguments)
            turn = self._turn(sent)
            if turn is None or sent.body is None:
                return await original(client, url, *args, **kwargs)
            given = sent.given(await self._enforcer.arun(turn.amended(sent.body)))
            response = await original(**given)
            if _is_stream(response, given):
                return with_async_stream(response, turn.achunks(response.aiter_bytes()))
            if _unlabelled(given, body := await response.aread()):
                return with_body(response, b"".join([chunk async for chunk in turn.achunks(_alone(body))]))
            return await with_settled_abody(response, turn)

        return post

    def get(self, original: Method) -> Method:
        def get(client: Any, url: Any, *args: Any, **kwargs: Any) -> Any:
            response = original(client, url, *args, **kwargs)
            turn = self._fetched(url)
            if turn is None:
                return response
            return with_settled_body(response, turn)

        return get

    def aget(self, original: Method) -> Method:
        async def get(client: Any, url: Any, *args: Any, **kwargs: Any) -> Any:
            response = await original(client, url, *args, **kwargs)
            turn = self._fetched(url)
            if turn is None:
                return response
            return await with_settled_abody(response, turn)

        return get

    def _fetched(self, url: Any) -> ProviderTurn | None:
        """The turn of an answer that was made in the background and is fetched now."""
        if _operation(url) != _RESPONSES:
            return None
        return ProviderTurn(self._enforcer, self._memory, _FILTERED[_RESPONSES], deferred=current_scope().deferred)

    def _turn(self, sent: _Sent) -> StreamedTurn | _EventTurn | None:
        """The turn that a request begins; raises for one whose calls would not be seen."""
        deferred = current_scope().deferred
        if sent.operation in _FILTERED:
            return StreamedTurn(self._enforcer, self._memory, _FILTERED[sent.operation], deferred=deferred)
        if sent.operation in _WHOLE:
            return _EventTurn(self._enforcer, self._memory, _WHOLE[sent.operation], deferred=deferred)
        if self._bar and sent.body is not None and any(sent.body.get(name) for name in _TOOLS):
            raise UnhookedFramework(f"tools for a model at `.../{sent.operation}` are not covered, so they are refused")
        return None


class _EventTurn(ProviderTurn):
    """The passage of a request where every event of a streamed answer is an answer of its own."""

    def chunks(self, source: Iterator[bytes]) -> Iterator[bytes]:
        """The bytes of a streamed answer as the agent may see them."""
        for events in read_events(SseReader(), source):
            for event in events:
                yield _passed(event, self.enforcer.run(self.body(event.data.encode())))

    async def achunks(self, source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The async twin of `chunks`."""
        async for events in aread_events(SseReader(), source):
            for event in events:
                yield _passed(event, await self.enforcer.arun(self.body(event.data.encode())))


class _Sent:
    """One request as it was handed to a client: its address, and its body where that is a JSON object."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self.operation = _operation(given["url"])
        self._name = next((name for name in ("json", "content", "data") if given.get(name) is not None), "json")
        self.body = _object(given.get(self._name))

    def given(self, amended: dict[str, Any]) -> dict[str, Any]:
        """The arguments with this body; as they were where it is the same, for some are signed."""
        if amended is self.body:
            return self._given
        spelled = amended if self._name == "json" else json.dumps(amended)
        return {**self._given, self._name: spelled}


def _operation(url: Any) -> str:
    """What a request asks for, by its address."""
    *before, last = urlsplit(str(url)).path.rstrip("/").split("/")
    # One response is named behind its kind, and what is done to it behind that.
    return _RESPONSES if _RESPONSES in before[-2:] else last.rpartition(":")[2]


def _object(body: Any) -> dict[str, Any] | None:
    if isinstance(body, (str, bytes, bytearray)):
        try:
            body = json.loads(body)
        except ValueError:
            return None
    return body if isinstance(body, dict) else None


def _is_stream(response: Any, given: dict[str, Any]) -> bool:
    kind = response.headers.get("content-type", "").lower()
    return "event-stream" in kind or (bool(given.get("stream")) and "json" not in kind)


def _unlabelled(given: dict[str, Any], body: bytes) -> bool:
    """Whether an answer is a stream, which was asked for, whatever its label says: it will be read as one."""
    return bool(given.get("stream")) and _object(body) is None


async def _alone(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _passed(event: WireEvent, data: bytes) -> bytes:
    return sse_bytes(WireEvent(data=data.decode(), event=event.event, id=event.id, retry=event.retry))
