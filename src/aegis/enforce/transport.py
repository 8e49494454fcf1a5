"""The seam that the OpenAI and Anthropic SDKs share: one method sends, one takes the answer in.

Every way to call a model (`create`, `parse`, `stream`, raw and streaming responses, the helpers and
runners) goes through these two, so that what is decided here is decided for all of them.
"""

from __future__ import annotations

import copy
import json
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, cast

import orjson

from aegis.enforce.enforcement import Enforcer, Steps
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches
from aegis.enforce.scope import current_scope, current_session, is_outermost
from aegis.enforce.turn import ProviderTurn, StreamedTurn, aread_events, read_events
from aegis.enforce.words import words_in
from aegis.errors import UnhookedFramework
from aegis.wire.model import ProxyDialect, Wire, WireEvent
from aegis.wire.sse import SseReader, sse_bytes

# Answers of httpx, of whatever generation, with another body or another stream.

# They describe the bytes that came over the wire, not those that go on.
_OF_THE_WIRE: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})


def with_body(response: Any, body: bytes) -> Any:
    """The same answer with another, already read body."""
    replaced = type(response)(content=body, **_rest(response))
    try:
        replaced.elapsed = response.elapsed
    except RuntimeError:
        return replaced  # not read to its end: nobody knows how long it took
    return replaced


def with_settled_body(response: Any, turn: ProviderTurn) -> Any:
    """Read a whole answer, and give it as the agent may see it."""
    body = response.read()
    settled = turn.enforcer.run(turn.body(body))
    return response if settled is body else with_body(response, settled)


async def with_settled_abody(response: Any, turn: ProviderTurn) -> Any:
    """The async twin of `with_settled_body`."""
    body = await response.aread()
    settled = await turn.enforcer.arun(turn.body(body))
    return response if settled is body else with_body(response, settled)


def with_stream(response: Any, chunks: Iterator[bytes]) -> Any:
    """The same answer with another stream; closing it closes the original."""
    return type(response)(stream=_sync_class(_family(response))(response, chunks), **_rest(response))


def with_async_stream(response: Any, chunks: AsyncIterator[bytes]) -> Any:
    """The async twin of `with_stream`."""
    return type(response)(stream=_async_class(_family(response))(response, chunks), **_rest(response))


def _rest(response: Any) -> dict[str, Any]:
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _OF_THE_WIRE]
    return {
        "status_code": response.status_code,
        "headers": headers,
        "request": response.request,
        "extensions": response.extensions,
        "history": response.history,
        "default_encoding": response.default_encoding,
    }


def _family(response: Any) -> ModuleType:
    """The package that the answer's class comes from: it accepts only streams of its own kind."""
    return sys.modules[type(response).__module__.partition(".")[0]]


@cache
def _sync_class(family: ModuleType) -> type[Any]:
    class GatedStream(cast("type[Any]", family.SyncByteStream)):  # type: ignore[misc]
        def __init__(self, original: Any, chunks: Iterator[bytes]):
            self._original = original
            self._chunks = chunks

        def __iter__(self) -> Iterator[bytes]:
            return self._chunks

        def close(self) -> None:
            self._original.close()

        def __getattr__(self, name: str) -> Any:
            # Observers that the SDK has attached to the stream.
            return getattr(self._original.stream, name)

    return GatedStream


@cache
def _async_class(family: ModuleType) -> type[Any]:
    class AsyncGatedStream(cast("type[Any]", family.AsyncByteStream)):  # type: ignore[misc]
        def __init__(self, original: Any, chunks: AsyncIterator[bytes]):
            self._original = original
            self._chunks = chunks

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self._chunks

        async def aclose(self) -> None:
            await self._original.aclose()

        def __getattr__(self, name: str) -> Any:
            # Observers that the SDK has attached to the stream.
            return getattr(self._original.stream, name)

    return AsyncGatedStream


# No other process knows the name: hosts hand on headers of their own clients.
DEFERRED_HEADER: Final = f"x-aegis-deferred-{secrets.token_hex(16)}"

_turn: ContextVar[StreamedTurn | None] = ContextVar("aegis_turn", default=None)


class Transport:
    """Hooks the clients of one SDK.

    `dialect_of` gives the dialect for the path of a request, or `None` for one that proposes no calls.
    """

    def __init__(self, enforcer: Enforcer, memory: Memory, dialect_of: Callable[[str], ProxyDialect | None]) -> None:
        self._enforcer = enforcer
        self._memory = memory
        self._dialect_of = dialect_of

    def hook(self, patches: Patches, package: str, *, send: str) -> None:
        """Hook the clients of a package that is loaded; `send` is the method that sends one request."""
        base: Any = import_module(f"{package}._base_client")
        patches.replace(base.SyncAPIClient, send, self._send)
        patches.replace(base.SyncAPIClient, "_process_response", self._receive)
        patches.replace(base.AsyncAPIClient, send, self._asend)
        patches.replace(base.AsyncAPIClient, "_process_response", self._areceive)
        # The SDK's own serialiser, for bodies that hold its models, and its word for a header that is not to be sent.
        self._dumps = import_module(f"{package}._utils._json").openapi_dumps
        self._omit = import_module(f"{package}._types").Omit()

    def _send(self, original: Method) -> Method:
        def send(client: Any, cast_to: Any, options: Any, **kwargs: Any) -> Any:
            turn, options = self._begin(client, options)
            if turn is not None and (body := self._body(options)) is not None:
                self._enforcer.run(self._said(options, body))
                options = _with_body(options, body, self._enforcer.run(turn.amended(body)))
            token = _turn.set(turn)
            try:
                return original(client, cast_to, options, **kwargs)
            finally:
                _turn.reset(token)

        return send

    def _asend(self, original: Method) -> Method:
        async def send(client: Any, cast_to: Any, options: Any, **kwargs: Any) -> Any:
            turn, options = self._begin(client, options)
            if turn is not None and (body := self._body(options)) is not None:
                await self._enforcer.arun(self._said(options, body))
                options = _with_body(options, body, await self._enforcer.arun(turn.amended(body)))
            token = _turn.set(turn)
            try:
                return await original(client, cast_to, options, **kwargs)
            finally:
                _turn.reset(token)

        return send

    def _receive(self, original: Method) -> Method:
        def receive(client: Any, *, response: Any, stream: bool, **kwargs: Any) -> Any:
            turn = _turn.get()
            if turn is not None:
                if _is_stream(response, stream):
                    response = with_stream(response, turn.chunks(response.iter_bytes()))
                else:
                    response = with_settled_body(response, turn)
            return original(client, response=response, stream=stream, **kwargs)

        return receive

    def _areceive(self, original: Method) -> Method:
        async def receive(client: Any, *, response: Any, stream: bool, **kwargs: Any) -> Any:
            turn = _turn.get()
            if turn is not None:
                if _is_stream(response, stream):
                    response = with_async_stream(response, turn.achunks(response.aiter_bytes()))
                else:
                    response = await with_settled_abody(response, turn)
            return await original(client, response=response, stream=stream, **kwargs)

        return receive

    def _begin(self, client: Any, options: Any) -> tuple[StreamedTurn | None, Any]:
        """The turn that a request begins, and its options without our own header."""
        deferred = current_scope().deferred
        headers = options.headers if isinstance(options.headers, dict) else {}
        names = headers.get(DEFERRED_HEADER) or client._custom_headers.get(DEFERRED_HEADER)
        if isinstance(names, str):
            deferred |= frozenset(json.loads(names))
            options = copy.copy(options)
            options.headers = {**headers, DEFERRED_HEADER: self._omit}
        dialect = self._dialect_of(str(options.url))
        if dialect is None:
            return None, options
        return StreamedTurn(self._enforcer, self._memory, dialect, deferred=deferred), options

    def _said(self, options: Any, body: Wire) -> Steps[None]:
        """Say the user's words where a host, or a runner of the SDK, asks for its own loop."""
        dialect = self._dialect_of(str(options.url)) if is_outermost() and current_session() is not None else None
        if dialect is not None:
            outputs = (output.value for output in dialect.outputs(body))
            yield from self._enforcer.say(words_in(dialect, body), results=outputs)

    def _body(self, options: Any) -> dict[str, Any] | None:
        """The JSON body that a request will have, without any of the SDK's models in it."""
        body = options.json_data
        extra = getattr(options, "extra_json", None)
        if not isinstance(body, dict):
            return None
        if isinstance(extra, dict):
            body = {**body, **extra}
        try:
            orjson.dumps(body, option=orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS)
        except TypeError:
            plain: dict[str, Any] = json.loads(self._dumps(body))
            return plain
        return body


def _with_body(options: Any, body: dict[str, Any], amended: dict[str, Any]) -> Any:
    if amended is body:
        return options
    options = copy.copy(options)
    options.json_data = amended
    if getattr(options, "extra_json", None) is not None:
        options.extra_json = None
    return options


def _is_stream(response: Any, stream: bool) -> bool:
    """Whether an answer is a stream of server-sent events; raises for a stream of another kind."""
    kind = response.headers.get("content-type", "").lower()
    if "eventstream" in kind:
        raise UnhookedFramework(f"streams of type `{kind}` are not covered; call the model without streaming")
    return "event-stream" in kind or (stream and "json" not in kind)


# Answers that are looked at as they pass: whole ones at once, streams event by event. What looks may raise.

# Takes what an answer or an event of it says, as JSON; raises where that must not go on.
Look = Callable[[Any], None]


def inspected(response: Any, look: Look) -> Any:
    """An answer of httpx, whose content has passed `look` when somebody sees it."""
    if _is_event_stream(response):
        return with_stream(response, _events(response.iter_bytes(), look))
    _looked(response.read(), look)
    return response


async def ainspected(response: Any, look: Look) -> Any:
    """The async twin of `inspected`."""
    if _is_event_stream(response):
        return with_async_stream(response, _aevents(response.aiter_bytes(), look))
    _looked(await response.aread(), look)
    return response


def _is_event_stream(response: Any) -> bool:
    return "event-stream" in response.headers.get("content-type", "").lower()


def _events(chunks: Iterator[bytes], look: Look) -> Iterator[bytes]:
    for events in read_events(SseReader(), chunks):
        yield b"".join([_passed(event, look) for event in events])


async def _aevents(chunks: AsyncIterator[bytes], look: Look) -> AsyncIterator[bytes]:
    async for events in aread_events(SseReader(), chunks):
        yield b"".join([_passed(event, look) for event in events])


def _passed(event: WireEvent, look: Look) -> bytes:
    _looked(event.data, look)
    return sse_bytes(event)


def _looked(content: bytes | str, look: Look) -> None:
    try:
        said = json.loads(content)
    except ValueError:
        return  # the packages read nothing from it either
    look(said)
