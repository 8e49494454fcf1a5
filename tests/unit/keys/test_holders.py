"""Who somebody is now: never taken from what was read before the control epoch moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aegis.core.ports import Reader
from aegis.core.principal import Principal
from aegis.keys.api import Holders, issue, revoke_key, store_key
from aegis.store.sqlite import MemoryStore


class Interrupted:
    """A reader of before, during whose reading something else happens."""

    def __init__(self, reader: Reader, meanwhile: Callable[[], None]):
        self._reader = reader
        self._meanwhile = meanwhile

    def documents(self, *args: Any, **named: Any) -> Any:
        found = self._reader.documents(*args, **named)
        self._meanwhile()
        return found


def approves(principal: Principal) -> bool:
    return "approver" in principal.roles


def test_what_a_slower_thread_read_before_a_revocation_is_not_believed_after_it() -> None:
    store, holders = MemoryStore(), Holders()
    issued = issue(roles=["approver"], now=0, name="ann")
    with store.transaction() as transaction:
        store_key(transaction, issued)
    before = store.epoch()
    seen: list[bool] = []

    def revoke() -> None:
        if not seen:
            with store.transaction() as transaction:
                revoke_key(transaction, issued.key.id, now=1)
            with store.reader() as reader:
                seen.append(holders.satisfies(reader, "ann", store.epoch(), approves))

    with store.reader() as reader:
        assert holders.satisfies(Interrupted(reader, revoke), "ann", before, approves)  # type: ignore[arg-type]
    with store.reader() as reader:
        seen.append(holders.satisfies(reader, "ann", store.epoch(), approves))
    assert seen == [False, False]
