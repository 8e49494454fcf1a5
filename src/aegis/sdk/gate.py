"""The gate as a developer opens it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Self

from aegis.bootstrap import open_deployment
from aegis.bootstrap.gate import DeployedGate, DeploymentParts
from aegis.context.opening import Opening, OpeningSteps
from aegis.core.call import ToolCall
from aegis.core.decision import Decision, OpenedSession
from aegis.core.principal import Principal
from aegis.errors import MissionInvalid
from aegis.missions.holder import Holder, Provers, holder_folder


class Gate(DeployedGate):
    """A policy decision point in this process, over its own durable log.

    It proves possession for its own agent: at the opening of a session whose mission names a holder
    key, and with every call of it.
    """

    def __init__(self, parts: DeploymentParts, principal: Principal, *, home: Path | None = None):
        super().__init__(parts, principal)
        self._home = home
        self._provers = Provers()

    @classmethod
    def open(
        cls,
        config: str | Path | None = None,
        *,
        home: str | Path | None = None,
        agent: str | None = None,
        accept_rollback: str | None = None,
    ) -> Self:
        """Open a gate under the configuration file `config`, with its state in `home`.

        Without them: `AEGIS_CONFIG` or `aegis.yaml` in the home, else the profile `standard`;
        `AEGIS_HOME` or `~/.aegis`. A store that is older than the home saw it, or another one, is refused, unless
        `accept_rollback` says why that is right; the reason is recorded. Raises `ConfigError`, `KeyFileError` or
        `StoreError`.
        """
        deployment = open_deployment(
            None if config is None else Path(config),
            None if home is None else Path(home),
            agent=agent,
            accept_rollback=accept_rollback,
        )
        return cls(deployment.gate.parts, deployment.gate.principal, home=deployment.home)

    def decide(self, call: ToolCall, *, principal: Principal | None = None) -> Decision:
        """The decision on `call`, proved where its session asks for it; raises `InvalidCall` for misuse alone."""
        return super().decide(self._provers.prove(call), principal=principal)

    async def adecide(self, call: ToolCall, *, principal: Principal | None = None) -> Decision:
        """`decide` for event loops."""
        return await super().adecide(self._provers.prove(call), principal=principal)

    def _opening(self, whose: Principal, session: str, said: Opening) -> OpeningSteps:
        """Open `session`, and where its mission names a holder key answer the challenge for it."""
        try:
            opened = yield from super()._opening(whose, session, said)
        except MissionInvalid as error:
            if said.mission is None or said.proof is not None or error.code != "proof_invalid":
                raise
            nonce, unit = self.issuing.challenge(whose)
            yield unit
            proof = self._answer(nonce, said.mission, session)
            opened = yield from super()._opening(whose, session, replace(said, proof=proof))
        return self._proving(opened)

    def _answer(self, nonce: str, mission: str, session: str) -> str:
        audience = self.parts.policy.current.missions.audience
        return self._holder().answer(audience=audience, nonce=nonce, mission_id=mission, session=session)

    def _proving(self, opened: OpenedSession) -> OpenedSession:
        if opened.audience is not None:
            prover = self._holder().prover(audience=opened.audience, session=opened.session, number=opened.number)
            self._provers.add(opened.session, prover)
        return opened

    def _holder(self) -> Holder:
        return Holder(holder_folder(self._home), self.principal.agent or self.principal.id)
