"""What was taken out of an answer, as it is kept: without arguments, which stay in the encrypted log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from aegis.dialects.model import Refused, Removal, Wire
from aegis.proxies.models.formats import BY_NAME

State = Literal["refused", "held", "released"]
Kind = Literal["ref", "call", "anchor"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """One call that was taken out.

    `gate_id` and `decision_id` say how it was decided (both empty where its arguments were unreadable);
    `held` waits for a person, `released` was given to the client after one agreed.
    """

    refused: Refused
    tool: str
    server: str | None
    gate_id: str
    decision_id: str
    approval_id: str = ""
    state: State = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """All that was taken out of one choice of one answer, with what it takes to give it back later."""

    ref: str
    format: str
    answer_id: str
    model: str
    taken: tuple[Taken, ...]
    kept: tuple[str, ...]
    text: str

    @property
    def removal(self) -> Removal:
        """What a dialect puts back: every call that the client never got."""
        refused = tuple(one.refused for one in self.taken if one.state != "released")
        return Removal(refused=refused, kept=self.kept, ref=self.ref, text=self.text)

    @property
    def held(self) -> tuple[Taken, ...]:
        """The calls that wait for a person."""
        return tuple(one for one in self.taken if one.state == "held")

    @property
    def weight(self) -> int:
        """About how many bytes it takes to remember."""
        return 200 + sum(len(orjson.dumps(one.refused.call, default=str)) for one in self.taken)

    def moved(self, changes: dict[str, tuple[State, str]]) -> Record:
        """The record after calls (by `gate_id`) changed state; an empty message keeps the old one."""
        taken: list[Taken] = []
        for one in self.taken:
            state, message = changes.get(one.gate_id, (one.state, "")) if one.state == "held" else (one.state, "")
            refused = replace(one.refused, message=message) if message else one.refused
            taken.append(replace(one, state=state, refused=refused))
        return replace(self, taken=tuple(taken))


def to_wire(record: Record) -> Wire:
    """The record as it is kept: the calls without arguments, and without what the model said."""
    dialect = BY_NAME[record.format].dialect
    taken = [
        {
            "call": dialect.with_arguments(one.refused.call, {}),
            "call_id": one.refused.call_id,
            "index": one.refused.index,
            "message": one.refused.message,
            "tool": one.tool,
            "server": one.server,
            "gate_id": one.gate_id,
            "decision_id": one.decision_id,
            "approval_id": one.approval_id,
            "state": one.state,
        }
        for one in record.taken
    ]
    return {
        "ref": record.ref,
        "format": record.format,
        "answer_id": record.answer_id,
        "model": record.model,
        "kept": list(record.kept),
        "taken": taken,
    }


def from_wire(wire: Wire, arguments: Callable[[str], dict[str, Any]]) -> Record:
    """The record again; `arguments` gives those of a decision."""
    dialect = BY_NAME[wire["format"]].dialect
    taken = tuple(
        Taken(
            refused=Refused(
                call=dialect.with_arguments(one["call"], arguments(one["decision_id"])),
                call_id=one["call_id"],
                index=one["index"],
                message=one["message"],
            ),
            tool=one["tool"],
            server=one["server"],
            gate_id=one["gate_id"],
            decision_id=one["decision_id"],
            approval_id=one["approval_id"],
            state=one["state"],
        )
        for one in wire["taken"]
    )
    return Record(
        ref=wire["ref"],
        format=wire["format"],
        answer_id=wire["answer_id"],
        model=wire["model"],
        kept=tuple(wire["kept"]),
        taken=taken,
        text="",
    )
