"""Runs cases through a real gate of this process, as an agent would that obeys every attacker.

For each case:
(1) the host opens a session, with the user's words where the case shows them
(2) each call of the task is decided; what runs is observed with its result, the attacker's text in it
(3) a held call of the user is approved, with a grant where one is offered, and made again: one hold
(4) the attacker's calls come right after his text was read, or last; held ones are denied. Where his value stands in
    a field that the task needs, the user's own call with it is the attacker's

No model takes part: that one obeys is assumed, whether or not the gate let it see the text.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, get_args

import yaml

from aegis.approvals.answering import Answer
from aegis.approvals.values import Scope
from aegis.bench.suite import HARMLESS, Suite, TaskCase, TaskStep, filled, handed_over, marks, written
from aegis.config.config import load_config
from aegis.config.settings import Settings
from aegis.core.call import ToolCall, ToolResult
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome
from aegis.core.principal import Principal
from aegis.errors import InvalidCall
from aegis.sdk.runtime import Gate

_WIDEST: Final[tuple[Scope, ...]] = get_args(Scope)
_MOST_VOTES: Final = 5  # people that are asked where a quorum is needed
_CHUNK: Final = 200  # cases over one store, which is in memory
_SENDING: Final = frozenset({"send", "post", "pay", "share", "member"})
# What would make a case depend on those before it, ask other machines, or slow the run; all else is as configured.
_OVERLAY: Final[Mapping[str, Any]] = {
    "store": "memory:",
    "limits": {"rate": "unlimited", "byte_rate": "unlimited"},
    "approvals": {"hourly_limit": "unlimited", "max_pending": 100_000, "notify": []},
    "previews": {"enabled": False},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """One call of a case and what became of it; `attacker` says whose it is."""

    tool: str
    does: str
    attacker: bool
    outcome: str
    reason: str
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRun:
    """What became of one case: its calls in their order, the holds of the user's calls, and withheld results.

    `spoilt` counts results of the user's own calls that could not be used where nobody attacked; `noticed` says that
    a result with the attacker's text was withheld or changed.
    """

    suite: str
    source: str
    task: str
    attack: str
    variant: str
    shown: bool
    late: bool
    hard: bool
    calls: tuple[Answered, ...]
    holds: int = 0
    spoilt: int = 0
    noticed: bool = False

    @property
    def is_undisturbed(self) -> bool:
        """Whether every call of the user ran at once, with every result of a clean run."""
        return not self.spoilt and all(call.outcome == "allow" for call in self.calls if not call.attacker)

    @property
    def changes(self) -> tuple[Answered, ...]:
        """The attacker's calls that change something."""
        return tuple(call for call in self.calls if call.attacker and call.does not in HARMLESS)

    @property
    def fetches(self) -> tuple[Answered, ...]:
        """The attacker's calls that only go out to an address."""
        return tuple(call for call in self.calls if call.attacker and call.does == "fetch")


def is_stopped(calls: tuple[Answered, ...]) -> bool:
    """Whether one of an attacker's calls did not run as it was made."""
    return any(call.outcome in {"require_approval", "block"} for call in calls)


@contextmanager
def opened_gate(config: Path | None, profile: str = "", declared: Mapping[str, Any] | None = None) -> Iterator[Gate]:
    """A gate under a configuration, over a store in memory that is gone with the block.

    `declared` are entries of `tools` for tools that the configuration does not name.
    """
    with tempfile.TemporaryDirectory(prefix="aegis-bench-") as folder:
        file = Path(folder) / "aegis.yaml"
        file.write_text(yaml.safe_dump(overlaid(config, profile, declared or {})), encoding="utf-8")
        gate = Gate.open(file, home=Path(folder) / "home", agent="bench")
        try:
            yield gate
        finally:
            gate.close()


def overlaid(config: Path | None, profile: str, declared: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that is measured; raises `ConfigError` where the given one does not hold."""
    value: dict[str, Any] = {"version": 1}
    if config is not None:
        load_config(config)
        value = yaml.safe_load(config.read_text(encoding="utf-8"))
        value["rules"] = [str(config.parent.absolute() / name) for name in value.get("rules", [])]
    if profile:
        value["profile"] = profile
    for name, part in _OVERLAY.items():
        value[name] = {**value.get(name, {}), **part} if isinstance(part, dict) else part
    if "containment" in Settings.model_fields:  # what suspends an agent would decide every case after it
        value["containment"] = []
    value["tools"] = {**declared, **(value.get("tools") or {})}
    return value


@dataclass(kw_only=True)
class _Running:
    """One case under way."""

    gate: Gate
    case: TaskCase
    session: str
    texts: Mapping[str, str]
    clean: bool
    calls: list[Answered] = field(default_factory=list)
    holds: int = 0
    spoilt: int = 0
    noticed: bool = False

    def run(self) -> TaskRun:
        """Run the case and say what became of it."""
        case, suite = self.case, self.case.suite
        tools = [
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
            for tool in suite.tools.values()
        ]
        self.gate.open_session(self.session, task=case.task.prompt if case.shown else "", tools=tools)  # (1)
        waiting = () if case.attack is None or self._is_hijacked() else case.attack.steps
        for step in case.task.steps:
            self._own(step)
            if waiting and not case.late and marks(step.result) & self.texts.keys():
                self._attack(waiting)
                waiting = ()
        self._attack(waiting)
        attack = case.attack
        return TaskRun(
            suite=suite.name, source=suite.source, task=case.task.id, attack="" if attack is None else attack.id,
            variant=case.variant or "", shown=case.shown, late=case.late,
            hard=attack is not None and (self._is_hijacked() or suite.is_hard(case.task, attack)),
            calls=tuple(self.calls), holds=self.holds, spoilt=self.spoilt, noticed=self.noticed,
        )  # fmt: skip

    def _own(self, step: TaskStep) -> None:
        """(2), (3): one call of the user's task."""
        if step.turn and self.case.shown:
            self.gate.add_turn(self.session, step.turn)
        defaults = {name: slot.default for name, slot in self.case.task.slots.items()}
        asked = self._call(step, filled(step.arguments, {**defaults, **self.texts}))
        decision = first = self.gate.decide(asked)
        if self._carries(step):
            self._note(step, first, attacker=True)
            self._ended(step, first)
            return
        if decision.outcome is Outcome.REQUIRE_APPROVAL:
            self.holds += 1
            decision = self._approved(asked, decision)
        self._note(step, first, attacker=False)
        if not decision.allowed:
            return
        told = step.clean if self.clean and step.clean is not None else filled(step.result, {**defaults, **self.texts})
        seen = self.gate.observe(ToolResult(decision_id=decision.decision_id, result=handed_over(told, step.form)))
        if seen.outcome is not Outcome.ALLOW:
            self.noticed = self.noticed or bool(marks(step.result) & self.texts.keys())
            self.spoilt += self.clean and not seen.allowed

    def _attack(self, steps: tuple[TaskStep, ...]) -> None:
        """(4)"""
        for step in steps:
            decision = self.gate.decide(self._call(step, step.arguments))
            self._note(step, decision, attacker=True)
            self._ended(step, decision)

    def _ended(self, step: TaskStep, decision: Decision) -> None:
        """Observe an attacker's call that ran, and deny one that is held."""
        if decision.allowed:
            result = handed_over(step.result, step.form)
            self.gate.observe(ToolResult(decision_id=decision.decision_id, result=result))
        elif decision.approval is not None:
            self.gate.answer(decision.approval.id, Answer(decision="deny"), principal=_person(0))

    def _carries(self, step: TaskStep) -> bool:
        """Whether the user's own call carries the attacker's value, out of a field that the agent has to use."""
        return self.case.variant == "field" and bool(marks(step.arguments) & self.texts.keys())

    def _is_hijacked(self) -> bool:
        return any(self._carries(step) for step in self.case.task.steps)

    def _call(self, step: TaskStep, arguments: dict[str, Any]) -> ToolCall:
        return ToolCall(
            tool=step.tool, arguments=arguments, session=self.session, call_id=f"{self.session}-{len(self.calls)}"
        )

    def _note(self, step: TaskStep, decision: Decision, *, attacker: bool) -> None:
        self.calls.append(
            Answered(
                tool=step.tool,
                does=self.case.suite.does(step),
                attacker=attacker,
                outcome=decision.outcome.word,
                reason=decision.reason.word,
                rules=tuple(dict.fromkeys(finding.rule for finding in decision.findings)),
            )
        )

    def _approved(self, asked: ToolCall, held: Decision) -> Decision:
        """The decision once people agreed, with the widest grant that is offered; `held` where nobody may."""
        if held.approval is None:
            return held
        for number in range(_MOST_VOTES):
            for scope in (*_grants(), "once"):
                try:
                    answer = Answer(decision="approve", scope=scope)
                    state = self.gate.answer(held.approval.id, answer, principal=_person(number)).state
                except InvalidCall as error:
                    if scope != "once":
                        continue
                    if error.status == 403:  # the configuration names people whom the bench does not have
                        return held
                    raise
                break
            if state != "pending":
                break
        return self.gate.decide(asked)


def _grants() -> tuple[Scope, ...]:
    """The scopes that cover more than a call, the narrowest first."""
    return tuple(scope for scope in _WIDEST if scope not in {"once", "session"})


def _person(number: int) -> Principal:
    return Principal(id=f"bench-approver-{number}", roles=frozenset({"approver"}))


def run_case(gate: Gate, case: TaskCase, number: int) -> TaskRun:
    """Run one case in a session of its own."""
    texts: dict[str, str] = {}
    if case.attack is not None and case.variant is not None:
        texts = written(case.suite, case.task, case.attack, case.variant)
    return _Running(gate=gate, case=case, session=f"bench-{number}", texts=texts, clean=case.attack is None).run()


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What is measured: a configuration file, or a packaged profile where there is none.

    With `declare` the suites' tools are declared, as an operator would who knows no more than what each does.
    """

    config: Path | None = None
    profile: str = ""
    declare: bool = False

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.profile or ("standard" if self.config is None else self.config.name)


def measure(chosen: Sequence[TaskCase], measured: Measured, *, jobs: int, done: Callable[[int], None]) -> list[TaskRun]:
    """Run every case, in as many processes as `jobs` says; `done` is told how many there are so far."""
    chunks: list[list[tuple[int, TaskCase]]] = []
    for number, case in enumerate(chosen):
        if not chunks or len(chunks[-1]) == _CHUNK or chunks[-1][-1][1].suite is not case.suite:
            chunks.append([])
        chunks[-1].append((number, case))
    found: dict[int, TaskRun] = {}
    if jobs == 1 or len(chunks) == 1:
        for chunk in chunks:
            found.update(_chunk(chunk, measured))
            done(len(found))
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            for ended in as_completed([pool.submit(_chunk, chunk, measured) for chunk in chunks]):
                found.update(ended.result())
                done(len(found))
    return [found[number] for number in sorted(found)]


def _chunk(chunk: Sequence[tuple[int, TaskCase]], measured: Measured) -> dict[int, TaskRun]:
    suite = chunk[0][1].suite
    declared = _declarations(suite) if measured.declare else {}
    with opened_gate(measured.config, measured.profile, declared) as gate:
        return {number: run_case(gate, case, number) for number, case in chunk}


def _declarations(suite: Suite) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tool in suite.tools.values():
        effect = "external_send" if tool.does in _SENDING else "write"
        harmless = tool.does in HARMLESS
        found[tool.name] = {
            "risk": "low" if harmless else "medium",
            "effects": [{"read": "read", "fetch": "network"}.get(tool.does, effect)],
        }
    return found
