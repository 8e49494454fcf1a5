"""The surface of the cockpit: every page, the same checks before each, and a page for every answer, failures included.

(1) the path has this method
(2) an unsafe method was sent by a page of this cockpit
(3) somebody is signed in, and has a role that the page asks for
(4) the query and the form are bounded text, and the query holds nothing that the page does not know
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from aegis.approvals import pages as approvals_pages
from aegis.behaviour import pages as behaviour_pages
from aegis.behaviour.baseline import Unusual
from aegis.bootstrap import Deployment
from aegis.bootstrap.state import is_demonstration
from aegis.cockpit import agents, alerts, audit, calls, now, page, policies, signin, traces, violations
from aegis.cockpit.alerting import Alerting
from aegis.cockpit.page import (
    HEADERS,
    Cockpit,
    Page,
    PageRequest,
    Throttle,
    check_origin,
    failure,
    html,
    is_secure,
    token_of,
)
from aegis.cockpit.rollup import Rollup
from aegis.cockpit.rows import shape
from aegis.cockpit.work import Drafts, Replays, Retention, Verifications
from aegis.core.times import MICROS
from aegis.errors import AegisError, InvalidCall
from aegis.keys.accounts import TOUCH_S, SignedIn, find_session, touch_session
from aegis.log.trust import public_keys
from aegis.missions import pages as missions_pages
from aegis.server.admission import permit
from aegis.server.endpoint import NOBODY
from aegis.server.feed import Feed
from aegis.server.http import Disconnected, read_body, refusal_of
from aegis.server.services import Services

# Every page of the cockpit: routing and checks read this one table.

PAGES: Final[tuple[Page, ...]] = (
    *page.PAGES,
    *signin.PAGES,
    *now.PAGES,
    *now.FEED_PAGES,
    *approvals_pages.PAGES,
    *calls.PAGES,
    *traces.PAGES,
    *violations.PAGES,
    *policies.PAGES,
    *agents.PAGES,
    *missions_pages.PAGES,
    *behaviour_pages.PAGES,
    *alerts.PAGES,
    *audit.PAGES,
)


MAX_QUERY_BYTES: Final = 8_192
MAX_FIELDS: Final = 600  # the form that narrows a call has two for each place
MAX_FORM_BYTES: Final = 2 * 1024 * 1024  # a configuration is at most 1 MiB, and percent-encoding makes it longer

_log = logging.getLogger("aegis.server.cockpit")


class Browsers:
    """The surface of people: a session in a cookie, forms of the cockpit's own pages, and HTML, failures included."""

    def __init__(self, cockpit: Cockpit):
        self._cockpit = cockpit

    def serve(self, endpoint: Page) -> ASGIApp | None:
        """Return the page behind its checks."""
        handler = endpoint.handler
        if handler is None:
            raise ValueError(f"the page {endpoint.path} has no handler")

        async def respond(request: PageRequest, scope: Scope, receive: Receive) -> Response:
            if endpoint.method == "POST":  # (2)
                check_origin(request.headers)
            session: SignedIn | None = None
            if endpoint.permission is not None:  # (3)
                session = await asyncio.to_thread(_session, self._cockpit, request.headers)
                if session is None:
                    return await _to_sign_in(request, scope, receive)
                permit(session.account.principal, endpoint.permission, by="an account")
            query = _pairs(scope["query_string"], MAX_QUERY_BYTES)  # (4)
            check_query(endpoint, query)
            form: Mapping[str, str] = {}
            if endpoint.method == "POST":
                form = _pairs(await read_body(scope, receive), MAX_FORM_BYTES)
            principal = NOBODY if session is None else session.account.principal
            return await handler(replace(request, query=query, principal=principal, session=session, form=form))

        return self._answering(respond)

    def refuse_method(self, allow: str) -> ASGIApp:
        """Return what answers a method that a page does not take."""

        async def refuse(request: PageRequest, scope: Scope, _receive: Receive) -> Response:
            if scope["method"] in ("GET", "HEAD"):  # (1) what a form led to was sent on, or opened again
                return RedirectResponse(quote(request.url.rpartition("/")[0]) or "/", 303)
            raise InvalidCall("this page does not take this method", code="method_not_allowed", status=405)

        return self._answering(refuse)

    def not_found(self, otherwise: ASGIApp) -> ASGIApp:
        """Return what answers where nothing is: a page to browsers, `otherwise` to everybody else."""

        async def missing(_request: PageRequest, _scope: Scope, _receive: Receive) -> Response:
            raise InvalidCall("there is no such page", code="not_found", status=404)

        page = self._answering(missing)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            is_page = "text/html" in Headers(scope=scope).get("accept", "") and not scope["path"].startswith("/v1/")
            await (page if is_page else otherwise)(scope, receive, send)

        return answer

    def _answering(self, respond: Callable[[PageRequest, Scope, Receive], Awaitable[Response]]) -> ASGIApp:
        """Answer with what `respond` gives, or with the page of its failure, under the headers of every page."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            headers = Headers(scope=scope)
            request = PageRequest(
                services=self._cockpit.services,
                cockpit=self._cockpit,
                url=scope["path"],
                path=scope.get("path_params", {}),
                headers=headers,
                request_id=scope["aegis.request_id"],
                secure=is_secure(headers, scope["scheme"]),
            )
            try:
                response = await respond(request, scope, receive)
            except Disconnected:
                return
            except Exception as error:
                if not isinstance(error, AegisError):
                    _log.exception("a page failed", extra={"request_id": request.request_id})
                response = failure(request, refusal_of(error))
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            await response(scope, receive, send)

        return answer


def check_query(page: Page, query: Mapping[str, str]) -> None:
    """Refuse what a page does not ask for: a filter that nobody reads would show figures of something else."""
    known = {param.name: param.schema.get("enum", ()) for param in page.query}
    for name, value in query.items():
        if name not in known:
            listed = ", ".join(f"`{one}`" for one in known) or "none"
            raise InvalidCall(f"this page has no filter `{name}`", code="unknown_parameter", hint=f"known: {listed}")
        values = known[name]
        if value and values and value not in values:
            raise InvalidCall(f"`{name}` is not a known value", hint=f"one of {', '.join(values)}")


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


async def _to_sign_in(request: PageRequest, scope: Scope, receive: Receive) -> Response:
    """Lead to the sign-in page and back; what was to be changed is kept in the page, and not repeated by itself."""
    ended = InvalidCall("your session has ended", code="signed_out", hint="sign in again", status=401)
    if request.headers.get("sec-fetch-mode", "navigate") != "navigate":
        raise ended
    if scope["method"] == "POST":
        form = _pairs(await read_body(scope, receive), MAX_FORM_BYTES)
        return html(
            request, "sign_in.html", 401, problem=ended, name="", next="", known=True, kept=request.url, fields=form
        )
    query = scope["query_string"].decode("latin-1")
    back = request.url + (f"?{query}" if query else "")
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


# One gateway's cockpit, put together.


def build_cockpit(deployment: Deployment, services: Services) -> Cockpit:
    """Return the cockpit of `deployment`."""
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
    """Return the keys of the log as they stand when the gateway starts, replaced ones included."""
    with deployment.store.reader() as reader:
        return [key for key in public_keys(reader)["keys"] if key["purpose"] == "log"]
