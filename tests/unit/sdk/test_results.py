"""What a client makes of an answer about a result."""

from __future__ import annotations

from typing import Any

import pytest

from aegis.core.call import ToolResult
from aegis.core.outcome import Outcome, Reason
from aegis.errors import InvalidCall
from aegis.sdk.client import Client
from support.asking import Mode, both_modes, observe, said
from support.decisions import wire_result
from support.raw_server import serving


@both_modes
def test_results_are_observed(mode: Mode) -> None:
    with serving(said(lambda _: wire_result("sanitize", result={"card": "****"}))) as server:
        observed = observe(Client(server.url), ToolResult(decision_id="d-1", result={"card": "4111"}), mode)
    assert observed.outcome is Outcome.SANITIZE
    assert observed.result == {"card": "****"}
    assert server.received[0].json == {"decision_id": "d-1", "result": {"card": "4111"}}


def test_a_further_text_says_so() -> None:
    with serving(said(lambda _: wire_result())) as server:
        Client(server.url).observe(ToolResult(decision_id="d-1", result="failed", further=True))
    assert server.received[0].json == {"decision_id": "d-1", "result": "failed", "further": True}


WRONG_RESULTS: dict[str, Any] = {
    "unknown word": wire_result("fine"),
    "held": wire_result("require_approval"),
    "sanitised without a result": wire_result("sanitize"),
    "allowed with another result": wire_result(result="other"),
    "never recorded": wire_result(receipt=None),
    "not JSON": b"ok",
}


@both_modes
@pytest.mark.parametrize("name", WRONG_RESULTS)
def test_a_result_without_a_plain_answer_is_withheld(name: str, mode: Mode) -> None:
    with serving(said(lambda _: WRONG_RESULTS[name])) as server:
        observed = observe(Client(server.url), ToolResult(decision_id="d-1", result=1), mode)
    assert (observed.outcome, observed.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)


@both_modes
@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_a_result_is_withheld_when_the_gateway_cannot_serve(status: int, mode: Mode) -> None:
    with serving(said(lambda _: wire_result(), status)) as server:
        assert observe(Client(server.url), ToolResult(decision_id="d", result=1), mode).outcome is Outcome.BLOCK


@both_modes
def test_a_result_that_is_misuse_is_raised(mode: Mode) -> None:
    with serving(said(lambda _: {}, 404)) as server, pytest.raises(InvalidCall):
        observe(Client(server.url), ToolResult(decision_id="d", result=1), mode)
