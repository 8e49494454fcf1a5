"""Replay over every recorded call of a period: in steps, with its progress, and bounded in what it keeps.

What is said of a replay says which calls it is about: where it reached back to, and whether that is the whole period.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import RedirectResponse, Response

from aegis.cockpit import editing
from aegis.cockpit.page import Visit, html
from aegis.cockpit.work import MOST, REPLAY_DAYS
from aegis.config.text import text_in_force, text_of
from aegis.errors import InvalidCall

AT_ONCE: Final = 5  # answers of the API that the editor waits for: what it shows at once is that cheap


async def replay_page(visit: Visit) -> Response:
    """Where the replay stands, and what it has found so far."""
    replays = visit.cockpit.replays
    found, total = replays.found, visit.cockpit.rollup.tally.kinds["decision"]
    before = await asyncio.to_thread(text_in_force, visit.services.policy)
    return html(
        visit,
        "replay.html",
        standing=replays.job.standing,
        found=found,
        share=min(100, found.done * 100 // max(1, min(total, MOST))),
        difference=editing.difference(before, found.text) if found.text else [],
    )


async def start(visit: Visit) -> Response:
    """Replay the text of the form over all calls of its days."""
    text, days = editing.text_of_form(visit.form), visit.form.get("days", "")
    if not (days.isascii() and days.isdigit() and 1 <= int(days[:4]) <= REPLAY_DAYS):
        raise InvalidCall(f"the days must be from 1 to {REPLAY_DAYS}")
    candidate = (await asyncio.to_thread(visit.services.policy.check, text_of(text.encode()))).policy
    visit.cockpit.replays.start(visit.services, candidate, text=text, days=int(days[:4]), by=visit.principal.id)
    return RedirectResponse("/policies/replay", 303)


async def cancel(visit: Visit) -> Response:
    """End the replay; what it found stays."""
    visit.cockpit.replays.job.cancel()
    return RedirectResponse("/policies/replay", 303)
