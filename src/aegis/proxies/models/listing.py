"""`/v1/models`: what may be asked for here, from the lists of the providers; and Anthropic's token counts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from aegis.core.json import parse
from aegis.errors import EgressError, InvalidCall
from aegis.proxies.models.formats import CHAT, FORMATS, MESSAGES, Format
from aegis.proxies.models.providers import MAX_ANSWER_BYTES, ModelProvider, Providers, error_of, whole
from aegis.proxies.models.routes import ModelProxies, Proxy, ProxyAnswer, principal_in, request_in, session_in
from aegis.server.admission import DECIDE, PROXY, permit_running
from aegis.server.endpoint import ApiEndpoint, Body, Endpoint, Param, Reply
from aegis.server.http import Disconnected
from aegis.server.schemas import ANY_OBJECT, NAME, ref

_LISTS: Final = {"openai": "/models", "anthropic": "/v1/models"}
_COUNT: Final = "/v1/messages/count_tokens"


class Models:
    """The list of models, or one of them."""

    def __init__(self, proxies: ModelProxies):
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        format_ = MESSAGES if "anthropic-version" in headers else CHAT
        answer = ProxyAnswer(send, format_, scope["aegis.request_id"])
        try:
            services = self._proxies.services
            await permit_running(await principal_in(headers, services), PROXY, services.gate)
            listed = await _listed(self._proxies.providers(), format_, headers)
            wanted = scope.get("path_params", {}).get("id")
            found = _page(format_, listed) if wanted is None else _one(wanted, listed)
            await answer.whole(200, orjson.dumps(found), {})
        except Exception as error:
            await answer.fail(error)


class CountTokens:
    """Anthropic's count of tokens, of the request as it would be sent: what a model may not see is not counted."""

    def __init__(self, proxies: ModelProxies):
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = ProxyAnswer(send, MESSAGES, scope["aegis.request_id"])
        try:
            headers = Headers(scope=scope)
            principal = await principal_in(headers, self._proxies.services)
            await permit_running(principal, PROXY, self._proxies.services.gate)
            request = await request_in(scope, headers, receive)
            providers = self._proxies.providers()
            provider = providers.for_model("anthropic", request.get("model"))
            request = await self._proxies.exchange(principal, session_in(headers), MESSAGES).counted(request)
            async with providers.ask(provider, _COUNT, headers, orjson.dumps(request)) as upstream:
                value = _value(provider, upstream.status, await whole(upstream, MAX_ANSWER_BYTES))
            await answer.whole(upstream.status, provider.secret.redacted(orjson.dumps(value)), {})
        except Disconnected:
            return
        except Exception as error:
            await answer.fail(error)


def _one(wanted: str, listed: Sequence[dict[str, Any]]) -> dict[str, Any]:
    for model in listed:
        if model["id"] == wanted:
            return model
    raise InvalidCall("no provider serves this model", code="model_not_found", status=404)


def _value(provider: ModelProvider, status: int, body: bytes) -> Any:
    """The value of a whole answer; raises where it is not the provider's own."""
    value = parse(body) if status == 200 else error_of(provider, status, body)
    if isinstance(value, InvalidCall):
        raise value
    return value


async def _listed(providers: Providers, format_: Format, told: Mapping[str, str]) -> list[dict[str, Any]]:
    """The models of every provider of one vendor that it is asked for; raises where one cannot be asked."""
    asked = [one for one in providers.all if one.vendor == format_.vendor]
    lists = await asyncio.gather(*(_models_of(providers, one, told) for one in asked))
    seen: dict[str, dict[str, Any]] = {}
    for provider, models in zip(asked, lists, strict=True):
        for model in models:
            name = model.get("id")
            if isinstance(name, str) and provider.serves(name):
                seen.setdefault(name, model)
    return list(seen.values())


async def _models_of(providers: Providers, provider: ModelProvider, told: Mapping[str, str]) -> list[dict[str, Any]]:
    async with providers.ask(provider, _LISTS[provider.vendor], told, method="GET") as upstream:
        try:
            body = await whole(upstream, MAX_ANSWER_BYTES)
        except EgressError as error:
            raise InvalidCall(
                f"the provider `{provider.name}` broke off", code="upstream_failed", status=502
            ) from error
    if upstream.status != 200:
        found = error_of(provider, upstream.status, body)
        if isinstance(found, InvalidCall):
            raise found
        raise InvalidCall(f"the provider `{provider.name}` lists no models", code="upstream_failed", status=502)
    value = parse(provider.secret.redacted(body))
    data = value.get("data") if isinstance(value, dict) else None
    return [model for model in data if isinstance(model, dict)] if isinstance(data, list) else []


def _page(format_: Format, models: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if format_.vendor == "openai":
        return {"object": "list", "data": list(models)}
    names = [model["id"] for model in models]
    return {
        "data": list(models),
        "has_more": False,
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
    }


# The routes of the model proxies, in front of the table: their credentials, errors and streams are the vendors'.


class _Rest(PathConvertor):
    """The rest of a path, line breaks included: what a vendor's path begins is refused in that vendor's shape."""

    regex = r"[\s\S]*"


register_url_convertor("rest", _Rest())


def model_routes(proxies: ModelProxies) -> list[BaseRoute]:
    """One route for each proxied path and method; other methods fall through to the table."""
    return [
        *(Route(_routed(path), Proxy(proxies, format_), methods=["POST"]) for path, format_ in FORMATS.items()),
        Route("/v1/messages/count_tokens", CountTokens(proxies), methods=["POST"]),
        Route("/v1/models", Models(proxies), methods=["GET"]),
        Route("/v1/models/{id:rest}", Models(proxies), methods=["GET"]),
    ]


def _routed(path: str) -> str:
    return path.replace(":path}", ":rest}")


# The proxies of model APIs. They are served by themselves: their answers are those of the vendors.

_RETRY: Final = {"Retry-After": "whole seconds"}
_TOLD: Final = {
    400: "no model is named, or a part of the API that is not proxied",
    401: "no known credential",
    403: "a credential without that right, or a forged call or result in the conversation",
    404: "no provider serves this model",
    422: "the body is not strict JSON",
    500: "the gateway failed",
    502: "the provider gave no answer that can be understood",
    503: "the store cannot be read or written",
    504: "the provider did not answer in time",
}
_OF_BODIES: Final = {413: "the body is too large", 415: "the body is compressed"}


def _failing(texts: Mapping[int, str], error: str = "ProviderError") -> dict[int, Reply]:
    """What goes wrong, in the shape of a vendor's errors; a path that no vendor has is the gateway's own to refuse."""
    return {
        status: Reply(
            text=text,
            schema={"anyOf": [ref(error), ref("Error")]} if status == 404 else ref(error),
            headers=_RETRY if status == 503 else {},
        )
        for status, text in texts.items()
    }


_CALL: Final = Param(name="call", schema=NAME, text="the model and the method, as the vendor's clients write them")


def _proxy(path: str, operation: str, summary: str, *params: Param, error: str = "ProviderError") -> ApiEndpoint:
    return Endpoint(
        method="POST",
        path=path,
        operation=operation,
        tag="models",
        summary=summary,
        permission=DECIDE,
        path_params=params,
        body=Body(schema=ANY_OBJECT),
        replies={
            200: Reply(text="the provider's answer, or its stream, without calls that may not run", schema=ANY_OBJECT),
            **_failing({**_TOLD, **_OF_BODIES}, error),
        },
    )


ENDPOINTS: Final[tuple[ApiEndpoint, ...]] = (
    _proxy("/v1/chat/completions", "proxyChatCompletions", "OpenAI chat completions, with every tool call decided"),
    _proxy("/v1/responses", "proxyResponses", "OpenAI responses, with every tool call decided"),
    _proxy("/v1/messages", "proxyMessages", "Anthropic messages, with every tool use decided"),
    _proxy(
        "/v1beta/models/{call:path}",
        "proxyGenerateContent",
        "Gemini's `MODEL:generateContent` and `MODEL:streamGenerateContent?alt=sse`, with every function call decided",
        _CALL,
        error="GeminiError",
    ),
    _proxy("/api/chat", "proxyOllamaChat", "Ollama's chat, with every tool call decided", error="OllamaError"),
    _proxy(
        "/model/{call:path}",
        "proxyConverse",
        "Bedrock's `MODEL/converse` and `MODEL/converse-stream`, with every tool use decided",
        _CALL,
        error="BedrockError",
    ),
    _proxy("/v1/messages/count_tokens", "proxyCountTokens", "Anthropic token counts"),
    Endpoint(
        method="GET",
        path="/v1/models",
        operation="proxyModels",
        tag="models",
        summary="The models that are served, as OpenAI or (with `anthropic-version`) Anthropic lists them",
        permission=DECIDE,
        replies={200: Reply(text="the models", schema=ANY_OBJECT), **_failing(_TOLD)},
    ),
    Endpoint(
        method="GET",
        path="/v1/models/{id:path}",
        operation="proxyModel",
        tag="models",
        summary="One of them",
        permission=DECIDE,
        path_params=(Param(name="id", schema=NAME, text="the model"),),
        replies={200: Reply(text="the model", schema=ANY_OBJECT), **_failing(_TOLD)},
    ),
)
