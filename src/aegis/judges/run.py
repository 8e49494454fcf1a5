"""One run of one judge: a child execution with its own id, on record when it starts and when it ends.

(1) its start is on record, or it does not start
(2) it runs within its deadline; when that is over, or its caller is gone, every process of it is
(3) whatever it came to has a cause
(4) its end is on record, in every case
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from msgspec import structs

from aegis.core.judging import JudgeRules, JudgeSpec, Validator
from aegis.errors import SandboxUnavailable, StoreError, WorkspaceError
from aegis.judges.agent import Conversation, GateDoor
from aegis.judges.payload import JudgePayload, JudgeSubject, Mask, fenced, make_payload, masked
from aegis.judges.providers import About, Failed, JudgeProviders, run_command, run_extension, selected, skips
from aegis.judges.values import REJECTED, Cause, JudgeRan, Malformed, Result, Reviewed, Spent
from aegis.judges.workspace import Workspace, read_workspace

# What judges remember between calls: verdicts that may be used again, and intents that were denied.
#
# The memory is the store's, so that every process of a deployment has the same one.

PROBING_S: Final = 300


class Key(NamedTuple):
    """Everything that a verdict depends on."""

    call_digest: str
    criteria: str
    judge: str
    workspace: str


class Intent(NamedTuple):
    """What is tried again in other words: who calls which tool."""

    principal: str
    server: str
    tool: str


class JudgeMemory(Protocol):
    """Verdicts of well-formed runs, and what judges denied in the last five minutes; raises `StoreError`."""

    def find(self, key: Key, judge: str) -> JudgeRan | None:
        """The run whose verdict still holds, marked as `cached`."""
        ...

    def keep(self, key: Key, ran: JudgeRan, seconds: int) -> None:
        """Let the verdict of a well-formed run count for so many seconds."""
        ...

    def is_probing(self, intent: Intent, call_digest: str, bound: int) -> bool:
        """Whether so many other variants were denied that this one is refused without looking."""
        ...

    def count(self, intent: Intent, call_digest: str) -> None:
        """This variant of the intent was denied."""
        ...


# What several judges of one call come to together; thresholds hold with `>=`, and silence counts against the call.


def agree(validator: Validator, runs: Sequence[JudgeRan]) -> Cause:
    """The cause that the runs of one validator amount to.

    (1) a single judge: its own cause
    (2) too few well-formed answers: the cause of the first that failed
    (3) disagreement beyond `min_agreement`: a person
    (4) the consensus rule; a judge that failed counts as a no in every rule that counts heads
    """
    # (1)
    if len(validator.judges) == 1:
        return _of_one(validator, runs[0])
    # (2)
    answered = [run.result for run in runs if run.result is not None]
    if len(answered) < validator.min_judges:
        failed: Cause = next((run.cause for run in runs if run.result is None), "failed")
        return "failed" if failed == "passed" else failed
    # (3)
    yes = sum(_of_one(validator, run) == "passed" for run in runs)
    if max(yes, len(runs) - yes) / len(runs) < validator.min_agreement:
        return "disagreement"
    # (4)
    if validator.consensus == "unanimous":
        return "passed" if yes == len(runs) else "consensus"
    if validator.consensus == "majority":
        return "passed" if 2 * yes > len(runs) else "consensus"
    return enough(validator, _together(validator, answered))


def _together(validator: Validator, answered: Sequence[Result]) -> Result:
    """One result for all: the most confident one, or the mean weighted by confidence."""
    if validator.consensus == "best_of_n":
        return max(answered, key=lambda one: (one.confidence, -one.score))
    weight = sum(one.confidence for one in answered)
    score = sum(one.score * one.confidence for one in answered) / weight if weight else 0.0
    return Result(score=score, confidence=weight / len(answered), reasoning="")


def _of_one(validator: Validator, run: JudgeRan) -> Cause:
    return run.cause if run.result is None else enough(validator, run.result)


def enough(validator: Validator, result: Result) -> Cause:
    """Whether one result meets both thresholds, and otherwise which it misses."""
    if result.score < validator.min_score:
        return "score"
    return "confidence" if result.confidence < validator.min_confidence else "passed"


_log = logging.getLogger("aegis.judges")


class Recorder(Protocol):
    """Puts the start and the end of a run on record; raises `StoreError` where it cannot."""

    def started(self, validator: Validator, judge: JudgeSpec, payload: dict[str, Any]) -> Awaitable[str]:
        """The id of the run that was recorded as started."""
        ...

    def ended(self, validator: Validator, judge: JudgeSpec, ran: JudgeRan) -> Awaitable[str]:
        """The id of the receipt of its end."""
        ...


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Runs judges for one call."""

    rules: JudgeRules
    recorder: Recorder
    providers: JudgeProviders
    door: GateDoor
    mask: Mask
    places: asyncio.Semaphore

    async def run(
        self, validator: Validator, judge: JudgeSpec, payload: JudgePayload, workspace: Workspace
    ) -> JudgeRan:
        """What `judge` makes of the call. Raises `CancelledError` alone, after its end is on record."""
        began = time.monotonic()
        deadline = began + min(validator.seconds, judge.limits.seconds)
        # (1)
        shown = payload.value if judge.model is None else masked(payload.value, self.mask)
        try:
            run_id = await self.recorder.started(validator, judge, shown)
        except StoreError:
            return JudgeRan(judge=judge.name, run_id="", cause="unavailable", detail="the log cannot be written")
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
        ran = JudgeRan(
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

    async def _end(self, validator: Validator, judge: JudgeSpec, ran: JudgeRan) -> JudgeRan:
        try:
            return structs.replace(ran, receipt_id=await self.recorder.ended(validator, judge, ran))
        except StoreError:
            return JudgeRan(judge=ran.judge, run_id=ran.run_id, cause="unavailable", detail="the log cannot be written")

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
        if judge.extension:
            return await run_extension(judge, payload)
        if conversation is None:
            return await run_command(judge, workspace, payload, deadline - time.monotonic())
        data, word = fenced(payload)
        return await conversation.result(validator.criteria, data, word, deadline)


# All judges of one call, in order: the first that says no ends it, and later ones are never started.
#
# (1) which validators the call is for; a tool that goes without judges goes on
# (2) an intent that was denied too often is refused without looking
# (3) the mounts are read, and judged as they are
# (4) each validator: a payload that is whole, a budget that is left, verdicts that still hold, runs
# (5) the mounts are read again: a verdict about other files is judged again

AGAIN: Final = 2  # how often a call is judged anew because files changed under its judges


@dataclass(frozen=True, kw_only=True)
class Review:
    """Looks at one call. `spent_out` says whether a ceiling is reached for this judge."""

    runner: Runner
    memory: JudgeMemory
    spent_out: Callable[[JudgeSpec], Awaitable[bool]]

    async def of(self, subject: JudgeSubject, about: About) -> Reviewed:
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

    async def _judged(self, subject: JudgeSubject, validators: Sequence[Validator]) -> Reviewed:
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

    async def _in_order(self, subject: JudgeSubject, validators: Sequence[Validator], workspace: Workspace) -> Reviewed:
        done: list[JudgeRan] = []
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

    async def _panel(
        self, validator: Validator, payload: JudgePayload, workspace: Workspace, call_digest: str
    ) -> list[JudgeRan]:
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
        self, validator: Validator, judge: JudgeSpec, payload: JudgePayload, workspace: Workspace, call_digest: str
    ) -> JudgeRan:
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


def _reasoning(validator: Validator, runs: Sequence[JudgeRan]) -> str:
    """The words of the judge of this validator that thought least of the call."""
    names = {judge.name for judge in validator.judges}
    said = [run.result for run in runs if run.judge in names and run.result is not None]
    return min(said, key=lambda one: one.score).reasoning if said else ""


# Where judges run: one thread with an event loop of its own, so that no caller's loop is ever held by one.

T = TypeVar("T")
THREADS: Final = 256  # programs of judges at a time, whatever the configuration allows
CLOSE_S: Final = 5.0  # how long judges that are given up may take to be gone


class JudgeLoop:
    """The loop, made at first use; a forked child makes its own. `begin` runs on it before anything else."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, None]]):
        self._begin = begin
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0
        self._places: dict[int, asyncio.Semaphore] = {}
        self.providers = JudgeProviders()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` on the loop; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def places(self, count: int) -> asyncio.Semaphore:
        """So many judges run at a time; asked for on the loop alone."""
        return self._places.setdefault(count, asyncio.Semaphore(count))

    def close(self) -> None:
        """Give up what runs, and end the thread once it is gone."""
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None or self._process != os.getpid():
            return
        asyncio.run_coroutine_threadsafe(self._end(loop), loop)
        thread.join(CLOSE_S)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                self._process, self._places, self.providers = os.getpid(), {}, JudgeProviders()
                loop = self._loop = asyncio.new_event_loop()
                loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="aegis-judge"))
                self._thread = threading.Thread(target=self._serve, args=(loop,), name="aegis-judges", daemon=True)
                self._thread.start()
                asyncio.run_coroutine_threadsafe(self._begin(), loop)
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    async def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        others = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=CLOSE_S)
        await self.providers.aclose()
        loop.stop()
