"""From the `Authorization` header to a principal; nothing else in a request says who asks."""

from __future__ import annotations

from typing import Final, Protocol

from aegis.core.principal import Principal
from aegis.errors import InvalidCall

MAX_CREDENTIAL_CHARS: Final = 512  # bounds what an unknown caller can make us hash
_SCHEME: Final = b"bearer "


class Authenticator(Protocol):
    """Knows the credentials of a deployment."""

    def authenticate(self, key: str) -> Principal | None:
        """The holder of `key`, or `None`; raises `StoreUnavailable` where that cannot be known."""
        ...


def principal_of(authorization: bytes | None, keys: Authenticator) -> Principal:
    """The principal of an `Authorization: Bearer` header (RFC 6750, 2.1); raises `InvalidCall` (401) without one."""
    if authorization is None:
        raise InvalidCall(
            "this needs a credential", code="unauthenticated", hint="send `Authorization: Bearer <key>`", status=401
        )
    if len(authorization) > MAX_CREDENTIAL_CHARS or authorization[:7].lower() != _SCHEME:
        raise _unknown()
    key = authorization[7:].strip()
    if not key.isascii():
        raise _unknown()
    principal = keys.authenticate(key.decode("ascii"))
    if principal is None:
        raise _unknown()
    return principal


def _unknown() -> InvalidCall:
    return InvalidCall(
        "this credential is not known",
        code="unauthenticated",
        hint="make one with `aegis keys create`; a revoked key stays refused",
        status=401,
    )
