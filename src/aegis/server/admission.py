"""Admission: who is let in, to what, and how much of it at once.

(1) the credential names a principal (401)
(2) the principal has a role that the endpoint asks for (403)
(3) its share of the event loop, of large bodies and of waiting requests is not used up
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from aegis.core.outcome import Role
from aegis.core.principal import Principal
from aegis.errors import InvalidCall
from aegis.gate import Gate

# (1) From the `Authorization` header to a principal; nothing else in a request says who asks.

MAX_CREDENTIAL_CHARS: Final = 512  # bounds what an unknown caller can make us hash
_SCHEME: Final = b"bearer "


class Authenticator(Protocol):
    """Knows the credentials of a deployment."""

    def authenticate(self, key: str) -> Principal | None:
        """Return the holder of `key`, or `None`; raises `StoreUnavailable` where that cannot be known."""
        ...


def principal_of(authorization: bytes | None, keys: Authenticator) -> Principal:
    """Return the principal of an `Authorization: Bearer` header (RFC 6750, 2.1); raises `InvalidCall` (401)."""
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


# (2) Every permission names its roles and its reason.


@dataclass(frozen=True, kw_only=True, slots=True)
class Permission:
    """The roles of which a credential needs one; no role at all is what any credential has.

    With `running` the agent of the credential must not be stopped. Where it is not set, whatever an agent is given is
    refused to a stopped one behind the endpoint, in the transaction that records it or as a decision of its own.
    """

    roles: tuple[Role, ...]
    reason: str
    running: bool = False


DECIDE: Final = Permission(roles=("agent",), reason="calls and results are judged for the agent that makes them")
PROXY: Final = Permission(
    roles=("agent",), reason="models and servers are asked for the agent whose calls are judged", running=True
)
RUN: Final = Permission(roles=("agent",), reason="a run acts for the agent that asks for it", running=True)
OPEN_SESSION: Final = Permission(roles=("agent", "issuer"), reason="a session is opened by the host of the agent")
ISSUE: Final = Permission(roles=("issuer", "admin"), reason="missions are issued and stopped by issuers")
DELEGATE: Final = Permission(
    roles=("issuer", "admin", "agent"), reason="a mission is delegated by an issuer, or by its agent"
)
SEE_MISSIONS: Final = Permission(
    roles=("issuer", "admin", "auditor"), reason="missions are shown to those who issue or audit them"
)
CHALLENGE: Final = Permission(roles=("agent", "issuer"), reason="a challenge is answered by who opens a session")
SEE_APPROVALS: Final = Permission(
    roles=("approver", "agent"), reason="held calls are shown to approvers, and to an agent their own state"
)
RESOLVE: Final = Permission(roles=("approver",), reason="only an approver answers a held call")
SEE_GRANTS: Final = Permission(
    roles=("approver", "admin"), reason="grants are seen and revoked by approvers and administrators"
)
VERIFY_PERMIT: Final = Permission(roles=("agent", "tool"), reason="a permit is redeemed by the tool that it is for")
AUDIT: Final = Permission(roles=("auditor",), reason="the log is read by auditors")
ATTEST: Final = Permission(
    roles=("agent", "auditor"), reason="an agent is attested what is its own, and an auditor everything"
)
WATCH: Final = Permission(roles=("auditor", "approver"), reason="events are for those who audit or approve")
ADMINISTER: Final = Permission(roles=("admin",), reason="agents and configuration are changed by administrators")
ANYBODY: Final = Permission(roles=(), reason="any credential reads public keys")


async def permit_running(principal: Principal, permission: Permission, gate: Gate) -> None:
    """`permit`, and that the agent of the principal is not stopped where the permission asks for it (403)."""
    permit(principal, permission)
    if permission.running:
        await asyncio.to_thread(gate.check_runs, principal)


def permit(principal: Principal, permission: Permission, *, by: str = "a key") -> None:
    """Guarantee that `principal` has one of the roles; raises `InvalidCall` (403) that says which `by` needs."""
    if permission.roles and principal.roles.isdisjoint(permission.roles):
        wanted = " or ".join(f"`{role}`" for role in permission.roles)
        raise InvalidCall(permission.reason, code="forbidden", hint=f"use {by} with role {wanted}", status=403)


# (3) Fair shares.

PER_TURN: Final = 2  # light decisions in one turn of the loop: bounds how long whoever comes next waits for it
WAITING: Final = 512  # requests of one principal that wait for something: half of the connections are others'
AT_ONCE: Final = 4  # large bodies and batches of one principal that are in memory: bounds that memory


class Scheduler:
    """Shares one event loop between principals, round robin.

    A light decision holds the loop for less than a millisecond. `PER_TURN` of them run in one turn of the loop; where
    more wait, each principal has one before any has a second. Bodies that take long to read are taken a few at a time
    from each principal, and so are requests that wait.
    """

    def __init__(self) -> None:
        self._given = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._scheduled = False
        self._large: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()
        self._waits: Counter[str] = Counter()

    async def turn(self, principal: str) -> None:
        """Wait until it is this principal's turn; at once, as long as fewer than `PER_TURN` had one in this turn."""
        loop = asyncio.get_running_loop()
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._next)
        if self._given < PER_TURN and not self._waiting:
            self._given += 1
            return
        slot: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(principal, deque()).append(slot)
        await slot

    @asynccontextmanager
    async def large(self, principal: str) -> AsyncIterator[None]:
        """Hold one of the places that a principal has for large bodies; what has none is not read from its socket."""
        places = self._large.setdefault(principal, asyncio.Semaphore(AT_ONCE))
        self._users[principal] += 1
        try:
            async with places:
                yield
        finally:
            self._users[principal] -= 1
            if not self._users[principal]:
                del self._users[principal], self._large[principal]

    @contextmanager
    def waiting(self, principal: str) -> Iterator[None]:
        """Count a request that may be answered much later; raises `InvalidCall` (429) beyond `WAITING`."""
        if self._waits[principal] >= WAITING:
            raise InvalidCall(
                "too many requests of this key wait already",
                code="too_many_waiting",
                hint="close another one first",
                status=429,
            )
        self._waits[principal] += 1
        try:
            yield
        finally:
            self._waits[principal] -= 1
            if not self._waits[principal]:
                del self._waits[principal]

    def _next(self) -> None:
        """Wake those whose turn comes with the next turn of the loop."""
        self._given = 0
        while self._waiting and self._given < PER_TURN:
            principal, lane = self._waiting.popitem(last=False)
            slot = lane.popleft()
            if lane:
                self._waiting[principal] = lane
            if not slot.done():  # its caller went away
                self._given += 1
                slot.set_result(None)
        self._scheduled = bool(self._given)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._next)
