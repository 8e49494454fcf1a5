"""Alerts: rules that the gateway looks at by itself, who is told, and what became of the word."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

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
from aegis.cockpit.page import Visit, ask, html
from aegis.core.ports import Reader, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import rfc3339
from aegis.errors import InvalidCall
from aegis.gate.events import new_id
from aegis.log.writer import Unit
from aegis.outbound import worker
from aegis.outbound.send import COLLECTION as OUTBOX
from aegis.outbound.send import describe, from_document


async def alerts(visit: Visit) -> Response:
    """Every rule with its log, and the form for another."""
    return await _shown(visit, problem=None)


async def add(visit: Visit) -> Response:
    """Make a rule, on record."""
    form = visit.form
    try:
        watch, limit = checked_watch(form.get("watch", ""), form.get("limit", "").strip())
        name = checked_name(form.get("name", "").strip())
        target = checked_target(form)
    except InvalidCall as problem:
        return await _shown(visit, problem=problem)
    rule = AlertRule(
        id=new_id(),
        name=name,
        watch=watch,
        limit=limit,
        target=target,
        by=visit.principal.id,
        created_at=visit.services.clock(),
    )

    def apply(transaction: Transaction) -> Sequence[Draft]:
        if len(transaction.documents(COLLECTION, limit=MAX_RULES)) >= MAX_RULES:
            raise InvalidCall(f"there are {MAX_RULES} alerts already", hint="remove one first", status=409)
        put_rule(transaction, rule)
        return (_draft(visit, "alert_add"),)

    await visit.services.gate.arecord(Unit(apply=apply))
    return RedirectResponse("/alerts", 303)


async def remove(visit: Visit) -> Response:
    """Remove a rule, on record."""

    def apply(transaction: Transaction) -> Sequence[Draft]:
        find_rule(transaction, visit.names["id"])
        transaction.delete_document(COLLECTION, visit.names["id"])
        return (_draft(visit, "alert_remove"),)

    await visit.services.gate.arecord(Unit(apply=apply))
    return RedirectResponse("/alerts", 303)


async def test(visit: Visit) -> Response:
    """Send word that says that it is a test."""
    services, now = visit.services, visit.services.clock()

    def write() -> None:
        with services.store.transaction() as transaction:
            rule = find_rule(transaction, visit.names["id"])
            text = f"a test, sent by {visit.principal.id}"
            message = message_of(rule, text, now, event="alert.test")
            worker.put(transaction, message)
            put_rule(transaction, rule.remember(AlertSent(message=message.id, time=now, text=text)))

    await asyncio.to_thread(write)
    services.deliveries.start()
    return RedirectResponse("/alerts", 303)


async def retry(visit: Visit) -> Response:
    """Send again what nobody took."""
    await ask(visit, "retryDelivery", path={"id": visit.names["id"]})
    return RedirectResponse("/alerts", 303)


async def _shown(visit: Visit, *, problem: InvalidCall | None) -> Response:
    rows = await asyncio.to_thread(_rows, visit)
    return html(
        visit,
        "alerts.html",
        200 if problem is None else problem.status,
        rows=rows,
        problem=problem,
        watches=WATCHES,
        counted=COUNTED,
        form={name: visit.form.get(name, "") for name in ("name", "watch", "limit", "kind", "url", "sender", "to")},
    )


def _rows(visit: Visit) -> list[dict[str, Any]]:
    with visit.services.store.reader() as reader:
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
    """One line of the log: what is not in the outbox any more was taken."""
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


def _draft(visit: Visit, action: str) -> Draft:
    return Draft(
        members={
            "kind": "config",
            "receipt_id": new_id(),
            "principal": visit.principal.id,
            "policy_digest": visit.services.policy.current.digest,
            "action": action,
        }
    )
