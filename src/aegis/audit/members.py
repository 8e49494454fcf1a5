"""What a receipt of version 1 may look like: a closed set of members, each with the values it may have.

Values hold no floats, no nulls and ASCII keys alone, so that every canonicaliser agrees on the bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from aegis.audit.breaks import Break, BreakKind
from aegis.core.outcome import Effect, Reason
from aegis.core.receipt import MEMBERS, RECEIPT_VERSION, REQUIRED, Kind
from aegis.errors import LogInvalid

MAX_DEPTH: Final = 8  # nesting inside a member: bounds the recursion that hostile lines can cause
_SAFE_INTEGER: Final = 2**53 - 1
_HEX: Final = "0123456789abcdef"
_DIGITS: Final = {ord(digit): "0" for digit in "0123456789"}
_TIME: Final = "0000-00-00T00:00:00.000000Z"

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=_SAFE_INTEGER)]
_Outcome = Literal["allow", "sanitize", "require_approval", "block"]


class _Guard(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    guard: _Text
    outcome: _Outcome
    rules: list[str]


class Members(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The members of version 1 and their types; those below `sig` may be absent."""

    v: Literal[1]
    index: _Number
    log: _Text
    time: str
    kind: Kind
    receipt_id: _Text
    prev: str
    principal: _Text
    sig: dict[str, Any]
    parent: _Text | UnsetType = UNSET
    agent: _Text | UnsetType = UNSET
    session: _Text | UnsetType = UNSET
    call_id: _Text | UnsetType = UNSET
    tool: _Text | UnsetType = UNSET
    server: str | UnsetType = UNSET
    call_commitment: str | UnsetType = UNSET
    payload_commitment: str | UnsetType = UNSET
    effects: list[Effect] | UnsetType = UNSET
    risk: Literal["low", "medium", "high", "critical"] | UnsetType = UNSET
    decision: _Outcome | UnsetType = UNSET
    verdict: Literal["compliant", "insufficient_evidence", "violation"] | UnsetType = UNSET
    reason: Reason | UnsetType = UNSET
    guards: list[_Guard] | UnsetType = UNSET
    policy_digest: str | UnsetType = UNSET
    settings: dict[str, Any] | UnsetType = UNSET
    approval_id: _Text | UnsetType = UNSET
    approvers: list[str] | UnsetType = UNSET
    permit_id: _Text | UnsetType = UNSET
    mission_id: _Text | UnsetType = UNSET
    budget: dict[str, Any] | UnsetType = UNSET
    provenance: dict[str, Any] | UnsetType = UNSET
    key: dict[str, Any] | UnsetType = UNSET
    action: _Text | UnsetType = UNSET
    mission: _Text | UnsetType = UNSET
    lineage: list[_Text] | UnsetType = UNSET
    missing: list[_Text] | UnsetType = UNSET
    preview: dict[str, Any] | UnsetType = UNSET
    judge: dict[str, Any] | UnsetType = UNSET
    grant_id: _Text | UnsetType = UNSET
    expires: str | UnsetType = UNSET


def check_members(receipt: dict[str, Any]) -> None:
    """Guarantee that a receipt has the members of its version, and each of them a value it may have.

    What `sig` holds besides a key's name is left to `read_signature`. Raises `LogInvalid`.
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
    # (3) The type of every value.
    try:
        found = msgspec.convert(receipt, Members)
    except msgspec.ValidationError as error:
        raise _invalid("malformed_member", _member(error)) from error
    # (4) The form of those that types do not say.
    if found.time.translate(_DIGITS) != _TIME:
        raise _invalid("malformed_member", "time")
    if found.expires is not UNSET and found.expires.translate(_DIGITS) != _TIME:
        raise _invalid("malformed_member", "expires")
    if len(found.prev) not in {0, 64} or found.prev.strip(_HEX):
        raise _invalid("malformed_member", "prev")
    kid = found.sig.get("kid")
    if type(kid) is not str or not kid:
        raise _invalid("malformed_member", "sig.kid")
    for name in ("call_commitment", "payload_commitment", "policy_digest"):
        if not _is_digest(receipt.get(name)):
            raise _invalid("malformed_member", name)
    for name in ("settings", "budget", "provenance", "key", "preview", "judge"):
        if name in receipt and not _is_plain(receipt[name], MAX_DEPTH):
            raise _invalid("malformed_member", name)


def _is_digest(value: str | None) -> bool:
    return value is None or (len(value) == 72 and value[:8] == "sha-256:" and not value[8:].strip(_HEX))


def _is_plain(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind is str or kind is bool:
        return True
    if kind is int:
        return bool(-_SAFE_INTEGER <= value <= _SAFE_INTEGER)
    if depth == 0:
        return False
    if kind is dict:
        return all(key.isascii() and _is_plain(item, depth - 1) for key, item in value.items())
    return kind is list and all(_is_plain(item, depth - 1) for item in value)


def _member(error: msgspec.ValidationError) -> str:
    """The member that the message of the decoder points at: "... - at `$.guards[0].rules`"."""
    _, _, place = str(error).rpartition("`$.")
    return place.rstrip("`")


def _invalid(kind: BreakKind, member: str = "") -> LogInvalid:
    return LogInvalid(Break(kind=kind, detail=f"`{member}`" if member else ""))
