"""Opening a session, as steps: once for each name, and found again by whoever asks for the very same.

(1) an open session is answered where task, owner, mission and tools are those that it was opened with
(2) under a mission its standing, its agent and the holder's proof are checked
(3) the opening is recorded; of two callers one opens, and the other finds
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct, structs

from aegis.context.heads import COLLECTION, check_goes_on, note_child, note_owner, note_said, read_head
from aegis.context.sessions import (
    SessionRecorded,
    Surroundings,
    check_mounts,
    check_parent,
    find_session,
    find_surroundings,
    opening,
    session_key,
    surrounded,
)
from aegis.context.turns import UserTurn, check_said, turn_steps, with_task
from aegis.core.decision import OpenedSession, ParentSession, ReceiptRef
from aegis.core.mission import Declaration
from aegis.core.ports import Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft, Recorded
from aegis.errors import InvalidCall, StoreConflict
from aegis.gate.control import check_runs
from aegis.gate.parts import Parts
from aegis.log.writer import Unit
from aegis.missions import registry
from aegis.missions.issuing import Issuing
from aegis.missions.registry import ChallengeGone, MissionSession

OpeningSteps = Generator[Unit, tuple[Recorded, ...], OpenedSession]
MAX_OPENING_TURNS: Final = 256  # that are said with an opening: each is recorded by itself


class Opening(Struct, frozen=True, kw_only=True):
    """What a host says of a session that it opens.

    `tools` are what it offers the agent, `proof` answers a challenge of the mission's holder key, `owner` is the
    person for whom the agent runs, `mounts` are folders of this machine, `turns` is what the user said after the task,
    and `parent` the session that this one was opened from.
    """

    task: str = ""
    mission: str | None = None
    tools: Sequence[Any] | None = None
    proof: str | None = None
    owner: str = ""
    mounts: Sequence[Any] = ()
    turns: Sequence[str] = ()
    parent: ParentSession | None = None


def open_steps(parts: Parts, issuing: Issuing, principal: Principal, session: str, said: Opening) -> OpeningSteps:
    """The steps that open `session`, and say its turns; raises `InvalidCall` where it is not opened.

    Turns of an open session that were said before are found, and others follow them.
    """
    if len(said.turns) > MAX_OPENING_TURNS:
        raise InvalidCall(f"a session is opened with at most {MAX_OPENING_TURNS} turns")
    for text in said.turns:
        check_said(UserTurn(text=text))
    opened = yield from _open(parts, issuing, principal, session, said)
    for number, text in enumerate(said.turns, 2 if said.task else 1):
        yield from turn_steps(parts, principal, session, UserTurn(text=text, turn=number), partial(note_said, parts))
    return opened


def _open(parts: Parts, issuing: Issuing, principal: Principal, session: str, said: Opening) -> OpeningSteps:

    def again() -> OpenedSession | None:
        """(1) The open session; a proof is for a new one, and its challenge is never answered twice."""
        if said.proof is not None:
            return None
        around = Surroundings(mounts=places, tools=tuple(said.tools or ()))
        return _again(parts, issuing, principal, session, said, around)

    with parts.store.reader() as reader:
        check_runs(reader, principal)
        if said.parent is not None:
            check_parent(reader, principal, session, said.parent)
    places = check_mounts(said.mounts, parts.policy.current.previews.rules.mounts, parts.private)
    found = again()
    if found is not None:
        return found
    acting: Declaration | None = None
    if said.mission is None:
        if said.proof is not None:
            raise InvalidCall("`proof` belongs to a `mission`, which is not named")
        unit = opening(principal, session, said.task, said.owner, parent=said.parent)
    else:
        unit, acting = issuing.open(  # (2)
            principal,
            session,
            said.task,
            said.mission,
            proof=said.proof,
            tools=said.tools,
            owner=said.owner,
            parent=said.parent,
        )
    unit = surrounded(unit, session_key(principal, session), places, said.tools)
    key = session_key(principal, session)
    if said.parent is not None:
        unit = _below(parts, unit, key, session_key(principal, said.parent.session), said.parent.call_id)
    if said.owner:
        unit = _owned(parts, unit, key, said.owner)
    if said.task:
        unit = with_task(unit, key, said.task, partial(note_said, parts))
    try:
        recorded = (yield unit)[0]  # (3)
    except ChallengeGone as error:
        raise error.refused() from error
    except StoreConflict as error:
        found = again()
        if found is None:
            raise InvalidCall("this session is open already", code="conflict", status=409) from error
        return found
    receipt = ReceiptRef(id=recorded.receipt_id, index=recorded.index, leaf_hash=recorded.leaf_hash.hex())
    proves = acting is not None and acting.cnf is not None
    audience = parts.policy.current.missions.audience if proves else None
    return OpenedSession(session=session, receipt=receipt, fresh=True, audience=audience)


def _owned(parts: Parts, unit: Unit, key: str, owner: str) -> Unit:
    """`unit`, which opens a session, so that its receipts say for whom it runs."""
    first = unit.apply

    def apply(transaction: Transaction) -> Sequence[Draft]:
        drafts = () if first is None else first(transaction)
        note_owner(parts, transaction, key, owner)
        return drafts

    return structs.replace(unit, apply=apply)


def _below(parts: Parts, unit: Unit, key: str, parent: str, call_id: str | None) -> Unit:
    """`unit`, which opens a session, so that it knows what its parent had read."""
    first = unit.apply

    def apply(transaction: Transaction) -> Sequence[Draft]:
        drafts = () if first is None else first(transaction)
        note_child(parts, transaction, key, parent, call_id)
        return drafts

    return structs.replace(unit, apply=apply)


def _again(
    parts: Parts,
    issuing: Issuing,
    principal: Principal,
    session: str,
    said: Opening,
    surroundings: Surroundings,
) -> OpenedSession | None:
    with parts.store.reader() as reader:
        key = session_key(principal, session)
        memory = reader.document(COLLECTION, key)
        if memory is not None:
            check_goes_on(read_head(memory))
        opened = find_session(parts, reader, principal, session)
        if opened is None:
            return None
        around = find_surroundings(reader, key)
        under = registry.find_session(reader, key)
        served = None if under is None else under[0]
        acting = None if served is None else issuing.acting(reader, served.mission_id)
    _check_same(opened, served, said)
    if around != surroundings:
        raise InvalidCall(
            "this session is open already, with other mounts or tools",
            code="conflict",
            hint="choose another name",
            status=409,
        )
    receipt = ReceiptRef(id=opened.receipt_id, index=opened.index, leaf_hash=opened.leaf_hash)
    if served is None or acting is None or acting.cnf is None:
        return OpenedSession(session=session, receipt=receipt, fresh=False)
    audience = parts.policy.current.missions.audience
    return OpenedSession(
        session=session, receipt=receipt, fresh=False, audience=audience, number=served.window.high + 1
    )


def _check_same(opened: SessionRecorded, served: MissionSession | None, said: Opening) -> None:
    manifest = None if said.tools is None or served is None else registry.manifest_digest(said.tools)
    for what, same in (
        ("task", opened.task == said.task),
        ("owner", not said.owner or opened.owner == said.owner),  # an agent that opens again need not know for whom
        ("parent", opened.parent == said.parent),
        ("mission", said.mission == (None if served is None else served.mission_id)),
        ("list of tools", manifest == (None if served is None else served.manifest)),
    ):
        if not same:
            message = f"this session is open already, with another {what}"
            raise InvalidCall(message, code="conflict", hint="choose another name", status=409)
