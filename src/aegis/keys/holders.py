"""Who somebody is now, by name: the roles that active API keys and the account of one principal give together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aegis.core.ports import Reader
from aegis.core.principal import Principal
from aegis.core.printable import visible
from aegis.errors import InvalidCall
from aegis.facts.fold import name_skeleton
from aegis.keys.accounts import list_accounts
from aegis.keys.api import list_keys


class Holders:
    """Principals by id, as of one control epoch: a revoked key or a changed account moves the epoch."""

    def __init__(self) -> None:
        self._known: tuple[int, dict[str, Principal]] = (-1, {})

    def satisfies(self, reader: Reader, person: str, epoch: int, condition: Callable[[Principal], bool]) -> bool:
        """Whether `person` holds a credential and meets `condition`, under the control epoch `epoch`."""
        since, known = self._known
        if epoch == since and person in known and condition(known[person]):
            return True
        # A new key does not move the epoch: what is missing here may have been given meanwhile.
        found = holders(reader)
        # Both at once: what another thread read before the epoch moved is never taken for what holds since.
        self._known = (epoch, found)
        return person in found and condition(found[person])


def check_unlike(reader: Reader, name: str) -> None:
    """Guarantee that a new holder's name looks like nobody else's; raises `InvalidCall` (409).

    Whose key was revoked or whose account was disabled counts: what they did stands in the log under their name.
    """
    look = name_skeleton(name)
    known = {key.principal for key in list_keys(reader)} | {account.name for account in list_accounts(reader)}
    for other in sorted(known):
        if other != name and name_skeleton(other) == look:
            raise InvalidCall(
                f"`{visible(name)}` looks like `{visible(other)}`, who holds a credential here",
                code="look_alike",
                hint="choose another name, or exactly that one for another key of the same party",
                status=409,
            )


def holders(reader: Reader) -> dict[str, Principal]:
    """Everybody who holds an active key or an active account, by principal."""
    found: dict[str, Principal] = {}
    for key in list_keys(reader):
        if key.state == "active":
            known = found.get(key.principal)
            roles = frozenset(key.roles) if known is None else known.roles | frozenset(key.roles)
            found[key.principal] = Principal(id=key.principal, roles=roles, agent=key.agent)
    for account in list_accounts(reader):
        if account.state == "active":
            known = found.get(account.name)
            found[account.name] = (
                account.principal if known is None else replace(known, roles=known.roles | frozenset(account.roles))
            )
    return found
