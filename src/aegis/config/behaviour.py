"""The sections about agents over time: `containment`, and the guards `loops` and `behaviour`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from aegis.config.fields import Section, Tier, Timeout, seconds, written
from aegis.config.sections import Amount, Currency
from aegis.core.behaviour import (
    MAX_COUNT,
    MEASURES,
    OFF,
    BaselineRules,
    BudgetRule,
    CascadeRules,
    ContainmentRule,
    LoopRules,
    Measure,
    ModelPrice,
    Times,
)  # fmt: skip
from aegis.core.call import MAX_NAME_CHARS
from aegis.core.outcome import Reason, Risk, risk_of
from aegis.core.reasoning import ReasoningRules, Weight
from aegis.core.text import visible
from aegis.core.times import MICROS

MAX_RULES = 32
MAX_BUDGETS = 8  # accounts that every call reads and writes: bounds what a call costs
MAX_PRICES = 256
MAX_LOOP = 120  # calls of one session that are looked back at: bounds memory
MAX_LOOP_SECONDS = 86_400
DEFAULT_SECONDS = 3_600  # a suspension without `for` ends after an hour


def _reason(value: str) -> str:
    known = [one.value for one in Reason if one is not Reason.NONE]
    if value not in known:
        raise ValueError(f"there is no reason `{visible(value)}`; reasons are {', '.join(f'`{one}`' for one in known)}")
    return value


ReasonWord = Annotated[str, AfterValidator(_reason), written("a reason, such as `attack_detected`")]


def _times(value: object) -> Times:
    if value == "off":
        return OFF
    if isinstance(value, str):
        count, slash, period = value.partition("/")
        if slash and count.isascii() and count.isdigit() and 1 <= len(count) <= 4 and 2 <= int(count) <= MAX_LOOP:
            within = seconds(period)
            if 1 <= within <= MAX_LOOP_SECONDS:
                return Times(count=int(count), within=within * MICROS)
    raise ValueError(f"a loop is `off`, or 2 to {MAX_LOOP} times within at most a day, as in `20/10m`")


def _times_text(value: Times) -> str:
    return "off" if value == OFF else f"{value.count} in {value.within // MICROS} s"


LoopTimes = Annotated[Times, BeforeValidator(_times), PlainSerializer(_times_text), written("`20/10m`, or `off`")]
_Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]


class LoopSettings(Section):
    """Calls that go round in circles, counted for a session, or for the agent of a call without one."""

    mode: Literal["enforce", "limited", "observe", "off"]
    """`enforce` holds what repeats for a person; `limited` does so where `limits.rate` is not lifted."""
    identical: LoopTimes
    """How often the same call may be made before a person is asked, who lets it go on as often again."""
    similar: LoopTimes
    """The same for calls of one tool that differ in numbers alone."""
    alternating: LoopTimes
    """The same for rounds of two calls of different tools that answer each other."""

    def compiled(self, *, limited: bool) -> LoopRules:
        mode = self.mode
        return LoopRules(
            mode=("enforce" if limited else "off") if mode == "limited" else mode,
            identical=self.identical,
            similar=self.similar,
            alternating=self.alternating,
        )


class BaselineSettings(Section):
    """What an agent usually does, learned from its own calls: tools, order, hours, rates, sizes, hosts, recipients."""

    mode: Literal["hold", "observe", "off"]
    """`hold` asks a person about a call that is far from usual, and learns from a yes; `observe` only records it."""
    after: Annotated[int, Field(ge=50, le=100_000)]
    """Calls of an agent before anything of it is called unusual."""

    def compiled(self) -> BaselineRules:
        return BaselineRules(mode=self.mode, after=self.after)


class ReasoningSettings(Section):
    """Why calls are made, where their host tells it: reasoning of models, stated purposes, and declared plans."""

    mode: Literal["enforce", "observe", "off"]
    """Whether what it holds is held, only recorded, or never looked at."""
    contradicts: Weight
    """What follows where the words say that a call only reads, and it writes or sends: `note` it, or `hold` it."""
    changed: Weight
    """The same where signed reasoning came back other than the model gave it."""
    instructed: Weight
    """The same where an instruction out of an untrusted result stands word for word in the reasoning."""
    missing: Literal["silent", "note", "hold"]
    """What follows where a call that may change something brings no reasoning."""
    reads: Literal["allow", "hold"]
    """Whether a call that only reads may run though the plan of its session has no step for it."""

    def compiled(self) -> ReasoningRules:
        return ReasoningRules(
            mode=self.mode,
            contradicts=self.contradicts,
            changed=self.changed,
            instructed=self.instructed,
            missing=self.missing,
            reads=self.reads,
        )


class WhenSettings(Section):
    """What has to come together for one subject within a time; everything that is named, at once."""

    blocked: _Count | None = None
    """Calls that were blocked; those that were refused for being too many, or stopped already, count only by name."""
    held: _Count | None = None
    """Calls that were held for people."""
    denied: _Count | None = None
    """Held calls that people denied."""
    alarms: _Count | None = None
    """Alarms."""
    categories: _Count | None = None
    """Different kinds of attack in its calls."""
    canary: _Count | None = None
    """Touches of a canary."""
    undecided: _Count | None = None
    """Bodies of tools that ran without a decision."""
    budget: _Count | None = None
    """Calls that were refused or held because a budget was used up."""
    reason: ReasonWord | None = None
    """Only decisions with this reason count as blocked or held."""
    severity: Tier | None = None
    """Only decisions with a finding at least as severe count as blocked or held, or name categories."""
    within: Timeout
    """The time within which it comes together."""

    @model_validator(mode="after")
    def _counts_something(self) -> Self:
        if not self.counts:
            raise ValueError(f"`when` counts something: {', '.join(f'`{name}`' for name in MEASURES)}")
        return self

    @property
    def counts(self) -> dict[Measure, int]:
        """What is counted, and how often it takes."""
        given: dict[Measure, int | None] = {name: getattr(self, name) for name in MEASURES}
        return {name: count for name, count in given.items() if count is not None}


class ContainmentSettings(Section):
    """One condition, and what follows once it holds. The first entry that holds wins."""

    when: WhenSettings
    """The condition."""
    does: Literal["alert", "hold", "suspend", "revoke"] = Field(alias="do")
    """`alert` only says so; `hold` asks a person before every call that may change anything; `suspend` refuses
    every call for a time; `revoke` until a person ends it."""
    for_: Timeout | None = Field(alias="for", default=None)
    """How long it is held or suspended; an hour where nothing is said."""
    of: Literal["agent", "session", "mission", "tool"] = "agent"
    """For whom is counted, and who is contained; a mission is the root of a lineage."""

    @model_validator(mode="after")
    def _lasts_where_it_ends(self) -> Self:
        if self.for_ is not None and self.does in ("alert", "revoke"):
            raise ValueError(f"`{self.does}` takes no `for`")
        return self

    def compiled(self) -> ContainmentRule:
        lasts = (self.for_ or DEFAULT_SECONDS) if self.does in ("hold", "suspend") else 0
        return ContainmentRule(
            counts=self.when.counts,
            within=self.when.within * MICROS,
            of=self.of,
            does=self.does,
            lasts=lasts * MICROS,
            reason=self.when.reason or "",
            severity=Risk.LOW if self.when.severity is None else risk_of(self.when.severity),
        )


class CascadeSettings(Section):
    """What is done by itself with the sessions that something contained reached, for as long as it is contained."""

    does: Literal["off", "mark", "hold", "suspend"] = Field(alias="do")
    """`mark` lists them and lets them count as untrusted; `hold` also asks a person before they change anything;
    `suspend` also refuses their calls; `off` finds them on request only."""
    back: Timeout
    """How long before the containment what it wrote counts."""

    def compiled(self) -> CascadeRules:
        return CascadeRules(does=self.does, back=self.back * MICROS)


class BudgetSettings(Section):
    """What an agent or a session may use up before a person is asked for more; all gateways on a store count as one."""

    of: Literal["agent", "session"] = "agent"
    """Whose calls are counted; a session's key can open another session, so that only `agent` is a bound."""
    within: Timeout | None = None
    """The time after which it begins from nothing, in steps from 1970 (`1d` ends at midnight UTC); a day for agents,
    and as long as it lasts for sessions, where nothing is said."""
    calls: Annotated[int, Field(ge=1, le=2**31)] | None = None
    """Calls that run."""
    tokens: Amount | None = None
    """Tokens: those of models whose answers pass a proxy, as they say, and of tools by `missions.quotes`."""
    money: dict[Currency, Amount] = Field(default_factory=dict)
    """Money in minor units (cents) by currency: of models by `prices`, of tools by `missions.quotes`."""
    more: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Calls that one yes lets run beyond it."""

    @model_validator(mode="after")
    def _counts_something(self) -> Self:
        if self.calls is None and self.tokens is None and not self.money:
            raise ValueError("a budget names `calls`, `tokens` or `money`")
        return self

    def compiled(self) -> BudgetRule:
        given = {"calls": self.calls, "tokens": self.tokens, **{f"money.{name}": at for name, at in self.money.items()}}
        within = self.within if self.within is not None else 86_400 if self.of == "agent" else 0
        return BudgetRule(
            of=self.of,
            ceilings={name: most for name, most in given.items() if most is not None},
            within=within * MICROS,
            more=self.more,
        )


class PriceSettings(Section):
    """What a model costs whose answers pass a proxy; the first entry that is of a model counts for it."""

    model: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    """Its name as clients ask for it; `*` at the end stands for any rest."""
    currency: Currency
    """The currency of the budget that it counts in."""
    read: Amount
    """A million tokens that it reads, in minor units (cents)."""
    wrote: Amount
    """A million tokens that it writes, in minor units (cents)."""

    def compiled(self) -> ModelPrice:
        return ModelPrice(model=self.model, currency=self.currency, read=self.read, wrote=self.wrote)
