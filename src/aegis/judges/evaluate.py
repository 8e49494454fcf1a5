"""Running a judge over labelled calls, and replaying such runs without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from aegis.core.call import MAX_TASK_CHARS
from aegis.core.canonical import call_digest, canonical
from aegis.core.json import parse
from aegis.core.judging import JudgeRules, JudgeSpec, Validator
from aegis.detect.facts import FactSubject as Called
from aegis.detect.facts import ReadLimits
from aegis.detect.gather import executed_places
from aegis.errors import InvalidCall, WorkspaceError
from aegis.judges.agent import GateDoor
from aegis.judges.calibration import Scored
from aegis.judges.payload import JudgeSubject, Mask, make_payload
from aegis.judges.providers import JudgeProviders
from aegis.judges.run import Runner
from aegis.judges.values import JudgeRan
from aegis.judges.workspace import read_workspace

MAX_CASES: Final = 100_000


class Labelled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call with what people say about it."""

    tool: str
    arguments: dict[str, Any]
    label: Literal["allow", "reject"]
    server: str | None = None
    task: str | None = None
    id: str = ""
    mounts: list[str] = []
    available_tools: list[Any] = []


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run as it was kept: enough to be counted again, and to see what the judge said."""

    call_digest: str
    judge: str
    version: str
    label: Literal["allow", "reject"]
    cause: str
    score: float | None
    confidence: float
    reasoning: str
    seconds: float
    tokens: int
    cost: int


def read_lines(text: str, kind: type[Labelled]) -> list[Labelled]:
    """The labelled calls, one a line; raises `InvalidCall` naming the line of the first that is none."""
    cases: list[Labelled] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            cases.append(msgspec.convert(parse(line.encode()), kind))
        except (InvalidCall, msgspec.ValidationError) as error:
            raise InvalidCall(f"line {number} is not a labelled call: {error}") from error
        if len(cases) > MAX_CASES or len(cases[-1].task or "") > MAX_TASK_CHARS:
            raise InvalidCall(f"line {number}: there is too much of it")
    return cases


def read_runs(text: str) -> list[RecordedRun]:
    """Runs that were kept; raises `InvalidCall` where a line is none."""
    try:
        return [msgspec.json.decode(line, type=RecordedRun) for line in text.splitlines() if line.strip()]
    except msgspec.DecodeError as error:
        raise InvalidCall(f"the file does not hold recorded runs: {error}") from error


def scored(run: RecordedRun) -> Scored:
    """A kept run as it is counted."""
    return Scored(
        allow=run.label == "allow",
        score=run.score,
        confidence=run.confidence,
        cause=run.cause,
        seconds=run.seconds,
        tokens=run.tokens,
        cost=run.cost,
    )


@dataclass(frozen=True)
class _Unrecorded:
    """An evaluation is no review: its runs are kept in a file of the caller's, and not in the log."""

    async def started(self, validator: Validator, judge: JudgeSpec, payload: dict[str, Any]) -> str:
        return f"eval-{id(payload):x}"

    async def ended(self, validator: Validator, judge: JudgeSpec, ran: JudgeRan) -> str:
        return ""


async def evaluate(
    judge: JudgeSpec,
    cases: Sequence[Labelled],
    *,
    criteria: str,
    door: GateDoor,
    mask: Mask,
    concurrency: int,
    done: Callable[[int], None],
) -> list[RecordedRun]:
    """What `judge` makes of every case, in order; its own tool calls go through `door`."""
    rules, providers = JudgeRules(), JudgeProviders()
    runner = Runner(
        rules=rules,
        recorder=_Unrecorded(),
        providers=providers,
        door=door,
        mask=mask,
        places=asyncio.Semaphore(concurrency),
    )
    validator = Validator(name="eval", judges=(judge,), criteria=criteria)

    finished: list[Labelled] = []

    async def one(case: Labelled) -> RecordedRun:
        digest = call_digest(server=case.server, tool=case.tool, arguments=canonical(case.arguments))
        try:
            workspace = await asyncio.to_thread(read_workspace, case.mounts)
            payload = make_payload(_subject(case, digest), criteria, rules.budget_bytes)
            ran = (
                JudgeRan(judge=judge.name, run_id="", cause="truncated")
                if payload.hides
                else await runner.run(validator, judge, payload, workspace)
            )
        except WorkspaceError as error:
            ran = JudgeRan(judge=judge.name, run_id="", cause="workspace", detail=str(error))
        finished.append(case)
        done(len(finished))
        return _recorded(case, digest, judge, ran)

    try:
        return list(await asyncio.gather(*(one(case) for case in cases)))
    finally:
        await providers.aclose()


def _recorded(case: Labelled, digest: str, judge: JudgeSpec, ran: JudgeRan) -> RecordedRun:
    return RecordedRun(
        call_digest=digest,
        judge=judge.name,
        version=judge.version,
        label=case.label,
        cause="answered" if ran.result is not None else ran.cause,
        score=None if ran.result is None else ran.result.score,
        confidence=0.0 if ran.result is None else ran.result.confidence,
        reasoning="" if ran.result is None else ran.result.reasoning,
        seconds=ran.seconds,
        tokens=ran.spent.tokens_in + ran.spent.tokens_out,
        cost=ran.spent.cost,
    )


def _subject(case: Labelled, digest: str) -> JudgeSubject:
    return JudgeSubject(
        tool=case.tool,
        server=case.server,
        arguments=case.arguments,
        call_id=case.id or digest[-12:],
        call_digest=digest,
        agent="eval",
        principal="eval",
        session="",
        turn=None,
        task=case.task,
        task_is_trusted=case.task is not None,
        available_tools=case.available_tools,
        mounts=tuple(case.mounts),
        facts={},
        findings=[],
        policy_violations=[],
        recent_calls=[],
        executed=executed_places(
            Called(tool=case.tool, server=case.server, arguments=case.arguments, limits=ReadLimits())
        ),
    )
