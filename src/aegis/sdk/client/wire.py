"""The gateway's JSON as values: strict both ways, and bound to the call that was asked about.

An answer is believed only if it is one that the contract allows for this very call: known words,
all members, and digests that equal what this side computed itself. Anything else is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from msgspec import Struct

from aegis.core.call import ToolCall, ToolResult, check_call, readable
from aegis.core.canonical import call_digest, canonical
from aegis.core.decision import ApprovalRef, Decision, GuardTime, ReceiptRef, ResultDecision
from aegis.core.json import parse
from aegis.core.outcome import Outcome, Reason, Risk, Verdict, message_for, outcome_of, risk_of, verdict_of
from aegis.errors import InvalidCall

MAX_RETRY_AFTER: Final = 86_400  # a gateway cannot put a caller to sleep for longer than a day
_MEMBERS: Final = ("server", "agent", "session", "parent", "turn", "task", "messages_digest", "proof", "resolves")


class BadAnswer(Exception):
    """The gateway's answer is not one that the contract allows for this call."""


class AskedCall(Struct, frozen=True, kw_only=True):
    """A call as it was sent: with its id, its body, and the digest that every answer must carry."""

    server: str | None
    tool: str
    call_id: str
    digest: str
    body: bytes


def ask(call: ToolCall, call_id: str, agent: str | None) -> AskedCall:
    """The request for a decision; `agent` stands in where the call names none.

    The body embeds the very bytes that are digested. Raises `InvalidCall`.
    """
    check_call(call)
    call, arguments = readable(call)
    envelope: dict[str, Any] = {"tool": call.tool, "call_id": call_id}
    for member in _MEMBERS:
        value = getattr(call, member)
        if value is not None:
            envelope[member] = value
    if call.agent is None and agent is not None:
        envelope["agent"] = agent
    if call.want_permit:
        envelope["want_permit"] = True
    if call.handoff:
        envelope["handoff"] = True
    if call.unresolved:
        envelope["unresolved"] = list(call.unresolved)
    if call.depends_on:
        envelope["depends_on"] = list(call.depends_on)
    if call.reasoning is not None:
        envelope["reasoning"] = call.reasoning.to_wire()
    body = b'{"arguments":' + arguments + b"," + canonical(envelope)[1:]
    digest = call_digest(server=call.server, tool=call.tool, arguments=arguments)
    return AskedCall(server=call.server, tool=call.tool, call_id=call_id, digest=digest, body=body)


def result_body(result: ToolResult) -> bytes:
    """The request that scans a result; raises `InvalidCall` for what is not JSON."""
    body = b'{"decision_id":' + canonical(result.decision_id) + b',"result":' + canonical(result.result)
    if result.provenance is not None:
        body += b',"provenance":' + canonical(result.provenance)
    if result.further:
        body += b',"further":true'
    if result.failed:
        body += b',"failed":true'
    return body + b"}"


def read_decision(body: bytes | bytearray, asked: AskedCall, allowed: frozenset[Outcome]) -> Decision:
    """The decision in `body`, of one of the outcomes `allowed`; raises `BadAnswer`."""
    wire = read_object(body)
    try:
        decision = _decision(wire)
    except (KeyError, TypeError, ValueError) as error:
        raise BadAnswer("a member of the decision is missing or malformed") from error
    if decision.outcome not in allowed:
        raise BadAnswer("the decision does not fit the status of the answer")
    if decision.call_id != asked.call_id or decision.request_digest != asked.digest:
        raise BadAnswer("the decision is about another call")
    if decision.outcome is Outcome.BLOCK:
        return decision
    if decision.receipt is None:
        raise BadAnswer("the decision was not recorded")
    if decision.outcome is Outcome.REQUIRE_APPROVAL:
        if decision.approval is None:
            raise BadAnswer("a held call names no approval")
        return decision
    _check_what_will_run(decision, asked)
    return decision


def _check_what_will_run(decision: Decision, asked: AskedCall) -> None:
    if decision.outcome is Outcome.ALLOW:
        if decision.arguments is not None or decision.call_digest != asked.digest:
            raise BadAnswer("the allowed call is not the one that was asked about")
        return
    if decision.arguments is None:
        raise BadAnswer("a sanitised call has no arguments")
    try:
        arguments = canonical(decision.arguments)
    except InvalidCall as error:
        raise BadAnswer("the sanitised arguments are not JSON") from error
    digest = call_digest(server=asked.server, tool=asked.tool, arguments=arguments)
    if decision.call_digest != digest:
        raise BadAnswer("the sanitised arguments are not those that were recorded")


def _decision(wire: dict[str, Any]) -> Decision:
    approval = _optional(wire, "approval", dict)
    return Decision(
        outcome=outcome_of(_text(wire, "decision")),
        verdict=verdict_of(_text(wire, "verdict")),
        risk=risk_of(_text(wire, "risk")),
        reason=Reason(_text(wire, "reason")),
        message=_text(wire, "message"),
        decision_id=_text(wire, "decision_id"),
        call_id=_text(wire, "call_id"),
        request_digest=_text(wire, "request_digest"),
        call_digest=_text(wire, "call_digest"),
        policy_digest=_text(wire, "policy_digest"),
        salt=_text(wire, "salt"),
        arguments=_optional(wire, "arguments", dict),
        approval=None if approval is None else _approval(approval),
        permit=_optional(wire, "permit", str),
        receipt=_receipt(wire),
        guards=tuple(_guard(guard) for guard in _optional(wire, "guards", list) or ()),
        missing=tuple(str(name) for name in _optional(wire, "missing", list) or ()),
    )


def read_result(body: bytes | bytearray) -> ResultDecision:
    """The answer about a result; raises `BadAnswer`."""
    wire = read_object(body)
    try:
        decision = ResultDecision(
            outcome=outcome_of(_text(wire, "decision")),
            verdict=verdict_of(_text(wire, "verdict")),
            reason=Reason(_text(wire, "reason")),
            message=_text(wire, "message"),
            result=wire.get("result"),
            receipt=_receipt(wire),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadAnswer("a member of the answer is missing or malformed") from error
    if decision.outcome is Outcome.REQUIRE_APPROVAL:
        raise BadAnswer("a result cannot wait for an approval")
    if decision.allowed and decision.receipt is None:
        raise BadAnswer("the answer was not recorded")
    if (decision.outcome is Outcome.SANITIZE) != ("result" in wire):
        raise BadAnswer("a result is given exactly when it was sanitised")
    return decision


def read_approval_state(body: bytes | bytearray, approval_id: str) -> str:
    """The state of the approval with this id; raises `BadAnswer`."""
    wire = read_object(body)
    try:
        if _text(wire, "id") != approval_id:
            raise BadAnswer("the answer is about another approval")
        return _text(wire, "state")
    except (KeyError, TypeError) as error:
        raise BadAnswer("a member of the approval is missing or malformed") from error


def read_redeemed(body: bytes | bytearray) -> str:
    """The identifier of a permit that was redeemed; raises `BadAnswer`."""
    wire = read_object(body)
    try:
        if wire["valid"] is not True:
            raise BadAnswer("the permit is not valid")
        return _text(wire, "permit_id")
    except (KeyError, TypeError) as error:
        raise BadAnswer("a member of the answer is missing or malformed") from error


def read_error(body: bytes | bytearray, status: int) -> InvalidCall:
    """The misuse that a 4xx answer reports; never fails, whatever the body is."""
    try:
        error = read_object(body)["error"]
        code, message, hint = _text(error, "code"), _text(error, "message"), error.get("hint", "")
    except (BadAnswer, KeyError, TypeError):
        return InvalidCall(f"the gateway refused the request with status {status}", code="refused", status=status)
    return InvalidCall(message, code=code, hint=hint if isinstance(hint, str) else "", status=status)


def retry_after(value: str | None) -> int | None:
    """The seconds of a `Retry-After` header; `None` for anything but a sensible whole number."""
    if value is None or not (value.isascii() and value.isdigit()) or len(value) > 6:
        return None
    return min(int(value), MAX_RETRY_AFTER)


def with_retry(decision: Decision, wait: int | None) -> Decision:
    """The decision with the seconds after which the gateway wants to be asked again."""
    return decision if wait is None else replace(decision, retry_after=wait)


def blocked(asked: AskedCall, reason: Reason, *, wait: int | None = None) -> Decision:
    """The refusal that stands for an answer that was not to be had."""
    return Decision(
        outcome=Outcome.BLOCK,
        verdict=Verdict.INSUFFICIENT_EVIDENCE,
        risk=Risk.HIGH,
        reason=reason,
        message=message_for(Outcome.BLOCK, reason),
        decision_id="",
        call_id=asked.call_id,
        request_digest=asked.digest,
        call_digest=asked.digest,
        policy_digest="",
        salt="",
        retry_after=wait,
    )


def withheld(reason: Reason) -> ResultDecision:
    """The refusal of a result for which no answer was to be had."""
    return ResultDecision(
        outcome=Outcome.BLOCK,
        verdict=Verdict.INSUFFICIENT_EVIDENCE,
        reason=reason,
        message=message_for(Outcome.BLOCK, reason),
    )


def read_object(body: bytes | bytearray) -> dict[str, Any]:
    """The JSON object in `body`; raises `BadAnswer`."""
    try:
        wire = parse(bytes(body))
    except InvalidCall as error:
        raise BadAnswer("the answer is not strict JSON") from error
    if not isinstance(wire, dict):
        raise BadAnswer("the answer is not a JSON object")
    return wire


def _text(wire: dict[str, Any], member: str) -> str:
    value = wire[member]
    if not isinstance(value, str):
        raise TypeError(f"`{member}` is not a string")
    return value


def _optional(wire: dict[str, Any], member: str, kind: type) -> Any:
    value = wire.get(member)
    if value is not None and type(value) is not kind:
        raise TypeError(f"`{member}` has another type")
    return value


def _receipt(wire: dict[str, Any]) -> ReceiptRef | None:
    receipt = _optional(wire, "receipt", dict)
    if receipt is None:
        return None
    index = receipt["index"]
    if type(index) is not int or index < 0:
        raise ValueError("`index` is not a position in the log")
    return ReceiptRef(id=_text(receipt, "id"), index=index, leaf_hash=_text(receipt, "leaf_hash"))


def _approval(wire: dict[str, Any]) -> ApprovalRef:
    approval_id = _text(wire, "id")
    # The id becomes part of a request target.
    if (
        not approval_id
        or len(approval_id) > 200
        or not all(c.isascii() and (c.isalnum() or c in "-_.~") for c in approval_id)
    ):
        raise ValueError("`id` is not an approval's")
    waiting_for = tuple(str(word) for word in _optional(wire, "waiting_for", list) or ())
    return ApprovalRef(id=approval_id, expires_at=_text(wire, "expires_at"), waiting_for=waiting_for)


def _guard(wire: Any) -> GuardTime:
    if not isinstance(wire, dict) or type(wire["us"]) is not int:
        raise TypeError("a guard is malformed")
    return GuardTime(guard=_text(wire, "guard"), outcome=outcome_of(_text(wire, "outcome")), us=wire["us"])
