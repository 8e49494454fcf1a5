"""The seam that the OpenAI and Anthropic SDKs share: one method sends, one takes the answer in.

Every way to call a model (`create`, `parse`, `stream`, raw and streaming responses, the helpers and
runners) goes through these two, so that what is decided here is decided for all of them.
"""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

import orjson

from aegis.adapters._enforce import Enforcer
from aegis.adapters._http import with_async_stream, with_body, with_stream
from aegis.adapters._memory import Memory
from aegis.adapters._patch import Method, Patches
from aegis.adapters._scope import current_scope
from aegis.adapters._turn import StreamedTurn
from aegis.dialects.model import Dialect
from aegis.errors import UnhookedFramework

# No other process knows the name: hosts hand on headers of their own clients.
DEFERRED_HEADER: Final = f"x-aegis-deferred-{secrets.token_hex(16)}"

_turn: ContextVar[StreamedTurn | None] = ContextVar("aegis_turn", default=None)


class Transport:
    """Hooks the clients of one SDK.

    `dialect_of` gives the dialect for the path of a request, or `None` for one that proposes no
    calls; `dumps` is the SDK's own serialiser, for bodies that hold its models, `omit` its word for a
    header that is not to be sent.
    """

    def __init__(
        self,
        enforcer: Enforcer,
        memory: Memory,
        dialect_of: Callable[[str], Dialect | None],
        dumps: Callable[[Any], bytes],
        omit: Any,
    ) -> None:
        self._enforcer = enforcer
        self._memory = memory
        self._dialect_of = dialect_of
        self._dumps = dumps
        self._omit = omit

    def hook(self, patches: Patches, sync: type, asynchronous: type, *, send: str) -> None:
        """Hook a sync and an async client class; `send` is the method that sends one request."""
        patches.replace(sync, send, self._send)
        patches.replace(sync, "_process_response", self._receive)
        patches.replace(asynchronous, send, self._asend)
        patches.replace(asynchronous, "_process_response", self._areceive)

    def _send(self, original: Method) -> Method:
        def send(client: Any, cast_to: Any, options: Any, **kwargs: Any) -> Any:
            turn, options = self._begin(client, options)
            if turn is not None and (body := self._body(options)) is not None:
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
                    body = response.read()
                    settled = self._enforcer.run(turn.body(body))
                    response = response if settled is body else with_body(response, settled)
            return original(client, response=response, stream=stream, **kwargs)

        return receive

    def _areceive(self, original: Method) -> Method:
        async def receive(client: Any, *, response: Any, stream: bool, **kwargs: Any) -> Any:
            turn = _turn.get()
            if turn is not None:
                if _is_stream(response, stream):
                    response = with_async_stream(response, turn.achunks(response.aiter_bytes()))
                else:
                    body = await response.aread()
                    settled = await self._enforcer.arun(turn.body(body))
                    response = response if settled is body else with_body(response, settled)
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
