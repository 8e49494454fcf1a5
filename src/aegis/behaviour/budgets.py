"""What agents and sessions may use up without a mission: counted in the commit, asked about before it blocks.

(1) a call that would pass a ceiling is held, once: its yes, on record as any other, lets so many more calls run
(2) while a person is asked, and once one said no, further calls are refused until the time of the budget is over
(3) what runs is taken in the transaction that records it, so that several gateways on one store count as one

Prices are those of `missions.quotes`, at their worst. Models that are asked through a proxy take the tokens that they
report, and their money by `prices`, after they answered; where that passed a ceiling, the next request is decided as
a call of the tool `model`, and held as any other. A person who releases one call for another reason releases that
call, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import orjson
from msgspec import Struct, field, structs, to_builtins

from aegis.approvals.values import Approval
from aegis.core.behaviour import BehaviourRules, BudgetRule
from aegis.core.call import ToolCall
from aegis.core.canonical import sha256
from aegis.core.finding import Finding, Report
from aegis.core.json import decode
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.core.ports import Document, Reader, Store, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import MICROS
from aegis.errors import StoreConflict
from aegis.gate.control import session_subject
from aegis.gate.participants import DecisionAttempt, DecisionRecord, Part, RecordRefused, Write
from aegis.log.writer import Unit
from aegis.policy.model import DEFAULT_TIMEOUT, Evaluation, observed

GUARD: Final = "budgets"
COLLECTION: Final = "call_budgets"
KEPT_US: Final = 30 * 86_400 * MICROS  # a session that made no call for so long begins anew
NEIGHBOURS: Final = 2  # accounts that are looked at for each new one: what is over goes as quickly as new ones come
_KEY_CHARS: Final = 32


class BudgetTaken(StoreConflict):
    """Another call took what was left: decide again."""


class BudgetSpent(RecordRefused):
    """A grant of a session covers the call, and no budget: only a person gives more."""

    guard: ClassVar[str] = GUARD
    reason: ClassVar[Reason] = Reason.BUDGET_EXHAUSTED


class BudgetAccount(Struct, kw_only=True):
    """What one subject used of one budget since `began`; times in microseconds.

    `extra` are calls that a person gave, `gives` how often one did, `asked` is until when one is asked, `refused` that
    one said no. `parts` are millionths of the minor units that are not in `used` yet.
    """

    began: int = 0
    last: int = 0
    used: dict[str, int] = field(default_factory=dict)
    extra: int = 0
    gives: int = 0
    asked: int = 0
    refused: bool = False
    parts: dict[str, int] = field(default_factory=dict)

    def at(self, rule: BudgetRule, now: int) -> BudgetAccount:
        """The account at `now`: a new one where its time is over. A clock that is set back begins no other time."""
        if rule.within and now // rule.within > self.began // rule.within:
            return BudgetAccount(began=now, last=now)
        return self

    def passes(self, rule: BudgetRule, cost: Mapping[str, int]) -> bool:
        """Whether `cost` would pass a ceiling."""
        return any(self.used.get(name, 0) + cost.get(name, 0) > most for name, most in rule.ceilings.items())


class CallBudget(Part):
    """What one call takes, from which budgets."""

    __slots__ = ("_clock", "asked", "cost", "subjects")

    def __init__(self, asked: DecisionAttempt, clock: Callable[[], int]):
        call, subject = asked.subject.call, asked.subject
        quote = asked.policy.missions.quotes.find(call.server, call.tool)
        self._clock = clock
        self.asked = asked
        self.cost = {"calls": 1}
        if quote is not None:
            self.cost |= {"tokens": quote.tokens, **{f"money.{name}": most for name, most in quote.money.items()}}
        self.subjects = tuple(
            (rule, subject_of(rule, subject.agent, subject.principal.id, subject.session))
            for rule in asked.policy.behaviour.budgets
        )

    def reports(self, store: Store) -> Iterator[Report]:
        """What is said of the call, by what is used up now; a call that a person looks at stays held."""
        known = self.asked.known
        decision = None if known is None else known.decision
        if decision is not None and decision.allowed:
            return
        is_held = decision is not None and decision.reason is Reason.BUDGET_EXHAUSTED and decision.approval is not None
        observes = self.asked.policy.settings["mode"] == "observe"
        now = self._clock()
        with store.reader() as reader:
            accounts = [(rule, _account(reader, rule, subject).at(rule, now)) for rule, subject in self.subjects]
        for rule, account in accounts:
            if not account.passes(rule, self.cost) or account.extra > 0:
                continue
            waits = not is_held and (account.refused or account.asked > now)
            report = _report(rule, waits=waits, refused=account.refused)
            yield observed(report) if observes else report

    def look(self, transaction: Transaction, record: DecisionRecord, *, last: bool) -> Write | None:
        """Take what the call costs, where it runs; raises `BudgetTaken` or `BudgetSpent` where that is not there."""
        known = self.asked.known
        decision = None if known is None else known.decision
        outcome = record.evaluation.combined.outcome
        if (decision is not None and decision.allowed) or outcome is Outcome.BLOCK:
            return None
        by_person = decision is not None and decision.outcome is Outcome.REQUIRE_APPROVAL and record.runs
        enforced = self.asked.policy.settings["mode"] != "observe"
        now, after = self._clock(), list[tuple[str, BudgetAccount]]()
        for rule, subject in self.subjects:
            account = _account(transaction, rule, subject).at(rule, now)
            over = account.passes(rule, self.cost)
            if not record.runs:
                if not over or record.evaluation.combined.reason is not Reason.BUDGET_EXHAUSTED:
                    continue
                asked = record.evaluation.approval
                account.asked = now + (DEFAULT_TIMEOUT if asked is None else asked.timeout_seconds) * MICROS
            elif over and enforced:
                if account.extra < 1 and not by_person:
                    if outcome is Outcome.REQUIRE_APPROVAL:
                        raise BudgetSpent("a budget is used up")
                    raise BudgetTaken("another call took what was left of a budget")
                account.extra = max(0, account.extra - 1)
            if record.runs:
                for name in rule.ceilings:
                    account.used[name] = account.used.get(name, 0) + self.cost.get(name, 0)
            account.began, account.last = account.began or now, max(account.last, now)
            after.append((key_of(rule, subject), account))

        def write(transaction: Transaction) -> Sequence[Draft]:
            for key, account in after:
                _write(transaction, key, account, now)
            return ()

        return write


def subject_of(rule: BudgetRule, agent: str, principal: str, session: str) -> str:
    """Whose budget it is: the agent's, or the session's; calls without a session share one of their principal."""
    return agent if rule.of == "agent" else session_subject(principal, session)


def key_of(rule: BudgetRule, subject: str) -> str:
    """The key of an account."""
    return f"{rule.of}-{sha256(subject.encode()).removeprefix('sha-256:')[:_KEY_CHARS]}-{rule.key}"


def _account(reader: Reader, rule: BudgetRule, subject: str) -> BudgetAccount:
    """The account of one subject as it was written last."""
    stored = reader.document(COLLECTION, key_of(rule, subject))
    return BudgetAccount() if stored is None else decode(stored.body, BudgetAccount)


def answer(
    transaction: Transaction, rules: Sequence[BudgetRule], approval: Approval, now: int, *, is_yes: bool
) -> None:
    """Note what a person said to more: a yes gives it at once, a no leaves used up what is until its time is over."""
    if approval.reason_held != Reason.BUDGET_EXHAUSTED.value:
        return
    for rule in rules:
        subject = subject_of(rule, approval.agent, approval.principal, approval.session)
        account = _account(transaction, rule, subject).at(rule, now)
        if account.asked:
            account.asked, account.refused = 0, not is_yes
            if is_yes:
                account.extra = max(account.extra, rule.more)
                account.gives += 1
            _write(transaction, key_of(rule, subject), account, now)


# What models take, whose answers pass a proxy.

MODEL: Final = "model"  # the tool as which a request to a model is decided once a budget is used up
_MILLION: Final = 1_000_000


def charge_model(
    rules: BehaviourRules,
    agent: str,
    principal: str,
    session: str,
    model: str,
    *,
    read: int,
    wrote: int,
    decided: bool,
    now: int,
) -> Unit:
    """The unit that takes what one answer of a model cost, from every budget that counts tokens or money.

    A request that was `decided` as a call has taken its share of what a person gave.
    """
    price = next((one for one in rules.prices if one.is_of(model)), None)

    def apply(transaction: Transaction) -> Sequence[Draft]:
        for rule in rules.budgets:
            money = "" if price is None else f"money.{price.currency}"
            if "tokens" not in rule.ceilings and money not in rule.ceilings:
                continue
            subject = subject_of(rule, agent, principal, session)
            account = _account(transaction, rule, subject).at(rule, now)
            if account.passes(rule, {}) and not decided:
                account.extra = max(0, account.extra - 1)
            if "tokens" in rule.ceilings:
                account.used["tokens"] = account.used.get("tokens", 0) + read + wrote
            if price is not None and money in rule.ceilings:
                parts = account.parts.get(money, 0) + read * price.read + wrote * price.wrote
                account.used[money] = account.used.get(money, 0) + parts // _MILLION
                account.parts[money] = parts % _MILLION
            account.began, account.last = account.began or now, max(account.last, now)
            _write(transaction, key_of(rule, subject), account, now)
        return ()

    return Unit(apply=apply)


def request_to_decide(
    reader: Reader, rules: BehaviourRules, agent: str, principal: str, session: str, model: str, now: int
) -> ToolCall | None:
    """The call as which a request to a model is decided, where a budget is used up and nobody gave more.

    It is the same call until a person answers it, and another one for the next time.
    """
    for rule in rules.budgets:
        if set(rule.ceilings) == {"calls"}:
            continue
        subject = subject_of(rule, agent, principal, session)
        account = _account(reader, rule, subject).at(rule, now)
        if account.passes(rule, {}) and account.extra < 1:
            call_id = f"{MODEL}.{key_of(rule, subject)}.{account.began}.{account.gives}"
            return ToolCall(tool=MODEL, arguments={"model": model}, call_id=call_id, session=session or None)
    return None


def used_of(reader: Reader, rules: Sequence[BudgetRule], agent: str, now: int) -> list[dict[str, Any]]:
    """What one agent used of its budgets, as it is shown."""
    found: list[dict[str, Any]] = []
    for rule in rules:
        if rule.of == "agent":
            account = _account(reader, rule, agent).at(rule, now)
            used = {name: account.used.get(name, 0) for name in rule.ceilings}
            found.append({
                "within_s": rule.within // MICROS,
                "used": used,
                "ceilings": dict(rule.ceilings),
                "more": account.extra,
                "refused": account.refused,
            })  # fmt: skip
    return found


def _write(transaction: Transaction, key: str, account: BudgetAccount, now: int) -> None:
    stored = transaction.document(COLLECTION, key)
    if stored is None:
        for other in transaction.documents(COLLECTION, after=key, limit=NEIGHBOURS):
            if decode(other.body, BudgetAccount).last < now - KEPT_US:
                transaction.delete_document(COLLECTION, other.key)
    version = 1 if stored is None else stored.version + 1
    body = orjson.dumps(to_builtins(structs.replace(account)))
    transaction.put_document(Document(collection=COLLECTION, key=key, version=version, body=body))


def _report(rule: BudgetRule, *, waits: bool, refused: bool) -> Report:
    outcome = Outcome.BLOCK if waits else Outcome.REQUIRE_APPROVAL
    whose = f"the budget of this {rule.of} is used up ({rule.words})"
    then = f"a yes lets {rule.more} more calls run"
    if waits:
        then = "a person refused more" if refused else "a person is asked for more"
    return Report(
        guard=GUARD,
        outcome=outcome,
        verdict=Verdict.VIOLATION if waits else Verdict.COMPLIANT,
        reason=Reason.BUDGET_EXHAUSTED,
        risk=Risk.MEDIUM,
        findings=(
            Finding(
                guard=GUARD,
                rule=f"budget-{rule.of}",
                category="budget",
                severity=Risk.MEDIUM,
                outcome=outcome,
                message=f"{whose}: {then}",
            ),
        ),
    )


def budget_of(asked: DecisionAttempt, evaluation: Evaluation, parts: Sequence[Part]) -> CallBudget | None:
    """The budgets of a call that may still run."""
    if evaluation.combined.outcome is Outcome.BLOCK or not asked.policy.behaviour.budgets:
        return None
    return next((part for part in parts if isinstance(part, CallBudget)), None)
