"""What a judge is shown: the call and everything around it, as data, whole or marked where it is not.

Nothing is shortened silently: what is too long is replaced by a marker with its digest and size, and the
payload says that it is truncated. What the call runs, opens or reaches is never the part that is replaced: where that
alone does not fit, the payload `hides` it, and no judge is asked. For a model the payload goes into a fence that the
call cannot close: its delimiter is drawn for each run, and markup and invisible characters are escaped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct

from aegis.core.json import escape
from aegis.core.judging import CONTEXT
from aegis.core.reasoning import Reasoning

_LONG: Final = 4_096  # characters of a string that is replaced first, once the whole is over its budget
_BEGINS: Final = 1_024
_SHOWN_REASONING: Final = 4_096  # characters of reasoning, its end: the rest was about other calls
_MAX_DEPTH: Final = 200


class JudgeSubject(Struct, frozen=True, kw_only=True):
    """The call that is looked at, with what is known around it. `output` is its serialised preview.

    `executed` are the pointers of the arguments that the call runs, opens or reaches.
    """

    tool: str
    server: str | None
    arguments: dict[str, Any]
    call_id: str
    call_digest: str
    agent: str
    principal: str
    session: str
    turn: int | None
    task: str | None
    task_is_trusted: bool
    available_tools: Sequence[Any]
    mounts: tuple[str, ...]
    facts: Mapping[str, Any]
    findings: Sequence[Mapping[str, Any]]
    policy_violations: Sequence[Mapping[str, Any]]
    recent_calls: Sequence[Mapping[str, Any]]
    executed: frozenset[str] = frozenset()


class JudgePayload(Struct, frozen=True, kw_only=True):
    """The object that a judge is given; `truncated` says that it does not hold the arguments in full.

    `hides` says that something is missing of what the call runs, opens or reaches: no judge can look at it.
    """

    value: dict[str, Any]
    truncated: bool
    hides: bool = False


def make_payload(subject: JudgeSubject, criteria: str, budget: int) -> JudgePayload:
    """The payload of one judge; arguments and tools each have `budget` bytes."""
    arguments, cut, hides = within(subject.arguments, budget, subject.executed)
    tools, _ = bounded(list(subject.available_tools), budget)
    recent, _ = bounded([dict(one) for one in subject.recent_calls], budget)
    call = {
        "tool": subject.tool,
        "server": subject.server,
        "arguments": arguments,
        "call_id": subject.call_id,
        "call_digest": subject.call_digest,
    }
    value = {
        "task": subject.task,
        "task_is_trusted": subject.task_is_trusted,
        "proposed_tool_call": call,
        "available_tools": tools,
        "worker_mounts": list(subject.mounts),
        "output": json.dumps({"tool": subject.tool, "arguments": arguments}),
        "criteria": criteria,
        "validation_context": CONTEXT,
        "policy_violations": [dict(one) for one in subject.policy_violations],
        "turn": subject.turn,
        "facts": dict(subject.facts),
        "findings": [dict(one) for one in subject.findings],
        "recent_calls": recent,
        "truncated": cut,
    }
    return JudgePayload(value=value, truncated=cut, hides=hides)


def claimed_reasoning(reasoning: Reasoning) -> dict[str, Any]:
    """What a judge is shown of the words that explain a call; nobody vouches for them."""
    return {
        "end": reasoning.text[-_SHOWN_REASONING:],
        "purpose": reasoning.purpose,
        "signed_blocks": reasoning.signed,
        "changed_blocks": reasoning.changed,
    }


def bounded(value: Any, budget: int) -> tuple[Any, bool]:
    """`value` in full where it fits; otherwise with markers in place of what is long, and that it was cut."""
    if _size(value) <= budget:
        return value, False
    shorter = _without_long(value, 0, "", frozenset())
    return (shorter, True) if _size(shorter) <= budget else (_marker(json.dumps(value)), True)


def within(arguments: dict[str, Any], budget: int, executed: frozenset[str]) -> tuple[Any, bool, bool]:
    """The arguments as they fit, whether something was cut, and whether that was any of the `executed`.

    (1) in full; (2) without long texts that nothing executes; (3) with what is executed alone.
    """
    if not executed:
        return *bounded(arguments, budget), False
    if _size(arguments) <= budget:
        return arguments, False, False
    for shorter in (_without_long(arguments, 0, "", executed), _alone(arguments, "", executed, _above(executed))):
        if _size(shorter) <= budget:
            return shorter, True, False
    return _marker(json.dumps(arguments)), True, True


def _size(value: Any) -> int:
    return len(json.dumps(value))  # not the fast one: integers may have any size


def _without_long(value: Any, depth: int, at: str, executed: frozenset[str]) -> Any:
    if isinstance(value, str):
        return _marker(value) if len(value) > _LONG and at not in executed else value
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        return {key: _without_long(one, depth + 1, f"{at}/{escape(key)}", executed) for key, one in value.items()}
    if isinstance(value, list) and depth < _MAX_DEPTH:
        return [_without_long(one, depth + 1, f"{at}/{place}", executed) for place, one in enumerate(value)]
    return value


def _alone(value: Any, at: str, executed: frozenset[str], above: frozenset[str]) -> Any:
    """What is executed, in its place; what stands beside it is one marker for each object or list."""
    if at in executed or at not in above:
        return value
    kept: Any
    rest: Any
    if isinstance(value, dict):
        places = {key: f"{at}/{escape(key)}" for key in value}
        inside = {key for key, place in places.items() if place in executed or place in above}
        kept = {key: _alone(value[key], places[key], executed, above) for key in value if key in inside}
        rest = {key: one for key, one in value.items() if key not in inside}
        if rest:
            kept[_free(value)] = _marker(json.dumps(rest))
        return kept
    numbered = [(one, f"{at}/{place}") for place, one in enumerate(value)]
    kept = [_alone(one, place, executed, above) for one, place in numbered if place in executed or place in above]
    rest = [one for one, place in numbered if place not in executed and place not in above]
    return [*kept, _marker(json.dumps(rest))] if rest else kept


def _free(value: Mapping[str, Any]) -> str:
    """A name for what is left out, which the call did not take."""
    name = "truncated"
    while name in value:
        name += "_"
    return name


def _above(places: frozenset[str]) -> frozenset[str]:
    """The pointers of every object and list that holds one of `places`."""
    found = set()
    for place in places:
        while place:
            place = place.rpartition("/")[0]
            found.add(place)
    return frozenset(found)


def _marker(text: str) -> dict[str, Any]:
    data = text.encode("utf-8", "surrogatepass")
    digest = "sha-256:" + hashlib.sha256(data).hexdigest()
    return {"truncated": True, "digest": digest, "bytes": len(data), "begins": text[:_BEGINS]}


class Mask(Protocol):
    """Masks secrets in a text."""

    def __call__(self, text: str) -> str: ...

    def is_quiet(self, together: str) -> bool:
        """Whether nothing is masked in any of the texts that are lines of `together`; a wrong no costs time alone."""
        ...


def masked(value: Any, mask: Mask) -> Any:
    """`value` with `mask` applied to every string, keys included."""
    return value if mask.is_quiet("\n".join(_texts(value))) else _each(value, mask)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _each(value: Any, mask: Mask) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {mask(key): _each(one, mask) for key, one in value.items()}
    if isinstance(value, list):
        return [_each(one, mask) for one in value]
    return value


def fenced(payload: Mapping[str, Any]) -> tuple[str, str]:
    """The payload as text between two lines that nobody could foresee, and the word on those lines."""
    word = os.urandom(12).hex()
    text = json.dumps(payload, ensure_ascii=True)  # invisible and bidirectional characters show as escapes
    for sign in "<>&`":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f"<data-{word}>\n{text}\n</data-{word}>", word
