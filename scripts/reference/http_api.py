"""The HTTP API, from the table that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aegis.server.endpoint import ApiEndpoint, Body, Param
from aegis.server.http import DEFAULT_LIMIT, MAX_BODY_BYTES, MAX_CALLS, MAX_LIMIT
from aegis.server.protocol import ARRIVAL_S, KEEP_ALIVE_S, MAX_CONNECTIONS, MAX_HEADER_BYTES
from aegis.server.table import ENDPOINTS, all_replies
from aegis.server.validation import COMPONENTS
from reference.http_examples import examples, shown
from reference.markdown import page, table

_EXAMPLES = examples()
TAGS = {
    "judging": "Judging",
    "approvals": "Approvals and events",
    "models": "Model proxies",
    "audit": "Audit",
    "administration": "Administration",
    "open": "Health, keys, description",
}

GENERAL = f"""
A gateway listens on 127.0.0.1:8787 and on the Unix socket `aegis.sock` in its home (mode 0600), and serves the
same on both. `GET /openapi.json` describes the API to programs; this page is made from the same table.

- **Credentials**: `Authorization: Bearer <key>`. The key says who asks; nothing in a body does. Without a known
  key: 401. With one that lacks the role: 403, whose `hint` names the role. Nothing but health is open.
- **Strict bodies**: JSON (RFC 8259, UTF-8) without duplicate keys, NaN, lone surrogates or unknown members; 422
  otherwise. Bodies over {MAX_BODY_BYTES // 2**20} MiB: 413. Unknown or repeated query parameters: 422.
- **Errors** have one shape, `{{"error": {{"code", "message", "hint", "request_id"}}}}`, for every 4xx and 5xx that is
  no decision. 409, 429 and 503 on the decision path carry a decision that blocks: never read them as "try without".
- **Request ids**: every answer has `X-Request-Id`; a short, plain one of the caller's is kept.
- **Lists** answer `{{"items": [], "next": cursor or null}}`; `limit` is {DEFAULT_LIMIT}, and at most {MAX_LIMIT}.
- **Limits**: {MAX_CONNECTIONS} connections, {MAX_HEADER_BYTES // 1024} KiB of request line and headers,
  {ARRIVAL_S:.0f} s for a request to arrive whole, {KEEP_ALIVE_S} s for an idle connection, {MAX_CALLS} calls a batch.
- **Examples** of each operation read `AEGIS_URL` and `AEGIS_API_KEY`, a key of the named role; the tests run them.
  Other variables are ids of answers before (`DECISION`), and `EXPIRES` is a time, `$(($(date +%s) + 3600))`.
- **Caching and origins**: `Cache-Control: no-store` on every answer, and no CORS header on any.
- **Draining**: on SIGTERM nothing new is accepted, what is under way is answered, waiting clients are woken, and
  what was acknowledged is in the log.
"""

EVENTS = """
Each event has the log index of its receipt as `id`. A client that comes back with `Last-Event-ID` (or `?after=`)
first gets everything recorded since. A client that does not keep up is dropped with a comment, and can come back.

| event | when | data |
| --- | --- | --- |
| `decision` | a call was decided | the receipt, without its signature |
| `approval` | a call is held, answered, expired, cancelled or redeemed | the approval without arguments |
| `alert` | a result was not let through as it was, or an alarm was recorded | the receipt |
| `config` | another configuration was put in force | the receipt |
| `agent` | an agent was stopped or restored | the receipt |
"""


def render() -> str:
    """The page."""
    parts: list[str] = []
    for tag, title in TAGS.items():
        chosen = [endpoint for endpoint in ENDPOINTS if endpoint.tag == tag]
        rows = ((f"`{one.method} {_path(one)}`", _roles(one), one.summary) for one in chosen)
        parts.append(f"## {title}\n\n{table(['method and path', 'role', 'what'], rows)}")
        for endpoint in chosen:
            parts.extend(_endpoint(endpoint))
    names = sorted(COMPONENTS)
    shapes = [f"### `{name}`\n\n{_shape(COMPONENTS[name])}" for name in names]
    return page("HTTP API", GENERAL, *parts, "## Shapes", *shapes)


def _endpoint(endpoint: ApiEndpoint) -> Iterator[str]:
    yield f"### `{endpoint.method} {_path(endpoint)}`"
    yield f"{endpoint.summary}."
    if endpoint.permission is not None:
        yield f"Role: {_roles(endpoint)}. {endpoint.permission.reason[0].upper()}{endpoint.permission.reason[1:]}."
    params = [*((one, "path") for one in endpoint.path_params), *((one, "query") for one in endpoint.query)]
    if params:
        yield table(["parameter", "in", "is"], (_param(one, place) for one, place in params))
    if endpoint.body is not None:
        yield _body(endpoint.body)
    replies = sorted(all_replies(endpoint).items())
    yield table(
        ["status", "when", "body"],
        ((str(status), one.text, _type(one.schema or {}, one.media)) for status, one in replies),
    )
    if endpoint.operation == "watchEvents":
        yield EVENTS
    yield shown(_EXAMPLES[endpoint.operation])


def _path(endpoint: ApiEndpoint) -> str:
    return endpoint.path.replace(":path}", "}")


def _roles(endpoint: ApiEndpoint) -> str:
    if endpoint.permission is None:
        return "none"
    return ", ".join(f"`{role}`" for role in endpoint.permission.roles) or "any credential"


def _param(param: Param, place: str) -> tuple[str, str, str]:
    needed = "; needed" if param.required else ""
    return f"`{param.name}`", place, f"{param.text} ({_value(param.schema)}){needed}"


def _body(body: Body) -> str:
    needed = "" if body.required else ", may be left out"
    return f"Body: {_type(body.schema, body.media)}{needed}."


def _type(schema: dict[str, Any], media: str) -> str:
    if media != "application/json":
        return f"`{media.partition(';')[0]}`"
    return _value(schema)


def _value(schema: dict[str, Any]) -> str:
    """One schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[`{name}`](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_value(one) for one in schema["anyOf"])
    if "not" in schema:
        return "refused"
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("format") or schema.get("type", "any value")
    if kind == "array":
        return f"list of {_value(schema.get('items', {}))}"
    if kind == "object" and "properties" in schema:
        return "{" + ", ".join(f"`{name}`" for name in schema["properties"]) + "}"
    bounds = [f"{word} {schema[key]}" for key, word in _BOUNDS.items() if key in schema]
    return f"{kind}, {', '.join(bounds)}" if bounds else str(kind)


_BOUNDS = {"minimum": "from", "maximum": "to", "maxLength": "at most characters:", "maxItems": "at most items:"}


def _shape(schema: dict[str, Any]) -> str:
    properties = schema.get("properties")
    if not properties:
        return _value(schema) + (f": {schema['description']}" if "description" in schema else "")
    required = set(schema.get("required", ()))
    return table(
        ["member", "is", "always"],
        (
            (
                f"`{name}`",
                "; ".join(part for part in (_value(one), one.get("description", "")) if part),
                "yes" if name in required else "",
            )
            for name, one in properties.items()
        ),
    )
