"""Policies: the configuration in force, edited with its problems, its difference and what it would have changed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from aegis.core.times import MICROS, rfc3339
from aegis.errors import InvalidCall
from aegis.server.cockpit import editing
from aegis.server.cockpit.ask import ask
from aegis.server.cockpit.page import Visit
from aegis.server.cockpit.render import html
from aegis.server.cockpit.replaying import AT_ONCE, MAX_DAYS, Found
from aegis.server.config_text import text_in_force
from aegis.server.limits import MAX_REPLAYED

DAYS: Final = (1, 7, 30)


async def policies(visit: Visit) -> Response:
    """The editor with what is in force, or with an earlier text."""
    text = await asyncio.to_thread(text_in_force, visit.services.policy)
    earlier = visit.query.get("from", "")
    if earlier:
        kept = await asyncio.to_thread(editing.kept_text, visit.services, earlier)
        if kept is None:
            raise InvalidCall("the text of this configuration was not kept", code="not_found", status=404)
        return await check_text(visit, kept, days=DAYS[1], why="An earlier configuration.")
    return await _editor(visit, text=text)


async def check(visit: Visit) -> Response:
    """Whether the text compiles, what differs, and which recorded calls would have ended otherwise."""
    days = int(visit.form["days"]) if visit.form.get("days", "").isdigit() else DAYS[1]
    return await check_text(visit, editing.text_of_form(visit.form), days=days)


async def apply(visit: Visit) -> Response:
    """Put the text in force, unless another one was meanwhile."""
    text, base = editing.text_of_form(visit.form), visit.form.get("base", "")
    services = visit.services
    if base != services.policy.current.digest:
        problem = InvalidCall(
            "another configuration was put in force meanwhile",
            code="conflict",
            hint="look at the difference",
            status=409,
        )
        return await check_text(visit, text, days=DAYS[1], problem=problem)
    before = await asyncio.to_thread(text_in_force, services.policy)
    changed = await ask(visit, "replaceConfig", text=text.encode())
    await asyncio.to_thread(editing.keep_text, services, changed["before"], before)
    await asyncio.to_thread(editing.keep_text, services, changed["digest"], text)
    return RedirectResponse("/policies?done=1", 303)


async def check_text(
    visit: Visit,
    text: str,
    *,
    days: int,
    problem: InvalidCall | None = None,
    why: str = "",
    tool: str = "",
) -> Response:
    """The editor with `text`, checked against what is in force and replayed."""
    services = visit.services
    before = await asyncio.to_thread(text_in_force, services.policy)
    checked = await ask(visit, "checkConfig", text=text.encode())
    replay: Found | None = None
    if checked["valid"]:
        replay = Found(text=text, days=min(days, MAX_DAYS))
        since = services.clock() - int(timedelta(days=replay.days).total_seconds()) * MICROS
        query = {"since": rfc3339(since), "limit": str(MAX_REPLAYED)} | ({"tool": tool} if tool else {})
        for _ in range(AT_ONCE):
            step = await ask(visit, "replayConfig", query=query, text=text.encode())
            replay.take(step)
            replay.complete = step["next"] is None
            if replay.complete:
                break
            query["cursor"] = step["next"]
    return await _editor(
        visit,
        text=text,
        problem=problem,
        why=why,
        days=days,
        problems=checked["problems"],
        difference=editing.difference(before, text),
        replay=replay,
        same=checked["valid"] and checked["digest"] == services.policy.current.digest,
        checked=True,
    )


async def _editor(visit: Visit, *, text: str, **more: Any) -> Response:
    holder = visit.services.policy
    context: dict[str, Any] = {
        "problem": None, "why": "", "days": DAYS[1], "problems": [], "difference": [], "replay": None,
        "same": True, "checked": False,
    }  # fmt: skip
    problems, problem = more.get("problems", []), more.get("problem")
    return html(
        visit,
        "policies.html",
        problem.status if problem is not None else 422 if problems else 200,
        text=text,
        lines=text.count("\n") + 1,
        bad={problem["line"] for problem in problems},
        base=holder.current.digest,
        file=None if holder.path is None else holder.path.name,
        history=await asyncio.to_thread(editing.history, visit.services),
        done="done" in visit.query,
        spans=DAYS,
        **(context | more),
    )
