"""A permit by itself: whose it is, which call it covers, and when."""

from __future__ import annotations

import pytest

from aegis.core.canonical import call_digest, canonical
from aegis.core.times import MICROS
from aegis.errors import PermitInvalid
from aegis.keys.permits import LIFETIME_S, MAX_SKEW_S, Permit, check_permit

NOW = 1_800_000_000
ARGUMENTS = canonical({"path": "/ws/a"})


def permit(*, iat: int, exp: int) -> Permit:
    return Permit(
        sub="bot", aud="read_file", tool="read_file", server=None, session="", call_id="c-1",
        call_digest=call_digest(server=None, tool="read_file", arguments=ARGUMENTS), decision_id="d-1", receipt=1,
        mode="enforce", online=False, jti="p-1", iat=NOW + iat, exp=NOW + exp,
    )  # fmt: skip


def check(one: Permit) -> None:
    check_permit(one, tool="read_file", server=None, arguments=ARGUMENTS, now=NOW * MICROS)


@pytest.mark.claim("MIS-18")
@pytest.mark.parametrize(
    ("iat", "exp", "holds"),
    [
        (0, LIFETIME_S, True),
        (1 - LIFETIME_S, 1, True),
        (MAX_SKEW_S, MAX_SKEW_S + 1, True),
        (MAX_SKEW_S + 1, MAX_SKEW_S + 2, False),
        (-LIFETIME_S, 0, False),
        (0, LIFETIME_S + 1, False),
        (-3_600, 1, False),
    ],
)
def test_a_permit_covers_a_call_in_its_time_alone(iat: int, exp: int, holds: bool) -> None:
    if holds:
        check(permit(iat=iat, exp=exp))
        return
    with pytest.raises(PermitInvalid) as refused:
        check(permit(iat=iat, exp=exp))
    assert (refused.value.code, refused.value.status) == ("permit_expired", 409)
