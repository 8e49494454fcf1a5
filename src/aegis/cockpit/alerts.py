"""Alerts: rules that the gateway looks at by itself, who is told, and what became of the word."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from aegis.cockpit.alerting import (
    COLLECTION,
    COUNTED,
    MAX_RULES,
    WATCHES,
    AlertRule,
    AlertSent,
    checked_name,
    checked_target,
    checked_watch,
    find_rule,
    list_rules,
    message_of,
    put_rule,
)
from aegis.cockpit.page import PageRequest, html, page
from aegis.core.ports import Reader, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import rfc3339
from aegis.errors import InvalidCall
from aegis.gate.events import new_id
from aegis.log.writer import Unit
from aegis.outbound import worker
from aegis.outbound.send import COLLECTION as OUTBOX
from aegis.outbound.send import describe, from_document
from aegis.server.deliveries import send_again


async def alerts(request: PageRequest) -> Response:
    """Show every rule with its log, and the form for another."""
    return await _shown(request, problem=None)


async def add(request: PageRequest) -> Response:
    """Make a rule, on record."""
    form = request.form
    try:
        watch, limit = checked_watch(form.get("watch", ""), form.get("limit", "").strip())
        name = checked_name(form.get("name", "").strip())
        target = checked_target(form)
    except InvalidCall as problem:
        return await _shown(request, problem=problem)
    rule = AlertRule(
        id=new_id(),
        name=name,
        watch=watch,
        limit=limit,
        target=target,
        by=request.principal.id,
        created_at=request.services.clock(),
    )

    def apply(transaction: Transaction) -> Sequence[Draft]:
        if len(transaction.documents(COLLECTION, limit=MAX_RULES)) >= MAX_RULES:
            raise InvalidCall(f"there are {MAX_RULES} alerts already", hint="remove one first", status=409)
        put_rule(transaction, rule)
        return (_draft(request, "alert_add"),)

    await request.services.gate.arecord(Unit(apply=apply))
    return RedirectResponse("/alerts", 303)


async def remove(request: PageRequest) -> Response:
    """Remove a rule, on record."""

    def apply(transaction: Transaction) -> Sequence[Draft]:
        find_rule(transaction, request.path["id"])
        transaction.delete_document(COLLECTION, request.path["id"])
        return (_draft(request, "alert_remove"),)

    await request.services.gate.arecord(Unit(apply=apply))
    return RedirectResponse("/alerts", 303)


async def test(request: PageRequest) -> Response:
    """Send word that says that it is a test."""
    services, now = request.services, request.services.clock()

    def write() -> None:
        with services.store.transaction() as transaction:
            rule = find_rule(transaction, request.path["id"])
            text = f"a test, sent by {request.principal.id}"
            message = message_of(rule, text, now, event="alert.test")
            worker.put(transaction, message)
            put_rule(transaction, rule.remember(AlertSent(message=message.id, time=now, text=text)))

    await asyncio.to_thread(write)
    services.deliveries.start()
    return RedirectResponse("/alerts", 303)


async def retry(request: PageRequest) -> Response:
    """Send again what nobody took."""
    await send_again(request.services, request.path["id"])
    return RedirectResponse("/alerts", 303)


async def _shown(request: PageRequest, *, problem: InvalidCall | None) -> Response:
    rows = await asyncio.to_thread(_rows, request)
    return html(
        request,
        "alerts.html",
        200 if problem is None else problem.status,
        rows=rows,
        problem=problem,
        watches=WATCHES,
        counted=COUNTED,
        form={name: request.form.get(name, "") for name in ("name", "watch", "limit", "kind", "url", "sender", "to")},
    )


def _rows(request: PageRequest) -> list[dict[str, Any]]:
    with request.services.store.reader() as reader:
        return [
            {
                "rule": rule,
                "target": describe(rule.target),
                "told": WATCHES[rule.watch],
                "log": [_sent(reader, sent) for sent in rule.log],
            }
            for rule in list_rules(reader)
        ]


def _sent(reader: Reader, sent: AlertSent) -> dict[str, Any]:
    """Return one line of the log: what is not in the outbox any more was taken."""
    found = reader.document(OUTBOX, sent.message)
    state, error, attempts = "delivered", "", 0
    if found is not None:
        message = from_document(found)
        state, error, attempts = "dead" if message.state == "dead" else "waits", message.error, message.attempts
    return {
        "id": sent.message,
        "time": rfc3339(sent.time),
        "text": sent.text,
        "state": state,
        "error": error,
        "attempts": attempts,
    }


def _draft(request: PageRequest, action: str) -> Draft:
    return Draft(
        members={
            "kind": "config",
            "receipt_id": new_id(),
            "principal": request.principal.id,
            "policy_digest": request.services.policy.current.digest,
            "action": action,
        }
    )


PAGES: Final = (
    page("GET", "/alerts", alerts, "admin"),
    page("POST", "/alerts", add, "admin"),
    page("POST", "/alerts/deliveries/{id}", retry, "admin"),
    page("POST", "/alerts/{id}/test", test, "admin"),
    page("POST", "/alerts/{id}/remove", remove, "admin"),
)
