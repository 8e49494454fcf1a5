"""Who may do what over HTTP: every permission names its roles and its reason."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from aegis.core.outcome import Role
from aegis.core.principal import Principal
from aegis.errors import InvalidCall
from aegis.gate import Gate


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
