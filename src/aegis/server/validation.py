"""Bodies and parameters against the schemas that the API description publishes.

What is refused here is named by its place and by the rule that it breaks, never by its value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from aegis.approvals import routes as approvals_routes
from aegis.behaviour import alert_routes, canary_routes
from aegis.behaviour import routes as behaviour_routes
from aegis.context import routes as context_routes
from aegis.core.json import escape
from aegis.errors import InvalidCall
from aegis.missions import routes as missions_routes
from aegis.reasoning import routes as reasoning_routes
from aegis.runs import routes as runs_routes
from aegis.server import administration, audit, deliveries
from aegis.server.endpoint import ApiEndpoint, Param, Schema
from aegis.server.schemas import CALL_SCHEMAS, COMMON_SCHEMAS, PERMIT_SCHEMAS

# JSON Schemas (2020-12) of everything that crosses the HTTP API, by name; `openapi.json` publishes them.

COMPONENTS: Final[dict[str, dict[str, Any]]] = {
    **COMMON_SCHEMAS,
    **CALL_SCHEMAS,
    **approvals_routes.SCHEMAS,
    **PERMIT_SCHEMAS,
    **deliveries.SCHEMAS,
    **audit.SCHEMAS,
    **context_routes.SCHEMAS,
    **reasoning_routes.SCHEMAS,
    **missions_routes.SCHEMAS,
    **runs_routes.SCHEMAS,
    **administration.SCHEMAS,
    **behaviour_routes.SCHEMAS,
    **canary_routes.SCHEMAS,
    **alert_routes.SCHEMAS,
}

MAX_QUERY_BYTES: Final = 8_192  # bounds what one request can make us decode
MAX_DIGITS: Final = 16  # every number of a query is below 2^53
_RULES_OF_MEMBERS: Final = ("additionalProperties", "required", "minProperties", "maxProperties")


@cache
def query_check(endpoint: ApiEndpoint) -> QueryCheck:
    """Return the check of the query of an endpoint, compiled once."""
    return QueryCheck(endpoint.query)


@cache
def body_check(endpoint: ApiEndpoint) -> BodyCheck | None:
    """Return the check of the JSON body of an endpoint, compiled once; `None` for one that takes no JSON."""
    body = endpoint.body
    return BodyCheck(body.schema) if body is not None and body.media == "application/json" else None


def query_of(endpoint: ApiEndpoint, query: Mapping[str, str]) -> Mapping[str, Any]:
    """Return what a page may ask of the service behind an endpoint: the same parameters under the same rules."""
    return query_check(endpoint)(urlencode(query).encode())


def checked_body(endpoint: ApiEndpoint, body: dict[str, Any]) -> dict[str, Any]:
    """Check a body that a page made of a form by the rules of the endpoint; raises `InvalidCall` as the API would."""
    check = body_check(endpoint)
    if check is not None:
        check(body)
    return body


class BodyCheck:
    """One compiled body schema."""

    def __init__(self, schema: Schema):
        self._schema = {**schema, "components": {"schemas": COMPONENTS}}
        self._validator = Draft202012Validator(self._schema)

    def __call__(self, value: Any) -> None:
        """Guarantee that `value` keeps to the schema; raises `InvalidCall` naming the first place that does not."""
        if self._validator.is_valid(value):
            return
        error = _nearest(next(iter(self._validator.iter_errors(value))))
        place = "".join(f"/{escape(str(token))}" for token in error.instance_path)
        *above, rule = error.schema_path or ["schema"]
        if rule == "not":
            raise InvalidCall("a member of the body is not available in this version", code="not_available", hint=place)
        hint = (
            f"at `{place or '/'}`: {wanted}" if (wanted := self._wanted(above, str(rule))) else f"at `{place or '/'}`"
        )
        if rule == "additionalProperties":
            raise InvalidCall("the body has an unknown member", code="unknown_member", hint=hint)
        raise InvalidCall(f"the body does not keep to `{rule}`", code="malformed", hint=hint)

    def _wanted(self, above: Sequence[str | int], rule: str) -> str:
        """Return what the broken rule asks for, in the words of the schema."""
        declared: Any = self._schema
        for token in above:
            declared = declared[token]
        if rule in _RULES_OF_MEMBERS:
            known = ", ".join(f"`{name}`" for name in sorted(declared.get("properties", {})))
            needed = ", ".join(f"`{name}`" for name in declared.get("required", ()))
            return f"known are {known}" + (f"; needed are {needed}" if needed else "")
        asked = declared.get(rule, "")
        if rule == "enum":
            return f"one of {', '.join(f'`{word}`' for word in asked)}"
        return f"{rule} {asked}" if isinstance(asked, str | int) else ""


def _nearest(error: ValidationError) -> ValidationError:
    """Return the error within the one alternative that could have been meant: the only one of the value's type."""
    while isinstance(error.kind, ValidationErrorKind.AnyOf):
        meant = [errors for errors in error.kind.context if not any(_of_type(error, one) for one in errors)]
        if len(meant) != 1:
            return error
        error = meant[0][0]
    return error


def _of_type(whole: ValidationError, error: ValidationError) -> bool:
    return error.instance_path == whole.instance_path and error.schema_path[-1:] == ["type"]


class QueryCheck:
    """The declared parameters of one query; an unknown or repeated one is refused."""

    def __init__(self, params: Sequence[Param]):
        self._params = {param.name: (param.schema, Draft202012Validator(param.schema)) for param in params}
        self._required = tuple(param.name for param in params if param.required)

    def __call__(self, query: bytes) -> Mapping[str, Any]:
        """Return the parsed parameters; raises `InvalidCall` for any that is not declared, repeated or malformed."""
        values = self._parse(query) if query else {}
        for name in self._required:
            if name not in values:
                raise InvalidCall(f"the query needs `{name}`", code="missing_parameter")
        return values

    def _parse(self, query: bytes) -> dict[str, Any]:
        if len(query) > MAX_QUERY_BYTES:
            raise InvalidCall(f"the query is over {MAX_QUERY_BYTES} bytes", code="too_large", status=414)
        try:
            pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=64)
        except ValueError as error:
            raise InvalidCall("the query is not percent-encoded UTF-8") from error
        values: dict[str, Any] = {}
        for name, text in pairs:
            if name in values:
                raise InvalidCall(f"`{name}` is given twice", code="duplicate_parameter")
            values[name] = self._value(name, text)
        return values

    def _value(self, name: str, text: str) -> Any:
        declared = self._params.get(name)
        if declared is None:
            known = ", ".join(sorted(self._params)) or "none"
            raise InvalidCall("the query has an unknown parameter", code="unknown_parameter", hint=f"known: {known}")
        schema, validator = declared
        value = _typed(text, schema.get("type", "string"))
        if value is None or not validator.is_valid(value):
            raise InvalidCall(f"`{name}` is not a valid value", hint=_hint(schema))
        return value


def _typed(text: str, kind: str) -> Any:
    if kind == "integer":
        return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else None
    if kind == "boolean":
        return {"true": True, "false": False}.get(text)
    return text


def _hint(schema: Schema) -> str:
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if schema.get("type") == "integer":
        return f"a whole number from {schema.get('minimum', 0)} to {schema.get('maximum', 2**53 - 1)}"
    return str(schema.get("format", schema.get("type", "")))
