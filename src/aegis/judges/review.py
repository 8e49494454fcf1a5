"""All judges of one call, in order: the first that says no ends it, and later ones are never started.

(1) which validators the call is for; a tool that goes without judges goes on
(2) an intent that was denied too often is refused without looking
(3) the mounts are read, and judged as they are
(4) each validator: a payload that is whole, a budget that is left, verdicts that still hold, runs
(5) the mounts are read again: a verdict about other files is judged again
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aegis.core.judging import JudgeSpec, Validator
from aegis.errors import WorkspaceError
from aegis.judges.memory import Intent, Key, Memory
from aegis.judges.model import REJECTED, Cause, Ran, Reviewed
from aegis.judges.panel import agree
from aegis.judges.payload import Payload, Subject, make_payload
from aegis.judges.run import Runner
from aegis.judges.selecting import About, selected, skips
from aegis.judges.workspace import Workspace, read_workspace

AGAIN: Final = 2  # how often a call is judged anew because files changed under its judges


@dataclass(frozen=True, kw_only=True)
class Review:
    """Looks at one call. `spent_out` says whether a ceiling is reached for this judge."""

    runner: Runner
    memory: Memory
    spent_out: Callable[[JudgeSpec], Awaitable[bool]]

    async def of(self, subject: Subject, about: About) -> Reviewed:
        """What the judges make of the call."""
        # (1)
        validators = selected(self.runner.rules.validators, about)
        if not validators or skips(about):
            return Reviewed(cause="passed", skipped=bool(validators))
        # (2)
        intent = Intent(subject.principal, subject.server or "", subject.tool)
        if self.memory.is_probing(intent, subject.call_digest, self.runner.rules.probes):
            return Reviewed(cause="probing")
        reviewed = await self._judged(subject, validators)
        if reviewed.cause in REJECTED:
            self.memory.count(intent, subject.call_digest)
        return reviewed

    async def _judged(self, subject: Subject, validators: Sequence[Validator]) -> Reviewed:
        for _ in range(AGAIN):
            try:
                workspace = await _read(subject.mounts)  # (3)
                reviewed = await self._in_order(subject, validators, workspace)
                after = await _read(subject.mounts)  # (5)
            except WorkspaceError as error:
                return Reviewed(cause="workspace", reasoning=str(error))
            if after.digest == workspace.digest or reviewed.cause != "passed":
                return reviewed
        return Reviewed(cause="workspace", reasoning="the workspace changes while it is judged", runs=reviewed.runs)

    async def _in_order(self, subject: Subject, validators: Sequence[Validator], workspace: Workspace) -> Reviewed:
        done: list[Ran] = []
        rules = self.runner.rules
        for validator in validators:  # (4)
            payload = make_payload(subject, validator.criteria, rules.budget_bytes)
            cause: Cause = "passed"
            if payload.hides or (payload.truncated and rules.truncated == "reject"):
                cause = "truncated"
            elif any([await self.spent_out(judge) for judge in validator.judges]):
                cause = "ceiling"
            if cause == "passed":
                runs = await self._panel(validator, payload, workspace, subject.call_digest)
                done += runs
                cause = agree(validator, runs)
            if cause != "passed":
                reasoning = _reasoning(validator, done)
                return Reviewed(
                    cause=cause,
                    validator=validator.name,
                    reasoning=reasoning,
                    runs=tuple(done),
                    workspace=workspace.digest,
                )
        return Reviewed(cause="passed", runs=tuple(done), workspace=workspace.digest)

    async def _panel(self, validator: Validator, payload: Payload, workspace: Workspace, call_digest: str) -> list[Ran]:
        """All judges of one validator at the same time; when one cannot go on, none is left behind."""
        if len(validator.judges) == 1:
            return [await self._one(validator, validator.judges[0], payload, workspace, call_digest)]
        async with asyncio.TaskGroup() as group:
            jobs = [
                group.create_task(self._one(validator, judge, payload, workspace, call_digest))
                for judge in validator.judges
            ]
        return [job.result() for job in jobs]

    async def _one(
        self, validator: Validator, judge: JudgeSpec, payload: Payload, workspace: Workspace, call_digest: str
    ) -> Ran:
        criteria = hashlib.sha256(validator.criteria.encode()).hexdigest()
        key = Key(call_digest, criteria, judge.version, workspace.digest)
        if validator.cache_seconds:
            known = self.memory.find(key, judge.name)
            if known is not None:
                return known
        ran = await self.runner.run(validator, judge, payload, workspace)
        self.memory.keep(key, ran, validator.cache_seconds)
        return ran


async def _read(mounts: Sequence[str]) -> Workspace:
    """The mounts as they are now; reading is left to a thread, and nothing needs none."""
    return await asyncio.to_thread(read_workspace, mounts) if mounts else read_workspace(())


def _reasoning(validator: Validator, runs: Sequence[Ran]) -> str:
    """The words of the judge of this validator that thought least of the call."""
    names = {judge.name for judge in validator.judges}
    said = [run.result for run in runs if run.judge in names and run.result is not None]
    return min(said, key=lambda one: one.score).reasoning if said else ""
