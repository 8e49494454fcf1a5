"""What a policy says about agents over time, compiled: when something is contained, and what counts as a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from msgspec import Struct

from aegis.core.canonical import canonical, sha256
from aegis.core.outcome import Risk
from aegis.core.reasoning import ReasoningRules
from aegis.core.times import MICROS

Measure = Literal["blocked", "held", "denied", "alarms", "categories", "canary", "undecided", "budget"]
MEASURES: Final[tuple[Measure, ...]] = (
    "blocked", "held", "denied", "alarms", "categories", "canary", "undecided", "budget",
)  # fmt: skip
ContainedBy = Literal["agent", "session", "mission", "tool"]
Response = Literal["alert", "hold", "suspend", "revoke"]
MAX_COUNT: Final = 1_000  # moments that one condition remembers of one subject: bounds a document
_KEY_CHARS: Final = 12


class ContainmentRule(Struct, frozen=True, kw_only=True):
    """When `counts` of every measure come together within `within` microseconds for one subject, `does` follows.

    `reason` and `severity` narrow the decisions that count. `lasts` is in microseconds, 0 until a person ends it.
    """

    counts: Mapping[Measure, int]
    within: int
    of: ContainedBy
    does: Response
    lasts: int = 0
    reason: str = ""
    severity: Risk = Risk.LOW

    @property
    def key(self) -> str:
        """A name that changes with the condition, under which its moments are kept."""
        whole = [dict(self.counts), self.within, self.of, self.does, self.lasts, self.reason, self.severity.word]
        return sha256(canonical(whole)).removeprefix("sha-256:")[:_KEY_CHARS]

    @property
    def words(self) -> str:
        """The condition in words: `5 calls blocked (attack_detected, high) within 10 minutes`."""
        narrowed = [*([self.reason] if self.reason else []), *([self.severity.word] if self.severity else [])]
        return _condition(self.counts, narrowed, self.within // MICROS)

    @property
    def name(self) -> str:
        """The condition as receipts name it."""
        parts = (f"{measure}-{count}" for measure, count in self.counts.items())
        return "-".join(filter(None, (*parts, self.reason, f"{self.within // MICROS}s")))


_COUNTED: Final[Mapping[str, tuple[str, str]]] = {
    "blocked": ("call blocked", "calls blocked"),
    "held": ("call held", "calls held"),
    "denied": ("call denied by a person", "calls denied by people"),
    "alarms": ("alarm", "alarms"),
    "categories": ("kind of attack", "kinds of attack"),
    "canary": ("touch of a canary", "touches of a canary"),
    "undecided": ("body run undecided", "bodies run undecided"),
    "budget": ("refusal for a used-up budget", "refusals for a used-up budget"),
}
_UNITS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def _condition(counts: Mapping[Any, int], narrowed: Sequence[str], seconds: int) -> str:
    counted = " and ".join(f"{count} {_COUNTED[measure][count != 1]}" for measure, count in counts.items())
    length, unit = next(one for one in _UNITS if seconds % one[0] == 0)
    times = seconds // length
    within = f"{times} {unit}{'' if times == 1 else 's'}"
    said = f" ({', '.join(narrowed)})" if narrowed else ""
    return f"{counted}{said} within {within}"


def condition_in_words(name: str) -> str:
    """What the name of a condition says, in words; any other name as it is."""
    *parts, last = name.split("-")
    seconds = last.removesuffix("s")
    counted = dict(zip(parts[::2], parts[1::2], strict=False))
    if (
        not counted
        or not _COUNTED.keys() >= counted.keys()
        or not all(map(str.isdecimal, (*counted.values(), seconds)))
    ):
        return name
    counts = {measure: int(count) for measure, count in counted.items()}
    return _condition(counts, parts[2 * len(counts) :], int(seconds))


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """So many times within `within` microseconds; a count of 0 is off."""

    count: int
    within: int


OFF: Final = Times(count=0, within=0)


class CascadeRules(Struct, frozen=True, kw_only=True):
    """What is done with sessions that something contained reached, by what it wrote within `back` microseconds."""

    does: Literal["off", "mark", "hold", "suspend"] = "off"
    back: int = 86_400 * MICROS


class LoopRules(Struct, frozen=True, kw_only=True):
    """How often the same call may be made, one that differs in numbers alone, and rounds of two tools."""

    mode: Literal["enforce", "observe", "off"] = "off"
    identical: Times = OFF
    similar: Times = OFF
    alternating: Times = OFF


class BaselineRules(Struct, frozen=True, kw_only=True):
    """Whether what an agent usually does is learned, and what follows from a call that is far from it."""

    mode: Literal["hold", "observe", "off"] = "off"
    after: int = 200


class BudgetRule(Struct, frozen=True, kw_only=True):
    """What an agent or a session may use up within `within` microseconds (0: as long as the session lasts).

    `ceilings` are of `calls`, `tokens` and `money.CUR`; `more` are the calls that one yes lets run beyond them.
    """

    of: Literal["agent", "session"]
    ceilings: Mapping[str, int]
    within: int = 0
    more: int = 10

    @property
    def key(self) -> str:
        """A name that changes with what is counted and for how long, and not with its ceilings."""
        return sha256(canonical([sorted(self.ceilings), self.within])).removeprefix("sha-256:")[:_KEY_CHARS]

    @property
    def words(self) -> str:
        """The budget in words: `500 calls within 86400 s`."""
        counted = " and ".join(f"{most} {name}" for name, most in self.ceilings.items())
        return f"{counted} within {self.within // MICROS} s" if self.within else counted


class ModelPrice(Struct, frozen=True, kw_only=True):
    """What a million tokens of a model cost, in minor units of a currency; `model` may end in `*`."""

    model: str
    currency: str
    read: int
    wrote: int

    def is_of(self, model: str) -> bool:
        """Whether it is the price of this model."""
        return model.startswith(self.model[:-1]) if self.model.endswith("*") else model == self.model


class BehaviourRules(Struct, frozen=True, kw_only=True):
    """The sections about agents over time."""

    containment: tuple[ContainmentRule, ...] = ()
    cascade: CascadeRules = CascadeRules()
    loops: LoopRules = LoopRules()
    baseline: BaselineRules = BaselineRules()
    reasoning: ReasoningRules = ReasoningRules()
    budgets: tuple[BudgetRule, ...] = ()
    prices: tuple[ModelPrice, ...] = ()
    reads_trust: bool = False
