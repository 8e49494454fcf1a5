"""What policies see of a session: `context.session` in Cedar, and `select.session`.

A call without a session shows nothing, and `drift` is shown where the user's words are known: a policy that reads what
is not shown misses evidence, named `session:FIELD`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from aegis.core.names import glob_match
from aegis.policy.dataflow.reading import SessionView

FieldType = Literal["text", "truth", "number", "set"]
# Section 7 of the contract: additions are free, these are fixed.
FIELDS: Final[Mapping[str, FieldType]] = {
    "id": "text",
    "labels": "set",
    "sources": "set",
    "effects": "set",
    "tools": "set",
    "untrusted": "truth",
    "task": "truth",
    "calls": "number",
    "denials": "number",
    "turns": "number",
    "drift": "number",
}
# They move with every call, so that a policy that reads them is asked again where another call came between.
COUNTED: Final = frozenset({"calls", "denials", "drift", "effects", "tools"})
MISSING: Final = "session:"  # what stands before the name of a field that a call's session could not fill


def session_record(view: SessionView | None) -> dict[str, Any] | None:
    """What policies are shown of a session; `None` where the call names none."""
    if view is None:
        return None
    record: dict[str, Any] = {
        "id": view.id,
        "labels": sorted(view.labels),
        "sources": sorted(view.sources),
        "effects": sorted(view.effects),
        "tools": sorted(view.tools),
        "untrusted": view.untrusted,
        "task": view.words is not None,
        "calls": view.calls,
        "denials": view.denials,
        "turns": view.turns,
    }
    if view.words is not None:
        record["drift"] = view.drift
    return record


def receipt_context(view: SessionView) -> dict[str, Any]:
    """What a receipt says of the session in which its call was judged."""
    context: dict[str, Any] = {
        "labels": sorted(view.labels),
        "untrusted": view.untrusted,
        "task": view.words is not None,
        "turns": view.turns,
        "calls": view.calls,
    }
    if view.words is not None:
        context["drift"] = view.drift
    return context


class SessionSelector(Struct, frozen=True, kw_only=True):
    """The sessions that a policy is about; every member that is given must hold.

    Of a set one of the words must be in it, a number must be reached, a truth value must be the same; `*` may stand in
    words.
    """

    wanted: Mapping[str, tuple[str, ...] | bool | int]

    def missing(self, record: Mapping[str, Any] | None) -> tuple[str, ...]:
        """The names of what it asks for and is not shown."""
        return tuple(f"{MISSING}{name}" for name in self.wanted if record is None or name not in record)

    def matches(self, record: Mapping[str, Any]) -> bool:
        """Whether everything that it asks for is so."""
        return all(_holds(record[name], wanted) for name, wanted in self.wanted.items())


def _holds(value: Any, wanted: tuple[str, ...] | bool | int) -> bool:
    if isinstance(wanted, bool):
        return bool(value is wanted)
    if isinstance(wanted, int):
        return bool(value >= wanted)
    values = value if isinstance(value, list) else [value]
    return any(glob_match(pattern, one) for pattern in wanted for one in values)
