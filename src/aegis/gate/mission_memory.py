"""What a process remembers of sessions under missions, so that a call need not read the store before it is decided.

What is remembered may let a call through, because the transaction that records the call looks again
and refuses the record where anything moved. It refuses nothing by itself: a call that would be refused
is judged again on what the store says.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from aegis.guards.mission_view import Balance
from aegis.missions.ledgers import Account, Ledger
from aegis.missions.sessions import MissionSession

MAX_SESSIONS: Final = 16_384
MAX_LEDGERS: Final = 65_536
_UNSEEN: Final = (None, 0)


class MissionMemory:
    """Sessions and balances as this process last wrote or read them; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, tuple[MissionSession, int]] = OrderedDict()
        self._accounts: OrderedDict[str, tuple[Account, Mapping[str, int]]] = OrderedDict()

    def session(self, key: str) -> MissionSession | None:
        """The session of that key as last seen, or `None`."""
        return self._sessions.get(key, _UNSEEN)[0]

    def session_at(self, key: str) -> tuple[MissionSession, int] | tuple[None, int]:
        """The session of that key as last seen, and the version that it has in the store then."""
        return self._sessions.get(key, _UNSEEN)

    def balances(self, ledgers: Sequence[Ledger]) -> tuple[Balance, ...] | None:
        """What each ledger has left as last seen; `None` where one was not seen."""
        found: list[Balance] = []
        for ledger in ledgers:
            known = self._accounts.get(ledger.name)
            if known is None:
                return None
            found.append(Balance(name=ledger.name, ceilings=ledger.ceilings, used=known[1]))
        return tuple(found)

    def accounts(self, ledgers: Sequence[Ledger]) -> list[tuple[str, Account]] | None:
        """Copies of ledgers as last written, with the versions that they have in the store then.

        `None` where one was not seen.
        """
        found: list[tuple[str, Account]] = []
        for ledger in ledgers:
            known = self._accounts.get(ledger.name)
            if known is None:
                return None
            found.append((ledger.name, known[0].copy()))
        return found

    def keep(self, key: str, session: MissionSession, version: int, accounts: Sequence[tuple[str, Account]]) -> None:
        """Remember a session, the version that it has now, and accounts that were just written, whose
        versions this moves; they are the memory's own from now on. The oldest is forgotten first."""
        with self._lock:
            self._sessions[key] = (session, version)
            if len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
            for name, account in accounts:
                account.version += 1
                self._accounts[name] = (account, account.used())
            while len(self._accounts) > MAX_LEDGERS:
                self._accounts.popitem(last=False)

    def forget(self, key: str, ledgers: Sequence[Ledger]) -> None:
        """Read this session and its ledgers anew the next time."""
        with self._lock:
            self._sessions.pop(key, None)
            for ledger in ledgers:
                self._accounts.pop(ledger.name, None)
