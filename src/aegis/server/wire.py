"""From the members of a body to a tool call, strictly; and from a decision to its status and headers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final, Literal

from aegis.core.call import ReadCall, ToolCall
from aegis.core.canonical import canonical
from aegis.core.decision import Decision, ResultDecision
from aegis.core.json import parse
from aegis.core.outcome import Outcome, Reason
from aegis.core.reasoning import read_reasoning
from aegis.errors import InvalidCall

CALL_MEMBERS: Final = frozenset(
    {
        "tool", "arguments", "server", "call_id", "agent", "session", "parent", "turn", "want_permit", "task",
        "messages_digest", "unresolved", "proof", "depends_on", "resolves", "handoff", "reasoning",
    }
)  # fmt: skip
MAX_PROOF_CHARS: Final = 16_384  # a compact JWS; bounds what is kept beside the log
DEFAULT_RETRY_AFTER_S: Final = 1

# An ASGI extension of our own server: `await extension(status, header lines, body)` answers in one write.
WHOLE_ANSWER: Final = "aegis.whole_answer"
# Another: `extension()` lets the body of this request take any time, as long as it does not fall silent.
SLOW_BODY: Final = "aegis.slow_body"
JSON_HEADERS: Final = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))


def call_of(value: Any) -> ToolCall:
    """Return the tool call of a parsed body; raises `InvalidCall` for a member that is unknown or of a wrong type.

    Names and sizes are checked by the gate.
    """
    if type(value) is not dict:
        raise InvalidCall("a tool call must be a JSON object")
    if not CALL_MEMBERS.issuperset(value):
        raise InvalidCall(
            "the tool call has an unknown member",
            code="unknown_member",
            hint=f"known are {', '.join(sorted(CALL_MEMBERS))}",
        )
    if "tool" not in value or "arguments" not in value:
        raise InvalidCall("a tool call needs `tool` and `arguments`", code="missing_member")
    if len(value) == 2:
        return ToolCall(tool=value["tool"], arguments=value["arguments"])
    members = dict(value)
    if type(members.get("want_permit", False)) is not bool:
        raise InvalidCall("`want_permit` must be true or false")
    if "unresolved" in members:
        if type(members["unresolved"]) is not list:
            raise InvalidCall("`unresolved` must be a list of JSON pointers")
        members["unresolved"] = tuple(members["unresolved"])
    if "depends_on" in members:
        if type(members["depends_on"]) is not list:
            raise InvalidCall("`depends_on` must be a list of call ids")
        members["depends_on"] = tuple(members["depends_on"])
    for name, member in members.items():
        if member is None:
            raise InvalidCall(f"`{name}` must not be null", hint="leave the member out")
    if "reasoning" in members:
        members["reasoning"] = read_reasoning(members["reasoning"])
    turn = members.get("turn")
    if type(turn) is float and turn.is_integer():  # `3.0` is the number `3` (JSON Schema, 6.1.1)
        members["turn"] = int(turn)
    proof = members.get("proof")
    if proof is not None and (type(proof) is not str or len(proof) > MAX_PROOF_CHARS):
        raise InvalidCall("`proof` must be a compact JWS")
    return ToolCall(**members)


Shape = Literal["call", "batch", "result"]
_APART: Final = {"call": "arguments", "batch": "arguments", "result": "result"}


def read_apart(data: bytes, shape: Shape) -> tuple[Any, list[bytes | None]]:
    """Return a large body without its large members, and these as canonical bytes, in order; for a worker.

    Left out of a call are its arguments, of a batch those of each call, of a result the result itself; a member that
    is not there, or is no object where it must be one, stays for the checks that follow. Raises `InvalidCall`.
    """
    value = parse(data)
    rows = [value]
    if shape == "batch":
        calls = value.get("calls") if isinstance(value, dict) else value
        rows = calls if isinstance(calls, list) else []
    apart: list[bytes | None] = []
    name = _APART[shape]
    for row in rows:
        if not isinstance(row, dict) or name not in row or not (shape == "result" or isinstance(row[name], dict)):
            apart.append(None)
            continue
        apart.append(canonical(row[name]))
        row[name] = {}
    return value, apart


def joined(call: ToolCall, arguments: bytes | None) -> ToolCall:
    """Return the call with the canonical arguments that stood apart from it."""
    if arguments is None:
        return call
    return ReadCall(**{field.name: getattr(call, field.name) for field in fields(call)}, canonical=arguments)


def status_of(decision: Decision) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
    """Return the status that stands for a decision, and the headers that it demands."""
    if decision.outcome is Outcome.REQUIRE_APPROVAL and decision.approval is not None:
        return 202, ((b"location", decision.approval.url.encode("ascii")),)
    if decision.outcome is Outcome.BLOCK:
        if decision.receipt is None:
            return 503, _retry_after(decision)
        if decision.reason is Reason.RATE_LIMITED:
            return 429, _retry_after(decision)
        if decision.reason is Reason.CONFLICT:
            return 409, ()
    return 200, ()


def result_status(decision: ResultDecision) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
    """Return the status that stands for the answer to a result."""
    if decision.receipt is None:
        wait = max(1, decision.retry_after or DEFAULT_RETRY_AFTER_S)
        return 429 if decision.reason is Reason.RATE_LIMITED else 503, ((b"retry-after", b"%d" % wait),)
    return 200, ()


def _retry_after(decision: Decision) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"retry-after", b"%d" % max(1, decision.retry_after or DEFAULT_RETRY_AFTER_S)),)
