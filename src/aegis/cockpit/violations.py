"""Violations and anomalies: what broke which rule, grouped, and what is not usual of an agent; and the way from a
false alarm to a scoped exception."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.responses import Response

from aegis.cockpit.page import PageRequest, filters, html, page
from aegis.cockpit.policies import check_text
from aegis.cockpit.rollup import WORDS, Group
from aegis.config.text import text_in_force, with_exception
from aegis.core.times import rfc3339
from aegis.errors import InvalidCall

LISTED: Final = 200
DAYS: Final = 30  # how long a drafted exception lasts, and how far back it is replayed


async def violations(request: PageRequest) -> Response:
    """Show groups by their last occurrence; filters are links."""
    rollup = request.cockpit.rollup
    await rollup.watched()
    wanted = {name: request.query[name] for name in ("rule", "agent", "tool") if request.query.get(name)}
    groups = [
        group
        for group in reversed(rollup.tally.groups.values())
        if all(getattr(group, name) == value for name, value in wanted.items())
    ]
    known, unusual = _detectors(request), request.cockpit.unusual
    if rollup.complete:
        unusual.look(request.services, rollup.tally)
    return html(
        request,
        "violations.html",
        rows=[_row(group, known) for group in groups[:LISTED]],
        more=max(0, len(groups) - LISTED),
        wanted=wanted,
        counted=rollup.complete,
        odd=[one for one in unusual.found if wanted.get("agent", one.agent) == one.agent],
        unlooked=unusual.more,
        standing=unusual.job.standing,
    )


async def false_alarm(request: PageRequest) -> Response:
    """Draft a scoped exception for one rule on one tool, in the editor, replayed; nothing is in force by that."""
    rule, tool = request.form.get("rule", ""), request.form.get("tool", "")
    if rule not in _detectors(request):
        raise InvalidCall(
            "only a detector rule takes an exception",
            code="no_exception",
            hint="what other guards say is changed in their own section of the configuration",
        )
    why = request.form.get("reason", "").strip() or "a false alarm"
    exception = {
        "rule": rule,
        "tool": tool or "*",
        "reason": f"{why} ({request.principal.id})",
        "expires": (datetime.now(UTC) + timedelta(days=DAYS)).date().isoformat(),
    }
    text = await asyncio.to_thread(text_in_force, request.services.policy)
    draft = with_exception(text, exception)
    return await check_text(request, draft, days=DAYS, tool=tool, why="An exception, drafted. It ends by itself.")


def _detectors(request: PageRequest) -> frozenset[str]:
    """Return the rules in force that an exception can name: the built-in ones, and the operator's own."""
    return frozenset(request.services.policy.current.scanner.rules.by_id)


def _row(group: Group, known: frozenset[str]) -> dict[str, Any]:
    return {
        "rule": group.rule,
        "agent": group.agent,
        "tool": group.tool,
        "outcomes": [(word, count) for word, count in zip(WORDS, group.counts, strict=True) if count],
        "count": group.count,
        "first": rfc3339(group.first_time),
        "last": rfc3339(group.last_time),
        "excusable": group.rule in known,
    }


PAGES: Final = (
    page("GET", "/violations", violations, "auditor", query=filters("rule", "agent", "tool")),
    page("POST", "/violations/false-alarm", false_alarm, "admin"),
)
