"""Signing in and out, and the one-time link that makes the first account or a new password."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import RedirectResponse, Response

from aegis.bootstrap.credentials import has_accounts, link_unit
from aegis.cockpit.page import COOKIE, SECURE_COOKIE, PageRequest, filters, first_page, html, open_page, page
from aegis.core.receipt import Draft
from aegis.errors import InvalidCall, StoreConflict
from aegis.gate.events import new_id
from aegis.keys.accounts import (
    SESSION_S,
    Account,
    Link,
    end_session,
    find_account,
    find_link,
    new_session,
    password_matches,
)
from aegis.log.writer import Unit

MAX_NEXT_CHARS = 2_000
_KEPT = "kept."  # what stands before the names of the fields of a form that was not sent


async def sign_in_page(request: PageRequest) -> Response:
    """Show the form; a gateway without accounts says how to make one."""
    known = await asyncio.to_thread(_anybody, request)
    target = _next(request.query.get("next", ""))
    return html(request, "sign_in.html", problem=None, name="", next=target, known=known, kept="")


async def sign_in(request: PageRequest) -> Response:
    """Check name and password, and open a session; every failure looks the same.

    What a form said whose session had ended is shown again, for the person to send it or not.
    """
    name, password = request.form.get("name", "").strip(), request.form.get("password", "")
    throttle, target = request.cockpit.throttle, _next(request.form.get("next", ""))
    kept = _next(request.form.get("kept", ""))
    fields = {name.removeprefix(_KEPT): value for name, value in request.form.items() if name.startswith(_KEPT)}
    try:
        async with throttle.hashing:
            account = await asyncio.to_thread(_checked, request, name, password)
    except InvalidCall as problem:
        return html(
            request,
            "sign_in.html",
            problem.status,
            problem=problem,
            name=name,
            next=target,
            known=True,
            kept=kept,
            fields=fields,
        )
    if not kept:
        return await _open(request, account, RedirectResponse(target or first_page(frozenset(account.roles)), 303))
    back = kept.rpartition("/")[0] or "/"
    known = replace(request, principal=account.principal)
    return await _open(request, account, html(known, "again.html", kept=kept, fields=fields, back=back))


async def sign_out(request: PageRequest) -> Response:
    """End the session everywhere."""
    session = request.session
    if session is not None:

        def end() -> None:
            with request.services.store.transaction() as transaction:
                end_session(transaction, session)

        await asyncio.to_thread(end)
    response = RedirectResponse("/sign-in", 303)
    for cookie in (COOKIE, SECURE_COOKIE):
        response.delete_cookie(cookie, path="/", secure=cookie == SECURE_COOKIE, httponly=True, samesite="lax")
    return response


async def welcome_page(request: PageRequest) -> Response:
    """Show the form of a one-time link."""
    token = request.query.get("token", "")
    link = await asyncio.to_thread(_link, request, token)
    return html(request, "welcome.html", token=token, account=link.account, name="", problem=None)


async def welcome(request: PageRequest) -> Response:
    """Use the link up: make the account or set its password, and sign in."""
    token, name = request.form.get("token", ""), request.form.get("name", "").strip()
    link = await asyncio.to_thread(_link, request, token)
    password = request.form.get("password", "")
    try:
        _alike(password, request.form.get("again", ""))
        async with request.cockpit.throttle.hashing:
            unit = await asyncio.to_thread(link_unit, link, name=name, password=password)
        await request.services.gate.arecord(unit)
    except StoreConflict as error:
        raise _gone() from error
    except InvalidCall as problem:
        return html(
            request, "welcome.html", problem.status, token=token, account=link.account, name=name, problem=problem
        )
    account = await asyncio.to_thread(_find, request, link.account or name)
    return await _open(request, account, RedirectResponse(first_page(frozenset(account.roles)), 303))


async def account_page(request: PageRequest) -> Response:
    """Show who is signed in, and until when."""
    return html(request, "account.html")


async def _open(request: PageRequest, account: Account, response: Response) -> Response:
    """`response`, with a session of the account."""
    now = request.services.clock()
    tokens: list[str] = []

    def begin() -> None:
        with request.services.store.transaction() as transaction:
            tokens.append(new_session(transaction, account, now=now))

    await asyncio.to_thread(begin)
    await request.services.gate.arecord(Unit(drafts=(_signed_in(account),)))
    # Lax, so that a link from a chat opens the page it leads to; unsafe methods are checked by their origin.
    response.set_cookie(
        SECURE_COOKIE if request.secure else COOKIE,
        tokens[0],
        max_age=SESSION_S,
        path="/",
        secure=request.secure,
        httponly=True,
        samesite="lax",
    )
    return response


def _signed_in(account: Account) -> Draft:
    members = {"kind": "access", "receipt_id": new_id(), "principal": account.name, "action": "sign_in"}
    return Draft(members=members)


def _checked(request: PageRequest, name: str, password: str) -> Account:
    throttle = request.cockpit.throttle
    throttle.attempt(name)
    with request.services.store.reader() as reader:
        account = find_account(reader, name) if name else None
    if not password_matches(account, password) or account is None:
        raise InvalidCall("name and password do not belong together", code="unauthenticated", status=401)
    throttle.succeeded(name)
    return account


def _alike(password: str, again: str) -> None:
    if password != again:
        raise InvalidCall("the two passwords differ", code="password")


def _find(request: PageRequest, name: str) -> Account:
    with request.services.store.reader() as reader:
        account = find_account(reader, name)
    if account is None:
        raise _gone()
    return account


def _anybody(request: PageRequest) -> bool:
    with request.services.store.reader() as reader:
        return has_accounts(reader)


def _link(request: PageRequest, token: str) -> Link:
    with request.services.store.reader() as reader:
        link = find_link(reader, token, now=request.services.clock())
        used = link is not None and not link.account and has_accounts(reader)
    if link is None or used:
        raise _gone()
    return link


def _gone() -> InvalidCall:
    return InvalidCall(
        "this link was used already, or its time is over",
        code="link_gone",
        hint="`aegis users link NAME` makes a new one",
        status=410,
    )


def _next(target: str) -> str:
    """Return a path of this cockpit to go on to; anything that could lead elsewhere is dropped."""
    parts = urlsplit(target)
    plain = target.isascii() and target.isprintable() and "\\" not in target and len(target) <= MAX_NEXT_CHARS
    local = not parts.scheme and not parts.netloc and target.startswith("/") and not target.startswith("//")
    return target if plain and local else ""


PAGES: Final = (
    open_page("GET", "/sign-in", sign_in_page, query=filters("next")),
    open_page("POST", "/sign-in", sign_in),
    page("POST", "/sign-out", sign_out),
    open_page("GET", "/welcome", welcome_page, query=filters("token")),
    open_page("POST", "/welcome", welcome),
    page("GET", "/account", account_page),
)
