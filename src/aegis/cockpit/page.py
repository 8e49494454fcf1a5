"""The pages of the cockpit: one as an endpoint, what its request holds, and what it is made of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import Response

from aegis._version import __version__
from aegis.cockpit import text
from aegis.core.outcome import Outcome, Reason, Role
from aegis.core.receipt import KINDS
from aegis.errors import InvalidCall
from aegis.server.admission import Permission
from aegis.server.endpoint import CheckedRequest, Endpoint, Handler, Param
from aegis.server.services import Services

if TYPE_CHECKING:
    from aegis.behaviour.baseline import Unusual
    from aegis.cockpit.alerting import Alerting
    from aegis.cockpit.rollup import Rollup
    from aegis.cockpit.rows import Row
    from aegis.cockpit.work import Drafts, Replays, Retention, Verifications
    from aegis.keys.accounts import SignedIn
    from aegis.server.feed import Feed


import asyncio
from urllib.parse import urlsplit

import orjson
from starlette.requests import cookie_parser

from aegis.core.ports import Clock, Document, Store
from aegis.core.times import MICROS

# What guards the sign-in: requests of other pages refused, the cookie of a session, and how often passwords are tried.
#
# Each name waits longer after every failure, in every process on the store. A try is counted before its password is
# looked at, so that tries which run side by side are counted too.

# Whether an unsafe request was sent by a page of this cockpit, told by headers that no other page can set.
#
# Browsers say in `Sec-Fetch-Site` where a request began (W3C Fetch Metadata); older ones, and connections that are
# not secure, send `Origin` alone (RFC 6454). Without either nothing is believed.


def check_origin(headers: Mapping[str, str]) -> None:
    """Guarantee that the request began on a page of this host; raises `InvalidCall` (403) otherwise."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        raise _foreign()
    if origin is not None:
        if urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise _foreign()
    elif site is None:
        raise _foreign()


def is_secure(headers: Mapping[str, str], scheme: str) -> bool:
    """Tell whether the browser speaks TLS, to the gateway or to the proxy in front of it."""
    return scheme == "https" or headers.get("origin", "").startswith("https://")


def _foreign() -> InvalidCall:
    return InvalidCall(
        "this did not come from a page of the cockpit",
        code="cross_origin",
        hint="open the page again, and send the form from there",
        status=403,
    )


COOKIE: Final = "aegis_session"
SECURE_COOKIE: Final = "__Host-aegis_session"  # browsers take it over TLS alone, for this host alone


def token_of(headers: Mapping[str, str]) -> str:
    """Return the session's token that the browser shows, or an empty text."""
    cookies: dict[str, str] = cookie_parser(headers.get("cookie", ""))
    return cookies.get(SECURE_COOKIE) or cookies.get(COOKIE, "")


COLLECTION: Final = "sign_in_tries"
FREE: Final = 5  # failures without a wait: people mistype
LONGEST_S: Final = 900
FORGOTTEN_S: Final = 24 * 3600  # a name that was not tried for so long begins anew
SLOTS: Final = 16_384  # names share these, known or not: bounds what somebody who makes names up can make us keep
_AT_ONCE: Final = 2  # each check takes 64 MiB and a core for some 50 ms


class Throttle:
    """Tries by account name, kept in the store; times are those of its clock."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.hashing = asyncio.Semaphore(_AT_ONCE)

    def attempt(self, name: str) -> None:
        """Count a try of `name`, which stands unless it succeeds; raises `InvalidCall` (429) with the time to wait."""
        key = _slot(name)
        with self._store.transaction() as transaction:
            now = self._clock()
            found = transaction.document(COLLECTION, key)
            count, last = (0, now) if found is None else orjson.loads(found.body)
            # A clock that went back makes nobody wait longer than the longest wait.
            since = max(0, now - last)
            if since >= FORGOTTEN_S * MICROS:
                count = 0
            left = _wait_s(count) - since // MICROS
            if left > 0:
                raise InvalidCall(
                    "this name was tried too often",
                    code="too_many_attempts",
                    hint=f"try again in {left} seconds",
                    status=429,
                )
            body = orjson.dumps([count + 1, now])
            version = 1 if found is None else found.version + 1
            transaction.put_document(Document(collection=COLLECTION, key=key, version=version, body=body))

    def succeeded(self, name: str) -> None:
        """Forget the tries of a name."""
        with self._store.transaction() as transaction:
            transaction.delete_document(COLLECTION, _slot(name))


def _wait_s(count: int) -> int:
    """Return how long after its last try a name with so many failures waits."""
    return 0 if count <= FREE else min(1 << min(count - FREE, 20), LONGEST_S)


def _slot(name: str) -> str:
    """Return where the tries of a name are kept; a name that nobody has looks the same as one that somebody has."""
    return str(int.from_bytes(hashlib.sha256(name.encode(errors="surrogatepass")).digest()[:8]) % SLOTS)


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRequest(CheckedRequest):
    """One request of a browser after every check; its query and form are plain text.

    `form` holds the fields of an unsafe method; a name that was given twice keeps its last value. `url` is the path as
    the browser asked for it.
    """

    cockpit: Cockpit
    url: str
    session: SignedIn | None = None
    form: Mapping[str, str] = field(default_factory=dict)
    secure: bool = False

    def may(self, *roles: Role) -> bool:
        """Tell whether the person has one of the roles."""
        return not self.principal.roles.isdisjoint(roles)


Page = Endpoint[PageRequest]

SIGNED_IN: Final = Permission(roles=(), reason="a page is for people with an account")


def page(
    method: Literal["GET", "POST"],
    path: str,
    handler: Handler[PageRequest],
    *roles: Role,
    query: tuple[Param, ...] = (),
) -> Page:
    """Return a page for people who have one of the roles, or for everybody who is signed in where none is named."""
    needed = Permission(roles=roles, reason="your account does not have the role for this page") if roles else SIGNED_IN
    return Endpoint(method=method, path=path, handler=handler, permission=needed, query=query)


def open_page(
    method: Literal["GET", "POST"], path: str, handler: Handler[PageRequest], *, query: tuple[Param, ...] = ()
) -> Page:
    """Return a page that asks for no session."""
    return Endpoint(method=method, path=path, handler=handler, permission=None, query=query)


# Filters with a closed set of values.
_CLOSED: Final[Mapping[str, tuple[str, ...]]] = {
    "kind": tuple(sorted(KINDS)),
    "decision": tuple(outcome.word for outcome in Outcome),
    "reason": tuple(reason.value for reason in Reason),
    "state": ("pending", "approved", "denied", "expired", "cancelled", "redeemed", "all"),
}


def filters(*names: str) -> tuple[Param, ...]:
    """Return what may stand in the address of a page."""
    return tuple(
        Param(name=name, schema={"enum": list(_CLOSED[name])} if name in _CLOSED else {"type": "string"})
        for name in names
    )


# Scripts and styles: served from memory under a name that changes with their content.

FOLDER: Final = Path(__file__).with_name("static")
_MEDIA: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def files() -> dict[str, bytes]:
    """Return every asset by its name."""
    return {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in _MEDIA}


@cache
def version() -> str:
    """Return a word that changes whenever an asset does."""
    digest = hashlib.sha256()
    for name, data in files().items():
        digest.update(name.encode() + b"\0" + data + b"\0")
    return digest.hexdigest()[:16]


def url(name: str) -> str:
    """Return where the asset is; raises `KeyError` for one that does not exist."""
    files()[name]
    return f"/assets/{version()}/{name}"


async def asset(request: PageRequest) -> Response:
    """Show one asset; a page of an older version gets the current one, which is not kept."""
    name = request.path["name"]
    data = files().get(name)
    if data is None:
        raise InvalidCall("there is no such file", code="not_found", status=404)
    current = request.path["version"] == version()
    return Response(
        data,
        media_type=_MEDIA[Path(name).suffix],
        headers={"cache-control": "public, max-age=31536000, immutable" if current else "no-store"},
    )


PAGES: Final = (open_page("GET", "/assets/{version}/{name}", asset),)


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
    NavSection(title="Alerts", path="/alerts", icon="alert", roles=("auditor", "approver", "admin")),
    NavSection(title="Audit", path="/audit", icon="audit", roles=("auditor",)),
)


def sections(request: PageRequest) -> list[tuple[NavSection, bool]]:
    """Return the sections that are open to the visitor, each with whether it is the current one."""
    return [
        (section, request.url == section.path or (section.path != "/" and request.url.startswith(section.path + "/")))
        for section in SECTIONS
        if request.may(*section.roles)
    ]


def first_page(roles: frozenset[Role]) -> str:
    """Return where somebody with these roles begins."""
    for section in SECTIONS:
        if not roles.isdisjoint(section.roles):
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
    """Return the templates; a name that a page does not give is an error."""
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


def html(request: PageRequest, template: str, status: int = 200, **context: Any) -> Response:
    """Show the page of a template."""
    body = (
        environment()
        .get_template(template)
        .render(request=request, sections=sections(request), pending=request.cockpit.rollup.pending, **context)
    )
    return Response(body, status_code=status, media_type="text/html")


def failure(request: PageRequest, refusal: InvalidCall) -> Response:
    """Show the page that stands for a refusal."""
    body = (
        environment()
        .get_template("failure.html")
        .render(request=request, sections=sections(request), pending=0, refusal=refusal)
    )
    return Response(body, status_code=refusal.status, media_type="text/html")
