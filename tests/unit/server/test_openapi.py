"""The description is complete: every endpoint, every reference, every refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator, meta

from aegis.server.endpoint import ApiEndpoint
from aegis.server.table import ENDPOINTS, description
from aegis.server.validation import COMPONENTS


def operation(endpoint: ApiEndpoint) -> dict[str, Any]:
    path = endpoint.path.replace(":path}", "}")
    found: dict[str, Any] = description()["paths"][path][endpoint.method.lower()]
    return found


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: one.operation)
def test_every_endpoint_says_who_may_and_what_comes_back(endpoint: ApiEndpoint) -> None:
    described = operation(endpoint)
    assert described["operationId"] == endpoint.operation
    statuses = set(described["responses"])
    assert {"422", "500", "503"} <= statuses
    if endpoint.permission is not None:
        assert {"401", "403"} <= statuses
        assert described["security"] == [{"key": []}]
    else:
        assert endpoint.path in ("/healthz", "/readyz", "/v1/slack/interactions")  # Slack signs what it sends
    assert ("413" in statuses) == (endpoint.body is not None)


def test_operations_have_names_of_their_own() -> None:
    names = [endpoint.operation for endpoint in ENDPOINTS]
    assert len(names) == len(set(names))


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(description())
    names = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert names <= COMPONENTS.keys()


@pytest.mark.parametrize("name", sorted(COMPONENTS))
def test_every_schema_is_one(name: str) -> None:
    assert meta.is_valid(COMPONENTS[name])
    Draft202012Validator({**COMPONENTS[name], "components": {"schemas": COMPONENTS}})


def test_every_path_member_is_described() -> None:
    for endpoint in ENDPOINTS:
        members = {part.strip("{}").partition(":")[0] for part in endpoint.path.split("/") if part.startswith("{")}
        assert members == {param.name for param in endpoint.path_params}
