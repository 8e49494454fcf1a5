"""A result that arrives in pieces: judged on the way, recorded once at its end."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, closing
from typing import Any, Final, Literal, Protocol, TypeVar

from aegis.core.canonical import canonical, stream_result
from aegis.core.decision import ResultDecision
from aegis.core.finding import Finding, Report
from aegis.core.mission import Postcondition
from aegis.core.outcome import Category, Outcome, Reason, Risk, Verdict
from aegis.core.principal import Principal
from aegis.core.pumping import pumped
from aegis.detect.rules import Scanner
from aegis.errors import StreamCut
from aegis.gate.control import Control
from aegis.gate.observe import Results
from aegis.gate.parts import Parts
from aegis.policy.guards.stream import (
    EVENT_ENDS,
    HOLD_SECONDS,
    LINE_ENDS,
    Frames,
    FrameTooLarge,
    Prefilter,
    StreamJudge,
    StreamSummary,
    event_texts,
    json_texts,
)

# A source of pieces that also ticks while it is silent, so that what was held back is released in time.

T = TypeVar("T")


async def ticking(source: AsyncIterable[T], seconds: float, wanted: Callable[[], bool]) -> AsyncGenerator[T | None]:
    """Every piece of `source`, and `None` after `seconds` of silence while ticks are `wanted`.

    The source runs in one task of its own, at most one piece ahead; what it raises is raised here.
    """
    pieces: asyncio.Queue[T] = asyncio.Queue(1)

    async def pump() -> None:
        async for piece in source:
            await pieces.put(piece)

    pumping = asyncio.ensure_future(pump())
    getting = asyncio.ensure_future(pieces.get())
    try:
        while not (pumping.done() and pieces.empty() and not getting.done()):
            waiting: set[asyncio.Future[Any]] = {getting} if pumping.done() else {getting, pumping}
            done, _ = await asyncio.wait(
                waiting, timeout=seconds if wanted() else None, return_when=asyncio.FIRST_COMPLETED
            )
            if getting.done():
                piece = getting.result()
                getting = asyncio.ensure_future(pieces.get())
                yield piece
            elif not done:
                yield None
        pumping.result()
    finally:
        for task in (pumping, getting):
            task.cancel()
        await asyncio.gather(pumping, getting, return_exceptions=True)


Framing = Literal["plain", "sse", "lines"]
FRAMINGS: Final[tuple[Framing, ...]] = ("plain", "sse", "lines")
# Instructions in what a tool gives back are cut on every stream, whatever the mission says.
# Like any result they are read as far as the usual limit of one, which is a mebibyte.
ALWAYS: Final = Postcondition(id="content", check="no_instructions", window=1_048_576)

_prefilters: weakref.WeakKeyDictionary[Scanner, dict[frozenset[Category], Prefilter]] = weakref.WeakKeyDictionary()


class Recording(Protocol):
    """The gate, as far as a stream needs it."""

    @property
    def parts(self) -> Parts: ...

    @property
    def control(self) -> Control: ...

    @property
    def results(self) -> Results: ...

    def record_stream(
        self, principal: Principal, decision_id: str, report: Report, data: bytes, provenance: str | None
    ) -> ResultDecision: ...

    async def arecord_stream(
        self, principal: Principal, decision_id: str, report: Report, data: bytes, provenance: str | None
    ) -> ResultDecision: ...


class ResultStream:
    """One streamed result: `feed` gives what may be passed on, `close` records what it came to.

    `framing` says what a piece is: plain bytes, server-sent events, or lines of JSON (MCP). The content is
    digested where its tool signs it, or `digest` asks for it.
    """

    def __init__(
        self,
        gate: Recording,
        principal: Principal,
        decision_id: str,
        *,
        framing: Framing = "plain",
        digest: bool = False,
    ):
        declared = gate.results.opened_stream(principal, decision_id)
        scanner = gate.parts.policy.current.scanner
        self._gate = gate
        self._principal = principal
        self._decision_id = decision_id
        self._judge = StreamJudge(
            (ALWAYS, *declared.conditions),
            lambda wanted: _prefilter(scanner, wanted),
            digest=digest or declared.signs,
            framed=framing != "plain",
            opens=declared.opens,
        )
        self._frames = None if framing == "plain" else Frames(EVENT_ENDS if framing == "sse" else LINE_ENDS)
        self._texts: Callable[[bytes], dict[str, bytes]] = event_texts if framing == "sse" else json_texts
        self._agent = declared.agent
        self._too_large = False
        self._stopped = False
        self.taken = 0  # bytes that came
        self.released = 0  # bytes, from the first on, that may be passed on

    @property
    def holds(self) -> bool:
        """Whether something is held back that `due` will give in time."""
        return self._judge.holds

    @property
    def is_cut(self) -> bool:
        """Whether nothing more of the stream may be passed on."""
        return self._judge.is_cut or self._too_large or self._stopped

    def feed(self, piece: bytes) -> bytes:
        """Take one piece; the bytes that may be passed on now."""
        self.taken += len(piece)
        now = time.monotonic()
        if self._frames is None:
            return self._passed(self._judge.feed(piece, now))
        passed: list[bytes] = []
        try:
            for one in self._frames.feed(piece):
                passed.append(self._judge.feed(one, now, texts=self._texts(one)))
        except FrameTooLarge:
            self._too_large = True
        return self._passed(b"".join(passed))

    def patience(self) -> float | None:
        """For how many seconds more may be waited for until something is due; `None`: for ever."""
        return self._judge.patience(time.monotonic())

    def due(self) -> bytes:
        """What was held back for as long as the promise allows."""
        return self._passed(self._judge.due(time.monotonic()))

    def rest(self) -> bytes:
        """What was held back, at the end of the stream."""
        out = b""
        if self._frames is not None and (last := self._frames.rest()):
            out = self._judge.feed(last, time.monotonic(), texts=self._texts(last))
        return self._passed(out + self._judge.finish())

    def _passed(self, data: bytes) -> bytes:
        # As this process last read it: a look at the store for every piece would hold up the loop. The end is exact.
        self._stopped = self._stopped or self._gate.control.latest().stops(self._agent)
        if self._stopped:
            return b""
        self.released += len(data)
        return data

    def close(self, *, broken: bool = False, provenance: str | None = None) -> ResultDecision:
        """The one attestation of the stream; `broken` where it ended before its end."""
        report, data = self._report(broken)
        return self._gate.record_stream(self._principal, self._decision_id, report, data, provenance)

    async def aclose(self, *, broken: bool = False, provenance: str | None = None) -> ResultDecision:
        """`close` for event loops."""
        report, data = self._report(broken)
        return await self._gate.arecord_stream(self._principal, self._decision_id, report, data, provenance)

    def _report(self, broken: bool) -> tuple[Report, bytes]:
        summary = self._judge.summary(broken=broken or self._too_large)
        attested = stream_result(size=summary.size, digest=summary.digest, broken=summary.broken)
        return self._judged(summary), canonical(attested)

    def _judged(self, summary: StreamSummary) -> Report:
        missing = [f"postcondition.{name}" for name in summary.unjudged]
        if summary.broken:
            missing.append("stream.end")
        findings = (
            *(_finding(name, Outcome.BLOCK, "the stream was cut: it") for name in summary.failed),
            *(_finding(name, Outcome.ALLOW, "the stream") for name in summary.noted),
        )
        if not findings:
            return Report(guard="stream", missing=tuple(missing))
        return Report(
            guard="stream",
            outcome=Outcome.BLOCK if summary.failed else Outcome.ALLOW,
            verdict=Verdict.VIOLATION,
            reason=Reason.POSTCONDITION_FAILED if summary.failed else Reason.NONE,
            risk=Risk.HIGH,
            findings=findings,
            missing=() if summary.failed else tuple(missing),
        )


def evaluate_streaming(
    stream: ResultStream, chunks: Iterable[bytes | str], provenance: Callable[[], str | None] | None = None
) -> Iterator[bytes]:
    """What of `chunks` may be used, as they arrive; records one attestation at the end.

    `provenance` gives the tool's signature over the whole, and is asked once the last chunk came. The source of
    the chunks runs in a thread of its own, so that what is held back is given in time though no chunk comes.

    Raises `StreamCut` where a condition fails, and where the whole may not be used after all.
    """
    ended = False
    try:
        with closing(pumped(chunks, stream.patience)) as pieces:
            for chunk in pieces:
                if chunk is None:
                    passed = stream.due()
                else:
                    passed = stream.feed(chunk.encode() if isinstance(chunk, str) else chunk)
                if stream.is_cut:
                    break
                if passed:
                    yield passed
        last = b"" if stream.is_cut else stream.rest()
        ended = True
    finally:
        if not ended:  # the source failed, or whoever reads went away
            stream.close(broken=True)
    decision = stream.close(provenance=None if provenance is None or stream.is_cut else provenance())
    if not decision.allowed:
        raise StreamCut(decision)
    if last:
        yield last


async def aevaluate_streaming(
    stream: ResultStream, chunks: AsyncIterable[bytes | str], provenance: Callable[[], str | None] | None = None
) -> AsyncIterator[bytes]:
    """`evaluate_streaming` for event loops; what is held back is given in time though no chunk comes."""
    ended = False
    try:
        async with aclosing(ticking(chunks, HOLD_SECONDS, lambda: stream.holds)) as pieces:
            async for chunk in pieces:
                if chunk is None:
                    passed = stream.due()
                else:
                    passed = stream.feed(chunk.encode() if isinstance(chunk, str) else chunk)
                if stream.is_cut:
                    break
                if passed:
                    yield passed
        last = b"" if stream.is_cut else stream.rest()
        ended = True
    finally:
        if not ended:
            await stream.aclose(broken=True)
    decision = await stream.aclose(provenance=None if provenance is None or stream.is_cut else provenance())
    if not decision.allowed:
        raise StreamCut(decision)
    if last:
        yield last


def _finding(name: str, outcome: Outcome, what: str) -> Finding:
    return Finding(
        guard="stream",
        rule=f"postcondition-{name}",
        category="policy",
        severity=Risk.HIGH,
        outcome=outcome,
        message=f"{what} does not meet a condition of the mission",
    )


def _prefilter(scanner: Scanner, categories: frozenset[Category]) -> Prefilter:
    known = _prefilters.setdefault(scanner, {})
    if categories not in known:
        known[categories] = Prefilter(scanner, categories)
    return known[categories]
