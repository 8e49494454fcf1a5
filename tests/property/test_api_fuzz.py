"""Whatever is sent, the gateway answers within its description, never with a 5xx, and never allows without a record."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from http.cookiejar import DefaultCookiePolicy
from inspect import isfunction
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS

from aegis.server.table import description
from aegis.server.wire import CALL_MEMBERS
from support.served import Served, served

# A schema cannot say where the log ends, which cursor a list gave, that a name is not blank or a time before another,
# or what a configuration or a mandate means.
MEANING = {
    "getInclusionProof", "getConsistencyProof", "exportLog", "replaceConfig", "checkConfig", "replayConfig",
    "draftPolicy", "replayContainment",
    "listReceipts", "listSessions", "traceSession", "listAgents", "listApprovals", "listMissions",
    "listGrants", "listDeliveries",
    "proxyChatCompletions", "proxyResponses", "proxyMessages", "proxyCountTokens", "proxyModels", "proxyModel",
    "proxyGenerateContent", "proxyOllamaChat", "proxyConverse",
    "issueMission", "publishMissionStatus", "openSession", "sayTurn", "declarePlan", "mintCanary", "alertDigest",
    "judgeStream",
}  # fmt: skip
# `PUT {}` is a configuration of an unexpected type that YAML spells the same way; a check never refuses.
LENIENT = {"replaceConfig", "checkConfig", "replayConfig", "replayContainment"}

schema = schemathesis.openapi.from_dict(description()).exclude(operation_id="watchEvents")
schema.config.generation.update(max_examples=8)


@schemathesis.serializer("application/x-ndjson")
def lines(context: schemathesis.SerializationContext, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


EVERYTHING = ("agent", "tool", "approver", "auditor", "issuer", "admin")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("gateway") / "home") as running:
        running.credentials.add("everything", *EVERYTHING, agent="fuzz")  # type: ignore[arg-type]
        yield running


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """Connections that stay open from one case to the next, and nothing else that does."""
    with requests.Session() as kept:
        kept.trust_env = False
        kept.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        yield kept


def without_references(body: Any) -> Any:
    """A call that names no other one: a schema cannot say which calls the log knows."""
    if isinstance(body, list):
        return [without_references(one) for one in body]
    if isinstance(body, dict):
        kept = {name: value for name, value in body.items() if name not in ("depends_on", "resolves")}
        return kept | {"calls": without_references(kept["calls"])} if "calls" in kept else kept
    return body


@schema.parametrize()
@settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_every_answer_is_described(gateway: Served, session: requests.Session, case: schemathesis.Case[Any]) -> None:
    operation = case.operation.definition.raw["operationId"]
    excluded = []
    if operation in MEANING:
        excluded.append("positive_data_acceptance")
    if operation in LENIENT:
        excluded.append("negative_data_rejection")
    if operation in ("decide", "decideBatch"):
        case.body = without_references(case.body)
    case.call_and_validate(
        base_url=f"http://127.0.0.1:{gateway.port}",
        session=session,
        headers={"Authorization": f"Bearer {gateway.credentials.text('everything')}"},
        excluded_checks=[check for name in excluded if isfunction(check := CHECKS.get_one(name))],
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
CALLS = st.fixed_dictionaries(
    {"tool": st.sampled_from(["read_file", "send_email", "deploy", "run"]) | st.text(min_size=1, max_size=40)},
    optional={
        "arguments": st.dictionaries(st.text(max_size=8), JSON, max_size=4) | JSON,
        **dict.fromkeys(sorted(CALL_MEMBERS - {"tool", "arguments"}), JSON),
        "surprise": JSON,
    },
)


class Line:
    """One keep-alive connection to the gateway."""

    def __init__(self, gateway: Served):
        self._gateway = gateway
        self._connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)

    def send(self, body: bytes) -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {self._gateway.credentials.text('everything')}"}
        self._connection.request("POST", "/v1/decisions", body, headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())


@pytest.fixture(scope="module")
def line(gateway: Served) -> Line:
    return Line(gateway)


def check(gateway: Served, status: int, answer: Any) -> None:
    if status >= 400 and status not in (409, 429):
        assert status in (403, 413, 422)
        assert set(answer) == {"error"}
        assert set(answer["error"]) == {"code", "message", "hint", "request_id"}
        return
    assert status in (200, 202, 409, 429)
    assert answer["decision"] in ("allow", "sanitize", "require_approval", "block")
    with gateway.deployment.store.reader() as reader:
        entry = reader.entry(answer["receipt"]["index"])
    assert entry is not None
    assert entry.leaf_hash.hex() == answer["receipt"]["leaf_hash"]
    if entry.receipt_id == answer["decision_id"]:
        assert entry.decision == answer["decision"]


@given(call=CALLS)
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_call_is_decided_on_record_or_refused_in_the_one_shape(gateway: Served, line: Line, call: Any) -> None:
    check(gateway, *line.send(json.dumps(call).encode()))


@given(call=CALLS, cut=st.integers(0, 400), junk=st.binary(max_size=6))
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_broken_bytes_are_refused_in_the_one_shape(
    gateway: Served, line: Line, call: Any, cut: int, junk: bytes
) -> None:
    data = json.dumps(call).encode()
    check(gateway, *line.send(data[:cut] + junk + data[cut + len(junk) :]))


@given(body=st.binary(max_size=200))
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_refused_in_the_one_shape(gateway: Served, line: Line, body: bytes) -> None:
    check(gateway, *line.send(body))


@given(call=CALLS)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_same_call_again_never_becomes_more_permissive(gateway: Served, line: Line, call: Any) -> None:
    order = ("allow", "sanitize", "require_approval", "block")
    body = json.dumps({**call, "call_id": json.dumps(call)[:200]}).encode()
    first_status, first = line.send(body)
    second_status, second = line.send(body)
    if "decision" in first and "decision" in second:
        assert order.index(second["decision"]) >= order.index(first["decision"])
    else:
        assert (first_status, "error" in first) == (second_status, "error" in second)
