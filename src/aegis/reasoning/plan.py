"""A declared plan: the deeds that a session is about to do, as data. What a call is to it depends on both alone.

A step is done by a call of its tool whose arguments and effects are within it. A revised plan says what is still to be
done; it is narrower where every deed that it lets through was let through before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from aegis.core.call import MAX_NAME_CHARS
from aegis.core.canonical import canonical, sha256
from aegis.core.json import resolve
from aegis.core.names import Selector, glob_match, normalise_name
from aegis.core.outcome import EFFECTS
from aegis.errors import InvalidCall

MAX_STEPS: Final = 256  # of one plan: each call is held against every step
MAX_CONSTRAINTS: Final = 32  # of one step
MAX_ALTERNATIVES: Final = 64  # of one constraint
MAX_PATTERN_CHARS: Final = 1_024
MAX_TIMES: Final = 10_000

Plain = str | int | float | bool | None
Standing = Literal["next", "outside", "order", "done"]


class PlanStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One deed: a tool, what its arguments are, what it may do, and how often.

    `arguments` are by name or JSON pointer; each has one of its alternatives, where `*` may stand in texts.
    """

    tool: str
    arguments: dict[str, tuple[Plain, ...]] = {}
    effects: tuple[str, ...] | None = None
    times: int = 1

    def takes(self, call: PlannedCall) -> bool:
        """Whether a call is such a deed."""
        if not Selector(self.tool).matches(call.server, call.tool):
            return False
        if self.effects is not None and not call.effects <= frozenset(self.effects):
            return False
        return all(_is_one_of(call.arguments, name, allowed) for name, allowed in self.arguments.items())

    def covers(self, other: PlanStep) -> bool:
        """Whether everything that `other` takes is taken by this step, but for how often."""
        outer, inner = Selector(self.tool), Selector(other.tool)
        if outer.server is not None and (inner.server is None or not glob_match(outer.server, inner.server)):
            return False
        if not glob_match(outer.tool, inner.tool):
            return False
        if self.effects is not None and (other.effects is None or not {*other.effects} <= {*self.effects}):
            return False
        # A `*` of the other's text falls into one of this step's own, so that a pattern is matched as a text is.
        return all(
            name in other.arguments and all(any(_is(one, new) for one in allowed) for new in other.arguments[name])
            for name, allowed in self.arguments.items()
        )


class PlannedCall(NamedTuple):
    """A call as a plan sees it."""

    tool: str
    server: str | None
    arguments: Mapping[str, Any]
    effects: frozenset[str]


class SessionPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session is about to do; with `ordered` each step follows those before it."""

    steps: tuple[PlanStep, ...]
    ordered: bool = False

    @property
    def digest(self) -> str:
        """By what the plan is known."""
        return sha256(canonical(to_wire(self)))

    def place(self, call: PlannedCall, done: Sequence[int]) -> tuple[Standing, int]:
        """What a call is to this plan after `done` of each step, and the step that it is of, -1 where it is of none."""
        found: tuple[Standing, int] = ("outside", -1)
        for number, step in enumerate(self.steps):
            if not step.takes(call):
                continue
            if done[number] >= step.times:
                found = ("done", number) if found[0] == "outside" else found
            elif self.ordered and not self._follows(number, done):
                found = ("order", number)
            else:
                return "next", number
        return found

    def following(self, done: Sequence[int]) -> int:
        """The first step that is not done yet; as many as there are where all are."""
        return next((number for number, count in enumerate(done) if not count), len(self.steps))

    def allows(self, revised: SessionPlan, done: Sequence[int]) -> bool:
        """Whether `revised` lets nothing through that this plan would not, after `done` of each step."""
        left = [step.times - count for step, count in zip(self.steps, done, strict=True)]
        last = max((number for number, count in enumerate(done) if count), default=-1) if self.ordered else -1
        taken: list[int] = []
        for new in revised.steps:
            begin = max(last, 0, taken[-1] if taken else 0) if self.ordered else 0
            number = next(
                (at for at in range(begin, len(left)) if left[at] >= new.times and self.steps[at].covers(new)),
                None,
            )
            if number is None:
                return False
            left[number] -= new.times
            taken.append(number)
        if not self.ordered:
            return True
        # A step that is left out was the condition of those after it.
        together = all(after - before <= 1 for before, after in pairwise(taken))
        return revised.ordered and taken[0] <= last + 1 and together

    def _follows(self, number: int, done: Sequence[int]) -> bool:
        return all(done[:number]) and not any(done[number + 1 :])


def _is_one_of(arguments: Mapping[str, Any], name: str, allowed: Sequence[Plain]) -> bool:
    try:
        value = resolve(arguments, name) if name.startswith("/") else arguments[name]
    except (LookupError, TypeError, ValueError):
        return False
    return any(_is(one, value) for one in allowed)


def _is(allowed: Plain, value: Any) -> bool:
    if isinstance(allowed, str):
        return isinstance(value, str) and glob_match(allowed, value)
    if isinstance(allowed, bool) or isinstance(value, bool) or allowed is None or value is None:
        return allowed is value
    return isinstance(value, (int, float)) and allowed == value


def to_wire(plan: SessionPlan) -> dict[str, Any]:
    """The plan as it is declared, digested and shown."""
    steps: list[dict[str, Any]] = []
    for step in plan.steps:
        wire: dict[str, Any] = {"tool": step.tool, "times": step.times}
        if step.arguments:
            wire["arguments"] = {name: list(allowed) for name, allowed in step.arguments.items()}
        if step.effects is not None:
            wire["effects"] = list(step.effects)
        steps.append(wire)
    return {"steps": steps, "ordered": plan.ordered}


def read_plan(value: Mapping[str, Any]) -> SessionPlan:
    """The plan that a host declares, strictly; raises `InvalidCall`."""
    steps = value.get("steps")
    ordered = value.get("ordered", False)
    if not {"steps", "ordered"}.issuperset(value):
        raise InvalidCall("a plan has `steps`, and may be `ordered`; it has no other member")
    if not isinstance(steps, list) or not 1 <= len(steps) <= MAX_STEPS or type(ordered) is not bool:
        raise InvalidCall(f"a plan has 1 to {MAX_STEPS} `steps`, and may be `ordered`")
    return SessionPlan(steps=tuple(_step(one) for one in steps), ordered=ordered)


def _step(value: Any) -> PlanStep:
    if not isinstance(value, dict) or not {"tool", "arguments", "effects", "times"}.issuperset(value):
        raise InvalidCall("a step has a `tool`, and may have `arguments`, `effects` and `times`")
    tool, arguments, effects = value.get("tool"), value.get("arguments", {}), value.get("effects")
    if not isinstance(tool, str) or not normalise_name(tool) or len(tool) > MAX_NAME_CHARS:
        raise InvalidCall("the `tool` of a step is a selector: `tool` or `server/tool`, where `*` may stand")
    times = value.get("times", 1)
    if type(times) is float and times.is_integer():  # `3.0` is the number `3` (JSON Schema, 6.1.1)
        times = int(times)
    if type(times) is not int or not 1 <= times <= MAX_TIMES:
        raise InvalidCall(f"the `times` of a step are 1 to {MAX_TIMES}")
    if not isinstance(arguments, dict) or len(arguments) > MAX_CONSTRAINTS:
        raise InvalidCall(f"a step has at most {MAX_CONSTRAINTS} `arguments`")
    if effects is not None and (not isinstance(effects, list) or not set(map(str, effects)) <= {*EFFECTS}):
        raise InvalidCall(f"the `effects` of a step are of {', '.join(EFFECTS)}")
    return PlanStep(
        tool=tool,
        arguments={name: _alternatives(allowed) for name, allowed in arguments.items()},
        effects=None if effects is None else tuple(sorted({*effects})),
        times=times,
    )


def _alternatives(value: Any) -> tuple[Plain, ...]:
    given = value if isinstance(value, list) else [value]
    if not 1 <= len(given) <= MAX_ALTERNATIVES or not all(
        one is None or isinstance(one, (bool, int, float)) or (isinstance(one, str) and len(one) <= MAX_PATTERN_CHARS)
        for one in given
    ):
        raise InvalidCall(
            f"an argument of a step is a text, a number, a truth value or null, or a list of 1 to {MAX_ALTERNATIVES}",
            hint="name a value inside of another by its JSON pointer",
        )
    return tuple(given)
