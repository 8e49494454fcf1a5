"""From the table of pages to routes: one route a path, and the same checks before every page.

(1) the path has this method
(2) an unsafe method was sent by a page of this cockpit
(3) somebody is signed in, and has a role that the page asks for
(4) the query and the form are bounded text, and the query holds nothing that the page does not know
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from aegis.behaviour.baseline import Unusual
from aegis.bootstrap import Deployment
from aegis.bootstrap.state import is_demonstration
from aegis.cockpit.alerting import Alerting
from aegis.cockpit.drafting import Drafts
from aegis.cockpit.guarding import Throttle, check_origin, is_secure, token_of
from aegis.cockpit.page import HEADERS, NOBODY, Cockpit, Page, Visit, failure, html
from aegis.cockpit.rollup import Rollup
from aegis.cockpit.rows import shape
from aegis.cockpit.verifying import Verifications
from aegis.cockpit.work import Replays, Retention
from aegis.core.outcome import Outcome, Reason
from aegis.core.receipt import KINDS
from aegis.core.times import MICROS
from aegis.errors import AegisError, InvalidCall
from aegis.keys.tokens import TOUCH_S, SignedIn, find_session, touch_session
from aegis.log.trust import public_keys
from aegis.server.feed import Feed
from aegis.server.http import Disconnected, read_body, refusal_of
from aegis.server.permissions import Permission, permit
from aegis.server.services import Services

# One gateway's cockpit, put together.


def build_cockpit(deployment: Deployment, services: Services) -> Cockpit:
    """The cockpit of `deployment`."""
    rollup = Rollup(services)
    return Cockpit(
        services=services,
        feed=Feed(services.store, shape),
        rollup=rollup,
        alerting=Alerting(services, rollup),
        throttle=Throttle(services.store, services.clock),
        replays=Replays(),
        drafts=Drafts(),
        unusual=Unusual(),
        retention=Retention(),
        demo=is_demonstration(services.store),
        verifications=Verifications(
            home=deployment.home,
            config=deployment.config_path,
            log=deployment.log,
            keys=_log_keys(deployment),
        ),
    )


def _log_keys(deployment: Deployment) -> list[dict[str, Any]]:
    """The keys of the log as they stand when the gateway starts, replaced ones included."""
    with deployment.store.reader() as reader:
        return [key for key in public_keys(reader)["keys"] if key["purpose"] == "log"]


MAX_QUERY_BYTES: Final = 8_192
MAX_FIELDS: Final = 600  # the form that narrows a call has two for each place
MAX_FORM_BYTES: Final = 2 * 1024 * 1024  # a configuration is at most 1 MiB, and percent-encoding makes it longer

# Filters with a closed set of values.
CLOSED: Final[Mapping[str, tuple[str, ...]]] = {
    "kind": tuple(sorted(KINDS)),
    "decision": tuple(outcome.word for outcome in Outcome),
    "reason": tuple(reason.value for reason in Reason),
    "state": ("pending", "approved", "denied", "expired", "cancelled", "redeemed", "all"),
}

_log = logging.getLogger("aegis.server.cockpit")


class PagesByMethod:
    """All pages of one path."""

    def __init__(self, pages: Mapping[str, Page], cockpit: Cockpit):
        self._pages = dict(pages)
        if "GET" in pages:
            self._pages["HEAD"] = pages["GET"]
        self._cockpit = cockpit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        visit = Visit(
            cockpit=self._cockpit,
            path=scope["path"],
            names=scope.get("path_params", {}),
            query={},
            headers=headers,
            request_id=scope["aegis.request_id"],
            secure=is_secure(headers, scope["scheme"]),
        )
        try:
            response = await self._answer(visit, scope, receive)
        except Disconnected:
            return
        except Exception as error:
            if not isinstance(error, AegisError):
                _log.exception("a page failed", extra={"request_id": visit.request_id})
            response = failure(visit, refusal_of(error))
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _answer(self, visit: Visit, scope: Scope, receive: Receive) -> Response:
        page = self._pages.get(scope["method"])
        if page is None and scope["method"] in ("GET", "HEAD"):  # (1) what a form led to was sent on, or opened again
            return RedirectResponse(quote(visit.path.rpartition("/")[0]) or "/", 303)
        if page is None:
            raise InvalidCall("this page does not take this method", code="method_not_allowed", status=405)
        if page.method == "POST":  # (2)
            check_origin(visit.headers)
        session = None if page.open else await asyncio.to_thread(_session, self._cockpit, visit.headers)  # (3)
        if session is None and not page.open:
            return await _to_sign_in(visit, scope, receive)
        principal = NOBODY if session is None else session.account.principal
        if page.roles:
            needed = Permission(roles=page.roles, reason="your account does not have the role for this page")
            permit(principal, needed, by="an account")
        query = _pairs(scope["query_string"], MAX_QUERY_BYTES)  # (4)
        check_query(page, query)
        form: Mapping[str, str] = {}
        if page.method == "POST":
            form = _pairs(await read_body(scope, receive), MAX_FORM_BYTES)
        return await page.handler(
            Visit(
                cockpit=self._cockpit,
                path=visit.path,
                names=visit.names,
                query=query,
                headers=visit.headers,
                request_id=visit.request_id,
                principal=principal,
                session=session,
                form=form,
                secure=visit.secure,
            )
        )


def check_query(page: Page, query: Mapping[str, str]) -> None:
    """Refuse what a page does not ask for: a filter that nobody reads would show figures of something else."""
    for name, value in query.items():
        if name not in page.query:
            known = ", ".join(f"`{one}`" for one in page.query) or "none"
            raise InvalidCall(f"this page has no filter `{name}`", code="unknown_parameter", hint=f"known: {known}")
        values = CLOSED.get(name, ())
        if value and values and value not in values:
            raise InvalidCall(f"`{name}` is not a known value", hint=f"one of {', '.join(values)}")


def page_routes(pages: Iterable[Page], cockpit: Cockpit) -> list[BaseRoute]:
    """One route for each path of the table, in its order."""
    paths: dict[str, dict[str, Page]] = {}
    for page in pages:
        paths.setdefault(page.path, {})[page.method] = page
    return [Route(path, PagesByMethod(methods, cockpit)) for path, methods in paths.items()]


class NotFound:
    """What answers where nothing is: a page to browsers, the API's error to everybody else."""

    def __init__(self, cockpit: Cockpit, otherwise: ASGIApp):
        self._cockpit = cockpit
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if "text/html" not in headers.get("accept", "") or scope["path"].startswith("/v1/"):
            await self._otherwise(scope, receive, send)
            return
        visit = Visit(
            cockpit=self._cockpit,
            path=scope["path"],
            names={},
            query={},
            headers=headers,
            request_id=scope["aegis.request_id"],
        )
        response = failure(visit, InvalidCall("there is no such page", code="not_found", status=404))
        response.headers.update(HEADERS)
        await response(scope, receive, send)


def _session(cockpit: Cockpit, headers: Mapping[str, str]) -> SignedIn | None:
    token, now = token_of(headers), cockpit.services.clock()
    if not token:
        return None
    with cockpit.services.store.reader() as reader:
        session = find_session(reader, token, now=now)
    if session is not None and now - session.seen_at > TOUCH_S * MICROS:
        with cockpit.services.store.transaction() as transaction:
            touch_session(transaction, session, now=now)
    return session


async def _to_sign_in(visit: Visit, scope: Scope, receive: Receive) -> Response:
    """The way to the sign-in page and back; what was to be changed is kept in the page, and not repeated by itself."""
    ended = InvalidCall("your session has ended", code="signed_out", hint="sign in again", status=401)
    if visit.headers.get("sec-fetch-mode", "navigate") != "navigate":
        raise ended
    if scope["method"] == "POST":
        form = _pairs(await read_body(scope, receive), MAX_FORM_BYTES)
        return html(
            visit, "sign_in.html", 401, problem=ended, name="", next="", known=True, kept=visit.path, fields=form
        )
    query = scope["query_string"].decode("latin-1")
    back = visit.path + (f"?{query}" if query else "")
    return RedirectResponse(f"/sign-in?next={quote(back, safe='')}", 303)


def _pairs(data: bytes, limit: int) -> dict[str, str]:
    if len(data) > limit:
        raise InvalidCall(f"this is over {limit} bytes", code="too_large", status=413)
    if not data:
        return {}
    try:
        pairs: list[tuple[Any, Any]] = parse_qsl(
            data.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except ValueError as error:
        raise InvalidCall("this is not a form of the cockpit") from error
    return dict(pairs)
