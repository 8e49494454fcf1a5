"""People who answer held calls, through the gate's own door."""

from __future__ import annotations

from typing import Any, Literal

from aegis.approvals.answering import Answer
from aegis.approvals.queue import find
from aegis.approvals.values import Approval
from aegis.bootstrap.deployment import DeployedGate
from aegis.core.decision import Decision
from aegis.core.outcome import Role
from aegis.core.ports import Store
from aegis.core.principal import Principal
from aegis.core.times import system_clock
from aegis.keys.api import holders, issue, store_key


def person(store: Store, name: str, *roles: Role) -> Principal:
    """Somebody who holds a key of these roles (`approver` unless some are given), made where there is none."""
    with store.reader() as reader:
        known = holders(reader).get(name)
    if known is not None:
        return known
    issued = issue(roles=roles or ("approver",), now=system_clock(), name=name)
    with store.transaction() as transaction:
        store_key(transaction, issued)
    return Principal(id=name, roles=frozenset(issued.key.roles))


def resolve(
    gate: DeployedGate,
    approval_id: str,
    decision: Literal["approve", "deny"] = "approve",
    *,
    by: str = "ann",
    **more: Any,
) -> Approval:
    """The approval once `by` answered it."""
    answer = Answer(decision=decision, **more)
    return gate.answer(approval_id, answer, principal=person(gate.parts.store, by))


def approved(gate: DeployedGate, held: Decision, *, by: str = "ann", **more: Any) -> Approval:
    """The approval of a held call once `by` approved it."""
    assert held.approval is not None
    return resolve(gate, held.approval.id, by=by, **more)


def stored(store: Store, approval_id: str) -> Approval:
    """The approval as it is stored."""
    with store.reader() as reader:
        found = find(reader, approval_id)
    assert found is not None
    return found
