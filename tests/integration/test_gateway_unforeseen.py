"""What nobody foresaw, and who watches: failures without detail, spans, waiting clients at a drain."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aegis.server.telemetry import JsonFormatter
from support.served import Answer, Served, served


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "home") as running:
        yield running


def explode(*arguments: Any, **more: Any) -> NoReturn:
    raise RuntimeError("zebra-crossing")


def test_a_failure_is_500_without_detail_and_logged_without_values(
    gateway: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aegis.server.decisions.call_of", explode)
    monkeypatch.setattr(gateway.deployment.store, "reader", explode)
    with caplog.at_level(logging.ERROR):
        for answer in (gateway.decide(), gateway.ask("GET", "/v1/receipts", key="auditor")):
            assert (answer.status, answer.code) == (500, "internal")
            assert "zebra" not in answer.body.decode()
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    failed = [line for line in lines if "request_id" in line]
    assert len(failed) == 2
    assert all(line["request_id"] and line["at"] for line in failed)
    assert "zebra" not in json.dumps(lines)


def test_a_listener_that_fails_does_not_undo_a_decision(gateway: Served) -> None:
    gateway.deployment.gate.parts.listeners.append(explode)
    assert gateway.decide().json["decision"] == "allow"


def test_a_drain_answers_those_who_wait(gateway: Served) -> None:
    held = gateway.decide("send_email", arguments={"to": "a@example.com"}, call_id="w").json
    answers: list[Answer] = []
    path = f"/v1/approvals/{held['approval']['id']}?wait=60"
    waiter = threading.Thread(target=lambda: answers.append(gateway.ask("GET", path, timeout=70)))
    waiter.start()
    time.sleep(0.3)
    gateway.stop()
    waiter.join(60)
    assert answers[0].json["state"] == "pending"


def test_decisions_are_spans_of_the_callers_trace_where_a_provider_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    with served(tmp_path / "home") as gateway:
        body = {"tool": "deploy", "arguments": {"secret": "zebra-crossing"}}
        parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        gateway.ask("POST", "/v1/decisions", body, headers={"traceparent": parent})
    (span,) = exporter.get_finished_spans()
    assert span.name == "aegis.decide"
    assert span.attributes is not None
    assert (span.attributes["aegis.decision"], span.attributes["aegis.reason"]) == ("block", "risk_ceiling")
    assert "zebra" not in span.to_json()
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == parent.split("-")[1]


def test_without_a_provider_there_is_no_span_at_all(gateway: Served) -> None:
    assert gateway.app.services.decide == gateway.deployment.gate.adecide


def test_a_body_that_is_too_large_is_not_even_waited_for(gateway: Served) -> None:
    head = gateway.head("/v1/decisions", content_length="5000000", expect="100-continue")
    answer = gateway.raw(head + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in answer


def test_two_credentials_are_none(gateway: Served) -> None:
    key = gateway.credentials.text("auditor")
    for path in ("/v1/decisions", "/v1/results"):
        head = gateway.head(path, authorization=f"Bearer {key}", content_length="0", connection="close")
        assert gateway.raw(head + b"\r\n").startswith(b"HTTP/1.1 401 ")


def test_two_lengths_of_one_body_are_400(gateway: Served) -> None:
    head = gateway.head("/v1/decisions", content_length="3", transfer_encoding="chunked")
    assert gateway.raw(head + b"\r\n0\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_an_endless_answer_has_no_head(gateway: Served) -> None:
    answer = gateway.ask("HEAD", "/v1/events", key="auditor")
    assert answer.status == 405
    assert answer.headers["allow"] == "GET"
