"""The queue as a state machine: whatever callers, approvers, time, policies and crashes do, one call runs once.

Never two redemptions, never an execution without enough people's yes in the log, never a yes for one digest
used for another.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from aegis.approvals.answering import Answer
from aegis.approvals.values import Approval
from aegis.bootstrap import Deployment
from aegis.bootstrap.deployment import DeployedGate
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome, Reason
from aegis.errors import InvalidCall
from aegis.log.records import Records
from support.approvals import person, stored
from support.deployments import deployment
from support.faults import Hands, gate_over

CONFIG = """version: 1
profile: standard
durability: os
limits: {rate: unlimited}
approvals: {timeout: 5m, hourly_limit: unlimited}
tools:
  pay: {risk: high, approvals: {always: true, quorum: 2}}
  note: {risk: high, approvals: {always: true}}
"""
PEOPLE = ("ann", "ben", "cay")
AMOUNTS = st.sampled_from((900, 90, 9))
_numbers = itertools.count()


class Queue(RuleBasedStateMachine):
    """Callers and approvers over one store, with a clock that jumps and gates that die."""

    place: ClassVar[Deployment | None] = None
    clock: ClassVar[Hands] = Hands()
    calls = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        cls = type(self)
        if cls.place is None:
            cls.place = deployment(Path(tempfile.mkdtemp(prefix="aegis-queue-")) / "home", CONFIG)
        self.home = cls.place
        self.gate = self.fresh()
        self.session = f"s-{next(_numbers)}"
        self.start = self.size()
        self.runs: defaultdict[str, list[Decision]] = defaultdict(list)
        self.agreed: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def fresh(self) -> DeployedGate:
        return gate_over(self.home, clock=self.clock)

    def size(self) -> int:
        with self.home.store.reader() as reader:
            return reader.head().size

    def ask(self, call: ToolCall) -> Decision:
        decision = self.gate.decide(call)
        if decision.allowed:
            self.runs[call.call_id or ""].append(decision)
        return decision

    @rule(target=calls, tool=st.sampled_from(("pay", "note")), amount=AMOUNTS)
    def hold(self, tool: str, amount: int) -> Any:
        call = ToolCall(tool=tool, arguments={"amount": amount}, call_id=f"c-{next(_numbers)}", session=self.session)
        decision = self.ask(call)
        if decision.allowed:  # a grant of this session answers for it
            return multiple()
        assert decision.outcome is Outcome.REQUIRE_APPROVAL and decision.approval is not None
        return (call, decision.approval.id)

    @rule(held=calls)
    def resubmit(self, held: tuple[ToolCall, str]) -> None:
        self.ask(held[0])

    @rule(held=calls, amount=st.integers(1, 10**6))
    def swap(self, held: tuple[ToolCall, str], amount: int) -> None:
        call, _ = held
        if call.arguments != {"amount": amount}:
            decision = self.ask(replace(call, arguments={"amount": amount}))
            assert decision.reason is Reason.CONFLICT

    @rule(
        held=calls,
        who=st.sampled_from(PEOPLE),
        approves=st.sampled_from((True, True, True, False)),
        scope=st.sampled_from(("once", "once", "session")),
        narrowed=st.sampled_from((None, None, None, 90, 9)),
        stale=st.sampled_from((False, False, False, False, True)),
    )
    def answer(
        self, held: tuple[ToolCall, str], who: str, approves: bool, scope: Any, narrowed: int | None, stale: bool
    ) -> None:
        before = stored(self.home.store, held[1])
        arguments = None if narrowed is None or not approves else {"amount": narrowed}
        shown = "sha-256:" + "0" * 64 if stale else before.call_digest
        answer = Answer(decision="approve" if approves else "deny", scope=scope, arguments=arguments, call_digest=shown)
        try:
            after = self.gate.answer(held[1], answer, principal=person(self.home.store, who))
        except InvalidCall as refusal:
            assert stale or refusal.status in (409, 422)
            assert stored(self.home.store, held[1]) == before
            return
        assert not stale
        if approves:
            self.agreed[(held[1], after.call_digest)].add(who)

    @rule(seconds=st.sampled_from((1, 1, 1, 60, 60, 150, 299, 301, 3_601)))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds * 1_000_000

    @rule(held=calls, whoever=st.permutations(PEOPLE), dies=st.booleans())
    def agree_and_run(self, held: tuple[ToolCall, str], whoever: list[str], dies: bool) -> None:
        """The usual way, so that what happens around it meets every station."""
        for who in whoever:
            self.answer(held, who, True, "once", None, False)
        if dies:
            self.crash()
        self.ask(held[0])

    @rule()
    def crash(self) -> None:
        """Whatever a process remembers is gone: another one goes on with what is stored."""
        self.gate = self.fresh()

    @invariant()
    def a_call_runs_at_most_once_and_only_as_people_agreed(self) -> None:
        for decisions in self.runs.values():
            assert len(decisions) == 1

    def teardown(self) -> None:
        records = Records()
        votes: defaultdict[str, set[str]] = defaultdict(set)
        redeemed: dict[str, str] = {}
        with self.home.store.reader() as reader:
            bodies = [orjson.loads(entry.body) for entry in reader.entries(0, reader.head().size)]
            approvals: dict[str, Approval] = {}
            for index, body in enumerate(bodies):
                records.see(body)
                if index < self.start or "approval_id" not in body:
                    continue
                approvals[body["approval_id"]] = stored(self.home.store, body["approval_id"])
                if body.get("action") == "narrowed":
                    votes[body["approval_id"]] = set()
                elif body.get("action") in ("voted", "approved"):
                    votes[body["approval_id"]] |= set(body["approvers"])
                elif body.get("action") == "redeemed":
                    assert body["approval_id"] not in redeemed
                    redeemed[body["approval_id"]] = body["call_id"]
        assert sorted(redeemed.values()) == sorted(self.runs)
        for approval_id, call_id in redeemed.items():
            approval = approvals[approval_id]
            assert len(votes[approval_id]) >= approval.quorum
            (ran,) = self.runs[call_id]
            assert ran.call_digest == approval.call_digest
            if approval.grant is None or approval.votes:
                assert self.agreed[(approval_id, ran.call_digest)] >= set(approval.voters)


Queue.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestQueue = Queue.TestCase
