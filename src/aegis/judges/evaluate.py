"""Running a judge over labelled calls, replaying such runs without it, and how well it agrees with people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from aegis.core.call import MAX_TASK_CHARS
from aegis.core.canonical import call_digest, canonical
from aegis.core.json import convert, decode, parse
from aegis.core.judging import JudgeRules, JudgeSpec, Validator
from aegis.detect.facts import FactSubject as Called
from aegis.detect.facts import ReadLimits
from aegis.detect.gather import executed_places
from aegis.errors import InvalidCall, WorkspaceError
from aegis.judges.agent import GateDoor
from aegis.judges.payload import JudgeSubject, Mask, make_payload
from aegis.judges.providers import JudgeProviders
from aegis.judges.run import Runner
from aegis.judges.values import JudgeRan
from aegis.judges.workspace import read_workspace

# How well a judge agrees with people: agreement, precision and recall at each threshold, and a reliability curve.
#
# The class that counts is *rejected*: precision is the share of rejections that people share, recall the share of
# what people reject that the judge rejects. A run that gave no answer rejects at every threshold.

THRESHOLDS: Final = tuple(step / 20 for step in range(1, 20))
BINS: Final = 10


class Scored(Struct, frozen=True, kw_only=True):
    """One labelled call and what the judge made of it; `score` is `None` where it gave no answer."""

    allow: bool
    score: float | None
    confidence: float = 0.0
    cause: str = "passed"
    seconds: float = 0.0
    tokens: int = 0
    cost: int = 0


def calibrate(rows: Sequence[Scored], *, min_confidence: float = 0.0) -> dict[str, Any]:
    """The figures over all labelled calls."""
    seconds = sorted(row.seconds for row in rows)
    return {
        "cases": len(rows),
        "answered": sum(row.score is not None for row in rows),
        "failures": _failures(rows),
        "thresholds": [_at(rows, threshold, min_confidence) for threshold in THRESHOLDS],
        "reliability": _reliability(rows),
        "latency_ms": {
            "median": round(1_000 * median(seconds)) if seconds else 0,
            "p95": round(1_000 * seconds[min(len(seconds) - 1, len(seconds) * 95 // 100)]) if seconds else 0,
        },
        "tokens": sum(row.tokens for row in rows),
        "cost": sum(row.cost for row in rows) / 1_000_000,
    }


def _at(rows: Sequence[Scored], threshold: float, min_confidence: float) -> dict[str, Any]:
    hit = wrong = missed = right = 0
    for row in rows:
        rejects = row.score is None or row.score < threshold or row.confidence < min_confidence
        if rejects and not row.allow:
            hit += 1
        elif rejects:
            wrong += 1
        elif not row.allow:
            missed += 1
        else:
            right += 1
    return {
        "threshold": threshold,
        "agreement": _share(hit + right, len(rows)),
        "precision": _share(hit, hit + wrong),
        "recall": _share(hit, hit + missed),
    }


def _share(part: int, whole: int) -> float | None:
    """`None` where there is nothing to take a share of."""
    return round(part / whole, 4) if whole else None


def _failures(rows: Sequence[Scored]) -> dict[str, int]:
    causes = [row.cause for row in rows if row.score is None]
    return {cause: causes.count(cause) for cause in sorted(set(causes))}


def _reliability(rows: Sequence[Scored]) -> list[dict[str, Any]]:
    """For each tenth of scores: their mean, and the share of those calls that people allow."""
    found = []
    for number in range(BINS):
        inside = [row for row in rows if row.score is not None and min(BINS - 1, int(row.score * BINS)) == number]
        if inside:
            mean = sum(row.score or 0.0 for row in inside) / len(inside)
            allowed = sum(row.allow for row in inside) / len(inside)
            found.append({"score": round(mean, 4), "allowed": round(allowed, 4), "cases": len(inside)})
    return found


def reliability_svg(reliability: Sequence[dict[str, Any]], title: str) -> str:
    """The reliability curve as a small drawing: on the diagonal, a score says how often people allow."""
    size, edge = 320, 40
    inner = size - 2 * edge

    def place(x: float, y: float) -> tuple[float, float]:
        return round(edge + x * inner, 1), round(size - edge - y * inner, 1)

    points = [place(one["score"], one["allowed"]) for one in reliability]
    line = " ".join(f"{x},{y}" for x, y in points)
    sizes = [one["cases"] for one in reliability]
    dots = "".join(
        f'<circle cx="{x}" cy="{y}" r="{3 + min(7, count**0.5):.1f}"><title>{count} cases</title></circle>'
        for (x, y), count in zip(points, sizes, strict=True)
    )
    ticks = "".join(
        f'<text x="{place(step / 5, 0)[0]}" y="{size - edge + 16}" text-anchor="middle">{step / 5:g}</text>'
        f'<text x="{edge - 8}" y="{place(0, step / 5)[1] + 4}" text-anchor="end">{step / 5:g}</text>'
        for step in range(6)
    )
    (left, bottom), (right, top) = place(0, 0), place(1, 1)
    name = "".join(sign for sign in title if sign.isalnum() or sign in " ._-")[:60]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" role="img" font-family="sans-serif" '
        f'font-size="11"><title>Reliability of {name}</title><rect width="{size}" height="{size}" fill="#fff"/>'
        f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#555"/>'
        f'<path d="M{left} {bottom}L{right} {top}" stroke="#999" stroke-dasharray="4 4"/>'
        f'<polyline points="{line}" fill="none" stroke="#0a6" stroke-width="2"/><g fill="#0a6">{dots}</g>{ticks}'
        f'<text x="{size / 2}" y="{size - 6}" text-anchor="middle">score of the judge</text>'
        f'<text x="12" y="{size / 2}" text-anchor="middle" transform="rotate(-90 12 {size / 2})">'
        f"share that people allow</text></svg>\n"
    )


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
            cases.append(convert(parse(line.encode()), kind))
        except (InvalidCall, msgspec.ValidationError) as error:
            raise InvalidCall(f"line {number} is not a labelled call: {error}") from error
        if len(cases) > MAX_CASES or len(cases[-1].task or "") > MAX_TASK_CHARS:
            raise InvalidCall(f"line {number}: there is too much of it")
    return cases


def read_runs(text: str) -> list[RecordedRun]:
    """Runs that were kept; raises `InvalidCall` where a line is none."""
    try:
        return [decode(line, RecordedRun) for line in text.splitlines() if line.strip()]
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
