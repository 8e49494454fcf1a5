"""Which key may sign which receipt: followed through the log's `key` receipts, from the log's key on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from aegis.audit.breaks import Break, BreakKind
from aegis.audit.trust import Trust, public_of
from aegis.core.digest import kid_of
from aegis.errors import LogInvalid

_PURPOSES: Final = frozenset({"log", "receipt", "permit", "mission", "attestation"})
_MEMBERS: Final = frozenset({"kid", "purpose", "public"})


@dataclass(kw_only=True, slots=True, eq=False)
class _Key:
    """A key that is vouched for; it signs leaves with `first <= index <= until`."""

    purpose: str
    agent: str
    public: bytes
    first: int
    until: int | None
    announced: bool


class KeyHistory:
    """The keys of a log, as far as it was read."""

    def __init__(self, trust: Trust):
        self._keys: dict[str, _Key] = {}
        self._in_force: dict[tuple[str, str], list[_Key]] = {("log", ""): []}
        for key in trust.keys:
            known = _Key(purpose="log", agent="", public=key.public, first=key.first, until=key.until, announced=False)
            self._keys[key.kid] = known
            if key.until is None:
                self._in_force[("log", "")].append(known)

    def public(self, kid: str) -> bytes | None:
        """The public half of a key that is vouched for."""
        key = self._keys.get(kid)
        return None if key is None else key.public

    def log_keys(self, size: int) -> list[bytes]:
        """The keys that may sign a checkpoint of `size` leaves."""
        return [
            key.public
            for key in self._keys.values()
            if key.purpose == "log" and key.first <= size and (key.until is None or size <= key.until)
        ]

    def check(self, receipt: dict[str, Any]) -> None:
        """Guarantee that the key that `receipt` names may sign it, where it stands; raises `LogInvalid`."""
        key = self._keys.get(receipt["sig"]["kid"])
        if receipt["kind"] == "key":
            if key is None or key.purpose != "log":
                raise _invalid("key_not_endorsed")
        elif key is None:
            raise _invalid("unknown_key")
        elif key.purpose != "receipt":
            raise _invalid("key_not_valid", "its purpose is another one")
        elif key.agent and key.agent != receipt.get("agent"):
            raise _invalid("key_not_valid", "it belongs to another agent")
        index = receipt["index"]
        if index < key.first or (key.until is not None and index > key.until):
            raise _invalid("key_not_valid", "it was not in force")

    def announce(self, receipt: dict[str, Any]) -> None:
        """Follow a `key` receipt whose signature was checked; raises `LogInvalid`."""
        index, action = receipt["index"], receipt.get("action")
        kid, purpose, agent, public = _described(receipt.get("key"))
        known = self._keys.get(kid)
        in_force = self._in_force.setdefault((purpose, agent), [])
        if action == "retire":
            if known is None or known not in in_force:
                raise _malformed("`key` is not in force")
            known.until = index
            in_force.remove(known)
            return
        if action not in {"add", "rotate"}:
            raise _malformed("`action`")
        # The key that the verifier was given may stand in the log too, once and as what it is.
        if known is not None and (known.announced or (known.purpose, known.agent) != (purpose, agent)):
            raise _malformed("`key` was announced before")
        if action == "rotate":
            for replaced in in_force:
                if replaced is not known:
                    replaced.until = index
            in_force[:] = [known] if known in in_force else []
        if known is None:
            known = _Key(purpose=purpose, agent=agent, public=public, first=index + 1, until=None, announced=True)
            self._keys[kid] = known
            in_force.append(known)
        else:
            known.announced = True


def _described(key: Any) -> tuple[str, str, str, bytes]:
    if type(key) is not dict or not _MEMBERS <= key.keys() <= _MEMBERS | {"agent"}:
        raise _malformed("`key`")
    public, purpose, agent = public_of(key["public"]), key["purpose"], key.get("agent", "")
    if public is None or key["kid"] != kid_of(public):
        raise _malformed("`key.kid`")
    if type(purpose) is not str or purpose not in _PURPOSES or type(agent) is not str:
        raise _malformed("`key.purpose`")
    if "agent" in key and (not agent or purpose != "receipt"):
        raise _malformed("`key.agent`")
    return kid_of(public), purpose, agent, public


def _malformed(detail: str) -> LogInvalid:
    return _invalid("malformed_member", detail)


def _invalid(kind: BreakKind, detail: str = "") -> LogInvalid:
    return LogInvalid(Break(kind=kind, detail=detail))
