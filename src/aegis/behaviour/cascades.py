"""How far what one agent wrote went: the sessions behind it, each with the way by which it got there.

What flows from one session to another is read from the log: a session that another one opened (`parent`), a mission
that was delegated, a document, folder or address that one call wrote and a call of another session read later, and a
message to an agent by its name. Calls are followed in the order of the log, so that nothing flows backwards.
`follow` is pure: what is known is kept by whoever asks, in memory for a walk and in the store for what comes after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

import orjson

from aegis.behaviour.features import class_of
from aegis.core.ports import Entry, Reader
from aegis.detect.fold import name_skeleton
from aegis.gate.control import ContainedKind, session_subject
from aegis.gate.parts import Parts
from aegis.gate.repeat import load_payload

MAX_WALKED: Final = 50_000  # receipts of one walk over the log: bounds how long it takes
MAX_OBJECTS: Final = 200_000  # written objects that one walk remembers
MAX_FOUND: Final = 1_000  # sessions of one cascade
MAX_NAMED: Final = 24  # objects of one call
MAX_NAME: Final = 128  # characters of what may be the name of an agent
_WRITES: Final = frozenset({"write", "external_send", "exec", "delete"})
_LET_THROUGH: Final = frozenset({"allow", "sanitize"})
_NAMED: Final = frozenset({"an address", "a path", "a recipient"})

FlowKind = Literal["object", "agent", "mission"]
Names = tuple[frozenset[str], frozenset[str]]
_NO_NAMES: Final[Names] = (frozenset(), frozenset())


class FlowStep:
    """One call or opened session as flows see it. `opened_by` is the session that opened this one.

    `names` gives the objects that the call names, and its words; it is asked only where they matter.
    """

    __slots__ = ("_names", "_read", "agent", "missions", "opened_by", "reads", "receipt", "session", "writes")

    def __init__(
        self,
        *,
        receipt: str,
        agent: str,
        session: str,
        writes: bool = False,
        reads: bool = False,
        opened_by: str = "",
        missions: tuple[str, ...] = (),
        names: Callable[[], Names] = lambda: _NO_NAMES,
    ):
        self.receipt = receipt
        self.agent = agent
        self.session = session
        self.writes = writes
        self.reads = reads
        self.opened_by = opened_by
        self.missions = missions
        self._read = names
        self._names: Names | None = None

    @property
    def names(self) -> Names:
        """What the call names: objects, and words; read once."""
        if self._names is None:
            self._names = self._read()
        return self._names


class Downstream(NamedTuple):
    """One session that what was written reached: from which one, by what, and in which call."""

    session: str
    agent: str
    origin: str
    by: str
    receipt: str


class FlowSource(NamedTuple):
    """What is contained, as flows see it: a session, an agent by its name, or a mission."""

    of: ContainedKind
    subject: str

    def is_of(self, step: FlowStep) -> bool:
        """Whether a step is its own."""
        if self.of == "session":
            return step.session == self.subject
        return name_skeleton(step.agent) == self.subject if self.of == "agent" else self.subject in step.missions


class Taint(Protocol):
    """What is known of one cascade: which sessions were reached, and what was written by them and by the source."""

    def is_source(self, session: str) -> bool:
        """Whether a session is the source's own, as far as its steps were followed."""
        ...

    def is_reached(self, session: str) -> bool: ...

    def origin_of(self, kind: FlowKind, name: str) -> str | None:
        """The session that wrote an object, sent to an agent or acted under a mission."""
        ...

    def holds(self, kind: FlowKind) -> bool:
        """Whether anything of this kind is known."""
        ...

    def note(self, kind: FlowKind, name: str, session: str) -> None: ...

    def note_source(self, session: str) -> None: ...


def follow(step: FlowStep, source: FlowSource, taint: Taint) -> Downstream | None:
    """Follow one step: what it wrote where it is tainted, and how its session is reached by it, or `None`."""
    found: Downstream | None = None
    if source.is_of(step):
        taint.note_source(step.session)
    elif not taint.is_reached(step.session):
        found = _reached_by(step, source, taint)
        if found is None:
            return None
    if step.writes:
        objects, words = step.names
        for one in objects:
            taint.note("object", one, step.session)
        for one in (*objects, *words):
            if len(one) <= MAX_NAME and one != step.agent:
                taint.note("agent", one, step.session)
    if step.missions:
        taint.note("mission", step.missions[-1], step.session)
    return found


def _reached_by(step: FlowStep, source: FlowSource, taint: Taint) -> Downstream | None:
    """How a session that nothing reached yet is reached by this step, or `None`."""
    opener = step.opened_by
    if opener and (opener == source.subject or taint.is_source(opener) or taint.is_reached(opener)):
        return Downstream(step.session, step.agent, opener, "opened by it", step.receipt)
    if step.reads and taint.holds("object"):
        for one in sorted(step.names[0]):
            origin = taint.origin_of("object", one)
            if origin is not None and origin != step.session:
                return Downstream(step.session, step.agent, origin, f"read `{one}`", step.receipt)
    if taint.holds("agent") and (sender := taint.origin_of("agent", step.agent)) not in (None, step.session):
        return Downstream(step.session, step.agent, sender, "a message to the agent", step.receipt)
    if taint.holds("mission"):
        for mission in step.missions[:-1]:
            above = taint.origin_of("mission", mission)
            if above is not None:
                return Downstream(step.session, step.agent, above, "a mission that was delegated", step.receipt)
    return None


class WalkedTaint:
    """What a walk in memory knows of one cascade."""

    def __init__(self) -> None:
        self.reached: dict[str, Downstream] = {}
        self.flows: dict[FlowKind, dict[str, str]] = {"object": {}, "agent": {}, "mission": {}}
        self.sources = set[str]()

    def is_source(self, session: str) -> bool:
        return session in self.sources

    def is_reached(self, session: str) -> bool:
        return session in self.reached

    def origin_of(self, kind: FlowKind, name: str) -> str | None:
        return self.flows[kind].get(name)

    def holds(self, kind: FlowKind) -> bool:
        return bool(self.flows[kind])

    def note(self, kind: FlowKind, name: str, session: str) -> None:
        known = self.flows[kind]
        if len(known) < MAX_OBJECTS:
            known.setdefault(name, session)

    def note_source(self, session: str) -> None:
        self.sources.add(session)

    def walk(self, steps: Iterable[FlowStep], source: FlowSource) -> None:
        """Follow steps, in the order of the log."""
        for step in steps:
            found = follow(step, source, self)
            if found is not None:
                self.reached[step.session] = found
                if len(self.reached) == MAX_FOUND:
                    return


def walk_flows(steps: Iterable[FlowStep], source: FlowSource) -> dict[str, Downstream]:
    """The sessions behind `source`, in the order in which they were reached."""
    taint = WalkedTaint()
    taint.walk(steps, source)
    return taint.reached


def path_to(session: str, reached: Mapping[str, Downstream]) -> list[Downstream]:
    """The way to a session, from the first that was reached."""
    way: list[Downstream] = []
    seen = set[str]()
    while (step := reached.get(session)) is not None and session not in seen:
        seen.add(session)
        way.append(step)
        session = step.origin
    return way[::-1]


def steps_of(parts: Parts, reader: Reader, start: int, stop: int) -> Iterator[FlowStep]:
    """The log as flows see it; what was erased tells its tool and its effects alone."""
    for entry in reader.entries(start, stop):
        if entry.kind == "session":
            payload = load_payload(parts, reader, entry)[0] or {}
            yield opening_step(entry.receipt_id, entry.agent, entry.principal, entry.session, payload)
        elif entry.kind == "decision" and entry.decision in _LET_THROUGH:
            yield call_step(orjson.loads(entry.body), _names_of(parts, reader, entry))


def _names_of(parts: Parts, reader: Reader, entry: Entry) -> Callable[[], Names]:
    return lambda: names_in(load_payload(parts, reader, entry)[0] or {})


def opening_step(receipt: str, agent: str, principal: str, session: str, payload: Mapping[str, Any]) -> FlowStep:
    """The opening of a session as flows see it."""
    parent: Sequence[str] | None = payload.get("parent")
    opened_by = "" if not parent else session_subject(principal, parent[0])
    return FlowStep(
        receipt=receipt, agent=agent, session=session_subject(principal, session), opened_by=opened_by
    )  # fmt: skip


def call_step(members: Mapping[str, Any], names: Callable[[], Names]) -> FlowStep:
    """A call that was let through, by its receipt; calls without a session are one session of their principal."""
    effects = frozenset(members.get("effects", ()))
    return FlowStep(
        receipt=members["receipt_id"],
        agent=members.get("agent", ""),
        session=session_subject(members["principal"], members.get("session", "")),
        writes=bool(effects & _WRITES),
        reads=not effects & _WRITES or "read" in effects,
        missions=tuple(members.get("lineage", ())),
        names=names,
    )


def was_let_through(members: Mapping[str, Any]) -> bool:
    """Whether the receipt of a decision is of a call that ran."""
    return members["decision"] in _LET_THROUGH


def names_in(payload: Mapping[str, Any]) -> Names:
    """What the arguments of a call name: objects, and other words."""
    texts: list[str] = []
    for text in _texts(payload.get("patched", payload.get("arguments")) or {}):
        texts.append(text)
        if len(texts) == MAX_NAMED:
            break
    objects = frozenset(text for text in texts if class_of(text) in _NAMED)
    return objects, frozenset(texts) - objects


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
