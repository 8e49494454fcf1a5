"""The models of agents in a running gateway: loaded when first needed, asked about each call, kept in the store.

Agents whose names differ in a number at their end run one program: a new one begins with what is usual of the program,
which is a snapshot of one of them, and changes at most once a week.

Each process learns from the calls that it decides. Every so many of them a model is written in the transaction that
records a call, for pages and for the next process: what a process that was killed had learned since then is lost.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from aegis.behaviour.features import LearnedCall, called_of
from aegis.behaviour.learning import LEAST_BITS, AgentModel, Surprise
from aegis.core.behaviour import BaselineRules
from aegis.core.canonical import sha256
from aegis.core.finding import Finding, Report
from aegis.core.json import parse
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.core.ports import Document, Reader, Store, Transaction
from aegis.gate.participants import DecisionAttempt
from aegis.policy.model import Evaluation, observed

GUARD: Final = "behaviour"
COLLECTION: Final = "behaviour"
MAX_AGENTS: Final = 10_000  # models that are resident at once: forty megabytes, whatever agents there are
EVERY: Final = 64  # calls that are learned between two writes of a model
MAX_LEARNED_BYTES: Final = 65_536  # of arguments that are looked at; larger ones count by their size alone


class LastCall(Struct, frozen=True, gc=False):
    """How far the last call of an agent was from usual, as it is shown: its values would be kilobytes an agent."""

    bits: float
    limit: float
    reasons: tuple[str, ...]
    is_unusual: bool


_USUAL: Final = LastCall(0.0, LEAST_BITS, (), False)


class _Said(Struct, frozen=True):
    """The report on a call that is unusual, and what it was made of."""

    reasons: tuple[str, ...]
    mode: str
    report: Report


class Resident:
    """One model in memory: the last call that it was asked about, how far that was from usual, and what was said."""

    __slots__ = ("call_id", "last", "model", "said", "unsaved")

    def __init__(self, model: AgentModel) -> None:
        self.model = model
        self.call_id = 0  # its fingerprint
        self.last: LastCall | None = None
        self.said: _Said | None = None
        self.unsaved = 0


def model_key(agent: str) -> str:
    """The key under which the model of an agent is kept."""
    return sha256(agent.encode("utf-8", "surrogatepass"))


def program_of(agent: str) -> str:
    """The program that an agent runs: its name without a number at the end, empty where there is none."""
    name = agent.rstrip("0123456789")
    return name.rstrip("-_.#:/ ") if name != agent else ""


def load_model(reader: Reader, agent: str) -> AgentModel:
    """The model of an agent as it was written last, or that of its program; else an empty one."""
    program = program_of(agent)
    return (
        _decoded(reader, model_key(agent))
        or (_decoded(reader, _program_key(program)) if program else None)
        or (AgentModel())
    )


def _program_key(program: str) -> str:
    return f"program-{model_key(program)}"


def _decoded(reader: Reader, key: str) -> AgentModel | None:
    """The model under a key, `None` where there is none, or one of another version."""
    document = reader.document(COLLECTION, key)
    try:
        return None if document is None else AgentModel.decode(document.body)
    except ValueError:
        return None


class UsualCalls:
    """Asks the models of agents about calls, and lets them learn."""

    def __init__(self, store: Store):
        self._store = store
        self._lock = threading.Lock()
        self._agents: OrderedDict[str, Resident] = OrderedDict()

    def report(
        self, asked: DecisionAttempt, evaluation: Evaluation, rules: BaselineRules, now: int, *, released: bool
    ) -> Report | None:
        """The report on one call that would otherwise run; `released` says that a person called it fine."""
        subject = asked.subject
        call, data = subject.call, subject.canonical
        called = called_of(
            time=now,
            server=call.server,
            tool=call.tool,
            arguments=evaluation.arguments or _parsed(data),
            size=len(data),
            effects=evaluation.effects,
        )
        resident, surprise, unusual = self._ask(
            subject.agent, subject.call_id, called, rules, is_new=asked.known is None, released=released
        )
        if not unusual or released:
            return None
        # A burst of calls is unusual for one reason: the same is said of each.
        said, reasons = resident.said, surprise.reasons
        if said is None or said.reasons != reasons or said.mode != rules.mode:
            report = _report(reasons)
            said = _Said(reasons, rules.mode, observed(report) if rules.mode == "observe" else report)
            resident.said = said
        return said.report

    def __len__(self) -> int:
        return len(self._agents)

    def learn(self, agent: str, call_id: str, called: LearnedCall, rules: BaselineRules) -> Surprise:
        """Ask the model of an agent about a call, and let it learn from it."""
        return self._ask(agent, call_id, called, rules, is_new=True, released=False)[1]

    def _ask(
        self,
        agent: str,
        call_id: str,
        called: LearnedCall,
        rules: BaselineRules,
        *,
        is_new: bool,
        released: bool,
    ) -> tuple[Resident, Surprise, bool]:
        """How surprising a call is, and whether that is unusual; what is new and not held is learned."""
        resident = self._agents.get(agent) or self._loaded(agent)
        fingerprint = hash(call_id)
        with self._lock:
            if agent in self._agents:  # others may have pushed it out since
                self._agents.move_to_end(agent)
            model = resident.model
            surprise = model.score(called)
            tells = model.learned >= rules.after
            unusual = tells and surprise.bits > surprise.limit
            is_new = is_new and resident.call_id != fingerprint
            if released or (is_new and not (unusual and rules.mode == "hold")):
                model.learn(called, surprise, taught=released)
                resident.unsaved += 1
            if is_new:
                resident.call_id = fingerprint
                bits = surprise.bits
                told = tells and bits
                resident.last = LastCall(bits, surprise.limit, surprise.reasons, unusual) if told else _USUAL
        return resident, surprise, unusual

    def save(self, transaction: Transaction, agent: str) -> None:
        """Write the model of an agent where it is due, in the transaction that records a call of it."""
        resident = self._agents.get(agent)
        if resident is None or resident.unsaved < EVERY:
            return
        with self._lock:
            data, resident.unsaved = resident.model.encode(), 0
        _put(transaction, model_key(agent), data)
        program = program_of(agent)
        if program:
            snapshot = _decoded(transaction, _program_key(program))
            if snapshot is None or resident.model.replaces(snapshot):
                _put(transaction, _program_key(program), data)

    def last(self, agent: str) -> tuple[AgentModel, LastCall | None]:
        """The model of an agent, and how far its last call here was from usual."""
        resident = self._agents.get(agent)
        if resident is not None:
            return resident.model, resident.last
        with self._store.reader() as reader:
            return load_model(reader, agent), None

    def _loaded(self, agent: str) -> Resident:
        """The model of an agent that is not resident."""
        with self._store.reader() as reader:
            model = load_model(reader, agent)
        with self._lock:
            resident = self._agents.setdefault(agent, Resident(model))
            if len(self._agents) > MAX_AGENTS:
                self._agents.popitem(last=False)
        return resident


def _put(transaction: Transaction, key: str, data: bytes) -> None:
    stored = transaction.document(COLLECTION, key)
    version = 1 if stored is None else stored.version + 1
    transaction.put_document(Document(collection=COLLECTION, key=key, version=version, body=data))


def _parsed(canonical: bytes) -> Mapping[str, Any]:
    """The arguments of a call that was evaluated elsewhere."""
    if len(canonical) > MAX_LEARNED_BYTES:
        return {}
    parsed: dict[str, Any] = parse(canonical)
    return parsed


def _report(reasons: Sequence[str]) -> Report:
    """What is said of a call that is far from usual; the reasons name values, and stay in the encrypted payload."""
    return Report(
        guard=GUARD,
        outcome=Outcome.REQUIRE_APPROVAL,
        verdict=Verdict.COMPLIANT,
        reason=Reason.ANOMALY,
        risk=Risk.MEDIUM,
        findings=(
            Finding(
                guard=GUARD,
                rule="unusual",
                category="anomaly",
                severity=Risk.MEDIUM,
                outcome=Outcome.REQUIRE_APPROVAL,
                message="the call is unlike what this agent usually does",
                evidence="; ".join(reasons),
            ),
        ),
    )
