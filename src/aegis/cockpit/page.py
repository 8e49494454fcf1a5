"""One page as a value, and one visit to it after every check."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import urlencode

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import Response

from aegis._version import __version__
from aegis.cockpit import text
from aegis.core.outcome import Role
from aegis.core.principal import Principal
from aegis.errors import InvalidCall
from aegis.server.endpoint import Asked, Endpoint
from aegis.server.http import MAX_BODY_BYTES
from aegis.server.permissions import permit
from aegis.server.services import Services
from aegis.server.validation import BodyCheck, QueryCheck

if TYPE_CHECKING:
    from aegis.behaviour.baseline import Unusual
    from aegis.cockpit.alerting import Alerting
    from aegis.cockpit.drafting import Drafts
    from aegis.cockpit.guarding import Throttle
    from aegis.cockpit.rollup import Rollup
    from aegis.cockpit.rows import Row
    from aegis.cockpit.verifying import Verifications
    from aegis.cockpit.work import Replays, Retention
    from aegis.keys.tokens import SignedIn
    from aegis.server.feed import Feed


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


class PageHandler(Protocol):
    """Answers one visit; every failure is an exception."""

    def __call__(self, visit: Visit) -> Awaitable[Response]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One method on one path. `roles` are those of which a person needs one; `open` asks for no session; `query` names
    what may stand in the address."""

    method: Literal["GET", "POST"]
    path: str
    handler: PageHandler
    roles: tuple[Role, ...] = ()
    open: bool = False
    query: tuple[str, ...] = ()


# Asking an endpoint of the API for a person: the same rights, checks and handler as over HTTP.


async def ask(
    visit: Visit,
    operation: str,
    *,
    path: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
    body: Any = None,
    text: bytes = b"",
) -> Any:
    """What the endpoint answers, parsed; raises `InvalidCall` as it would refuse over HTTP."""
    endpoint, query_check, body_check = _checked(operation)
    if endpoint.permission is not None:
        permit(visit.principal, endpoint.permission)
    values = query_check(urlencode(query or {}).encode())
    if body is not None and body_check is not None:
        body_check(body)
    if len(text) > MAX_BODY_BYTES or endpoint.handler is None:
        raise ValueError("this cannot be asked from a page")
    response = await endpoint.handler(
        Asked(
            services=visit.services,
            principal=visit.principal,
            request_id=visit.request_id,
            path=path or {},
            query=values,
            headers={},
            body=body,
            text=text,
        )
    )
    if response.media_type == "application/json":
        return orjson.loads(bytes(response.body))
    return bytes(response.body)


def may_ask(visit: Visit, operation: str) -> bool:
    """Whether the person has the right to ask."""
    permission = _checked(operation)[0].permission
    return permission is None or not permission.roles or visit.may(*permission.roles)


@cache
def _checked(operation: str) -> tuple[Endpoint, QueryCheck, BodyCheck | None]:
    from aegis.server.table import ENDPOINTS  # the table imports handlers, which pages may import too

    endpoint = next(one for one in ENDPOINTS if one.operation == operation)
    body = endpoint.body
    check = BodyCheck(body.schema) if body is not None and body.media == "application/json" else None
    return endpoint, QueryCheck(endpoint.query), check


# Scripts and styles: served from memory under a name that changes with their content.

FOLDER: Final = Path(__file__).with_name("static")
_MEDIA: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def files() -> dict[str, bytes]:
    """Every asset by its name."""
    return {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in _MEDIA}


@cache
def version() -> str:
    """A word that changes whenever an asset does."""
    digest = hashlib.sha256()
    for name, data in files().items():
        digest.update(name.encode() + b"\0" + data + b"\0")
    return digest.hexdigest()[:16]


def url(name: str) -> str:
    """Where the asset is; raises `KeyError` for one that does not exist."""
    files()[name]
    return f"/assets/{version()}/{name}"


async def asset(visit: Visit) -> Response:
    """One asset; a page of an older version gets the current one, which is not kept."""
    name = visit.names["name"]
    data = files().get(name)
    if data is None:
        raise InvalidCall("there is no such file", code="not_found", status=404)
    current = visit.names["version"] == version()
    return Response(
        data,
        media_type=_MEDIA[Path(name).suffix],
        headers={"cache-control": "public, max-age=31536000, immutable" if current else "no-store"},
    )


# Where a person can go: the sections of the cockpit that their roles open.


@dataclass(frozen=True, kw_only=True, slots=True)
class NavSection:
    """One entry of the navigation; `icon` names a symbol of the icon file."""

    title: str
    path: str
    icon: str
    roles: tuple[Role, ...]


SECTIONS: Final = (
    NavSection(title="Now", path="/", icon="now", roles=("auditor", "approver")),
    NavSection(title="Approvals", path="/approvals", icon="hold", roles=("approver",)),
    NavSection(title="Sessions", path="/sessions", icon="session", roles=("auditor",)),
    NavSection(title="Violations", path="/violations", icon="violation", roles=("auditor",)),
    NavSection(title="Policies", path="/policies", icon="policy", roles=("admin",)),
    NavSection(title="Agents", path="/agents", icon="agent", roles=("admin",)),
    NavSection(title="Alerts", path="/alerts", icon="alert", roles=("admin",)),
    NavSection(title="Audit", path="/audit", icon="audit", roles=("auditor",)),
)


def sections(visit: Visit) -> list[tuple[NavSection, bool]]:
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


# What the pages of one gateway share.


@dataclass(frozen=True, kw_only=True)
class Cockpit:
    """One cockpit's parts; what it counted of the log is `rollup`, and `feed` follows the log live.

    `demo` says that everything shown was made by the demonstration.
    """

    services: Services
    feed: Feed[Row]
    rollup: Rollup
    verifications: Verifications
    alerting: Alerting
    throttle: Throttle
    replays: Replays
    drafts: Drafts
    unusual: Unusual
    retention: Retention
    demo: bool = False

    async def close(self) -> None:
        """End what runs beside requests."""
        await self.feed.close()
        await self.verifications.close()
        await self.replays.job.close()
        await self.drafts.job.close()
        await self.unusual.job.close()
        await self.retention.job.close()


# Pages as HTML: escaped everywhere, with headers that allow nothing but this gateway's own files.

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types aegis"
    ),
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


@cache
def environment() -> Environment:
    """The templates; a name that a page does not give is an error."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["visible"] = text.visible
    found.filters["count"] = text.count
    found.filters["ticked"] = text.ticked
    found.filters["hint"] = text.hint
    found.filters["short"] = text.short
    found.filters["micros"] = text.micros
    found.globals["asset"] = url
    found.globals["words"] = text
    found.globals["version"] = __version__
    return found


def html(visit: Visit, template: str, status: int = 200, **context: Any) -> Response:
    """The page of a template."""
    body = (
        environment()
        .get_template(template)
        .render(visit=visit, sections=sections(visit), pending=visit.cockpit.rollup.pending, **context)
    )
    return Response(body, status_code=status, media_type="text/html")


def failure(visit: Visit, refusal: InvalidCall) -> Response:
    """The page that stands for a refusal."""
    body = (
        environment()
        .get_template("failure.html")
        .render(visit=visit, sections=sections(visit), pending=0, refusal=refusal)
    )
    return Response(body, status_code=refusal.status, media_type="text/html")
