"""Where a person can go: the sections of the cockpit that their roles open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aegis.core.outcome import Role
from aegis.server.cockpit.page import Visit


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One entry of the navigation; `icon` names a symbol of the icon file."""

    title: str
    path: str
    icon: str
    roles: tuple[Role, ...]


SECTIONS: Final = (
    Section(title="Now", path="/", icon="now", roles=("auditor", "approver")),
    Section(title="Approvals", path="/approvals", icon="hold", roles=("approver",)),
    Section(title="Sessions", path="/sessions", icon="session", roles=("auditor",)),
    Section(title="Violations", path="/violations", icon="violation", roles=("auditor",)),
    Section(title="Policies", path="/policies", icon="policy", roles=("admin",)),
    Section(title="Agents", path="/agents", icon="agent", roles=("admin",)),
    Section(title="Alerts", path="/alerts", icon="alert", roles=("admin",)),
    Section(title="Audit", path="/audit", icon="audit", roles=("auditor",)),
)


def sections(visit: Visit) -> list[tuple[Section, bool]]:
    """The sections that are open to the visitor, each with whether it is the current one."""
    return [
        (section, visit.path == section.path or (section.path != "/" and visit.path.startswith(section.path + "/")))
        for section in SECTIONS
        if visit.may(*section.roles)
    ]


def first_page(visit_roles: frozenset[Role]) -> str:
    """Where somebody with these roles begins."""
    for section in SECTIONS:
        if not visit_roles.isdisjoint(section.roles):
            return section.path
    return "/account"
