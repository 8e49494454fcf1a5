"""Every page of the cockpit: routing and checks read this one table."""

from __future__ import annotations

from typing import Final

from aegis.approvals import pages as approvals_pages
from aegis.cockpit import agents, alerts, audit, calls, live, now, page, policies, replaying, signin, traces, violations
from aegis.cockpit.page import Page
from aegis.core.outcome import Role
from aegis.missions import pages as missions_pages

_WATCH: Final[tuple[Role, ...]] = ("auditor", "approver")
_AUDIT: Final[tuple[Role, ...]] = ("auditor",)
_APPROVE: Final[tuple[Role, ...]] = ("approver",)
_ADMIN: Final[tuple[Role, ...]] = ("admin",)

PAGES: Final = (
    Page(method="GET", path="/assets/{version}/{name}", handler=page.asset, open=True),
    Page(method="GET", path="/sign-in", handler=signin.sign_in_page, open=True, query=("next",)),
    Page(method="POST", path="/sign-in", handler=signin.sign_in, open=True),
    Page(method="POST", path="/sign-out", handler=signin.sign_out),
    Page(method="GET", path="/welcome", handler=signin.welcome_page, open=True, query=("token",)),
    Page(method="POST", path="/welcome", handler=signin.welcome, open=True),
    Page(method="GET", path="/account", handler=signin.account_page),
    Page(method="GET", path="/", handler=now.now, roles=_WATCH, query=live.FILTERS),
    Page(method="GET", path="/live", handler=live.live, roles=_WATCH, query=live.FILTERS),
    Page(method="GET", path="/approvals", handler=approvals_pages.queue, roles=_APPROVE, query=approvals_pages.FILTERS),
    Page(method="GET", path="/approvals/{id}", handler=approvals_pages.review, roles=_APPROVE),
    Page(method="POST", path="/approvals/{id}", handler=approvals_pages.resolve, roles=_APPROVE),
    Page(method="POST", path="/approvals/{id}/reveal", handler=approvals_pages.reveal, roles=_APPROVE),
    Page(method="GET", path="/log-key", handler=calls.log_key, roles=_AUDIT),
    Page(method="GET", path="/calls/{id}", handler=calls.call, roles=_AUDIT),
    Page(method="POST", path="/calls/{id}/reveal", handler=calls.reveal, roles=_AUDIT),
    Page(method="GET", path="/calls/{id}/leaf", handler=calls.leaf, roles=_AUDIT),
    Page(method="GET", path="/calls/{id}/proof", handler=calls.proof, roles=_AUDIT, query=("first",)),
    Page(method="POST", path="/calls/{id}/erase", handler=audit.erase, roles=_ADMIN),
    Page(method="GET", path="/sessions", handler=traces.sessions, roles=_AUDIT, query=("cursor",)),
    Page(method="GET", path="/sessions/{id:path}", handler=traces.trace, roles=_AUDIT, query=(*traces.WHOSE, "cursor")),
    Page(
        method="GET",
        path="/session-export/{id:path}",
        handler=traces.export,
        roles=_AUDIT,
        query=(*traces.WHOSE, "cursor"),
    ),
    Page(
        method="GET", path="/violations", handler=violations.violations, roles=_AUDIT, query=("rule", "agent", "tool")
    ),
    Page(method="POST", path="/violations/false-alarm", handler=violations.false_alarm, roles=_ADMIN),
    Page(method="GET", path="/policies", handler=policies.policies, roles=_ADMIN, query=("from", "done")),
    Page(method="POST", path="/policies/check", handler=policies.check, roles=_ADMIN),
    Page(method="POST", path="/policies/apply", handler=policies.apply, roles=_ADMIN),
    Page(method="GET", path="/policies/replay", handler=replaying.replay_page, roles=_ADMIN),
    Page(method="POST", path="/policies/replay", handler=replaying.start, roles=_ADMIN),
    Page(method="POST", path="/policies/replay/cancel", handler=replaying.cancel, roles=_ADMIN),
    Page(method="GET", path="/policies/draft", handler=policies.draft_page, roles=_ADMIN),
    Page(method="POST", path="/policies/draft", handler=policies.start, roles=_ADMIN),
    Page(method="POST", path="/policies/draft/cancel", handler=policies.cancel, roles=_ADMIN),
    Page(method="GET", path="/policies/playground", handler=policies.playground, roles=_ADMIN),
    Page(method="POST", path="/policies/playground", handler=policies.decide, roles=_ADMIN),
    Page(method="GET", path="/agents", handler=agents.agents, roles=_ADMIN, query=("cursor",)),
    Page(method="POST", path="/agents/{id:path}/switch", handler=agents.switch, roles=_ADMIN),
    Page(method="GET", path="/agents/{id:path}", handler=agents.agent, roles=_ADMIN),
    Page(method="POST", path="/missions/{id:path}", handler=missions_pages.move, roles=("issuer", "admin")),
    Page(method="GET", path="/alerts", handler=alerts.alerts, roles=_ADMIN),
    Page(method="POST", path="/alerts", handler=alerts.add, roles=_ADMIN),
    Page(method="POST", path="/alerts/deliveries/{id}", handler=alerts.retry, roles=_ADMIN),
    Page(method="POST", path="/alerts/{id}/test", handler=alerts.test, roles=_ADMIN),
    Page(method="POST", path="/alerts/{id}/remove", handler=alerts.remove, roles=_ADMIN),
    Page(method="GET", path="/audit", handler=audit.audit, roles=_AUDIT, query=(*audit.FILTERS, "cursor")),
    Page(method="POST", path="/audit/verify", handler=audit.verify, roles=_AUDIT),
    Page(method="POST", path="/audit/retention", handler=audit.start, roles=_ADMIN),
    Page(method="POST", path="/audit/retention/cancel", handler=audit.cancel, roles=_ADMIN),
    Page(method="GET", path="/audit/receipts.jsonl", handler=audit.export_lines, roles=_AUDIT),
    Page(
        method="GET",
        path="/audit/receipts.csv",
        handler=audit.export_table,
        roles=_AUDIT,
        query=(*audit.FILTERS, "cursor"),
    ),
    Page(method="GET", path="/audit/keys.json", handler=audit.export_keys, roles=_AUDIT),
    Page(method="GET", path="/audit/checkpoint", handler=audit.export_checkpoint, roles=_AUDIT),
    Page(method="GET", path="/audit/report.pdf", handler=audit.report, roles=_AUDIT, query=("since", "until")),
)
