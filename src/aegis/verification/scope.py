"""The scope of arguments over a log with its payloads, offline: what a released call touched was in its mission."""

from __future__ import annotations

from typing import Any, Final

from aegis.audit.breaks import Break
from aegis.core.canonical import canonical
from aegis.core.digest import call_commitment, call_digest
from aegis.core.mission import Declaration
from aegis.errors import LogInvalid
from aegis.facts import gather
from aegis.facts.model import Limits, Subject
from aegis.guards.scope.match import CompiledScope, compile_scope, outside
from aegis.guards.scope.touch import touch
from aegis.verification.missions import MissionRules
from aegis.verification.payloads import Payloads

_RUNS: Final = frozenset({"allow", "sanitize", "require_approval"})
NOT_CHECKED: Final = "missions: links on the file system of the time"


class ScopeRules:
    """The rules of payloads as one more rule over receipts, after those of missions.

    (1) a payload is the one that its receipt committed to, and holds the call that was decided
    (2) everything that a released or held call touches is in the scope of every mission of its lineage
    """

    def __init__(self, missions: MissionRules, payloads: Payloads):
        self._missions = missions
        self._payloads = payloads
        self._scopes: dict[str, CompiledScope] = {}
        self.missing = 0

    @property
    def not_checked(self) -> tuple[str, ...]:
        """What nobody should conclude from these rules."""
        if not self.missing:
            return (NOT_CHECKED,)
        return (NOT_CHECKED, f"missions: the scope of {self.missing} calls whose payload is not there")

    def see(self, receipt: dict[str, Any]) -> None:
        """Take up the next receipt; raises `LogInvalid` where a rule is broken."""
        found = self._payloads.of(receipt)  # (1)
        if receipt["kind"] != "decision":
            return
        runs = "mission_id" in receipt and receipt.get("decision") in _RUNS
        if found is None:
            self.missing += runs
            return
        arguments = _decided(receipt, *found)
        lineage = self._missions.lineage_of(receipt) if runs else ()
        if lineage and lineage[-1].mode == "enforce":
            self._covered(receipt, arguments, found[0].get("roles", {}), lineage)  # (2)

    def _covered(
        self, receipt: dict[str, Any], arguments: dict[str, Any], roles: Any, lineage: tuple[Declaration, ...]
    ) -> None:
        facts = gather(
            Subject(
                tool=receipt["tool"],
                server=receipt.get("server"),
                arguments=arguments,
                limits=Limits(),
                roles=roles,
            )
        )
        touched = touch(
            arguments,
            facts.texts.strings,
            sends="external_send" in receipt.get("effects", ()),
            base=lineage[-1].scope.base,
        )
        for one in lineage:
            for _, kind, _ in outside(self._scope(one), touched):
                raise LogInvalid(Break(kind="mission_exceeded", detail=f"`scope.{kind}`"))

    def _scope(self, declaration: Declaration) -> CompiledScope:
        known = self._scopes.get(declaration.mission_id)
        if known is None:
            known = compile_scope(declaration.scope, declaration.forbidden_scope)
            self._scopes[declaration.mission_id] = known
        return known


def _decided(receipt: dict[str, Any], payload: dict[str, Any], salt: bytes) -> dict[str, Any]:
    """What would run, where it is the call that the receipt commits to; raises `LogInvalid` otherwise."""
    tool, server = receipt["tool"], receipt.get("server")
    submitted: dict[str, Any] | None = payload.get("arguments")
    if submitted is None and receipt.get("decision") in _RUNS:
        raise LogInvalid(Break(kind="payload_changed", detail="`arguments`"))
    runs: dict[str, Any] = payload.get("patched", submitted or {})
    if submitted is None:  # beyond its agent's rate: refused, and kept as its digests alone
        asked, digest = payload["request_digest"], payload["call_digest"]
    else:
        asked = call_digest(server=server, tool=tool, arguments=canonical(submitted))
        digest = call_digest(server=server, tool=tool, arguments=canonical(runs))
    if receipt.get("call_commitment") != call_commitment(salt, asked, digest):
        raise LogInvalid(Break(kind="payload_changed", detail="`call_commitment`"))
    return runs
