"""The proxies of model APIs. They are served by themselves: their answers are those of the vendors."""

from __future__ import annotations

from typing import Final

from aegis.server.endpoint import Body, Endpoint, Param, Reply
from aegis.server.permissions import DECIDE
from aegis.server.schemas.common import ANY_OBJECT, NAME, ref

_ERROR: Final = ref("ProviderError")
_RETRY: Final = {"Retry-After": "whole seconds"}
_FAILING: Final = {
    400: Reply(text="no model is named, or a part of the API that is not proxied", schema=_ERROR),
    401: Reply(text="no known credential", schema=_ERROR),
    403: Reply(text="a credential without that right, or a forged call or result in the conversation", schema=_ERROR),
    404: Reply(text="no provider serves this model", schema=_ERROR),
    422: Reply(text="the body is not strict JSON", schema=_ERROR),
    500: Reply(text="the gateway failed", schema=_ERROR),
    502: Reply(text="the provider gave no answer that can be understood", schema=_ERROR),
    503: Reply(text="the store cannot be read or written", schema=_ERROR, headers=_RETRY),
    504: Reply(text="the provider did not answer in time", schema=_ERROR),
}

_OF_BODIES: Final = {
    413: Reply(text="the body is too large", schema=_ERROR),
    415: Reply(text="the body is compressed", schema=_ERROR),
}


def _proxy(path: str, operation: str, summary: str) -> Endpoint:
    return Endpoint(
        method="POST",
        path=path,
        operation=operation,
        tag="models",
        summary=summary,
        permission=DECIDE,
        body=Body(schema=ANY_OBJECT),
        replies={
            200: Reply(text="the provider's answer, or its stream, without calls that may not run", schema=ANY_OBJECT),
            **_FAILING,
            **_OF_BODIES,
        },
    )


ENDPOINTS: Final = (
    _proxy("/v1/chat/completions", "proxyChatCompletions", "OpenAI chat completions, with every tool call decided"),
    _proxy("/v1/responses", "proxyResponses", "OpenAI responses, with every tool call decided"),
    _proxy("/v1/messages", "proxyMessages", "Anthropic messages, with every tool use decided"),
    _proxy("/v1/messages/count_tokens", "proxyCountTokens", "Anthropic token counts"),
    Endpoint(
        method="GET",
        path="/v1/models",
        operation="proxyModels",
        tag="models",
        summary="The models that are served, as OpenAI or (with `anthropic-version`) Anthropic lists them",
        permission=DECIDE,
        replies={200: Reply(text="the models", schema=ANY_OBJECT), **_FAILING},
    ),
    Endpoint(
        method="GET",
        path="/v1/models/{id:path}",
        operation="proxyModel",
        tag="models",
        summary="One of them",
        permission=DECIDE,
        path_params=(Param(name="id", schema=NAME, text="the model"),),
        replies={200: Reply(text="the model", schema=ANY_OBJECT), **_FAILING},
    ),
)
