"""The gate: the `Decider` of this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from aegis.approvals.answering import Answer, Answering
from aegis.approvals.previews.dryrun import DryRun
from aegis.approvals.queue import find
from aegis.approvals.values import Approval
from aegis.context.opening import Opening, OpeningSteps, open_steps
from aegis.core.call import ToolCall, ToolResult
from aegis.core.decision import Decision, OpenedSession, ResultDecision
from aegis.core.finding import Report
from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from aegis.core.receipt import Recorded
from aegis.errors import KeyFileError, StoreError
from aegis.gate.commits import Commits
from aegis.gate.control import Control, stopped_agent
from aegis.gate.decide import Decisions, unavailable
from aegis.gate.events import uncovered
from aegis.gate.observe import Results, withheld
from aegis.gate.parts import Parts
from aegis.gate.permits import Redeeming
from aegis.gate.record import Subject
from aegis.gate.streams import Framing, ResultStream, aevaluate_streaming, evaluate_streaming
from aegis.gate.workers import Workers
from aegis.judges.access import JudgeDoor
from aegis.judges.deciding import Judging
from aegis.log.writer import Unit
from aegis.missions.attestation import View, attest_session, project
from aegis.missions.issuing import Issuing
from aegis.missions.standing import Missions

_REFUSING: Final = (StoreError, KeyFileError)  # nothing can be recorded, or nothing can be signed
T = TypeVar("T")
POLL_S: Final = 0.05  # how often a waiting caller looks at its approval


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
        self._commits = Commits(parts.ledger)
        self._judging = Judging(parts, self._commits, self._decide_for_judge, self.aobserve)
        self._decisions = Decisions(parts, self.control, self.missions, self._judging)
        self._answering = Answering(parts, self.control, self._decisions)
        self._redeeming = Redeeming(parts, self.control, self.missions)
        self.results = Results(parts, self.control, self.missions)

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

    async def _decide_for_judge(self, call: ToolCall, *, principal: Principal, worker: Subject | None) -> Decision:
        """`adecide` for a call that a judge makes while it looks at a call of `worker`."""
        try:
            return await self._commits.arun(self._decisions.steps(principal, call, worker=worker))
        except _REFUSING:
            return self._unavailable(call)

    def begin(self) -> None:
        """Start what a long-lived gate does beside its calls: end judge runs that a crash left behind.

        Raises `StoreError`. Without it that begins with the first judged call.
        """
        self._judging.begin()

    def use(self, workers: Workers) -> None:
        """Have what is heavy evaluated by `workers` from now on; whoever made them closes them."""
        self._decisions.workers = self.results.workers = workers

    def expect_no_interruptions(self) -> None:
        """Tell the gate that no handler of a signal raises in this process, as in a gateway.

        Event loops of the main thread then commit by themselves, which is quicker under load.
        """
        self._commits.expect_no_interruptions()

    def judge_door(self) -> JudgeDoor:
        """The way of a judge's own calls through this gate, where it looks at no call of anybody's: an evaluation."""
        return JudgeDoor(self._decide_for_judge, self.aobserve)

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

    def open_session(
        self,
        session: str,
        *,
        task: str = "",
        mission: str | None = None,
        tools: Sequence[Any] | None = None,
        proof: str | None = None,
        owner: str = "",
        mounts: Sequence[str] = (),
        principal: Principal | None = None,
    ) -> OpenedSession:
        """Open `session` with the task that the host trusts, and under a mission where one is named.

        `tools` are what the host offers the agent; `proof` answers a challenge where the mission names
        a holder key; `owner` is the person for whom it runs; `mounts` are the folders of this machine that the
        agent works in, which previews and judges look at. The same words again find the same session.
        Raises `InvalidCall` where it is not opened, and `StoreError` where nothing can be recorded.
        """
        said = Opening(task=task, mission=mission, tools=tools, proof=proof, owner=owner, mounts=mounts)
        return self._commits.run(self._opening(principal or self.principal, session, said))

    async def aopen_session(
        self,
        session: str,
        *,
        task: str = "",
        mission: str | None = None,
        tools: Sequence[Any] | None = None,
        proof: str | None = None,
        owner: str = "",
        mounts: Sequence[str] = (),
        principal: Principal | None = None,
    ) -> OpenedSession:
        """`open_session` for event loops."""
        said = Opening(task=task, mission=mission, tools=tools, proof=proof, owner=owner, mounts=mounts)
        return await self._commits.arun(self._opening(principal or self.principal, session, said))

    def _opening(self, whose: Principal, session: str, said: Opening) -> OpeningSteps:
        return open_steps(self.parts, self.issuing, whose, session, said)

    def answer(self, approval_id: str, answer: Answer, *, principal: Principal) -> Approval:
        """Count a person's answer to a held call; raises `InvalidCall` where it does not count."""
        return self._commits.run(self._answering.steps(principal, approval_id, answer))

    async def aanswer(self, approval_id: str, answer: Answer, *, principal: Principal) -> Approval:
        """`answer` for event loops."""
        return await self._commits.arun(self._answering.steps(principal, approval_id, answer))

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

    def attest_session(self, session: str, *, principal: Principal | None = None, whose: str | None = None) -> str:
        """The signed summary of a session; auditors name the principal `whose` it is.

        Raises `InvalidCall` where the log holds nothing of it.
        """
        asks = principal or self.principal
        return self._commits.look(lambda: attest_session(self.parts, self.missions, asks, session, whose=whose))

    def project(self, receipt_id: str, view: View = "public", *, principal: Principal | None = None) -> str:
        """One receipt as a signed projection: `public`, or `audit` for auditors."""
        return self._commits.look(lambda: project(self.parts, principal or self.principal, receipt_id, view))

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
        """Whether the approval of a held call is still pending; where that cannot be known, the gate says what is."""
        if decision.approval is None:
            return False
        try:
            with self.parts.store.reader() as reader:
                approval = find(reader, decision.approval.id)
        except StoreError:
            return False
        return approval is not None and approval.state_at(self.parts.clock()) == "pending"

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

    def dry_run(self, selector: str, tell: DryRun) -> None:
        """Ask `tell` what a held call of these tools would do; it is given the arguments, and must do nothing.

        It is asked about tools whose entry says `dryrun_supported: true`.
        """
        self.parts.dry_runs.register(selector, tell)

    @property
    def depth(self) -> int:
        """How many units wait for the log."""
        return self._commits.depth

    def close(self) -> None:
        """Finish what is under way and release the store."""
        self._judging.close()
        self._commits.close()
        self.parts.close()

    def _unavailable(self, call: ToolCall) -> Decision:
        return unavailable(call, Reason.UNAVAILABLE, self.parts.policy.current.digest)


def _again(call: ToolCall, decision: Decision) -> ToolCall:
    return replace(call, call_id=decision.call_id)
