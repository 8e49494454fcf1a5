"""The gate: the `Decider` of this process, over whichever participants it is given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from aegis.core.call import ToolCall, ToolResult
from aegis.core.decision import Decision, ResultDecision
from aegis.core.finding import Report
from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from aegis.core.receipt import Recorded
from aegis.errors import InvalidCall, KeyFileError, StoreError
from aegis.gate.commits import Commits
from aegis.gate.control import Control, stopped_agent
from aegis.gate.decide import Decisions, unavailable
from aegis.gate.events import uncovered
from aegis.gate.observe import Results, withheld
from aegis.gate.participants import Participant, asked_of
from aegis.gate.parts import Parts
from aegis.gate.permits import Redeeming
from aegis.gate.record import Subject
from aegis.gate.streams import Framing, ResultStream, aevaluate_streaming, evaluate_streaming
from aegis.log.writer import Unit

if TYPE_CHECKING:  # of a gateway alone: whoever decides once loads none of it
    from aegis.gate.workers import Workers

_REFUSING: Final = (StoreError, KeyFileError)  # nothing can be recorded, or nothing can be signed
T = TypeVar("T")
POLL_S: Final = 0.05  # how often a waiting caller looks at its approval


class Gate:
    """Decides calls and judges results, each recorded durably before it is answered.

    `principal` is whom this process acts as; a gateway passes the credential's principal instead.
    Safe for threads and for event loops. Where the log cannot be written the answer is a block with
    reason `unavailable`, never an exception and never an allow.
    """

    def __init__(
        self,
        parts: Parts,
        principal: Principal,
        *,
        control: Control,
        commits: Commits,
        results: Results,
        participants: Sequence[Participant],
    ):
        self.parts = parts
        self.principal = principal
        self.control = control
        self.results = results
        self._commits = commits
        self._decisions = Decisions(parts, control, participants)
        self._redeeming = Redeeming(parts, control, participants)
        self._asks_waiting = asked_of(participants, "waits")

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

    async def adecide_for(self, call: ToolCall, *, principal: Principal, worker: Subject | None) -> Decision:
        """`adecide` for a call that is made to look at a call of `worker`, within what that one may do."""
        try:
            return await self._commits.arun(self._decisions.steps(principal, call, worker=worker))
        except _REFUSING:
            return self._unavailable(call)

    def use(self, workers: Workers) -> None:
        """Have what is heavy evaluated by `workers` from now on; whoever made them closes them."""
        self._decisions.workers = self.results.workers = workers

    def expect_no_interruptions(self) -> None:
        """Tell the gate that no handler of a signal raises in this process, as in a gateway.

        Event loops of the main thread then commit by themselves, which is quicker under load.
        """
        self._commits.expect_no_interruptions()

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

    def redeem(
        self,
        permit: str,
        *,
        tool: str,
        arguments: dict[str, Any],
        server: str | None = None,
        principal: Principal | None = None,
    ) -> str:
        """Use up a permit for exactly this call and return its identifier; raises `PermitInvalid`."""
        steps = self._redeeming.steps(
            principal or self.principal, permit, tool=tool, arguments=arguments, server=server
        )
        return self._commits.run(steps).jti

    async def aredeem(
        self,
        permit: str,
        *,
        tool: str,
        arguments: dict[str, Any],
        server: str | None = None,
        principal: Principal | None = None,
    ) -> str:
        """`redeem` for event loops."""
        steps = self._redeeming.steps(
            principal or self.principal, permit, tool=tool, arguments=arguments, server=server
        )
        return (await self._commits.arun(steps)).jti

    def stream(
        self, decision_id: str, *, principal: Principal | None = None, framing: Framing = "plain"
    ) -> ResultStream:
        """The judge of a result that arrives in pieces. Raises `InvalidCall` for one that nobody asked for."""
        asks = principal or self.principal
        return self._commits.look(lambda: ResultStream(self, asks, decision_id, framing=framing))

    def evaluate_streaming(
        self,
        decision_id: str,
        chunks: Iterable[bytes | str],
        *,
        framing: Framing = "plain",
        provenance: Callable[[], str | None] | None = None,
    ) -> Iterator[bytes]:
        """What of a streamed result may be used, while it arrives; raises `StreamCut` where a condition fails.

        `provenance` gives the tool's signature over the whole, and is asked once the last chunk came. The source of
        the chunks runs in a thread of its own, so that what is held back is given in time though no chunk comes.
        """
        return evaluate_streaming(self.stream(decision_id, framing=framing), chunks, provenance)

    def aevaluate_streaming(
        self,
        decision_id: str,
        chunks: AsyncIterable[bytes | str],
        *,
        framing: Framing = "plain",
        provenance: Callable[[], str | None] | None = None,
    ) -> AsyncIterator[bytes]:
        """`evaluate_streaming` for event loops."""
        return aevaluate_streaming(self.stream(decision_id, framing=framing), chunks, provenance)

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

    async def alook(self, work: Callable[[], T]) -> T:
        """What `work` makes of the store, without holding up the running loop; raises `StoreError`."""
        return await self._commits.alook(work)

    def wait(
        self, call: ToolCall, decision: Decision, timeout: float | None = None, *, principal: Principal | None = None
    ) -> Decision:
        """The decision that a held call comes to; on time-out the held decision itself, never an allow."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while decision.outcome is Outcome.REQUIRE_APPROVAL:
            while self._commits.look(partial(self._waits, decision)):
                if deadline is not None and time.monotonic() >= deadline:
                    return decision
                time.sleep(POLL_S)
            decision = self.decide(_again(call, decision), principal=principal)
        return decision

    async def await_decision(
        self,
        call: ToolCall,
        decision: Decision,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        principal: Principal | None = None,
    ) -> Decision:
        """`wait` for event loops."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while decision.outcome is Outcome.REQUIRE_APPROVAL:
            while await self._commits.alook(partial(self._waits, decision)):
                if deadline is not None and time.monotonic() >= deadline:
                    return decision
                await asyncio.sleep(POLL_S)
            decision = await self.adecide(_again(call, decision), principal=principal)
        return decision

    def _waits(self, decision: Decision) -> bool:
        """Whether a held call still waits for people; where that cannot be known, deciding it again says what is."""
        if decision.approval is None:
            return False
        try:
            with self.parts.store.reader() as reader:
                return any(waits(reader, decision.approval) for waits in self._asks_waiting)
        except StoreError:
            return False

    def check_runs(self, principal: Principal) -> None:
        """Guarantee that the agent of a principal is not stopped at this moment.

        Raises `InvalidCall` (403), and `StoreUnavailable` where it cannot be known.
        """
        if self.control.current().stops(principal.agent or principal.id):
            raise stopped_agent()

    def alarm(self, tool: str, session: str | None = None) -> tuple[Recorded, ...]:
        """Record that the body of a tool ran without a decision; raises `StoreError`."""
        unit = uncovered(tool, session=session, principal=self.principal)
        return self._commits.append_sync(unit)

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


class Decide(Protocol):
    """Decides one call for a principal."""

    def __call__(self, call: ToolCall, *, principal: Principal) -> Awaitable[Decision]: ...


class Acting:
    """`gate` with every question put for `principal`; `decide` is how the gateway decides, traced or not.

    A client may shorten an old result to save room, so another result of the same call is judged for itself.
    """

    def __init__(self, gate: Gate, principal: Principal, decide: Decide):
        self._gate = gate
        self._principal = principal
        self._decide = decide

    def decide(self, call: ToolCall) -> Decision:
        return self._gate.decide(call, principal=self._principal)

    async def adecide(self, call: ToolCall) -> Decision:
        return await self._decide(call, principal=self._principal)

    def observe(self, result: ToolResult) -> ResultDecision:
        return self._gate.observe(result, principal=self._principal)

    async def aobserve(self, result: ToolResult) -> ResultDecision:
        try:
            return await self._gate.aobserve(result, principal=self._principal)
        except InvalidCall as error:
            if error.code != "conflict":
                raise
        return await self._gate.aobserve(replace(result, further=True), principal=self._principal)

    def wait(self, call: ToolCall, decision: Decision, timeout: float | None = None) -> Decision:
        return self._gate.wait(call, decision, timeout, principal=self._principal)

    async def await_decision(
        self,
        call: ToolCall,
        decision: Decision,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Decision:
        return await self._gate.await_decision(call, decision, timeout, principal=self._principal)

    def close(self) -> None:
        """The gate belongs to the gateway, and stays open."""
