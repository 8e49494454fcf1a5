"""Vectors of what is asked and answered: the client of this package runs against a server that says exactly this."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from vector_server import CHUNKED, SECONDS, Answer, Case, answering

from aegis.core.call import ToolCall, ToolResult
from aegis.core.canonical import call_digest, canonical
from aegis.core.decision import Decision, ResultDecision
from aegis.core.json import parse
from aegis.core.outcome import Outcome, Reason, message_for
from aegis.errors import InvalidCall
from aegis.sdk.client import wire
from aegis.sdk.client.client import Client

CALL: Final = {"tool": "send_email", "server": "mcp:mail", "call_id": "call_7", "session": "s-1",
                "arguments": '{"amount":9007199254740993,"to":"a@example.com"}'}  # fmt: skip
SAFER: Final = {"amount": 9007199254740993, "to": "b@example.com"}
IMPATIENT: Final = 0.3  # seconds after which a silent server is given up
_TEXT: Final = "application/json"
_REASONS: Final = {
    "allow": "none",
    "sanitize": "sensitive_data",
    "require_approval": "approval_required",
    "block": "policy_denied",
}


def tool_call(spelt: Case) -> ToolCall:
    """Make the call that a vector spells; `arguments` is JSON text."""
    members = {**spelt, "arguments": parse(spelt["arguments"].encode())}
    if "unresolved" in members:
        members["unresolved"] = tuple(members["unresolved"])
    return ToolCall(**members)


def digest_of(arguments: Any = None) -> str:
    """Digest the call, with other arguments where they are given."""
    written = CALL["arguments"].encode() if arguments is None else canonical(arguments)
    return call_digest(server=CALL["server"], tool=CALL["tool"], arguments=written)


def decision(outcome: str = "allow", /, **changed: Any) -> dict[str, Any]:
    """Word a decision on the call as a gateway does; a member that is changed to `...` is left out."""
    reason = _REASONS[outcome]
    said = Outcome[outcome.upper()]
    members: dict[str, Any] = {
        "decision": outcome, "verdict": "compliant" if outcome == "allow" else "violation", "risk": "high",
        "reason": reason, "message": message_for(said, Reason(reason)), "decision_id": "d-1", "call_id": "call_7",
        "request_digest": digest_of(), "call_digest": digest_of(SAFER) if outcome == "sanitize" else digest_of(),
        "policy_digest": "sha-256:" + "0" * 64, "salt": "c2FsdA",
        "receipt": {"id": "r-1", "index": 41, "leaf_hash": "0" * 64},
        "guards": [{"guard": "content", "outcome": outcome, "us": 31}],
    }  # fmt: skip
    if outcome == "sanitize":
        members["arguments"] = SAFER
    if outcome == "require_approval":
        members["approval"] = {"id": "ap-1", "expires_at": "2027-01-15T08:05:00Z", "url": "/v1/approvals/ap-1"}
    return {name: value for name, value in {**members, **changed}.items() if value is not ...}


def result_said(outcome: str = "allow", **changed: Any) -> dict[str, Any]:
    """Word the answer to a result; a member that is changed to `...` is left out."""
    reason = "attack_detected" if outcome == "block" else _REASONS[outcome]
    members: dict[str, Any] = {
        "decision": outcome, "verdict": "compliant" if outcome == "allow" else "violation", "reason": reason,
        "message": message_for(Outcome[outcome.upper()], Reason(reason)),
        "receipt": {"id": "r-2", "index": 42, "leaf_hash": "0" * 64},
    }  # fmt: skip
    if outcome == "sanitize":
        members["result"] = {"text": "****", "id": 9007199254740993}
    return {name: value for name, value in {**members, **changed}.items() if value is not ...}


def says(status: int, body: object, **headers: str) -> Answer:
    """Make an answer with a body that is JSON, or the text that it is."""
    text = body if isinstance(body, str) else canonical(body).decode()
    return {
        "status": status,
        "headers": {"content-type": _TEXT, **{k.replace("_", "-"): v for k, v in headers.items()}},
        "body": text,
    }


def raw(data: bytes, then: str = "close") -> Answer:
    """Make an answer of every byte that is sent; `then` the connection is closed, or stays silent (`hang`)."""
    return {"raw": base64.b64encode(data).decode(), "then": then}


def error(
    status: int, code: str = "malformed", message: str = "the body is malformed", hint: str = "see the docs"
) -> Answer:
    """Make an answer in the one shape of errors."""
    return says(status, {"error": {"code": code, "message": message, "hint": hint, "request_id": "q-1"}})


def client_of(url: str, seconds: float = SECONDS) -> Client:
    """Make a client of that gateway."""
    return Client(url, "aegis-test-key", timeout=seconds)


@contextmanager
def closing_client(client: Client) -> Iterator[Client]:
    """Close a client at the end of the block."""
    try:
        yield client
    finally:
        client.close()


# What was found, as vectors say it.


def found_by(run: Callable[[], Decision | ResultDecision]) -> Case:
    """Say as a vector what a client made of its answer."""
    try:
        said = run()
    except InvalidCall as refused:
        return {
            "invalid_call": {
                "code": refused.code,
                "message": refused.message,
                "hint": refused.hint,
                "status": refused.status,
            }
        }
    shown = said.to_wire()
    for name in ("guards", "decision_id", "policy_digest", "salt"):
        shown.pop(name, None)
    for name in ("arguments", "result"):
        if name in shown:  # as text: what reads the vectors may round numbers
            shown[name] = canonical(shown[name]).decode()
    if said.retry_after is not None:
        shown["retry_after"] = said.retry_after
    return {"decision": shown}


# Requests.


def requests() -> Case:
    """What a client sends for a call, and calls that it refuses before anything is sent."""
    calls: dict[str, Case] = {
        "tool and arguments": {"tool": "ping", "call_id": "c", "arguments": "{}"},
        "every member": {
            "tool": "pay", "server": "mcp:bank", "call_id": "call_7", "agent": "bot", "session": "s-1",
            "parent": "call_6", "turn": 3, "want_permit": True, "task": "pay the bill", "messages_digest": "sha-256:00",
            "unresolved": ["/to", ""], "proof": "a.b.c", "arguments": '{"to":null,"amount":9007199254740993}',
        },
        "arguments of every kind": {
            "tool": "t", "call_id": "c", "arguments": '{"b":[1,1.0,true,null,"é😀"],"a":{"\\u20ac":{}}}'},
    }  # fmt: skip
    misuse: dict[str, Case] = {
        "no tool": {"tool": ""},
        "a blank tool": {"tool": " \t"},
        "a tool with a line break": {"tool": "a\nb"},
        "a tool with a control character of Unicode": {"tool": "a\u0085b"},
        "a tool with a line separator": {"tool": "a\u2028b"},
        "a tool that is too long": {"tool": "a" * 257},
        "a blank server": {"tool": "t", "server": " "},
        "a blank session": {"tool": "t", "session": "\u3000"},
        "a call id that is too long": {"tool": "t", "call_id": "a" * 257},
        "a negative turn": {"tool": "t", "turn": -1},
        "a turn beyond 2^53": {"tool": "t", "turn": 2**53},
        "a task that is too long": {"tool": "t", "task": "a" * 16_385},
        "a pointer without a slash": {"tool": "t", "unresolved": ["to"]},
        "too many pointers": {"tool": "t", "unresolved": ["/to"] * 1_001},
    }
    longest = {"tool": "😀" * 256, "call_id": "c", "task": "é" + "a" * 16_383, "turn": 2**53 - 1, "arguments": "{}"}
    calls["names and a task as long as they may be, counted in code points"] = longest
    refused = []
    for name, members in misuse.items():
        call = {"call_id": "c", "arguments": "{}", **members}
        try:
            wire.ask(tool_call(call), "c", None)
        except InvalidCall:
            refused.append({"name": name, "call": call})
            continue
        raise AssertionError(f"`{name}` was taken")
    return {
        "bodies": [
            {
                "name": name,
                "call": call,
                "body": canonical(parse(wire.ask(tool_call(call), call["call_id"], None).body)).decode(),
            }
            for name, call in calls.items()
        ],
        "refused": refused,
    }


# Decisions and results.


def decisions() -> Case:
    """Answers to one call with what they mean: every outcome, every error shape, and what no contract allows."""
    answers: dict[str, Answer] = {
        "allow": says(200, decision()),
        "allow with a permit": says(200, decision(permit="a.b.c")),
        "allow with members that are not known here": says(200, decision(later={"a": [1]}, findings=[])),
        "allow with other white space": says(200, json.dumps(decision(), indent=2)),
        "sanitize": says(200, decision("sanitize")),
        "block": says(200, decision("block")),
        "block without a receipt": says(200, decision("block", receipt=...)),
        "block with what was missing": says(200, decision("block", missing=["judge"])),
        "held": says(202, decision("require_approval"), location="/v1/approvals/ap-1"),
        "conflict": error(409, "conflict", "this call id was used for another call"),
        "conflict as a decision": says(409, decision("block", reason="conflict")),
        "rate limited": says(429, decision("block", reason="rate_limited"), retry_after="7"),
        "rate limited without a decision": says(429, "slow down", retry_after="7"),
        "rate limited for longer than a day": says(429, "", retry_after="999999"),
        "rate limited until a date": says(429, "", retry_after="Fri, 15 Jan 2027 08:00:00 GMT"),
        "unavailable": says(503, decision("block", reason="unavailable"), retry_after="1"),
        "unavailable without a decision": error(503, "unavailable", "the log cannot be written"),
        **{f"the error shape of {status}": error(status, code, message) for status, code, message in (
            (400, "malformed", "the request is malformed"), (401, "unauthorized", "no such key"),
            (403, "forbidden", "the key may not do this"), (404, "not_found", "there is no such thing"),
            (405, "method_not_allowed", "not so"), (408, "timeout", "too slow"), (413, "too_large", "too large"),
            (415, "media_type", "send JSON"), (422, "malformed", "`tool` is needed"))},
        "an error without a hint": says(422, {"error": {"code": "malformed", "message": "no"}}),
        "an error whose hint is no text": says(422, {"error": {"code": "malformed", "message": "no", "hint": 1}}),
        "an error that is no object": says(422, {"error": "no"}),
        "an error without its shape": says(422, {"detail": "no"}),
        "an error that is not JSON": says(401, "<html>sign in</html>"),
        "a refusal without a body": says(403, ""),
    }  # fmt: skip
    return {"call": CALL, "cases": [_decided(name, answer) for name, answer in answers.items()]}


def _decided(name: str, answer: Answer, seconds: float = SECONDS) -> Case:
    with answering([answer], []) as url, closing_client(client_of(url, seconds)) as client:
        return {"name": name, "answer": answer, "expect": found_by(lambda: client.decide(tool_call(CALL)))}


def results() -> Case:
    """Answers about the result of a call with what they mean."""
    answers: dict[str, Answer] = {
        "allow": says(200, result_said()),
        "sanitize": says(200, result_said("sanitize")),
        "sanitize to null": says(200, result_said("sanitize", result=None)),
        "block": says(200, result_said("block")),
        "block without a receipt": says(200, result_said("block", receipt=...)),
        "rate limited": says(429, result_said("block", reason="rate_limited"), retry_after="7"),
        "conflict": error(409, "conflict", "another result was given"),
        "unavailable": says(503, result_said("block", reason="unavailable")),
        "no such decision": error(404, "not_found", "there is no such decision"),
        "allow that was not recorded": says(200, result_said(receipt=...)),
        "sanitize without a result": says(200, result_said("sanitize", result=...)),
        "allow with a result": says(200, result_said(result="x")),
        "held": says(200, result_said("require_approval")),
        "an unknown word": says(200, result_said(decision="permit")),
        "an unknown reason": says(200, result_said(reason="because")),
        "no message": says(200, result_said(message=...)),
        "a receipt without an index": says(200, result_said(receipt={"id": "r", "leaf_hash": "0"})),
        "allow with status 201": says(201, result_said()),
        "allow with status 500": says(500, result_said()),
        "a redirect": says(307, result_said(), location="/elsewhere"),
        "not JSON": says(200, "ok"),
        "a list": says(200, [result_said()]),
        "a key twice": says(200, canonical(result_said("block")).decode()[:-1] + ',"decision":"allow"}'),
        "nothing": says(200, ""),
    }
    cases = []
    for name, answer in answers.items():
        received: list[Case] = []
        with answering([answer], received) as url, closing_client(client_of(url)) as client:
            result = ToolResult(decision_id="d-1", result={"text": "hello", "id": 9007199254740993})
            expect = found_by(lambda: client.observe(result))  # noqa: B023  # runs at once
        cases.append({"name": name, "answer": answer, "expect": expect})
    sent = canonical({"decision_id": "d-1", "result": {"text": "hello", "id": 9007199254740993}}).decode()
    return {"request": {"method": "POST", "target": "/v1/results", "body": sent}, "cases": cases}


def fail_closed() -> Case:
    """What is no decision on this call: a client refuses, whatever the bytes say."""
    allow = canonical(decision())
    half = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(allow)
    answers: dict[str, Answer] = {
        "no answer": raw(b""),
        "an answer that never begins": raw(b"", "hang"),
        "an answer that never ends": raw(half + allow[:40], "hang"),
        "a body that is cut off": raw(half + allow[:-1]),
        "a head that is cut off": raw(half[:40]),
        "something other than HTTP": raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        "a greeting of another protocol": raw(b"220 mail.example ESMTP\r\n"),
        "two lengths": raw(half[:-2] + b"content-length: 2\r\n\r\n" + allow),
        "a length that is no number": raw(b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n" + allow),
        "a chunk without a size": raw(CHUNKED + b"xyz\r\n" + allow),
        "chunks that do not end": raw(CHUNKED + b"%x\r\n%s\r\n" % (len(allow), allow)),
        "a redirect": says(302, decision(), location="http://127.0.0.1:1/v1/decisions"),
        "a redirect that keeps the method": says(307, decision(), location="http://127.0.0.1:1/v1/decisions"),
        "allow with status 201": says(201, decision()),
        "allow with status 202": says(202, decision()),
        "allow with status 204": raw(b"HTTP/1.1 204 No Content\r\n\r\n"),
        "allow with status 409": says(409, decision()),
        "allow with status 429": says(429, decision()),
        "allow with status 500": says(500, decision()),
        "allow with status 503": says(503, decision()),
        "held with status 200": says(200, decision("require_approval")),
        "held without an approval": says(202, decision("require_approval", approval=...)),
        "held by an approval with a path for an id": says(
            202, decision("require_approval", approval={"id": "../keys", "expires_at": "x"})),
        "held and not recorded": says(202, decision("require_approval", receipt=...)),
        "an error page": says(502, "<html>bad gateway</html>"),
        "a page of somebody else": says(200, "<html>welcome</html>"),
        "not JSON": says(200, "allow"),
        "the word alone": says(200, '"allow"'),
        "a list": says(200, [decision()]),
        "nothing": says(200, ""),
        "a member twice": says(200, canonical(decision("block")).decode()[:-1] + ',"decision":"allow"}'),
        "a lone surrogate": says(200, allow.decode().replace("the call may run", "\\ud800")),
        "data after the decision": says(200, allow.decode() + "{}"),
        "not a number": says(200, allow.decode().replace("41", "NaN")),
        "an unknown outcome": says(200, decision(decision="permit")),
        "an outcome in another case": says(200, decision(decision="ALLOW")),
        "an outcome that is true": says(200, decision(decision=True)),
        "an unknown verdict": says(200, decision(verdict="fine")),
        "an unknown risk": says(200, decision(risk="none")),
        "an unknown reason": says(200, decision(reason="because")),
        **{f"no `{member}`": says(200, decision(**{member: ...})) for member in (
            "decision", "verdict", "risk", "reason", "message", "decision_id", "call_id", "request_digest",
            "call_digest", "policy_digest", "salt", "receipt")},
        "another call": says(200, decision(call_id="call_8")),
        "other arguments": says(200, decision(request_digest=digest_of({"amount": 9007199254740992}))),
        "another call will run": says(200, decision(call_digest=digest_of(SAFER))),
        "allow with other arguments": says(200, decision(arguments=SAFER)),
        "sanitize without arguments": says(200, decision("sanitize", arguments=...)),
        "sanitize to something that was not recorded": says(200, decision("sanitize", arguments={"to": "eve"})),
        "sanitize with a digit rounded": says(
            200, decision("sanitize", arguments={**SAFER, "amount": 9007199254740992})),
        "sanitize to a list": says(200, decision("sanitize", arguments=[1])),
        "a receipt below nothing": says(200, decision(receipt={"id": "r", "index": -1, "leaf_hash": "0"})),
        "a receipt whose index is text": says(200, decision(receipt={"id": "r", "index": "41", "leaf_hash": "0"})),
        "a permit that is no text": says(200, decision(permit=1)),
        "a guard that is malformed": says(200, decision(guards=[1])),
    }  # fmt: skip
    cases = [_decided(name, one, IMPATIENT if one.get("then") == "hang" else SECONDS) for name, one in answers.items()]
    for case in cases:
        if case["expect"].get("decision", {}).get("decision") != "block":
            raise AssertionError(f"`{case['name']}` does not fail closed")
    return {"call": CALL, "timeout_seconds": IMPATIENT, "cases": cases}
