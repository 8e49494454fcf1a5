"""Redeeming a permit at the gateway: anything but its plain yes is a refusal."""

from __future__ import annotations

from typing import Any, Final

from aegis.client import wire
from aegis.client.http1 import Answer
from aegis.core.canonical import canonical
from aegis.errors import PermitInvalid

TARGET: Final = "/v1/permits/verify"
_REFUSALS: Final = frozenset({403, 409})


def body_of(permit: str, *, tool: str, arguments: dict[str, Any], server: str | None) -> bytes:
    """The request that redeems `permit`; raises `InvalidCall` for arguments that are no JSON."""
    members: dict[str, Any] = {"permit": permit, "tool": tool}
    if server is not None:
        members["server"] = server
    return b'{"arguments":' + canonical(arguments) + b"," + canonical(members)[1:]


def read_answer(answer: Answer) -> str:
    """The identifier of the redeemed permit; raises `PermitInvalid` for every other answer."""
    if answer.status == 200:
        try:
            return wire.read_redeemed(answer.body)
        except wire.BadAnswer as error:
            raise unavailable() from error
    refusal = wire.read_error(answer.body, answer.status)
    if answer.status in _REFUSALS:
        raise PermitInvalid(refusal.message, code=refusal.code, hint=refusal.hint, status=answer.status)
    if 400 <= answer.status < 500 and answer.status != 429:
        raise refusal
    raise unavailable()


def unavailable() -> PermitInvalid:
    """The refusal where the gateway cannot be asked."""
    return PermitInvalid("the permit could not be redeemed, so it opens nothing", code="unavailable", status=503)
