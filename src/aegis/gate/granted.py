"""Calls that a grant answers: the same tool and arguments, again, in the session for which people agreed.

The log says all of it: the decision that holds the call, the approval by the grant, and its redemption.
"""

from __future__ import annotations

from dataclasses import dataclass

from aegis.approvals.grants import Grant, find_for
from aegis.approvals.model import Approval
from aegis.approvals.queue import redeemed_by_grant
from aegis.audit.writer import Apply
from aegis.core.decision import Decision
from aegis.core.receipt import Recorded
from aegis.gate.held import released
from aegis.gate.ids import new_id
from aegis.gate.parts import Parts
from aegis.gate.standing import Standing
from aegis.pipeline.model import Evaluation
from aegis.pipeline.run import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
    """A grant that answers for one call, and the write by which it does."""

    grant: Grant
    permit_id: str
    apply: Apply

    def released(
        self,
        parts: Parts,
        held: Decision,
        approval: Approval,
        evaluation: Evaluation,
        redemption: Recorded,
        *,
        mode: str,
    ) -> Decision:
        """The decision that may run, redeemed by `redemption`."""
        arguments = None if evaluation.canonical is None else evaluation.arguments
        return released(parts, held, approval, arguments, redemption, self.permit_id, mode=mode)


def find_grant(parts: Parts, standing: Standing, approval: Approval, policy: Policy, epoch: int) -> Granted | None:
    """The grant that answers for the call of `approval` now; `None` where a person has to."""
    if not approval.session:
        return None
    with parts.store.reader() as reader:
        grant = find_for(
            reader, principal=approval.principal, session=approval.session, call_digest=approval.call_digest
        )
    now = parts.clock()
    if grant is None or not grant.holds(policy_digest=policy.digest, identities=approval.identities, now=now):
        return None
    asked = policy.approval_for(approval.server, approval.tool, approval.held_by)
    barred = (approval.principal, *approval.barred)
    if not asked.session_grant_seconds or not standing.of(grant.approvers, asked, policy, epoch, barred=barred):
        return None
    permit_id = new_id()
    return Granted(
        grant=grant,
        permit_id=permit_id,
        apply=redeemed_by_grant(approval, grant, permit_id=permit_id, new_id=new_id),
    )
