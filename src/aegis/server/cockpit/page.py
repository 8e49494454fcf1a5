"""One page as a value, and one visit to it after every check."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from starlette.responses import Response

from aegis.core.outcome import Role
from aegis.core.principal import Principal
from aegis.server.services import Services

if TYPE_CHECKING:
    from aegis.keys.tokens import SignedIn
    from aegis.server.cockpit.parts import Cockpit

NOBODY = Principal(id="", roles=frozenset())


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """One request of a browser: who asks (nobody on open pages), and what, as plain text.

    `form` holds the fields of an unsafe method; a name that was given twice keeps its last value.
    """

    cockpit: Cockpit
    path: str
    names: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    request_id: str
    principal: Principal = NOBODY
    session: SignedIn | None = None
    form: Mapping[str, str] = field(default_factory=dict)
    secure: bool = False

    @property
    def services(self) -> Services:
        """The parts of the gateway."""
        return self.cockpit.services

    def may(self, *roles: Role) -> bool:
        """Whether the person has one of the roles."""
        return not self.principal.roles.isdisjoint(roles)


class Handler(Protocol):
    """Answers one visit; every failure is an exception."""

    def __call__(self, visit: Visit) -> Awaitable[Response]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One method on one path. `roles` are those of which a person needs one; `open` asks for no session; `query` names
    what may stand in the address."""

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    roles: tuple[Role, ...] = ()
    open: bool = False
    query: tuple[str, ...] = ()
