"""Vectors of exchanges: held calls, permits that are redeemed at a gateway, sessions, streamed results."""

from __future__ import annotations

from typing import Any

from vector_answers import (
    CALL,
    client_of,
    closing_client,
    decision,
    digest_of,
    error,
    found_by,
    raw,
    result_said,
    says,
    tool_call,
)
from vector_server import Answer, Case, answering, streaming

from aegis.core.canonical import canonical
from aegis.core.json import parse
from aegis.errors import GatewayUnavailable, InvalidCall, PermitInvalid, StreamCut
from aegis.sdk.client.client import Client


def holds() -> Case:
    """What a client asks while a person decides, what it is answered, and what it comes to."""
    approval = {"id": "ap-1", "call_id": "call_7", "call_digest": digest_of(), "expires_at": "2027-01-15T08:05:00Z"}
    held = says(202, decision("require_approval"), location="/v1/approvals/ap-1")

    def state(word: str) -> Answer:
        return says(200, {**approval, "state": word})

    scripts: dict[str, list[Answer]] = {
        "approved": [held, state("approved"), says(200, decision(permit="a.b.c"))],
        "approved and narrowed": [held, state("approved"), says(200, decision("sanitize", permit="a.b.c"))],
        "denied": [held, state("denied"), says(200, decision("block", reason="approval_denied"))],
        "expired": [held, state("expired"), says(200, decision("block", reason="approval_expired"))],
        "cancelled": [held, state("cancelled"), says(200, decision("block", reason="approval_cancelled"))],
        "approved, and the policy changed": [held, state("approved"), says(200, decision("block"))],
        "approved, and the call is refused": [held, state("approved"), error(422, "malformed", "no")],
        "an approval of somebody else": [held, error(404, "not_found", "there is no such approval")],
        "a credential that was taken away": [held, error(401, "unauthorized", "no such key")],
    }
    return {"call": CALL, "cases": [_held(name, answers) for name, answers in scripts.items()]}


def _held(name: str, answers: list[Answer]) -> Case:
    received: list[Case] = []
    with answering(answers, received) as url, closing_client(client_of(url)) as client:
        call = tool_call(CALL)
        expect = found_by(lambda: client.wait(call, client.decide(call)))
    exchanges = []
    for request, answer in zip(received, answers, strict=True):
        body = {"body": canonical(parse(request["body"].encode())).decode()} if request["body"] else {}
        exchanges.append({"method": request["method"], "target": request["target"], **body, "answer": answer})
    return {"name": name, "exchanges": exchanges, "expect": expect}


def redemptions() -> Case:
    """Answers about a permit that a tool redeems at the gateway: anything but a plain yes opens nothing."""
    answers: dict[str, Answer] = {
        "redeemed": says(200, {"valid": True, "permit_id": "p-1"}),
        "for another call": error(403, "permit_other_call", "this permit is for another call"),
        "used before": error(409, "permit_redeemed", "this permit was used before"),
        "malformed": error(422, "malformed", "`permit` is needed"),
        "no credential": error(401, "unauthorized", "no such key"),
        "rate limited": error(429, "rate_limited", "too many"),
        "unavailable": error(503, "unavailable", "the log cannot be written"),
        "valid is not true": says(200, {"valid": "true", "permit_id": "p-1"}),
        "valid is false": says(200, {"valid": False, "permit_id": "p-1"}),
        "valid is one": says(200, {"valid": 1, "permit_id": "p-1"}),
        "no identifier": says(200, {"valid": True}),
        "another status": says(202, {"valid": True, "permit_id": "p-1"}),
        "a redirect": says(307, {"valid": True, "permit_id": "p-1"}, location="/elsewhere"),
        "not JSON": says(200, "yes"),
        "nothing": raw(b""),
    }
    cases = []
    arguments = parse(CALL["arguments"].encode())
    received: list[Case] = []
    for name, answer in answers.items():
        with answering([answer], received) as url, closing_client(client_of(url)) as client:
            try:
                expect: Case = {
                    "permit_id": client.redeem("a.b.c", tool="send_email", arguments=arguments, server="mcp:mail")
                }
            except PermitInvalid as refused:
                expect = {"refused": {"code": refused.code, "status": refused.status}}
            except InvalidCall as refused:
                expect = {"invalid_call": {"code": refused.code, "status": refused.status}}
        cases.append({"name": name, "answer": answer, "expect": expect})
    sent = {**received[0], "body": canonical(parse(received[0]["body"].encode())).decode()}
    return {"call": CALL, "permit": "a.b.c", "request": sent, "cases": cases}


def sessions() -> Case:
    """Answers to the opening of a session with what they mean."""
    opened = {"session": "s-1", "receipt": {"id": "r-1", "index": 3, "leaf_hash": "0" * 64}}
    answers: dict[str, Answer] = {
        "opened": says(201, opened),
        "open before": says(200, opened),
        "another task": error(409, "conflict", "the session has another task"),
        "refused": error(403, "forbidden", "the key may not do this"),
        "malformed": error(422, "malformed", "`session` is needed"),
        "rate limited": error(429, "rate_limited", "too many"),
        "unavailable": error(503, "unavailable", "the log cannot be written"),
        "no receipt": says(201, {"session": "s-1"}),
        "not JSON": says(201, "ok"),
        "nothing": raw(b""),
    }
    cases = []
    received: list[Case] = []
    for name, answer in answers.items():
        with answering([answer], received) as url, closing_client(client_of(url)) as client:
            try:
                found = client.open_session("s-1", task="answer the customer")
                expect: Case = {
                    "opened": {"session": found.session, "fresh": found.fresh, "index": found.receipt.index}
                }
            except InvalidCall as refused:
                expect = {"invalid_call": {"code": refused.code, "status": refused.status}}
            except GatewayUnavailable:
                expect = {"unavailable": True}
        cases.append({"name": name, "answer": answer, "expect": expect})
    sent = {**received[0], "body": canonical(parse(received[0]["body"].encode())).decode()}
    return {"session": "s-1", "task": "answer the customer", "request": sent, "cases": cases}


def streams() -> Case:
    """Streamed results: the lines that are sent, the verdicts that come back, and what may be passed on."""
    alive, done = "stream-1", {"bytes": 10, "released": 10, "final": True}

    def so_far(taken: int, released: int) -> str:
        return canonical({**result_said(receipt=...), "bytes": taken, "released": released, "final": False}).decode()

    def final(taken: int = 10, released: int = 10, outcome: str = "allow", **changed: Any) -> str:
        return canonical({**result_said(outcome, **changed), **done, "bytes": taken, "released": released}).decode()

    first, second = "hello", "world"
    scripts: dict[str, Case] = {
        "released at once": {"verdicts": [so_far(5, 5), so_far(10, 10)], "last": final()},
        "held back and released at the end": {"verdicts": [so_far(5, 0), so_far(10, 3)], "last": final()},
        "cut at the end": {"verdicts": [so_far(5, 2), so_far(10, 2)], "last": final(10, 2, "block")},
        "cut in the middle": {"verdicts": [final(5, 0, "block")], "last": None},
        "the end is missing": {"verdicts": [so_far(5, 5), so_far(10, 10)], "last": None},
        "an end that was not recorded": {"verdicts": [so_far(5, 5), so_far(10, 10)], "last": final(receipt=...)},
        "more released than was sent": {"verdicts": [so_far(5, 6)], "last": None},
        "less released than before": {"verdicts": [so_far(5, 5), so_far(10, 4)], "last": final()},
        "more taken than was sent": {"verdicts": [so_far(11, 5)], "last": None},
        "a verdict that is no JSON": {"verdicts": ["go on"], "last": None},
        "a verdict with a key twice": {"verdicts": [so_far(5, 0)[:-1] + ',"released":5}'], "last": None},
        "a verdict without counts": {"verdicts": ['{"decision":"allow","final":false}'], "last": None},
        "counts that are no numbers": {
            "verdicts": [so_far(5, 5).replace(":5,", ":true,")],
            "last": None,
        },
        "signed by the tool": {"verdicts": [so_far(5, 5), so_far(10, 10)], "last": final(), "provenance": "a.b.c"},
        "no such decision": {"refusal": error(404, "not_found", "there is no such decision")},
        "too many streams": {"refusal": error(429, "rate_limited", "too many")},
        "unavailable": {"refusal": error(503, "unavailable", "the log cannot be written")},
    }
    cases = []
    for name, script in scripts.items():
        sent: list[str] = []
        with streaming(script, sent) as url, closing_client(client_of(url)) as client:
            passed, expect = _streamed(client, alive, [first, second], script.get("provenance"))
        cases.append({"name": name, **script, "lines": sent, "passed": passed, "expect": expect})
    return {
        "decision_id": alive, "framing": "plain", "chunks": [first, second],
        "request": {"method": "POST", "target": f"/v1/results/{alive}/stream?framing=plain",
                    "content_type": "application/x-ndjson"},
        "cases": cases,
    }  # fmt: skip


def _streamed(client: Client, decision_id: str, chunks: list[str], provenance: str | None) -> tuple[str, Case]:
    passed = b""
    given = None if provenance is None else lambda: provenance
    try:
        for part in client.evaluate_streaming(decision_id, chunks, provenance=given):
            passed += part
        return passed.decode(), {"allowed": True}
    except StreamCut as cut:
        return passed.decode(), {"cut": {"reason": cut.decision.reason.word}}
    except InvalidCall as refused:
        return passed.decode(), {"invalid_call": {"code": refused.code, "status": refused.status}}
