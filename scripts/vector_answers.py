"""Vectors of what is asked and answered: the client of this package runs against a server that says exactly this."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from aegis.core.call import ToolCall, ToolResult
from aegis.core.canonical import call_digest, canonical
from aegis.core.decision import Decision, ResultDecision
from aegis.core.json import parse
from aegis.core.messages import message_for
from aegis.core.outcome import Outcome, Reason
from aegis.errors import GatewayUnavailable, InvalidCall, PermitInvalid, StreamCut
from aegis.sdk.client import wire
from aegis.sdk.client.client import Client

Case = dict[str, Any]
Answer = dict[str, Any]

_CALL: Final = {"tool": "send_email", "server": "mcp:mail", "call_id": "call_7", "session": "s-1",
                "arguments": '{"amount":9007199254740993,"to":"a@example.com"}'}  # fmt: skip
_SAFER: Final = {"amount": 9007199254740993, "to": "b@example.com"}
_SECONDS: Final = 5.0
_IMPATIENT: Final = 0.3  # seconds after which a silent server is given up
_TEXT: Final = "application/json"


def tool_call(spelt: Case) -> ToolCall:
    """Make the call that a vector spells; `arguments` is JSON text."""
    members = {**spelt, "arguments": parse(spelt["arguments"].encode())}
    if "unresolved" in members:
        members["unresolved"] = tuple(members["unresolved"])
    return ToolCall(**members)


def _digest(arguments: Any = None) -> str:
    written = _CALL["arguments"].encode() if arguments is None else canonical(arguments)
    return call_digest(server=_CALL["server"], tool=_CALL["tool"], arguments=written)


def _decision(outcome: str = "allow", **changed: Any) -> dict[str, Any]:
    """A decision on the call as a gateway words it; a member that is changed to `...` is left out."""
    reason = {
        "allow": "none",
        "sanitize": "sensitive_data",
        "require_approval": "approval_required",
        "block": "policy_denied",
    }[outcome]
    said = Outcome[outcome.upper()]
    members: dict[str, Any] = {
        "decision": outcome, "verdict": "compliant" if outcome == "allow" else "violation", "risk": "high",
        "reason": reason, "message": message_for(said, Reason(reason)), "decision_id": "d-1", "call_id": "call_7",
        "request_digest": _digest(), "call_digest": _digest(_SAFER) if outcome == "sanitize" else _digest(),
        "policy_digest": "sha-256:" + "0" * 64, "salt": "c2FsdA",
        "receipt": {"id": "r-1", "index": 41, "leaf_hash": "0" * 64},
        "guards": [{"guard": "content", "outcome": outcome, "us": 31}],
    }  # fmt: skip
    if outcome == "sanitize":
        members["arguments"] = _SAFER
    if outcome == "require_approval":
        members["approval"] = {"id": "ap-1", "expires_at": "2027-01-15T08:05:00Z", "url": "/v1/approvals/ap-1"}
    return {name: value for name, value in {**members, **changed}.items() if value is not ...}


def _result(outcome: str = "allow", **changed: Any) -> dict[str, Any]:
    reason = {
        "allow": "none",
        "sanitize": "sensitive_data",
        "block": "attack_detected",
        "require_approval": "approval_required",
    }[outcome]
    members: dict[str, Any] = {
        "decision": outcome, "verdict": "compliant" if outcome == "allow" else "violation", "reason": reason,
        "message": message_for(Outcome[outcome.upper()], Reason(reason)),
        "receipt": {"id": "r-2", "index": 42, "leaf_hash": "0" * 64},
    }  # fmt: skip
    if outcome == "sanitize":
        members["result"] = {"text": "****", "id": 9007199254740993}
    return {name: value for name, value in {**members, **changed}.items() if value is not ...}


def _says(status: int, body: object, **headers: str) -> Answer:
    text = body if isinstance(body, str) else canonical(body).decode()
    return {
        "status": status,
        "headers": {"content-type": _TEXT, **{k.replace("_", "-"): v for k, v in headers.items()}},
        "body": text,
    }


def _raw(data: bytes, then: str = "close") -> Answer:
    return {"raw": base64.b64encode(data).decode(), "then": then}


def _error(
    status: int, code: str = "malformed", message: str = "the body is malformed", hint: str = "see the docs"
) -> Answer:
    return _says(status, {"error": {"code": code, "message": message, "hint": hint, "request_id": "q-1"}})


# A server that gives one answer after the other, each to one request.


@contextmanager
def answering(answers: list[Answer], received: list[Case]) -> Iterator[str]:
    """Serve `answers` in order, one a connection; what was asked is added to `received`."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()
    opened: list[socket.socket] = []

    def serve() -> None:
        for answer in answers:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            opened.append(connection)
            with connection.makefile("rb") as reader:
                request = _read_request(reader)
            if request is not None:
                received.append(request)
            connection.sendall(_bytes_of(answer))
            if answer.get("then") == "hang":
                ended.wait(_SECONDS)
            connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(_SECONDS)


def _read_request(reader: Any) -> Case | None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = reader.readline()
        if not line:
            return None
        head += line
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest if line)}
    method, target, _ = first.split(" ")
    return {"method": method, "target": target, "body": reader.read(int(headers.get("content-length", "0"))).decode()}


def _bytes_of(answer: Answer) -> bytes:
    if "raw" in answer:
        return base64.b64decode(answer["raw"])
    body = answer["body"].encode()
    headers = {**answer["headers"], "content-length": str(len(body)), "connection": "close"}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {answer['status']} Said\r\n{head}\r\n".encode() + body


def _client(url: str, seconds: float = _SECONDS) -> Client:
    return Client(url, "aegis-test-key", timeout=seconds)


# What was found, as vectors say it.


def _found(run: Callable[[], Decision | ResultDecision]) -> Case:
    try:
        said = run()
    except InvalidCall as error:
        return {
            "invalid_call": {"code": error.code, "message": error.message, "hint": error.hint, "status": error.status}
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
        "a blank server": {"tool": "t", "server": ""},
        "a blank session": {"tool": "t", "session": ""},
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
            {"name": name, "call": call, "body": canonical(parse(wire.ask(tool_call(call), "c", None).body)).decode()}
            for name, call in calls.items()
        ],
        "refused": refused,
    }


# Decisions and results.


def decisions() -> Case:
    """Answers to one call with what they mean: every outcome, every error shape, and what no contract allows."""
    answers: dict[str, Answer] = {
        "allow": _says(200, _decision()),
        "allow with a permit": _says(200, _decision(permit="a.b.c")),
        "allow with members that are not known here": _says(200, _decision(later={"a": [1]}, findings=[])),
        "allow with other white space": _says(200, json.dumps(_decision(), indent=2)),
        "sanitize": _says(200, _decision("sanitize")),
        "block": _says(200, _decision("block")),
        "block without a receipt": _says(200, _decision("block", receipt=...)),
        "block with what was missing": _says(200, _decision("block", missing=["judge"], reason="insufficient_evidence")),
        "held": _says(202, _decision("require_approval"), location="/v1/approvals/ap-1"),
        "conflict": _error(409, "conflict", "this call id was used for another call"),
        "conflict as a decision": _says(409, _decision("block", reason="conflict")),
        "rate limited": _says(429, _decision("block", reason="rate_limited"), retry_after="7"),
        "rate limited without a decision": _says(429, "slow down", retry_after="7"),
        "rate limited for longer than a day": _says(429, "", retry_after="999999"),
        "rate limited until a date": _says(429, "", retry_after="Fri, 15 Jan 2027 08:00:00 GMT"),
        "unavailable": _says(503, _decision("block", reason="unavailable"), retry_after="1"),
        "unavailable without a decision": _error(503, "unavailable", "the log cannot be written"),
        **{f"the error shape of {status}": _error(status, code, message) for status, code, message in (
            (400, "malformed", "the request is malformed"), (401, "unauthorized", "no such key"),
            (403, "forbidden", "the key may not do this"), (404, "not_found", "there is no such thing"),
            (405, "method_not_allowed", "not so"), (408, "timeout", "too slow"), (413, "too_large", "too large"),
            (415, "media_type", "send JSON"), (422, "malformed", "`tool` is needed"))},
        "an error without a hint": _says(422, {"error": {"code": "malformed", "message": "no"}}),
        "an error with a hint that is no text": _says(422, {"error": {"code": "malformed", "message": "no", "hint": 1}}),
        "an error that is no object": _says(422, {"error": "no"}),
        "an error without its shape": _says(422, {"detail": "no"}),
        "an error that is not JSON": _says(401, "<html>sign in</html>"),
        "a refusal without a body": _says(403, ""),
    }  # fmt: skip
    return {"call": _CALL, "cases": [_decided(name, answer) for name, answer in answers.items()]}


def _decided(name: str, answer: Answer, seconds: float = _SECONDS) -> Case:
    with answering([answer], []) as url, _closing(_client(url, seconds)) as client:
        return {"name": name, "answer": answer, "expect": _found(lambda: client.decide(tool_call(_CALL)))}


def results() -> Case:
    """Answers about the result of a call with what they mean."""
    answers: dict[str, Answer] = {
        "allow": _says(200, _result()),
        "sanitize": _says(200, _result("sanitize")),
        "sanitize to null": _says(200, _result("sanitize", result=None)),
        "block": _says(200, _result("block")),
        "block without a receipt": _says(200, _result("block", receipt=...)),
        "rate limited": _says(429, _result("block", reason="rate_limited"), retry_after="7"),
        "conflict": _error(409, "conflict", "another result was given"),
        "unavailable": _says(503, _result("block", reason="unavailable")),
        "no such decision": _error(404, "not_found", "there is no such decision"),
        "allow that was not recorded": _says(200, _result(receipt=...)),
        "sanitize without a result": _says(200, _result("sanitize", result=...)),
        "allow with a result": _says(200, _result(result="x")),
        "held": _says(200, _result("require_approval")),
        "an unknown word": _says(200, _result(decision="permit")),
        "an unknown reason": _says(200, _result(reason="because")),
        "no message": _says(200, _result(message=...)),
        "a receipt without an index": _says(200, _result(receipt={"id": "r", "leaf_hash": "0"})),
        "allow with status 201": _says(201, _result()),
        "allow with status 500": _says(500, _result()),
        "a redirect": _says(307, _result(), location="/elsewhere"),
        "not JSON": _says(200, "ok"),
        "a list": _says(200, [_result()]),
        "a key twice": _says(200, canonical(_result("block")).decode()[:-1] + ',"decision":"allow"}'),
        "nothing": _says(200, ""),
    }
    cases = []
    for name, answer in answers.items():
        received: list[Case] = []
        with answering([answer], received) as url, _closing(_client(url)) as client:
            result = ToolResult(decision_id="d-1", result={"text": "hello", "id": 9007199254740993})
            expect = _found(lambda: client.observe(result))  # noqa: B023  # runs at once
        cases.append({"name": name, "answer": answer, "expect": expect})
    sent = canonical({"decision_id": "d-1", "result": {"text": "hello", "id": 9007199254740993}}).decode()
    return {"request": {"method": "POST", "target": "/v1/results", "body": sent}, "cases": cases}


def fail_closed() -> Case:
    """What is no decision on this call: a client refuses, whatever the bytes say."""
    allow = canonical(_decision())
    half = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(allow)
    answers: dict[str, Answer] = {
        "no answer": _raw(b""),
        "an answer that never begins": _raw(b"", "hang"),
        "an answer that never ends": _raw(half + allow[:40], "hang"),
        "a body that is cut off": _raw(half + allow[:-1]),
        "a head that is cut off": _raw(half[:40]),
        "something other than HTTP": _raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        "a greeting of another protocol": _raw(b"220 mail.example ESMTP\r\n"),
        "two lengths": _raw(half[:-2] + b"content-length: 2\r\n\r\n" + allow),
        "a length that is no number": _raw(b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n" + allow),
        "a chunk without a size": _raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n" + allow),
        "chunks that do not end": _raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(allow), allow)),
        "a redirect": _says(302, _decision(), location="http://127.0.0.1:1/v1/decisions"),
        "a redirect that keeps the method": _says(307, _decision(), location="http://127.0.0.1:1/v1/decisions"),
        "allow with status 201": _says(201, _decision()),
        "allow with status 202": _says(202, _decision()),
        "allow with status 204": _raw(b"HTTP/1.1 204 No Content\r\n\r\n"),
        "allow with status 409": _says(409, _decision()),
        "allow with status 429": _says(429, _decision()),
        "allow with status 500": _says(500, _decision()),
        "allow with status 503": _says(503, _decision()),
        "held with status 200": _says(200, _decision("require_approval")),
        "held without an approval": _says(202, _decision("require_approval", approval=...)),
        "held by an approval with a path for an id": _says(202, _decision("require_approval", approval={"id": "../keys", "expires_at": "x"})),
        "held and not recorded": _says(202, _decision("require_approval", receipt=...)),
        "an error page": _says(502, "<html>bad gateway</html>"),
        "a page of somebody else": _says(200, "<html>welcome</html>"),
        "not JSON": _says(200, "allow"),
        "the word alone": _says(200, '"allow"'),
        "a list": _says(200, [_decision()]),
        "nothing": _says(200, ""),
        "a member twice": _says(200, canonical(_decision("block")).decode()[:-1] + ',"decision":"allow"}'),
        "a lone surrogate": _says(200, allow.decode().replace("the call may run", "\\ud800")),
        "data after the decision": _says(200, allow.decode() + "{}"),
        "not a number": _says(200, allow.decode().replace("41", "NaN")),
        "an unknown outcome": _says(200, _decision(decision="permit")),
        "an outcome in another case": _says(200, _decision(decision="ALLOW")),
        "an outcome that is true": _says(200, _decision(decision=True)),
        "an unknown verdict": _says(200, _decision(verdict="fine")),
        "an unknown risk": _says(200, _decision(risk="none")),
        "an unknown reason": _says(200, _decision(reason="because")),
        **{f"no `{member}`": _says(200, _decision(**{member: ...})) for member in (
            "decision", "verdict", "risk", "reason", "message", "decision_id", "call_id", "request_digest",
            "call_digest", "policy_digest", "salt", "receipt")},
        "another call": _says(200, _decision(call_id="call_8")),
        "other arguments": _says(200, _decision(request_digest=_digest({"amount": 9007199254740992, "to": "a@example.com"}))),
        "another call will run": _says(200, _decision(call_digest=_digest(_SAFER))),
        "allow with other arguments": _says(200, _decision(arguments=_SAFER)),
        "sanitize without arguments": _says(200, _decision("sanitize", arguments=...)),
        "sanitize to something that was not recorded": _says(200, _decision("sanitize", arguments={"to": "eve@example.com"})),
        "sanitize with a digit rounded": _says(200, _decision("sanitize", arguments={**_SAFER, "amount": 9007199254740992})),
        "sanitize to a list": _says(200, _decision("sanitize", arguments=[1])),
        "a receipt below nothing": _says(200, _decision(receipt={"id": "r", "index": -1, "leaf_hash": "0"})),
        "a receipt with a text for its index": _says(200, _decision(receipt={"id": "r", "index": "41", "leaf_hash": "0"})),
        "a permit that is no text": _says(200, _decision(permit=1)),
        "a guard that is malformed": _says(200, _decision(guards=[1])),
    }  # fmt: skip
    cases = [
        _decided(name, one, _IMPATIENT if one.get("then") == "hang" else _SECONDS) for name, one in answers.items()
    ]
    for case in cases:
        if case["expect"].get("decision", {}).get("decision") != "block":
            raise AssertionError(f"`{case['name']}` does not fail closed")
    return {"call": _CALL, "timeout_seconds": _IMPATIENT, "cases": cases}


# Holds, redemptions, sessions, streams.


def holds() -> Case:
    """What a client asks while a person decides, what it is answered, and what it comes to."""
    approval = {"id": "ap-1", "call_id": "call_7", "call_digest": _digest(), "expires_at": "2027-01-15T08:05:00Z"}
    held = _says(202, _decision("require_approval"), location="/v1/approvals/ap-1")

    def state(word: str) -> Answer:
        return _says(200, {**approval, "state": word})

    scripts: dict[str, list[Answer]] = {
        "approved": [held, state("approved"), _says(200, _decision(permit="a.b.c"))],
        "approved and narrowed": [held, state("approved"), _says(200, _decision("sanitize", permit="a.b.c"))],
        "denied": [held, state("denied"), _says(200, _decision("block", reason="approval_denied"))],
        "expired": [held, state("expired"), _says(200, _decision("block", reason="approval_expired"))],
        "cancelled": [held, state("cancelled"), _says(200, _decision("block", reason="approval_cancelled"))],
        "approved, and the policy changed": [held, state("approved"), _says(200, _decision("block"))],
        "approved, and the answer is about another call": [
            held,
            state("approved"),
            _says(422, {"error": {"code": "malformed", "message": "no"}}),
        ],
        "an approval of somebody else": [held, _error(404, "not_found", "there is no such approval")],
        "a credential that was taken away": [held, _error(401, "unauthorized", "no such key")],
    }
    return {"call": _CALL, "cases": [_held(name, answers) for name, answers in scripts.items()]}


def _held(name: str, answers: list[Answer]) -> Case:
    received: list[Case] = []
    with answering(answers, received) as url, _closing(_client(url)) as client:
        call = tool_call(_CALL)
        expect = _found(lambda: client.wait(call, client.decide(call)))
    exchanges = []
    for request, answer in zip(received, answers, strict=True):
        body = {"body": canonical(parse(request["body"].encode())).decode()} if request["body"] else {}
        exchanges.append({"method": request["method"], "target": request["target"], **body, "answer": answer})
    return {"name": name, "exchanges": exchanges, "expect": expect}


def redemptions() -> Case:
    """Answers about a permit that a tool redeems at the gateway: anything but a plain yes opens nothing."""
    answers: dict[str, Answer] = {
        "redeemed": _says(200, {"valid": True, "permit_id": "p-1"}),
        "for another call": _error(403, "permit_other_call", "this permit is for another call"),
        "used before": _error(409, "permit_redeemed", "this permit was used before"),
        "malformed": _error(422, "malformed", "`permit` is needed"),
        "no credential": _error(401, "unauthorized", "no such key"),
        "rate limited": _error(429, "rate_limited", "too many"),
        "unavailable": _error(503, "unavailable", "the log cannot be written"),
        "valid is not true": _says(200, {"valid": "true", "permit_id": "p-1"}),
        "valid is false": _says(200, {"valid": False, "permit_id": "p-1"}),
        "valid is one": _says(200, {"valid": 1, "permit_id": "p-1"}),
        "no identifier": _says(200, {"valid": True}),
        "another status": _says(202, {"valid": True, "permit_id": "p-1"}),
        "a redirect": _says(307, {"valid": True, "permit_id": "p-1"}, location="/elsewhere"),
        "not JSON": _says(200, "yes"),
        "nothing": _raw(b""),
    }
    cases = []
    arguments = parse(_CALL["arguments"].encode())
    received: list[Case] = []
    for name, answer in answers.items():
        with answering([answer], received) as url, _closing(_client(url)) as client:
            try:
                expect: Case = {
                    "permit_id": client.redeem("a.b.c", tool="send_email", arguments=arguments, server="mcp:mail")
                }
            except PermitInvalid as error:
                expect = {"refused": {"code": error.code, "status": error.status}}
            except InvalidCall as error:
                expect = {"invalid_call": {"code": error.code, "status": error.status}}
        cases.append({"name": name, "answer": answer, "expect": expect})
    sent = {**received[0], "body": canonical(parse(received[0]["body"].encode())).decode()}
    return {"call": _CALL, "permit": "a.b.c", "request": sent, "cases": cases}


def sessions() -> Case:
    """Answers to the opening of a session with what they mean."""
    opened = {"session": "s-1", "receipt": {"id": "r-1", "index": 3, "leaf_hash": "0" * 64}}
    answers: dict[str, Answer] = {
        "opened": _says(201, opened),
        "open before": _says(200, opened),
        "another task": _error(409, "conflict", "the session has another task"),
        "refused": _error(403, "forbidden", "the key may not do this"),
        "malformed": _error(422, "malformed", "`session` is needed"),
        "rate limited": _error(429, "rate_limited", "too many"),
        "unavailable": _error(503, "unavailable", "the log cannot be written"),
        "no receipt": _says(201, {"session": "s-1"}),
        "not JSON": _says(201, "ok"),
        "nothing": _raw(b""),
    }
    cases = []
    received: list[Case] = []
    for name, answer in answers.items():
        with answering([answer], received) as url, _closing(_client(url)) as client:
            try:
                found = client.open_session("s-1", task="answer the customer")
                expect: Case = {
                    "opened": {"session": found.session, "fresh": found.fresh, "index": found.receipt.index}
                }
            except InvalidCall as error:
                expect = {"invalid_call": {"code": error.code, "status": error.status}}
            except GatewayUnavailable:
                expect = {"unavailable": True}
        cases.append({"name": name, "answer": answer, "expect": expect})
    sent = {**received[0], "body": canonical(parse(received[0]["body"].encode())).decode()}
    return {"session": "s-1", "task": "answer the customer", "request": sent, "cases": cases}


def streams() -> Case:
    """Streamed results: the lines that are sent, the verdicts that come back, and what may be passed on."""
    alive, done = "stream-1", {"bytes": 10, "released": 10, "final": True}

    def so_far(taken: int, released: int) -> str:
        return canonical({**_result(receipt=...), "bytes": taken, "released": released, "final": False}).decode()

    def final(taken: int = 10, released: int = 10, outcome: str = "allow", **changed: Any) -> str:
        return canonical({**_result(outcome, **changed), **done, "bytes": taken, "released": released}).decode()

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
            "verdicts": [so_far(5, 5).replace('"released":5', '"released":true')],
            "last": None,
        },
        "signed by the tool": {"verdicts": [so_far(5, 5), so_far(10, 10)], "last": final(), "provenance": "a.b.c"},
        "no such decision": {"refusal": _error(404, "not_found", "there is no such decision")},
        "too many streams": {"refusal": _error(429, "rate_limited", "too many")},
        "unavailable": {"refusal": _error(503, "unavailable", "the log cannot be written")},
    }
    cases = []
    for name, script in scripts.items():
        sent: list[str] = []
        with _streaming(script, sent) as url, _closing(_client(url)) as client:
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
    except InvalidCall as error:
        return passed.decode(), {"invalid_call": {"code": error.code, "status": error.status}}


@contextmanager
def _streaming(script: Case, sent: list[str]) -> Iterator[str]:
    """Serve one streamed result: a verdict for each line that comes, and the last one at the end."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as reader:
            while reader.readline() not in (b"\r\n", b""):
                pass
            if "refusal" in script:
                connection.sendall(_bytes_of(script["refusal"]))
                connection.settimeout(_SECONDS)
                reader.read()
                return
            connection.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            verdicts = iter(script["verdicts"])
            while (line := _read_chunk(reader)) is not None:
                sent.append(line)
                verdict = next(verdicts, None) if "base64" in line else ""
                if verdict is None:
                    break
                if verdict:
                    _send_line(connection, verdict)
            else:
                if script["last"] is not None:
                    _send_line(connection, script["last"])
            connection.sendall(b"0\r\n\r\n")

    def guarded() -> None:
        try:
            serve()
        except OSError:
            return  # a client that refused has gone away, which is what it should do

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        thread.join(_SECONDS)


def _read_chunk(reader: Any) -> str | None:
    size = int(reader.readline().strip() or b"0", 16)
    data: bytes = reader.read(size)
    reader.readline()
    return data.decode().rstrip("\n") if size else None


def _send_line(connection: socket.socket, line: str) -> None:
    data = line.encode() + b"\n"
    connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))


@contextmanager
def _closing(client: Client) -> Iterator[Client]:
    try:
        yield client
    finally:
        client.close()
