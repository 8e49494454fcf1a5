"""Alerts: rules that the gateway looks at by itself, who is told, and what became of the word."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from aegis.behaviour import alerts as groups
from aegis.behaviour.alert_routes import MUTE_ALERT, alert_rows
from aegis.cockpit.alert_rules import (
    COUNTED,
    MAX_RULES,
    WATCHES,
    AlertRule,
    AlertSent,
    checked_escalation,
    checked_name,
    checked_target,
    checked_watch,
    find_rule,
    list_rules,
    put_rule,
)
from aegis.cockpit.alerting import message_of
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
from aegis.server.validation import checked_body

FIELDS: Final = ("name", "watch", "limit", "kind", "url", "sender", "to", "escalate_minutes", "escalate_url")
MUTES: Final = {"3600": "an hour", "14400": "four hours", "86400": "a day", "604800": "a week"}


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
        escalate, escalate_s = checked_escalation(form)
    except InvalidCall as problem:
        return await _shown(request, problem=problem)
    rule = AlertRule(
        id=new_id(),
        name=name,
        watch=watch,
        limit=limit,
        target=target,
        escalate=escalate,
        escalate_s=escalate_s,
        by=request.principal.id,
        created_at=request.services.clock(),
    )

    def apply(transaction: Transaction) -> Sequence[Draft]:
        if len(transaction.documents(groups.RULES, limit=MAX_RULES)) >= MAX_RULES:
            raise InvalidCall(f"there are {MAX_RULES} alerts already", hint="remove one first", status=409)
        put_rule(transaction, rule)
        return (_draft(request, "alert_add"),)

    await request.services.gate.arecord(Unit(apply=apply))
    return RedirectResponse("/alerts", 303)


async def remove(request: PageRequest) -> Response:
    """Remove a rule, on record."""

    def apply(transaction: Transaction) -> Sequence[Draft]:
        find_rule(transaction, request.path["id"])
        transaction.delete_document(groups.RULES, request.path["id"])
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


async def mark(request: PageRequest) -> Response:
    """Mute an alert for a while, take that back, or say that somebody has looked at it; each on record."""
    form, group, by, now = request.form, request.path["id"], request.principal.id, request.services.clock()
    if form.get("to") == "mute":
        length = form.get("seconds", "")
        wish = {"seconds": int(length) if length in MUTES else 0, "reason": form.get("reason", "").strip()}
        body = checked_body(MUTE_ALERT, wish)
        unit = groups.mute(group, int(body["seconds"]), body["reason"], by=by, now=now)
    elif form.get("to") == "unmute":
        unit = groups.unmute(group, by=by, now=now)
    else:
        unit = groups.see(group, by=by, now=now)
    await request.services.gate.arecord(unit)
    return RedirectResponse("/alerts", 303)


async def _shown(request: PageRequest, *, problem: InvalidCall | None) -> Response:
    administers = request.may("admin")
    rows = await asyncio.to_thread(_rows, request) if administers else []
    found = await asyncio.to_thread(alert_rows, request.services)
    return html(
        request,
        "alerts.html",
        200 if problem is None else problem.status,
        rows=rows,
        groups=found["items"],
        complete=found["complete"],
        administers=administers,
        marks=request.may("approver", "admin"),
        mutes=MUTES,
        problem=problem,
        watches=WATCHES,
        counted=COUNTED,
        form={name: request.form.get(name, "") for name in FIELDS},
    )


def _rows(request: PageRequest) -> list[dict[str, Any]]:
    with request.services.store.reader() as reader:
        return [
            {
                "rule": rule,
                "target": describe(rule.target),
                "told": WATCHES[rule.watch],
                "second": "" if rule.escalate is None else describe(rule.escalate),
                "minutes": rule.escalate_s // 60,
                "log": [_sent(reader, sent) for sent in rule.log],
            }
            for rule in list_rules(reader)
        ]


def _sent(reader: Reader, sent: AlertSent) -> dict[str, Any]:
    """Return one line of the log: what is not in the outbox any more was taken."""
    found = reader.document(OUTBOX, sent.message) if sent.message else None
    state, error, attempts = "delivered" if sent.message else "muted", "", 0
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
    page("GET", "/alerts", alerts, "auditor", "approver", "admin"),
    page("POST", "/alerts", add, "admin"),
    page("POST", "/alerts/groups/{id}", mark, "approver", "admin"),
    page("POST", "/alerts/deliveries/{id}", retry, "admin"),
    page("POST", "/alerts/{id}/test", test, "admin"),
    page("POST", "/alerts/{id}/remove", remove, "admin"),
)
