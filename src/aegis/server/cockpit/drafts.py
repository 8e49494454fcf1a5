"""Drafts of policies from plain words: asked for, tried, and shown with what they would change; never applied here."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.responses import RedirectResponse, Response

from aegis.errors import InvalidCall
from aegis.server.cockpit import editing
from aegis.server.cockpit.arguments import leaves
from aegis.server.cockpit.jobs import Job
from aegis.server.cockpit.page import Visit
from aegis.server.cockpit.render import html
from aegis.server.config_text import text_in_force
from aegis.server.drafting.draft import draft_policy
from aegis.server.limits import MAX_WISH_CHARS
from aegis.server.services import Services


@dataclass(kw_only=True)
class Drafted:
    """What was asked for, and what became of it; `told` is empty until the model answered."""

    wish: str = ""
    told: dict[str, Any] | None = None


class Drafts:
    """The draft of one gateway: one at a time."""

    def __init__(self) -> None:
        self.job = Job()
        self.drafted = Drafted()

    def start(self, services: Services, wish: str, *, by: str) -> None:
        """Begin to draft what `wish` says; raises `InvalidCall` (409) while a draft is under way."""
        drafted = Drafted(wish=wish)

        async def step() -> bool:
            drafted.told = await draft_policy(services, wish, by=by)
            return False

        self.job.start(by, step)
        self.drafted = drafted


async def draft_page(visit: Visit) -> Response:
    """The words, the difference from what is in force, and the test cases."""
    drafts = visit.cockpit.drafts
    told = drafts.drafted.told
    before = await asyncio.to_thread(text_in_force, visit.services.policy)
    model = visit.services.policy.config.settings.drafting.model
    return html(
        visit,
        "draft.html",
        standing=drafts.job.standing,
        wish=drafts.drafted.wish,
        draft=told,
        difference=editing.difference(before, told["config"]) if told is not None and told["config"] else [],
        stale=told is not None and told["base"] != visit.services.policy.current.digest,
        arguments=[leaves(case["arguments"]) for case in told["cases"]] if told is not None else [],
        model=None if model is None else model.name,
        most=MAX_WISH_CHARS,
    )


async def start(visit: Visit) -> Response:
    """Ask the configured model for a draft."""
    wish = visit.form.get("wish", "").replace("\r\n", "\n").strip()
    if not 1 <= len(wish) <= MAX_WISH_CHARS:
        raise InvalidCall(f"say in 1 to {MAX_WISH_CHARS} characters what is to be refused or held")
    visit.cockpit.drafts.start(visit.services, wish, by=visit.principal.id)
    return RedirectResponse("/policies/draft", 303)


async def cancel(visit: Visit) -> Response:
    """Wait for the model no longer."""
    visit.cockpit.drafts.job.cancel()
    return RedirectResponse("/policies/draft", 303)
