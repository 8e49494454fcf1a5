"""The only enforcement: adapters say what is about to run, and run nothing that is not allowed here.

A call is taken as a snapshot of canonical bytes, decided, and allowed only if the decision carries
the digests of that very snapshot; what runs is decoded from the digested bytes. Every exception on
the way is a refusal. The logic is written once, as steps that put questions; a thread and an event
loop answer them each in their way.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, TypeVar

from msgspec import Struct

from aegis.core.bounded import Bounded
from aegis.core.call import ToolCall, ToolResult
from aegis.core.canonical import call_digest, canonical
from aegis.core.decider import Decider
from aegis.core.decision import Decision, ResultDecision
from aegis.core.json import parse
from aegis.core.outcome import Outcome, Reason
from aegis.core.reasoning import Reasoning
from aegis.enforce.failures import described, undecided, unobserved
from aegis.enforce.scope import OpenCalls, Session, current_session
from aegis.enforce.words import Hearer, SpokenTurn, TurnHost, Words
from aegis.errors import InvalidCall

# Held calls that nobody waits for: the same call made again later stands for the one that people were asked about.

MAX_CALLS: Final = 1_000  # deferred calls remembered by this process; what is forgotten is asked about anew


class Deferred:
    """The ids of deferred calls, by session, tool and arguments."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: Bounded[str, str] = Bounded(MAX_CALLS, 0)

    def find(self, server: str | None, tool: str, session: str | None, body: bytes) -> str | None:
        """The id under which exactly this call is held, if it is."""
        with self._lock:
            return self._ids.get(_key(server, tool, session, body))

    def settle(self, call: ToolCall, body: bytes, held: str | None) -> None:
        """Remember that a call is held under the id `held`, or forget it once it came to something."""
        key = _key(call.server, call.tool, call.session, body)
        with self._lock:
            if held is None:
                self._ids.drop(key)
            else:
                self._ids.put(key, held)


def _key(server: str | None, tool: str, session: str | None, body: bytes) -> str:
    return hashlib.sha256(canonical([server, tool, session]) + b"\0" + body).hexdigest()


OnApproval = Literal["wait", "block", "defer"]
T = TypeVar("T")

log: Final = logging.getLogger("aegis")


class Attempt(NamedTuple):
    """A call that is about to run, with its final arguments. `call_id` is the framework's, if it has one.

    `handoff` says that the framework carries it out by letting another of its agents go on.
    """

    tool: str
    arguments: dict[str, Any]
    server: str | None = None
    call_id: str | None = None
    unresolved: tuple[str, ...] = ()
    want_permit: bool = False
    handoff: bool = False
    reasoning: Reasoning | None = None


class Enforced(NamedTuple):
    """What becomes of an attempt. Nothing but `arguments()` may be run, and only if `allowed`.

    `asked` are the arguments that were asked about, `body` those that may run. A `deferred` one may run later: the
    same call, made again, after its approval.
    """

    tool: str
    decision: Decision
    asked: bytes
    body: bytes
    deferred: bool = False

    @property
    def allowed(self) -> bool:
        """Whether the tool may run now."""
        return self.decision.allowed

    @property
    def changed(self) -> bool:
        """Whether other arguments than those of the attempt have to be run."""
        return self.decision.outcome is Outcome.SANITIZE

    @property
    def refusal(self) -> str:
        """The sentence that the model is given as the result of a refused call."""
        if self.deferred:
            return (
                f"`{self.tool}` was not run yet: a person has to approve this call; make exactly the same call again"
                f" later (reason: {self.decision.reason.value})"
            )
        return f"`{self.tool}` was not run: {self.decision.message} (reason: {self.decision.reason.value})"

    def arguments(self) -> dict[str, Any]:
        """What may run: a fresh decode of the digested bytes."""
        arguments: dict[str, Any] = parse(self.body)
        return arguments


class Observed(NamedTuple):
    """What the model may see of a result: `value`, which is a notice where the result is withheld."""

    decision: ResultDecision
    value: Any
    changed: bool

    @property
    def withheld(self) -> bool:
        """Whether nothing of the result may be seen."""
        return not self.decision.allowed


class DecideAll(NamedTuple):
    """Ask for the decisions on several calls."""

    calls: tuple[ToolCall, ...]


class WaitAll(NamedTuple):
    """Ask for what several held calls come to."""

    held: tuple[tuple[ToolCall, Decision], ...]


class ObserveAll(NamedTuple):
    """Ask what may be seen of several results."""

    results: tuple[ToolResult, ...]


class SayAll(NamedTuple):
    """Have turns of users recorded, in their order; each answer is whether it was."""

    turns: tuple[SpokenTurn, ...]


Question = DecideAll | WaitAll | ObserveAll | SayAll
Steps = Generator[Question, list[Any], T]


class Enforcer:
    """Enforces the decisions of one `Decider`; shared by all adapters of a process.

    `on_approval` says what becomes of a held call: it waits (at most `approval_timeout` seconds, without
    them as long as its approval lasts), is refused at once (`block`), or is refused for now (`defer`): the
    same call made again in its session is then the one that people were asked about. `agent` names the
    agent for deciders that are told. `on_uncovered` is told the tool and the
    session of a body that runs without a decision. `host` is told what users say. `on_refused` is told of each call
    that waits for a person or was refused.
    """

    def __init__(
        self,
        decider: Decider,
        *,
        agent: str | None = None,
        on_approval: OnApproval = "wait",
        approval_timeout: float | None = None,
        on_uncovered: Callable[[str, str | None], None] | None = None,
        host: TurnHost | None = None,
        on_refused: Callable[[ToolCall, Decision], None] | None = None,
    ):
        self.decider = decider
        self._on_refused = on_refused
        self._words = Words(host)
        self.hearer = Hearer(lambda texts: self.run(self.say(texts)), lambda texts: self.arun(self.say(texts)))
        self._on_uncovered = on_uncovered
        self.agent = agent
        self.on_approval = on_approval
        self.approval_timeout = approval_timeout
        self._deferred = Deferred()
        self.open_calls = OpenCalls()

    def enforce(self, attempts: Sequence[Attempt], session: Session | None = None) -> Steps[list[Enforced]]:
        """The steps that lead several attempts of one turn to what becomes of each, in order."""
        session = session or current_session()
        # (1) Snapshots: from here on only these bytes count.
        drafts = [self._draft(attempt, session) for attempt in attempts]
        # (2) Decide all; a call id that stands for another call is replaced, and the call decided anew.
        yield from _decide([draft for draft in drafts if draft.decision is None])
        conflicting = [draft for draft in drafts if draft.because is Reason.CONFLICT]
        if conflicting:
            for draft in conflicting:
                draft.rename()
            yield from _decide(conflicting)
        # (3) Wait for those that are held, at the same time where the host can.
        if self.on_approval == "wait":
            held = [draft for draft in drafts if draft.held]
            if held:
                self._tell(held)
                yield from _wait(held)
        elif self.on_approval == "defer":
            for draft in drafts:
                self._deferred.settle(draft.call, draft.body, draft.call.call_id if draft.held else None)
        self._tell(draft for draft in drafts if not (draft.held and self.on_approval == "wait"))
        # (4) What is allowed must be what was asked about, to the byte.
        return [draft.settled(deferred=self.on_approval == "defer" and draft.held) for draft in drafts]

    def again(self, attempt: Attempt, decision_id: str, session: Session | None = None) -> Steps[Enforced | None]:
        """The steps that lead to what becomes now of a call that was released, and goes on under its own id.

        `None` where an approval that was used for `decision_id` still stands; nobody is asked for another one.
        """
        draft = self._draft(attempt, session or current_session())
        yield from _decide([draft])
        decision = draft.decision
        if decision is not None and decision.reason is Reason.CONFLICT and decision.decision_id == decision_id:
            return None
        return draft.settled(deferred=False)

    def _tell(self, drafts: Iterable[_Draft]) -> None:
        """Tell of the calls that do not run; those that nobody was asked about were told of with their error."""
        if self._on_refused is not None:
            for draft in drafts:
                if draft.decision is not None and draft.decision.request_digest and not draft.decision.allowed:
                    self._on_refused(draft.call, draft.decision)

    def observe(self, results: Sequence[ToolResult]) -> Steps[list[Observed]]:
        """The steps that lead to what the model may see of several results, in order."""
        if not results:
            return []
        for result in results:
            self._words.read(current_session(), result.result)
        decisions = yield ObserveAll(tuple(results))
        return [_observed(result, decision) for result, decision in zip(results, decisions, strict=True)]

    def say(self, texts: Iterable[str], session: Session | None = None, results: Iterable[Any] = ()) -> Steps[bool]:
        """The steps that record what the user said now, in the host's session; what was said before is not.

        `results` are those that stand beside the texts: what repeats one is nobody's words. Whether nothing is missing.
        """
        turns = self._words.turns(session or current_session(), texts, results)
        if not turns:
            return True
        recorded = yield SayAll(tuple(turns))
        for turn, is_recorded in zip(turns, recorded, strict=True):
            if not is_recorded:
                self._words.forget(turn)
        return all(recorded)

    def uncovered(self, tool: str) -> None:
        """Raise the alarm: a tool runs, or gave a result, and nobody decided on that.

        What comes back for an open call of this tool does not reach the model.
        """
        session = current_session()
        log.error("`%s` runs without a decision about what it runs with", tool)
        self.open_calls.ran_beside("" if session is None else session.name, tool)
        if self._on_uncovered is not None:
            try:
                self._on_uncovered(tool, None if session is None else session.name)
            except Exception as error:
                log.critical("no alarm could be recorded: %s", described(error))

    def run(self, steps: Steps[T]) -> T:
        """Drive steps in this thread."""
        answers: list[Any] | None = None
        while True:
            try:
                question = next(steps) if answers is None else steps.send(answers)
            except StopIteration as stop:
                value: T = stop.value
                return value
            answers = self._answer(question)

    async def arun(self, steps: Steps[T]) -> T:
        """Drive steps in this task; the questions of one step are put at the same time."""
        answers: list[Any] | None = None
        while True:
            try:
                question = next(steps) if answers is None else steps.send(answers)
            except StopIteration as stop:
                value: T = stop.value
                return value
            answers = await self._aanswer(question)

    def _answer(self, question: Question) -> list[Any]:
        if isinstance(question, DecideAll):
            return [self._decide(call) for call in question.calls]
        if isinstance(question, ObserveAll):
            return [self._observe(result) for result in question.results]
        if isinstance(question, SayAll):
            return [self._say(turn) for turn in question.turns]
        return [self._wait(call, held) for call, held in question.held]

    async def _aanswer(self, question: Question) -> list[Any]:
        if isinstance(question, DecideAll):
            asked: list[Coroutine[Any, Any, Any]] = [self._adecide(call) for call in question.calls]
        elif isinstance(question, ObserveAll):
            asked = [self._aobserve(result) for result in question.results]
        elif isinstance(question, SayAll):
            return [await self._asay(turn) for turn in question.turns]
        else:
            asked = [self._await(call, held) for call, held in question.held]
        # A single one needs no task of its own, which costs more than all the rest.
        return [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked)

    def _decide(self, call: ToolCall) -> Decision:
        try:
            return self.decider.decide(call)
        except Exception as error:
            return undecided(call, error)

    async def _adecide(self, call: ToolCall) -> Decision:
        try:
            return await self.decider.adecide(call)
        except Exception as error:
            return undecided(call, error)

    def _wait(self, call: ToolCall, held: Decision) -> Decision:
        try:
            return self.decider.wait(call, held, self.approval_timeout)
        except Exception as error:
            return undecided(call, error)

    async def _await(self, call: ToolCall, held: Decision) -> Decision:
        try:
            return await self.decider.await_decision(call, held, self.approval_timeout)
        except Exception as error:
            return undecided(call, error)

    def _say(self, turn: SpokenTurn) -> bool:
        host = self._words.host
        try:
            if host is not None:
                host.add_turn(turn.session, turn.text, documents=turn.documents)
        except Exception as error:
            log.warning("what the user said could not be recorded: %s", described(error))
            return False
        return True

    async def _asay(self, turn: SpokenTurn) -> bool:
        host = self._words.host
        try:
            if host is not None:
                await host.aadd_turn(turn.session, turn.text, documents=turn.documents)
        except Exception as error:
            log.warning("what the user said could not be recorded: %s", described(error))
            return False
        return True

    def _observe(self, result: ToolResult) -> ResultDecision:
        try:
            return self.decider.observe(result)
        except Exception as error:
            return unobserved(error)

    async def _aobserve(self, result: ToolResult) -> ResultDecision:
        try:
            return await self.decider.aobserve(result)
        except Exception as error:
            return unobserved(error)

    def _draft(self, attempt: Attempt, session: Session | None) -> _Draft:
        arguments: dict[str, Any] = {}
        body, problem = b"", None
        try:
            body = canonical(attempt.arguments)
            arguments = parse(body)
        except Exception as error:
            problem = error
        named = None if session is None else session.name
        deferred = None
        if problem is None and self.on_approval == "defer":
            deferred = self._deferred.find(attempt.server, attempt.tool, named, body)
        call = ToolCall(
            tool=attempt.tool,
            server=attempt.server,
            arguments=arguments,
            # The id exists before anything is asked: it is what makes a repetition harmless.
            call_id=deferred or attempt.call_id or secrets.token_hex(16),
            agent=self.agent,
            session=named,
            task=None if session is None else session.task,
            unresolved=attempt.unresolved,
            want_permit=attempt.want_permit,
            handoff=attempt.handoff,
            reasoning=attempt.reasoning,
        )
        return _Draft(call=call, body=body, decision=None if problem is None else undecided(call, problem))


class _Draft(Struct, kw_only=True):
    """An attempt on its way to a decision: the call, the bytes that it stands for, what is known so far."""

    call: ToolCall
    body: bytes
    decision: Decision | None = None

    @property
    def held(self) -> bool:
        return self.decision is not None and self.decision.outcome is Outcome.REQUIRE_APPROVAL

    @property
    def because(self) -> Reason | None:
        return None if self.decision is None else self.decision.reason

    def rename(self) -> None:
        self.call = replace(self.call, call_id=secrets.token_hex(16))

    def settled(self, *, deferred: bool) -> Enforced:
        """The enforced call: a decision that does not bind what would run does not count."""
        call, decision, body = self.call, self.decision, self.body
        if decision is None:
            decision = undecided(call, None)
        if decision.allowed:
            try:
                body = _binding(call, decision, body)
            except Exception as error:
                decision = undecided(call, error)
        return Enforced(tool=call.tool, decision=decision, asked=self.body, body=body, deferred=deferred)


def _decide(drafts: Sequence[_Draft]) -> Steps[None]:
    if drafts:
        decisions = yield DecideAll(tuple([draft.call for draft in drafts]))
        for draft, decision in zip(drafts, decisions, strict=True):
            draft.decision = decision


def _wait(drafts: Sequence[_Draft]) -> Steps[None]:
    held = tuple((draft.call, draft.decision) for draft in drafts if draft.decision is not None)
    if held:
        decisions = yield WaitAll(held)
        for draft, decision in zip(drafts, decisions, strict=True):
            draft.decision = decision


def _binding(call: ToolCall, decision: Decision, body: bytes) -> bytes:
    """The bytes that the decision allows; raises `InvalidCall` unless it carries their digests."""
    asked = runs = call_digest(server=call.server, tool=call.tool, arguments=body)
    if decision.outcome is Outcome.SANITIZE:
        if decision.arguments is None:
            raise InvalidCall("a sanitised call has no arguments")
        body = canonical(decision.arguments)
        runs = call_digest(server=call.server, tool=call.tool, arguments=body)
    if decision.request_digest != asked or decision.call_digest != runs:
        raise InvalidCall("the decision is about another call")
    return body


def _observed(result: ToolResult, decision: ResultDecision) -> Observed:
    if not decision.allowed:
        notice = f"the result was withheld: {decision.message} (reason: {decision.reason.value})"
        return Observed(decision=decision, value=notice, changed=True)
    if decision.outcome is Outcome.SANITIZE:
        return Observed(decision=decision, value=decision.result, changed=True)
    return Observed(decision=decision, value=result.result, changed=False)
