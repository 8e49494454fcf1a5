"""Whether those who agreed may still agree: looked up again when a call is released, under its control epoch."""

from __future__ import annotations

from collections.abc import Iterable

from aegis.approvals.model import Approval
from aegis.core.approval import ApprovalPolicy
from aegis.core.ports import Store
from aegis.core.principal import Principal
from aegis.facts.fold import name_skeleton
from aegis.keys.holders import Holders
from aegis.pipeline.run import Policy


class Standing:
    """The standing of approvers, over one store."""

    def __init__(self, store: Store):
        self._store = store
        self._holders = Holders()

    def of_all(self, approval: Approval, policy: Policy, epoch: int) -> bool:
        """Whether everybody who said yes to `approval` still may, under the policy in force."""
        asked = policy.approval_for(approval.server, approval.tool, approval.held_by)
        return self.of(approval.voters, asked, policy, epoch, barred=(approval.principal, *approval.barred))

    def of(
        self, people: Iterable[str], asked: ApprovalPolicy, policy: Policy, epoch: int, *, barred: tuple[str, ...]
    ) -> bool:
        """Whether all `people` are approvers of `asked`, enough of them, and none of them barred."""
        groups = policy.approval_rules.groups

        def may(principal: Principal) -> bool:
            return "approver" in principal.roles and asked.names(principal, groups, asked.turns)

        found = set(people)
        one_each = {name_skeleton(person) for person in found}
        if len(one_each) < asked.quorum or one_each & {name_skeleton(name) for name in barred}:
            return False
        with self._store.reader() as reader:
            return all(self._holders.satisfies(reader, person, epoch, may) for person in found)
