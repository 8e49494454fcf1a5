"""An approval as it is shown, and as people are told of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import structs

from aegis.approvals.grants import Grant
from aegis.approvals.values import Approval
from aegis.core.approval import Notifier
from aegis.core.decision import finding_to_wire
from aegis.core.ports import Transaction
from aegis.core.receipt import Draft
from aegis.core.text import mask_value
from aegis.core.times import rfc3339
from aegis.gate.events import new_id
from aegis.gate.record import findings_of
from aegis.log.writer import Apply, Unit
from aegis.outbound import worker
from aegis.outbound.send import DeliveryTarget, Message
from aegis.policy.policy import Policy

# An approval as it is shown: everything to approvers, and to an agent the state of its own.


def status_view(approval: Approval, *, now: int) -> dict[str, Any]:
    """Return what an agent sees of its own approval."""
    view: dict[str, Any] = {
        "id": approval.id,
        "state": approval.state_at(now),
        "call_id": approval.call_id,
        "call_digest": approval.call_digest,
        "expires_at": approval.expires,
    }
    if approval.waiting_for:
        view |= {"kind": approval.kind, "waiting_for": list(approval.waiting_for)}
    return view


def approval_view(approval: Approval, *, now: int) -> dict[str, Any]:
    """Return what an approver sees, but for what the call holds and what the policy in force says."""
    return {
        **status_view(approval, now=now),
        "tool": approval.tool,
        "server": approval.server,
        "agent": approval.agent,
        "principal": approval.principal,
        "session": approval.session or None,
        "decision_id": approval.decision_id,
        "policy_digest": approval.policy_digest,
        "created_at": rfc3339(approval.created_at),
        "held_because": approval.reason_held,
        "facts": {
            "risk": approval.risk,
            "effects": list(approval.effects),
            "irreversible": approval.irreversible,
            "files_bound": approval.identities is not None and not approval.loose,
            "working_directory": approval.base or None,
        },
        "quorum": approval.quorum,
        "votes": [{"by": vote.by, "at": rfc3339(vote.at), "scope": vote.scope} for vote in approval.votes],
        "turn": approval.turn_at(now),
        "fatigued": list(approval.fatigued),
        "narrowed": approval.narrowed_by is not None,
        "grant": approval.grant,
        "kind": approval.kind,
        "replaced_by": approval.replaced_by or None,
        "grants": [one.to_wire() for one in approval.grants],
        "resolved_by": approval.resolved_by,
        "resolved_at": None if approval.resolved_at is None else rfc3339(approval.resolved_at),
        "reason": approval.reason,
        "permit": None,
    }


def with_payload(view: dict[str, Any], *, held: dict[str, Any] | None, runs: dict[str, Any] | None) -> dict[str, Any]:
    """Return the view with the arguments that would run, in full, and the findings; erased ones are absent."""
    if held is None:
        return {**view, "arguments": None, "submitted": None, "task": None, "findings": []}
    return {
        **view,
        "arguments": runs,
        "submitted": held["arguments"],
        "task": held.get("claimed", {}).get("task"),
        "findings": [finding_to_wire(finding) for finding in findings_of(held)],
    }


def grant_view(grant: Grant, *, now: int) -> dict[str, Any]:
    """Return a grant as approvers and administrators see it."""
    over = grant.state == "active" and now >= grant.expires_at
    return {
        "id": grant.id,
        "state": "expired" if over else grant.state,
        "approval_id": grant.approval_id,
        "principal": grant.principal,
        "agent": grant.agent,
        "session": grant.session,
        "tool": grant.tool,
        "server": grant.server,
        "call_digest": grant.call_digest,
        "policy_digest": grant.policy_digest,
        "approvers": list(grant.approvers),
        "created_at": rfc3339(grant.created_at),
        "expires_at": rfc3339(grant.expires_at),
        "revoked_by": grant.revoked_by,
        "grants": [one.to_wire() for one in grant.flow],
    }


# Telling people of held calls: messages in the outbox, written together with what they tell.
#
# A message says who asks for which tool, how risky it is and until when; never a value of the arguments, unless the
# operator wants them masked, or shown to those who may answer in Slack. Its link
# leads to a page where people sign in; it opens nothing by itself.

_TOLD: Final = frozenset({"passed_on", "approved", "denied", "expired", "cancelled"})
_WORDS: Final = {
    "pending": "waits for an answer",
    "passed_on": "was passed on to the next approver",
    "approved": "was approved",
    "denied": "was denied",
    "expired": "expired without an answer",
    "cancelled": "was cancelled",
}

Compose = Callable[[str], Sequence[Message]]


def composer(
    policy: Policy, approval: Approval, notify: Sequence[Notifier], arguments: dict[str, Any] | None, now: int
) -> Compose:
    """What composes the messages of an event of `approval`, one for each of `notify`."""

    def compose(event: str) -> list[Message]:
        return [_message(policy, approval, one, event, arguments, now) for one in notify]

    return compose


def told(apply: Apply | None, compose: Compose, *, opens: bool = False) -> Apply:
    """`apply`, and the messages of what it did in the same transaction."""

    def both(transaction: Transaction) -> Sequence[Draft]:
        drafts = () if apply is None else apply(transaction)
        events = ["pending"] if opens else []
        events += [
            draft.members["action"]
            for draft in drafts
            if draft.members["kind"] == "approval" and draft.members["action"] in _TOLD
        ]
        for event in events:
            for message in compose(event):
                worker.put(transaction, message)
        return drafts

    return both


def _message(
    policy: Policy, approval: Approval, notifier: Notifier, event: str, arguments: dict[str, Any] | None, now: int
) -> Message:
    link = policy.approval_rules.link
    data: dict[str, Any] = {
        "id": approval.id,
        "event": event,
        "tool": approval.tool,
        "server": approval.server,
        "agent": approval.agent,
        "session": approval.session or None,
        "risk": approval.risk,
        "effects": list(approval.effects),
        "held_because": approval.reason_held,
        "quorum": approval.quorum,
        "created_at": rfc3339(approval.created_at),
        "expires_at": approval.expires,
    }
    if notifier.arguments and arguments is not None:
        data["arguments"] = mask_value(arguments)
    if notifier.people and event in ("pending", "passed_on"):
        data["bound"] = [approval.call_digest, approval.policy_digest]
        if notifier.values and arguments is not None:
            data["values"] = arguments
    tool = approval.tool if approval.server is None else f"{approval.server}/{approval.tool}"
    text = f"The call of `{tool}` by the agent `{approval.agent}` {_WORDS[event]} (risk: {approval.risk})"
    if event in ("pending", "passed_on"):
        text += f"; it expires at {approval.expires}"
    return Message(
        id=new_id(),
        target=DeliveryTarget(kind=notifier.kind, url=notifier.url, secret=notifier.secret, private=notifier.private),
        event=f"approval.{event}",
        text=text,
        link=f"{link}/approvals/{approval.id}" if link else "",
        data=data,
        created_at=now,
        due_at=now,
    )


def announced(policy: Policy, approval: Approval, unit: Unit, now: int) -> Unit:
    """`unit`, and the messages of what it does to `approval`, where the policy in force has anybody told."""
    notify = policy.approval_for(approval.server, approval.tool, approval.held_by).notify
    if not notify or approval.waiting_for:
        return unit
    return structs.replace(unit, apply=told(unit.apply, composer(policy, approval, notify, None, now)))
