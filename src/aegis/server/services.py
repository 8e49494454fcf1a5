"""What the endpoints of one gateway work with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import structs

from aegis.approvals.waiting import Waiting
from aegis.bootstrap.gate import DeployedGate
from aegis.config.reload import PolicyHolder
from aegis.core.canonical import canonical
from aegis.core.ports import Clock, Store
from aegis.core.principal import Principal
from aegis.errors import InvalidCall
from aegis.gate.gate import Decide
from aegis.gate.workers import Workers
from aegis.log.checkpoint import NoteSigner
from aegis.outbound.worker import Deliveries
from aegis.policy.model import Evaluation, Incoming
from aegis.policy.policy import Policy
from aegis.server.metrics import Metrics
from aegis.server.turns import Turns

if TYPE_CHECKING:
    from aegis.runs.desk import RunDesk
    from aegis.server.feed import Feed, Sent
    from aegis.server.health import Readiness


# From the `Authorization` header to a principal; nothing else in a request says who asks.

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


@dataclass(frozen=True, kw_only=True)
class Services:
    """One gateway's parts.

    `log` is the log's name, and `log_signer` gives the key that signs its checkpoints now. `draining` is
    set once no new work is taken; whoever waits looks at it.
    """

    gate: DeployedGate
    keys: Authenticator
    decide: Decide
    feed: Feed[Sent]
    metrics: Metrics
    readiness: Readiness
    waiting: Waiting
    deliveries: Deliveries
    log: str
    log_signer: Callable[[], NoteSigner]
    desk: RunDesk
    workers: Workers = field(default_factory=Workers)
    turns: Turns = field(default_factory=Turns)
    draining: asyncio.Event = field(default_factory=asyncio.Event)

    def evaluate(self, policy: Policy, incoming: Incoming) -> Evaluation:
        """What `policy` makes of a call that nobody made, waited for in a thread; raises `WorkerLost`."""
        data = canonical(incoming.arguments)
        if not self.workers.takes(incoming.principal.id, len(data)):
            return policy.evaluate(incoming)
        return self.workers.evaluate(policy, structs.replace(incoming, arguments={}), data).result()

    async def principal(self, authorization: bytes | None) -> Principal:
        """`principal_of`, without holding up the loop where the store is elsewhere."""
        return await self.gate.alook(partial(principal_of, authorization, self.keys))

    @property
    def store(self) -> Store:
        return self.gate.parts.store

    @property
    def clock(self) -> Clock:
        return self.gate.parts.clock

    @property
    def policy(self) -> PolicyHolder:
        return self.gate.parts.policy
