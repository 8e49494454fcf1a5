"""The gate: the `Decider` of this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from dataclasses import replace
from typing import Final

from aegis.audit.writer import Unit
from aegis.core.call import ToolCall, ToolResult
from aegis.core.decision import Decision, ResultDecision
from aegis.core.finding import Report
from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from aegis.core.receipt import Recorded
from aegis.errors import KeyFileError, StoreError
from aegis.gate.attesting import attest_session, project
from aegis.gate.commits import Commits
from aegis.gate.control import Control
from aegis.gate.decide import Decisions, unavailable
from aegis.gate.issuing import Issuing
from aegis.gate.missions import Missions
from aegis.gate.observe import Results, withheld
from aegis.gate.parts import Parts
from aegis.gate.streams import Framing, ResultStream, aevaluate_streaming, evaluate_streaming
from aegis.missions.attestation import View

_REFUSING: Final = (StoreError, KeyFileError)  # nothing can be recorded, or nothing can be signed
POLL_S: Final = 0.25  # how often a waiting caller looks at its approval


class Gate:
    """Decides calls and judges results, each recorded durably before it is answered.

    `principal` is whom this process acts as; a gateway passes the credential's principal instead.
    Safe for threads and for event loops. Where the log cannot be written the answer is a block with
    reason `unavailable`, never an exception and never an allow.
    """

    def __init__(self, parts: Parts, principal: Principal):
        self.parts = parts
        self.principal = principal
        self.control = Control(parts.store)
        self.missions = Missions(parts)
        self.issuing = Issuing(parts, self.missions)
        self._decisions = Decisions(parts, self.control, self.missions)
        self.results = Results(parts, self.missions)
        self._commits = Commits(parts.ledger)

    def decide(self, call: ToolCall, *, principal: Principal | None = None) -> Decision:
        """The decision on `call`, recorded. Raises `InvalidCall` for a call that can never be decided."""
        steps = self._decisions.steps(principal or self.principal, call)
        try:
            return self._commits.run(steps)
        except _REFUSING:
            return self._unavailable(call)

    async def adecide(self, call: ToolCall, *, principal: Principal | None = None) -> Decision:
        """`decide` for event loops: calls of one tick share one durable commit."""
        steps = self._decisions.steps(principal or self.principal, call)
        try:
            return await self._commits.arun(steps)
        except _REFUSING:
            return self._unavailable(call)

    def observe(self, result: ToolResult, *, principal: Principal | None = None) -> ResultDecision:
        """What may be made of a tool's result. Raises `InvalidCall` for a result that nobody asked for."""
        try:
            return self._commits.run(self.results.steps(principal or self.principal, result))
        except _REFUSING:
            return withheld()

    async def aobserve(self, result: ToolResult, *, principal: Principal | None = None) -> ResultDecision:
        """`observe` for event loops."""
        try:
            return await self._commits.arun(self.results.steps(principal or self.principal, result))
        except _REFUSING:
            return withheld()

    def attest_session(self, session: str, *, principal: Principal | None = None) -> str:
        """The signed summary of a session; raises `InvalidCall` where the log holds nothing of it."""
        whose = principal or self.principal
        return attest_session(self.parts, self.missions, whose, session, agent=whose.agent or whose.id)

    def project(self, receipt_id: str, view: View = "public", *, principal: Principal | None = None) -> str:
        """One receipt as a signed projection: `public`, or `audit` for auditors."""
        return project(self.parts, principal or self.principal, receipt_id, view)

    def stream(
        self, decision_id: str, *, principal: Principal | None = None, framing: Framing = "plain"
    ) -> ResultStream:
        """The judge of a result that arrives in pieces. Raises `InvalidCall` for one that nobody asked for."""
        return ResultStream(self, principal or self.principal, decision_id, framing=framing)

    def evaluate_streaming(
        self, decision_id: str, chunks: Iterable[bytes | str], *, framing: Framing = "plain"
    ) -> Iterator[bytes]:
        """What of a streamed result may be used, while it arrives; raises `StreamCut` where a condition fails."""
        return evaluate_streaming(self.stream(decision_id, framing=framing), chunks)

    def aevaluate_streaming(
        self, decision_id: str, chunks: AsyncIterable[bytes | str], *, framing: Framing = "plain"
    ) -> AsyncIterator[bytes]:
        """`evaluate_streaming` for event loops."""
        return aevaluate_streaming(self.stream(decision_id, framing=framing), chunks)

    def record_stream(
        self, principal: Principal, decision_id: str, report: Report, data: bytes, provenance: str | None
    ) -> ResultDecision:
        """Record what a stream came to."""
        try:
            return self._commits.run(self.results.stream_steps(principal, decision_id, report, data, provenance))
        except _REFUSING:
            return withheld()

    async def arecord_stream(
        self, principal: Principal, decision_id: str, report: Report, data: bytes, provenance: str | None
    ) -> ResultDecision:
        """`record_stream` for event loops."""
        try:
            return await self._commits.arun(self.results.stream_steps(principal, decision_id, report, data, provenance))
        except _REFUSING:
            return withheld()

    def wait(self, call: ToolCall, decision: Decision, timeout: float | None = None) -> Decision:
        """The decision that a held call comes to; on time-out the held decision itself, never an allow."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while decision.outcome is Outcome.REQUIRE_APPROVAL:
            if deadline is not None and time.monotonic() >= deadline:
                return decision
            time.sleep(POLL_S)
            decision = self.decide(_again(call, decision))
        return decision

    async def await_decision(
        self,
        call: ToolCall,
        decision: Decision,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Decision:
        """`wait` for event loops."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while decision.outcome is Outcome.REQUIRE_APPROVAL:
            if deadline is not None and time.monotonic() >= deadline:
                return decision
            await asyncio.sleep(POLL_S)
            decision = await self.adecide(_again(call, decision))
        return decision

    def record(self, unit: Unit) -> tuple[Recorded, ...]:
        """Record a control unit (an agent stopped, a configuration changed); raises `StoreError`."""
        return self._commits.append_sync(unit)

    async def arecord(self, unit: Unit) -> tuple[Recorded, ...]:
        """`record` for event loops."""
        return await self._commits.append(unit)

    @property
    def depth(self) -> int:
        """How many units wait for the log."""
        return self._commits.depth

    def close(self) -> None:
        """Finish what is under way and release the store."""
        self._commits.close()
        self.parts.close()

    def _unavailable(self, call: ToolCall) -> Decision:
        return unavailable(call, Reason.UNAVAILABLE, self.parts.policy.current.digest)


def _again(call: ToolCall, decision: Decision) -> ToolCall:
    return replace(call, call_id=decision.call_id)
