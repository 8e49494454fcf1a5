"""What the configuration says about one tool, looked up once for each name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from aegis.core.approval import ApprovalPolicy
from aegis.core.names import Selector, SelectorMap, glob_match, normalise_name
from aegis.core.text import TextRole
from aegis.policy.guards.base import ToolEntry

_REMEMBERED: Final = 4_096  # names looked up once: bounds memory against made-up names


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """One entry of the registry with everything that belongs to it."""

    selector: str
    entry: ToolEntry
    schema: Mapping[str, Any] | None = None
    roles: Mapping[str, TextRole]
    approval: ApprovalPolicy


class Route(NamedTuple):
    """The answer for one (server, tool)."""

    entry: ToolEntry | None
    schema: Mapping[str, Any] | None
    roles: Mapping[str, TextRole]
    approval: ApprovalPolicy


class Routes:
    """Finds the route of a tool. Restrictions match every server; what loosens, only the exact one."""

    def __init__(self, tools: Mapping[str, Tool], approval: ApprovalPolicy):
        self._all = SelectorMap(tools)
        self._tools = [(Selector(name).server, name, tool) for name, tool in tools.items()]
        self._nothing = Route(None, None, {}, approval)
        self._found: dict[tuple[str | None, str], Route] = {}

    def find(self, server: str | None, tool: str) -> Route:
        """Return the route of a tool, known or not."""
        route = self._found.get((server, tool))
        if route is None:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            route = self._found[(server, tool)] = self._look(server, tool)
        return route

    def _look(self, server: str | None, tool: str) -> Route:
        # (1) The most specific entry restricts, whatever server it was written for.
        known = self._all.find(server, tool)
        if known is None:
            return self._nothing
        # (2) The most specific entry that was written for this very server registers and loosens.
        own = self._of_server(server).find(server, tool)
        if own is None:
            entry = replace(known.entry, registered=False, skip_judge=False)
            return Route(entry, known.schema, {}, known.approval.elsewhere())
        if own is known:
            return Route(known.entry, known.schema, known.roles, known.approval)
        # (3) Where the two differ, the stricter of each counts.
        effects = known.entry.effects
        if own.entry.effects is not None:
            effects = own.entry.effects | (effects or frozenset())
        entry = replace(
            own.entry,
            risk=max(own.entry.risk, known.entry.risk),
            irreversible=own.entry.irreversible or known.entry.irreversible,
            always_ask=own.entry.always_ask or known.entry.always_ask,
            permit=own.entry.permit or known.entry.permit,
            skip_judge=own.entry.skip_judge and known.entry.skip_judge,
            unsafe_skip_judge=own.entry.unsafe_skip_judge and known.entry.unsafe_skip_judge,
            effects=effects,
            category=known.entry.category or own.entry.category,
        )
        narrow = (*own.approval.narrow, *known.approval.elsewhere().narrow)  # of two words, the last counts
        return Route(entry, known.schema or own.schema, own.roles, replace(known.approval, narrow=narrow))

    def _of_server(self, server: str | None) -> SelectorMap[Tool]:
        return SelectorMap({name: known for own, name, known in self._tools if _is_exact(own, server)})


def _is_exact(selector: str | None, server: str | None) -> bool:
    """Tell whether a selector's server part was written for this server: `*` counts, being written out."""
    if selector is None or server is None:
        return selector is None and server is None
    return glob_match(selector, normalise_name(server))
