"""What a receipt of version 1 may look like: a closed set of members, each with the values it may have.

Values hold no floats, no nulls and ASCII keys alone, so that every canonicaliser agrees on the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aegis.audit.breaks import Break, BreakKind
from aegis.core.outcome import EFFECTS, Outcome, Reason, Risk, Verdict
from aegis.core.receipt import KINDS, MEMBERS, RECEIPT_VERSION, REQUIRED
from aegis.errors import LogInvalid

MAX_DEPTH: Final = 8  # nesting inside a member: bounds the recursion that hostile lines can cause
_SAFE_INTEGER: Final = 2**53 - 1
_HEX: Final = "0123456789abcdef"
_DIGITS: Final = {ord(digit): "0" for digit in "0123456789"}
_TIME: Final = "0000-00-00T00:00:00.000000Z"
_OUTCOMES: Final = frozenset(outcome.word for outcome in Outcome)
_REASONS: Final = frozenset(reason.value for reason in Reason)

Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return type(value) is str and value != ""


def _any_text(value: Any) -> bool:
    return type(value) is str


def _number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _SAFE_INTEGER


def _time(value: Any) -> bool:
    return type(value) is str and value.translate(_DIGITS) == _TIME


def _previous(value: Any) -> bool:
    return type(value) is str and len(value) in {0, 64} and not value.strip(_HEX)


def _digest(value: Any) -> bool:
    return type(value) is str and len(value) == 72 and value[:8] == "sha-256:" and not value[8:].strip(_HEX)


def _one_of(*words: str) -> Check:
    allowed = frozenset(words)
    return lambda value: type(value) is str and value in allowed


def _texts(value: Any) -> bool:
    return type(value) is list and all(type(item) is str for item in value)


def _effects(value: Any) -> bool:
    return type(value) is list and all(type(item) is str and item in EFFECTS for item in value)


def _guards(value: Any) -> bool:
    return type(value) is list and all(
        type(guard) is dict
        and guard.keys() == {"guard", "outcome", "rules"}
        and _text(guard["guard"])
        and type(guard["outcome"]) is str
        and guard["outcome"] in _OUTCOMES
        and _texts(guard["rules"])
        for guard in value
    )


def _object(value: Any) -> bool:
    return type(value) is dict and _plain(value, MAX_DEPTH)


def _signature(value: Any) -> bool:
    return _object(value) and _text(value.get("kid"))


def _plain(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind is str or kind is bool:
        return True
    if kind is int:
        return bool(-_SAFE_INTEGER <= value <= _SAFE_INTEGER)
    if depth == 0:
        return False
    if kind is dict:
        return all(key.isascii() and _plain(item, depth - 1) for key, item in value.items())
    return kind is list and all(_plain(item, depth - 1) for item in value)


CHECKS: Final[dict[str, Check]] = {
    "v": _number,
    "index": _number,
    "log": _text,
    "time": _time,
    "kind": _one_of(*KINDS),
    "receipt_id": _text,
    "prev": _previous,
    "parent": _text,
    "agent": _text,
    "principal": _text,
    "session": _text,
    "call_id": _text,
    "tool": _text,
    "server": _any_text,
    "call_commitment": _digest,
    "payload_commitment": _digest,
    "effects": _effects,
    "risk": _one_of(*(risk.word for risk in Risk)),
    "decision": _one_of(*_OUTCOMES),
    "verdict": _one_of(*(verdict.word for verdict in Verdict)),
    "reason": _one_of(*_REASONS),
    "guards": _guards,
    "policy_digest": _digest,
    "settings": _object,
    "approval_id": _text,
    "approvers": _texts,
    "permit_id": _text,
    "mission_id": _text,
    "budget": _object,
    "provenance": _object,
    "key": _object,
    "action": _text,
    "sig": _signature,
}


def check_members(receipt: dict[str, Any]) -> None:
    """Guarantee that a receipt has the members of its version, and each of them a value it may have.

    Raises `LogInvalid`.
    """
    # (1) The version decides about everything else.
    version = receipt.get("v")
    if type(version) is not int or version != RECEIPT_VERSION:
        raise _invalid("unknown_version")
    # (2) No member too many, none too few.
    if not receipt.keys() <= MEMBERS:
        raise _invalid("unknown_member")
    if not receipt.keys() >= REQUIRED:
        missing = sorted(REQUIRED - receipt.keys())
        raise _invalid("missing_signature" if missing == ["sig"] else "missing_member", missing[0])
    # (3) Every value.
    for name, value in receipt.items():
        if not CHECKS[name](value):
            raise _invalid("malformed_member", name)


def _invalid(kind: BreakKind, member: str = "") -> LogInvalid:
    return LogInvalid(Break(kind=kind, detail=f"`{member}`" if member else ""))
