"""Every page of the cockpit: routing and checks read this one table."""

from __future__ import annotations

from typing import Final

from aegis.approvals import pages as approvals_pages
from aegis.behaviour import pages as behaviour_pages
from aegis.cockpit import agents, alerts, audit, calls, live, now, page, policies, replaying, signin, traces, violations
from aegis.cockpit.page import Page
from aegis.missions import pages as missions_pages

PAGES: Final[tuple[Page, ...]] = (
    *page.PAGES,
    *signin.PAGES,
    *now.PAGES,
    *live.PAGES,
    *approvals_pages.PAGES,
    *calls.PAGES,
    *traces.PAGES,
    *violations.PAGES,
    *policies.PAGES,
    *replaying.PAGES,
    *agents.PAGES,
    *missions_pages.PAGES,
    *behaviour_pages.PAGES,
    *alerts.PAGES,
    *audit.PAGES,
)
