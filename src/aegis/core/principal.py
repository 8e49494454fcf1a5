"""Who is asking: always the credential's word, never the body's."""

from __future__ import annotations

from msgspec import Struct

from aegis.core.names import Selector
from aegis.core.outcome import Role


class Principal(Struct, frozen=True, kw_only=True):
    """The holder of a credential. `tools` limits an agent to what the selectors cover; empty is no limit."""

    id: str
    roles: frozenset[Role]
    agent: str | None = None
    tools: tuple[Selector, ...] = ()

    def may_call(self, server: str | None, tool: str) -> bool:
        """Whether this credential covers the tool at all."""
        return not self.tools or any(selector.matches(server, tool) for selector in self.tools)
