"""How far what one agent wrote went: the sessions behind it, each with the way by which it got there.

What flows from one session to another is read from the log: a session that another one opened (`parent`), a document,
folder or address that one call wrote and a call of another session read later, and a message to an agent by its name.
The log is walked once, in its order, so that nothing flows backwards. `walk_flows` is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from aegis.behaviour.features import class_of
from aegis.core.ports import Entry, Reader
from aegis.detect.fold import name_skeleton
from aegis.gate.control import Contained, session_subject
from aegis.gate.parts import Parts
from aegis.gate.repeat import load_payload

MAX_WALKED: Final = 50_000  # receipts of one walk over the log: bounds how long an answer takes
MAX_OBJECTS: Final = 200_000  # written objects that one walk remembers
MAX_FOUND: Final = 1_000  # sessions of one answer
MAX_NAMED: Final = 24  # objects of one call
_WRITES: Final = frozenset({"write", "external_send", "exec", "delete"})
_LET_THROUGH: Final = frozenset({"allow", "sanitize"})
_NAMED: Final = frozenset({"an address", "a path", "a recipient"})


class FlowStep(NamedTuple):
    """One call or opened session as flows see it. `opened_by` is the session that opened this one."""

    receipt: str
    agent: str
    session: str
    tool: str = ""
    objects: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    writes: bool = False
    reads: bool = False
    opened_by: str = ""


class Downstream(NamedTuple):
    """One session that what was written reached: from which one, by what, and in which call."""

    session: str
    agent: str
    origin: str
    by: str
    receipt: str


def walk_flows(steps: Iterable[FlowStep], sources: frozenset[str], agents: frozenset[str]) -> dict[str, Downstream]:
    """The sessions behind `sources` (sessions) and `agents` (by name), in the order in which they were reached."""
    reached: dict[str, Downstream] = {}
    written: dict[str, str] = {}  # what a reached session wrote: the object, and the session
    sent: dict[str, str] = {}  # agents by name that were written to, and by which session

    def is_tainted(step: FlowStep) -> bool:
        return step.session in reached or step.session in sources or name_skeleton(step.agent) in agents

    for step in steps:
        if not is_tainted(step):
            found = _reached_by(step, reached, sources, written, sent)
            if found is None:
                continue
            reached[step.session] = found
            if len(reached) == MAX_FOUND:
                break
        if step.writes and len(written) < MAX_OBJECTS:
            for one in step.objects:
                written.setdefault(one, step.session)
            for word in step.words:
                sent.setdefault(word, step.session)
    return reached


def _reached_by(
    step: FlowStep,
    reached: Mapping[str, Downstream],
    sources: frozenset[str],
    written: Mapping[str, str],
    sent: Mapping[str, str],
) -> Downstream | None:
    """How a session that nothing reached yet is reached by this step, or `None`."""
    if step.opened_by and (step.opened_by in reached or step.opened_by in sources):
        return Downstream(step.session, step.agent, step.opened_by, "opened by it", step.receipt)
    if step.reads:
        for one in sorted(step.objects):
            if one in written:
                return Downstream(step.session, step.agent, written[one], f"read `{one}`", step.receipt)
    origin = sent.get(step.agent)
    if origin is not None:
        return Downstream(step.session, step.agent, origin, "a message to the agent", step.receipt)
    return None


def path_to(session: str, reached: Mapping[str, Downstream]) -> list[Downstream]:
    """The way to a session, from the first that was reached."""
    way: list[Downstream] = []
    while (step := reached.get(session)) is not None:
        way.append(step)
        session = step.origin
    return way[::-1]


def steps_of(parts: Parts, reader: Reader, start: int, stop: int) -> Iterator[FlowStep]:
    """The log as flows see it; what was erased tells its tool and its effects alone."""
    for entry in reader.entries(start, stop):
        if entry.kind == "session" or (entry.kind == "decision" and entry.decision in _LET_THROUGH and entry.session):
            yield _step(entry, load_payload(parts, reader, entry)[0] or {})


def _step(entry: Entry, payload: Mapping[str, Any]) -> FlowStep:
    session = session_subject(entry.principal, entry.session)
    if entry.kind == "session":
        parent: Sequence[str] | None = payload.get("parent")
        opened_by = "" if not parent else session_subject(entry.principal, parent[0])
        return FlowStep(entry.receipt_id, entry.agent, session, opened_by=opened_by)
    effects = frozenset(orjson.loads(entry.body).get("effects", ()))
    texts = list(_texts(payload.get("patched", payload.get("arguments")) or {}))[:MAX_NAMED]
    return FlowStep(
        receipt=entry.receipt_id,
        agent=entry.agent,
        session=session,
        tool=entry.tool,
        objects=frozenset(text for text in texts if class_of(text) in _NAMED),
        words=frozenset(text for text in texts if class_of(text) not in _NAMED),
        writes=bool(effects & _WRITES),
        reads=not effects & _WRITES or "read" in effects,
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def downstream_of(parts: Parts, reader: Reader, one: Contained) -> tuple[dict[str, Downstream], bool]:
    """The sessions behind what is contained, and whether the whole log was looked at."""
    size = reader.head().size
    start = max(0, size - MAX_WALKED)
    sources = frozenset({one.subject}) if one.of == "session" else frozenset()
    agents = frozenset({one.subject}) if one.of == "agent" else frozenset()
    return walk_flows(steps_of(parts, reader, start, size), sources, agents), start == 0


def shown(reached: Mapping[str, Downstream]) -> list[dict[str, Any]]:
    """What was reached, as it is shown: each session with its way."""
    found: list[dict[str, Any]] = []
    for session, last in reached.items():
        principal, _, name = session.partition("\n")
        way = [
            {"from": step.origin.replace("\n", "/"), "agent": step.agent, "by": step.by, "receipt": step.receipt}
            for step in path_to(session, reached)
        ]
        found.append({"principal": principal, "session": name, "agent": last.agent, "way": way})
    return found
