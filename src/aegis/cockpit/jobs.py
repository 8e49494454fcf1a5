"""Work that takes longer than a page: one of a kind at a time, with its progress, and a way to end it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from aegis.core.times import rfc3339, system_clock
from aegis.errors import AegisError, InvalidCall

PAUSE_S: Final = 0.02  # between two steps: decisions come first

State = Literal["never", "running", "done", "cancelled", "failed"]
Step = Callable[[], Awaitable[bool]]

_log = logging.getLogger("aegis.server.cockpit")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStanding:
    """Where the work stands, who began it and when; `problem` says why it failed."""

    state: State = "never"
    by: str = ""
    began: str = ""
    ended: str = ""
    problem: str = ""


class Job:
    """Runs one piece of work in steps, each of which says whether there is more."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self.standing = JobStanding()

    @property
    def running(self) -> bool:
        """Whether work is under way."""
        return self._task is not None and not self._task.done()

    def start(self, by: str, step: Step) -> None:
        """Begin; raises `InvalidCall` (409) while something is under way."""
        if self.running:
            raise InvalidCall(
                "one is under way already", code="conflict", hint="wait for its end, or cancel it", status=409
            )
        self.standing = JobStanding(state="running", by=by, began=rfc3339(system_clock()))
        self._task = asyncio.get_running_loop().create_task(self._run(step))

    def cancel(self) -> None:
        """End what is under way before its next step."""
        if self.running and self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End what is under way, and wait for that."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, step: Step) -> None:
        state: State = "failed"
        problem = "it ended unexpectedly; the log of the gateway says more"
        try:
            more = True
            while more:
                more = await step()
                await asyncio.sleep(PAUSE_S)
            state, problem = "done", ""
        except asyncio.CancelledError:
            state, problem = "cancelled", ""
        except InvalidCall as refusal:
            problem = refusal.message
        except AegisError:
            _log.exception("work of the cockpit failed")
        finally:
            self.standing = replace(self.standing, state=state, problem=problem, ended=rfc3339(system_clock()))
