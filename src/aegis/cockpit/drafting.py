"""Drafts of policies from plain words, asked for beside requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aegis.cockpit.jobs import Job
from aegis.server.drafting import draft_policy
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
