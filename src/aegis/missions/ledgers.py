"""Budgets in the store: taken in the transaction that records the decision, on every ledger of the lineage.

A ledger holds `spent` (gone for good), `reserved` (the worst price of calls whose real one is not
known) and `quarantined` (what a result did not prove). All three count against the ceiling; time
alone gives nothing back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import orjson
from msgspec import Struct, field

from aegis.core.mission import Declaration
from aegis.core.ports import Document, Reader, Transaction
from aegis.errors import StoreConflict
from aegis.policy.guards.budget import is_priced, only
from aegis.policy.mission import Balance

COLLECTION: Final = "budgets"


class BudgetMoved(StoreConflict):
    """Another call took what was left: look at the balance again."""


class MissionLedger(Struct, frozen=True, kw_only=True):
    """Which ledger, and its ceilings."""

    name: str
    ceilings: Mapping[str, int]


class LedgerAccount(Struct, kw_only=True):
    """What a ledger holds, by dimension."""

    version: int = 0
    spent: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, int] = field(default_factory=dict)
    quarantined: dict[str, int] = field(default_factory=dict)

    def copy(self) -> LedgerAccount:
        """The same amounts, held by nobody else."""
        return LedgerAccount(
            version=self.version,
            spent=self.spent.copy(),
            reserved=self.reserved.copy(),
            quarantined=self.quarantined.copy(),
        )

    def held(self, name: str) -> int:
        """Everything of one dimension that counts against its ceiling."""
        return self.spent.get(name, 0) + self.reserved.get(name, 0) + self.quarantined.get(name, 0)

    def used(self) -> dict[str, int]:
        """Everything that counts against a ceiling; it may be the account's own: read it, and change nothing."""
        if not self.reserved and not self.quarantined:
            return self.spent
        total = dict(self.spent)
        for part in (self.reserved, self.quarantined):
            for name, value in part.items():
                total[name] = total.get(name, 0) + value
        return total


def ledgers_of(ceilings: Sequence[Ceilings], *, agent: str, principal: str, session: str) -> tuple[MissionLedger, ...]:
    """Every ledger that a call takes from: mission, agent and session, of each mission of the lineage."""
    found: list[MissionLedger] = []
    for one in ceilings:
        own = one.mission_id
        if one.whole is not None:
            found.append(one.whole)
        if one.of_agent:
            found.append(MissionLedger(name=f"{own}\n{agent}", ceilings=one.of_agent))
        if one.of_session:
            found.append(MissionLedger(name=f"{own}\n{principal}\n{session}", ceilings=one.of_session))
    return tuple(found)


class Ceilings(Struct, frozen=True, kw_only=True):
    """The ceilings of one mission, worked out once: over all, for each agent, for each session."""

    mission_id: str
    whole: MissionLedger | None
    of_agent: Mapping[str, int]
    of_session: Mapping[str, int]

    @property
    def over_all(self) -> Mapping[str, int]:
        """The ceilings of the mission as a whole."""
        return {} if self.whole is None else self.whole.ceilings


def ceilings_of(lineage: Sequence[Declaration]) -> tuple[Ceilings, ...]:
    """The ceilings of every mission of a lineage."""
    return tuple(
        Ceilings(
            mission_id=one.mission_id,
            whole=MissionLedger(name=one.mission_id, ceilings=over_all)
            if (over_all := one.budgets.ceilings())
            else None,
            of_agent=one.agent_budgets.ceilings(),
            of_session=one.session_budgets.ceilings(),
        )
        for one in lineage
    )


def balances(reader: Reader, ledgers: Sequence[MissionLedger]) -> tuple[Balance, ...]:
    """What each ledger has left, as of now."""
    return tuple(
        Balance(name=ledger.name, ceilings=ledger.ceilings, used=read(reader, ledger.name).used()) for ledger in ledgers
    )


def read(reader: Reader, name: str) -> LedgerAccount:
    """The account of one ledger; an empty one where nothing was taken."""
    document = reader.document(COLLECTION, name)
    if document is None:
        return LedgerAccount()
    body = orjson.loads(document.body)
    return LedgerAccount(version=document.version, **body)


def version(reader: Reader, name: str) -> int:
    """The version that a ledger has in the store; 0 where nothing was taken."""
    document = reader.document(COLLECTION, name)
    return 0 if document is None else document.version


def taken(
    transaction: Transaction, ledgers: Sequence[MissionLedger], cost: Mapping[str, int], *, enforced: bool = True
) -> list[tuple[str, LedgerAccount]]:
    """The accounts after `cost` was taken; raises `BudgetMoved` where one has no room, and writes nothing."""
    accounts = [(ledger.name, read(transaction, ledger.name)) for ledger in ledgers]
    for ledger, (_, account) in zip(ledgers, accounts, strict=True):
        charge(account, ledger, cost, enforced=enforced)
    return accounts


def charge(account: LedgerAccount, ledger: MissionLedger, cost: Mapping[str, int], *, enforced: bool) -> None:
    """Take `cost` from `account`; raises `BudgetMoved` where it has no room, and leaves it to be thrown away."""
    ceilings = ledger.ceilings
    for name, value in cost.items():
        ceiling = ceilings.get(name)
        if ceiling is None or not value:
            continue
        if enforced and account.held(name) + value > ceiling:
            raise BudgetMoved("the budget was used up meanwhile")
        part = account.reserved if is_priced(name) else account.spent
        part[name] = part.get(name, 0) + value


def settled(
    transaction: Transaction,
    ledgers: Sequence[MissionLedger],
    reserved: Mapping[str, int],
    proved: Mapping[str, int] | None,
) -> list[tuple[str, LedgerAccount]]:
    """The accounts after the real price of a call is known: proved amounts are spent, the rest given back.

    Without proof (`None`) everything that was reserved is quarantined; so is a proved amount's excess
    over what was reserved, which nobody had leave to spend.
    """
    after: list[tuple[str, LedgerAccount]] = []
    for ledger in ledgers:
        account = read(transaction, ledger.name)
        for name, value in only(reserved, ledger.ceilings).items():
            if not is_priced(name):
                continue
            held = min(value, account.reserved.get(name, 0))
            account.reserved[name] = account.reserved.get(name, 0) - held
            if proved is None:
                account.quarantined[name] = account.quarantined.get(name, 0) + held
            else:
                real = proved.get(name, 0)
                account.spent[name] = account.spent.get(name, 0) + min(real, held)
                if real > held:
                    account.quarantined[name] = account.quarantined.get(name, 0) + real - held
        after.append((ledger.name, account))
    return after


def write(transaction: Transaction, accounts: Sequence[tuple[str, LedgerAccount]]) -> None:
    """Write accounts that were read in the same transaction."""
    for name, account in accounts:
        body = {"spent": account.spent, "reserved": account.reserved, "quarantined": account.quarantined}
        transaction.put_document(
            Document(collection=COLLECTION, key=name, version=account.version + 1, body=orjson.dumps(body))
        )
