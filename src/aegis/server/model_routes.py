"""The routes of the model proxies, in front of the table: their credentials, errors and streams are the vendors'."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from aegis.proxies.models.formats import FORMATS
from aegis.server.model_list import CountTokens, Models
from aegis.server.model_proxy import ModelProxies, Proxy


def model_routes(proxies: ModelProxies) -> list[BaseRoute]:
    """One route for each proxied path and method; other methods fall through to the table."""
    return [
        *(Route(path, Proxy(proxies, format_), methods=["POST"]) for path, format_ in FORMATS.items()),
        Route("/v1/messages/count_tokens", CountTokens(proxies), methods=["POST"]),
        Route("/v1/models", Models(proxies), methods=["GET"]),
        Route("/v1/models/{id:path}", Models(proxies), methods=["GET"]),
    ]
