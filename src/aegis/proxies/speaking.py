"""What users say, as the gateway's proxies record it: on the credential of whoever brings it."""

from __future__ import annotations

from collections.abc import Sequence

from aegis.bootstrap.deployment import DeployedGate
from aegis.core.decision import SaidTurn
from aegis.core.principal import Principal


class Speaking:
    """Records turns in the sessions of `principal`."""

    def __init__(self, gate: DeployedGate, principal: Principal):
        self._gate = gate
        self._principal = principal

    def add_turn(self, session: str, text: str, *, documents: Sequence[str] = ()) -> SaidTurn:
        """Record a turn; raises what the gate raises."""
        return self._gate.add_turn(session, text, documents=documents, principal=self._principal)

    async def aadd_turn(self, session: str, text: str, *, documents: Sequence[str] = ()) -> SaidTurn:
        """`add_turn` for event loops."""
        return await self._gate.aadd_turn(session, text, documents=documents, principal=self._principal)
