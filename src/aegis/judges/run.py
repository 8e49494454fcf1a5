"""One run of one judge: a child execution with its own id, on record when it starts and when it ends.

(1) its start is on record, or it does not start
(2) it runs within its deadline; when that is over, or its caller is gone, every process of it is
(3) whatever it came to has a cause
(4) its end is on record, in every case
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from aegis.core.judging import JudgeRules, JudgeSpec, Validator
from aegis.errors import SandboxUnavailable, StoreError
from aegis.judges.agent import Conversation, GateDoor
from aegis.judges.answer import Malformed
from aegis.judges.command import Failed, run_command
from aegis.judges.model import Cause, Ran, Result, Spent
from aegis.judges.panel import enough
from aegis.judges.payload import Mask, Payload, fenced, masked
from aegis.judges.providers import Providers
from aegis.judges.workspace import Workspace

_log = logging.getLogger("aegis.judges")


class Recorder(Protocol):
    """Puts the start and the end of a run on record; raises `StoreError` where it cannot."""

    def started(self, validator: Validator, judge: JudgeSpec, payload: dict[str, Any]) -> Awaitable[str]:
        """The id of the run that was recorded as started."""
        ...

    def ended(self, validator: Validator, judge: JudgeSpec, ran: Ran) -> Awaitable[str]:
        """The id of the receipt of its end."""
        ...


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Runs judges for one call."""

    rules: JudgeRules
    recorder: Recorder
    providers: Providers
    door: GateDoor
    mask: Mask
    places: asyncio.Semaphore

    async def run(self, validator: Validator, judge: JudgeSpec, payload: Payload, workspace: Workspace) -> Ran:
        """What `judge` makes of the call. Raises `CancelledError` alone, after its end is on record."""
        began = time.monotonic()
        deadline = began + min(validator.seconds, judge.limits.seconds)
        # (1)
        shown = payload.value if judge.model is None else masked(payload.value, self.mask)
        try:
            run_id = await self.recorder.started(validator, judge, shown)
        except StoreError:
            return Ran(judge=judge.name, run_id="", cause="unavailable", detail="the log cannot be written")
        # (2), (3)
        conversation = self._conversation(judge, run_id, workspace)
        cause: Cause = "cancelled"
        result: Result | None = None
        detail = ""
        cancelled: asyncio.CancelledError | None = None
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())), self.places:
                result = await self._result(validator, judge, shown, workspace, conversation, deadline)
            cause = enough(validator, result)
        except TimeoutError:
            cause, detail = "timeout", "the judge did not end in time"
        except Failed as failed:
            cause, detail = failed.cause, failed.detail
        except Malformed as malformed:
            cause, detail = "malformed", str(malformed)
        except SandboxUnavailable as error:
            cause, detail = "sandbox", str(error)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception as error:  # a judge that breaks in a way nobody foresaw rejects like any other
            _log.exception("a judge failed", extra={"judge": judge.name})
            cause, detail = "failed", type(error).__name__
        # (4)
        ran = Ran(
            judge=judge.name,
            run_id=run_id,
            cause=cause,
            result=result,
            spent=Spent() if conversation is None else conversation.spent,
            seconds=time.monotonic() - began,
            detail=detail,
            transcript=() if conversation is None else tuple(conversation.transcript),
        )
        ran = await asyncio.shield(asyncio.ensure_future(self._end(validator, judge, ran)))
        if cancelled is not None:
            raise cancelled
        return ran

    async def _end(self, validator: Validator, judge: JudgeSpec, ran: Ran) -> Ran:
        try:
            return replace(ran, receipt_id=await self.recorder.ended(validator, judge, ran))
        except StoreError:
            return Ran(judge=ran.judge, run_id=ran.run_id, cause="unavailable", detail="the log cannot be written")

    def _conversation(self, judge: JudgeSpec, run_id: str, workspace: Workspace) -> Conversation | None:
        if judge.model is None:
            return None
        return Conversation(
            rules=self.rules,
            judge=judge,
            model=judge.model,
            run_id=run_id,
            workspace=workspace,
            providers=self.providers,
            door=self.door,
            mask=self.mask,
        )

    async def _result(
        self,
        validator: Validator,
        judge: JudgeSpec,
        payload: dict[str, Any],
        workspace: Workspace,
        conversation: Conversation | None,
        deadline: float,
    ) -> Result:
        if conversation is None:
            return await run_command(judge, workspace, payload, deadline - time.monotonic())
        data, word = fenced(payload)
        return await conversation.result(validator.criteria, data, word, deadline)
