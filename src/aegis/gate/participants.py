"""Who takes part in a decision beside the policy: features register here, and the gate knows none of them.

A participant is asked at the steps of a decision that concern it, and at no other: it overrides the methods of
`Participant` that it has an answer to. Its answer is a `Part`: what guards are shown, what the receipt says, and
what is written in the transaction that records the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from msgspec import Struct, structs

from aegis.core.combine import combine
from aegis.core.decision import ApprovalRef, Decision
from aegis.core.finding import Report
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.core.ports import Reader, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft, Recorded
from aegis.errors import StoreConflict
from aegis.gate.control import ControlState
from aegis.gate.parts import Slow
from aegis.gate.record import Subject
from aegis.gate.repeat import Known
from aegis.log.writer import Unit
from aegis.policy.model import Evaluation, ResultEvaluation
from aegis.policy.policy import Policy

T = TypeVar("T")
Doing = Generator[Unit | Slow[Any], tuple[Recorded, ...], T]
Write = Callable[[Transaction], Sequence[Draft]]


class RecordRefused(StoreConflict):
    """A record that one participant refuses: the call is decided again, and is then blocked for this reason."""

    guard: ClassVar[str]
    reason: ClassVar[Reason]


class DecisionAttempt(Struct, frozen=True, kw_only=True):
    """One attempt at deciding a call, what it is decided on, and the time that it is decided at.

    `charge` is false where a known call is looked at again: it takes nothing from rates. `refused` is why the attempt
    before this one was not recorded, where a participant said so.
    """

    subject: Subject
    policy: Policy
    state: ControlState
    now: int
    known: Known | None = None
    charge: bool = True
    refused: RecordRefused | None = None


class DecisionRecord(Struct, frozen=True, kw_only=True):
    """One decision that is about to be recorded. `runs` says that its call is released by this record."""

    asked: DecisionAttempt
    evaluation: Evaluation
    decision_id: str
    settings: Mapping[str, str]
    runs: bool


class Part:
    """What one participant has to do with one call; the methods that are not overridden do nothing."""

    __slots__ = ()
    leads: ClassVar[bool] = False  # whether its receipts come before the decision's

    @property
    def approval(self) -> ApprovalRef | None:
        """The approval that the call waits for."""
        return None

    @property
    def releases(self) -> bool:
        """Whether the call is released though the policy holds it."""
        return False

    def shows(self) -> Mapping[str, Any]:
        """What guards are shown: members of `Incoming`."""
        return {}

    def is_doubtful(self, evaluation: Evaluation) -> bool:
        """Whether what was shown is too old for what guards made of it, so that the call is evaluated again."""
        return False

    def settings(self, of_policy: Mapping[str, str]) -> Mapping[str, str]:
        """The settings in force for this call, never laxer than `of_policy`."""
        return of_policy

    def members(self, evaluation: Evaluation) -> Mapping[str, Any]:
        """What the receipt says."""
        return {}

    def look(self, transaction: Transaction, record: DecisionRecord, *, last: bool) -> Write | None:
        """Look again inside the recording transaction, and return the write that follows.

        Raises `StoreConflict` where the call has to be decided again; nothing was written then. `last` says that
        nothing looks at the transaction after this, so that it may be written to at once.
        """
        return None

    def release(self, decision: Decision, recorded: Sequence[Recorded], record: DecisionRecord) -> Decision:
        """The decision as it is released now; `recorded` begins with its own receipt."""
        return decision

    def drop(self) -> None:
        """Give up what was prepared: the decision was not recorded."""


class ResultAttempt(Struct, frozen=True, kw_only=True):
    """One result that is to be judged, and the call that it is of: `body` is the receipt of that call's decision.

    `data` are the canonical bytes of the result, and `token` is what its tool signed of it. `further` says that it is
    another text of a result that was judged before, and `failed` that the call did not do its work.
    """

    principal: Principal
    policy: Policy
    decision_id: str
    body: Mapping[str, Any]
    data: bytes
    token: str | None = None
    further: bool = False
    failed: bool = False

    @property
    def tool(self) -> str:
        """The tool of the call."""
        tool: str = self.body["tool"]
        return tool

    @property
    def server(self) -> str | None:
        """The server of the call."""
        return self.body.get("server")

    @property
    def session(self) -> str:
        """The session of the call, empty where it has none."""
        session: str = self.body.get("session", "")
        return session


class ResultRecord(Struct, frozen=True, kw_only=True):
    """One judged result that is about to be recorded under `receipt_id`."""

    asked: ResultAttempt
    evaluation: ResultEvaluation
    receipt_id: str


class ResultPart:
    """What one participant has to do with one result; the methods that are not overridden do nothing."""

    __slots__ = ()

    def shows(self) -> Mapping[str, Any]:
        """What result guards are shown: members of `IncomingResult`."""
        return {}

    def settings(self, of_policy: Mapping[str, str]) -> Mapping[str, str]:
        """The settings in force for this result, never laxer than `of_policy`."""
        return of_policy

    def members(self, evaluation: ResultEvaluation) -> Mapping[str, Any]:
        """What the receipt says."""
        return {}

    def look(self, transaction: Transaction, record: ResultRecord) -> Callable[[Transaction], None] | None:
        """Look again inside the recording transaction, and return the write that follows.

        Raises `StoreConflict` where the result has to be judged again; nothing was written then.
        """
        return None

    def drop(self) -> None:
        """Give up what was prepared: the result was not recorded."""


class Evaluator(Protocol):
    """The gate, as a participant that resumes a call asks it."""

    def judge(self, asked: DecisionAttempt) -> Doing[tuple[tuple[Part, ...], Evaluation]]:
        """What the policy makes of the call now."""
        ...

    def review_again(self, asked: DecisionAttempt, evaluation: Evaluation) -> Doing[Evaluation]:
        """The evaluation with what reviewers make of a call that a person released."""
        ...


class Participant:
    """A feature's word in decisions. Every method is one step; one that is not overridden is never asked."""

    def is_idle(self, policy: Policy) -> bool:
        """Whether under `policy` it weighs and reviews no call that has neither session nor reasoning nor a part.

        Asked once for each policy: of such a call it is not asked then.
        """
        return False

    def view(self, asked: DecisionAttempt) -> Part | Evaluation | None:
        """What guards are shown of a call with a session, a parent or a worker; or the refusal of such a call."""
        return None

    def take(self, asked: DecisionAttempt) -> Iterable[Part]:
        """What a call takes from budgets, and what is shown of its agent; asked where the policy has or reads any."""
        return ()

    def weigh(self, asked: DecisionAttempt, evaluation: Evaluation, parts: Sequence[Part]) -> Iterable[Report]:
        """More reports on a call that was evaluated; they can only make the evaluation stricter."""
        return ()

    def reread(self, asked: DecisionAttempt, evaluation: Evaluation) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Of a call in a session that runs files: what guards are shown to evaluate it again, and what is noted.

        The first are members of `Incoming`, empty where nothing is to be evaluated again; the second of `Evaluation`.
        """
        return {}, {}

    def review(self, asked: DecisionAttempt, evaluation: Evaluation) -> Doing[tuple[Evaluation, Part]] | None:
        """The steps that may make an evaluation stricter, or `None` where there are none."""
        return None

    def review_again(self, asked: DecisionAttempt, evaluation: Evaluation) -> Doing[Evaluation] | None:
        """The same for a known call that a person released, where it has changed since."""
        return None

    def has_moved(self, asked: DecisionAttempt) -> Doing[bool] | None:
        """The steps that find out whether an allowed call has to be decided again."""
        return None

    def join(self, asked: DecisionAttempt, evaluation: Evaluation) -> Part | None:
        """The part in recording a decision on a call in a session."""
        return None

    def hold(self, asked: DecisionAttempt, evaluation: Evaluation, parts: Sequence[Part], decision_id: str) -> Part:
        """The part in recording a call that is held for people; `parts` are those of the participants before."""
        return Part()

    def resume(self, asked: DecisionAttempt, judge: Evaluator) -> Doing[Decision | None] | None:
        """The answer to a held call that is made again, or `None` where it has to be decided again."""
        return None

    def result(self, asked: ResultAttempt) -> ResultPart | None:
        """The part in judging and recording a result."""
        return None

    def let_run(self, reader: Reader, decision: Mapping[str, Any]) -> bool:
        """Whether a call that its decision (its receipt) did not allow was released later."""
        return False

    def waits(self, reader: Reader, approval: ApprovalRef) -> bool:
        """Whether a held call still waits for people."""
        return False

    def stands(self, reader: Reader, decision: Mapping[str, Any], epoch: int) -> bool:
        """Whether what let a call through, by the receipt of its decision, still stands."""
        return True


def asked_of(participants: Sequence[Participant], step: str) -> tuple[Any, ...]:
    """The methods of those that have an answer to `step`, in their order."""
    return tuple(
        getattr(one, step) for one in participants if getattr(type(one), step) is not getattr(Participant, step)
    )


def joined(unit: Unit, parts: Sequence[Part], record: DecisionRecord) -> Unit:
    """`unit` with what `parts` write, in one transaction: every part looks before anything is written."""
    looking = [part for part in parts if type(part).look is not Part.look]
    if not looking:
        return unit
    first, drafts = unit.apply, unit.drafts
    leads = any(part.leads for part in looking)

    def apply(transaction: Transaction) -> Sequence[Draft]:
        before: list[Draft] = []
        after: list[Draft] = []
        writes: list[tuple[Part, Write | None]] = []
        for part in looking:
            last = first is None and part is looking[-1]
            writes.append((part, part.look(transaction, record, last=last)))
        if first is not None:
            after.extend(first(transaction))
        for part, write in writes:
            if write is not None:
                (before if part.leads else after).extend(write(transaction))
        return [*before, *drafts, *after] if leads else after

    return structs.replace(unit, drafts=() if leads else drafts, apply=apply)


def refuse(guard: str, reason: Reason) -> Evaluation:
    """The evaluation that blocks before any guard of the policy is asked."""
    report = Report(guard=guard, outcome=Outcome.BLOCK, verdict=Verdict.VIOLATION, reason=reason, risk=Risk.HIGH)
    return Evaluation(
        combined=combine((report,), (guard,), "fail-closed"),
        arguments={},
        canonical=None,
        tier=Risk.HIGH,
        irreversible=False,
        effects=frozenset(),
        times=(),
        entry=None,
    )
