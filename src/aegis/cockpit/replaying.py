"""Replay over every recorded call of a period: in steps, with its progress, and bounded in what it keeps.

What is said of a replay says which calls it is about: where it reached back to, and whether that is the whole period.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import RedirectResponse, Response

from aegis.cockpit import editing
from aegis.cockpit.page import PageRequest, html, page
from aegis.cockpit.work import MOST, REPLAY_DAYS
from aegis.config.text import text_in_force, text_of
from aegis.errors import InvalidCall

AT_ONCE: Final = 5  # answers of the API that the editor waits for: what it shows at once is that cheap


async def replay_page(request: PageRequest) -> Response:
    """Show where the replay stands, and what it has found so far."""
    replays = request.cockpit.replays
    found, total = replays.found, request.cockpit.rollup.tally.kinds["decision"]
    before = await asyncio.to_thread(text_in_force, request.services.policy)
    return html(
        request,
        "replay.html",
        standing=replays.job.standing,
        found=found,
        share=min(100, found.done * 100 // max(1, min(total, MOST))),
        difference=editing.difference(before, found.text) if found.text else [],
    )


async def start(request: PageRequest) -> Response:
    """Replay the text of the form over all calls of its days."""
    text, days = editing.text_of_form(request.form), request.form.get("days", "")
    if not (days.isascii() and days.isdigit() and 1 <= int(days[:4]) <= REPLAY_DAYS):
        raise InvalidCall(f"the days must be from 1 to {REPLAY_DAYS}")
    candidate = (await asyncio.to_thread(request.services.policy.check, text_of(text.encode()))).policy
    request.cockpit.replays.start(request.services, candidate, text=text, days=int(days[:4]), by=request.principal.id)
    return RedirectResponse("/policies/replay", 303)


async def cancel(request: PageRequest) -> Response:
    """End the replay; what it found stays."""
    request.cockpit.replays.job.cancel()
    return RedirectResponse("/policies/replay", 303)


PAGES: Final = (
    page("GET", "/policies/replay", replay_page, "admin"),
    page("POST", "/policies/replay", start, "admin"),
    page("POST", "/policies/replay/cancel", cancel, "admin"),
)
