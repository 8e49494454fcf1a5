"""The gate as a developer opens it, and what `auto`, `protect` and `unhook` share."""

from __future__ import annotations

import logging
import os
import shlex
import threading
from pathlib import Path
from typing import Final, Protocol, Self, cast, get_args

from msgspec import Struct, field, structs

from aegis.bootstrap import open_deployment
from aegis.bootstrap.deployment import DeployedGate, DeploymentParts
from aegis.context.opening import Opening, OpeningSteps
from aegis.core.call import ToolCall
from aegis.core.decider import Decider, SessionHost
from aegis.core.decision import Decision, OpenedSession
from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from aegis.core.text import visible
from aegis.enforce.enforcement import Enforcer, OnApproval
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Patches
from aegis.errors import InvalidCall, MissionInvalid
from aegis.missions.holder import Holder, Provers, holder_folder
from aegis.notices import notice


class Gate(DeployedGate):
    """A policy decision point in this process, over its own durable log.

    It proves possession for its own agent: at the opening of a session whose mission names a holder
    key, and with every call of it.
    """

    def __init__(self, parts: DeploymentParts, principal: Principal, *, home: Path | None = None):
        super().__init__(parts, principal)
        self.described = "a gate in this process"
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
            gate=cls,
        )
        gate = cast("Self", deployment.gate)
        gate._home = deployment.home
        profile = deployment.config.settings.profile
        gate.described = f"a gate in this process, home `{deployment.home}`, profile `{profile}`"
        return gate

    def decide(self, call: ToolCall, *, principal: Principal | None = None) -> Decision:
        """The decision on `call`, proved where its session asks for it; raises `InvalidCall` for misuse alone."""
        return super().decide(call if call.session is None else self._provers.prove(call), principal=principal)

    async def adecide(self, call: ToolCall, *, principal: Principal | None = None) -> Decision:
        """`decide` for event loops."""
        call = call if call.session is None else self._provers.prove(call)
        return await super().adecide(call, principal=principal)

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
            opened = yield from super()._opening(whose, session, structs.replace(said, proof=proof))
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


EMBEDDED: Final = "embedded"


class RuntimeSettings(Struct, frozen=True, kw_only=True):
    """Where decisions come from; what is not given is taken from the environment."""

    url: str | None = None
    api_key: str | None = None
    agent: str | None = None
    config: str | Path | None = None
    home: str | Path | None = None
    on_approval: OnApproval | None = None
    approval_timeout: float | None = None


class Runtime(Struct, frozen=True, kw_only=True):
    """One opened decider, which is also the `host` of sessions.

    `gateway` is its address or `embedded`; `authenticated` is `None` where it is embedded. `described` is the
    decider in words, for the person who starts the program.
    """

    enforcer: Enforcer
    host: SessionHost
    memory: Memory
    gateway: str
    authenticated: bool | None
    described: str = ""
    patches: list[Patches] = field(default_factory=list)

    def close(self) -> None:
        """Take the hooks off and release the decider."""
        for patches in self.patches:
            patches.undo()
        self.enforcer.decider.close()


_lock: Final = threading.RLock()
_current: Runtime | None = None


def open_runtime(settings: RuntimeSettings) -> Runtime:
    """A runtime with nothing hooked yet; raises what opening the gate or making the client raises."""
    url = settings.url or os.environ.get("AEGIS_URL")
    agent = settings.agent or os.environ.get("AEGIS_AGENT")
    decider, gateway, authenticated = _decider(settings, url, agent)
    enforcer = Enforcer(
        decider,
        agent=agent if url else None,
        on_approval=_on_approval(settings.on_approval or os.environ.get("AEGIS_ON_APPROVAL") or "wait"),
        approval_timeout=settings.approval_timeout,
        # A gateway's client has no way to say so: there it is a line of the log alone.
        on_uncovered=getattr(decider, "alarm", None),
        host=decider,
        on_refused=_Refusals(gateway if url else "", settings.home),
    )
    described = decider.described if isinstance(decider, Gate) else f"the gateway at {gateway}"
    return Runtime(
        enforcer=enforcer,
        host=decider,
        memory=Memory(),
        gateway=gateway,
        authenticated=authenticated,
        described=described,
    )


class _Refusals:
    """Tells the person at the terminal of each call that does not run: why, what to do, and the page about it."""

    def __init__(self, gateway: str, home: str | Path | None):
        # A gateway that is reached by its socket has pages under another address.
        self._gateway = gateway
        self._pages = gateway.rstrip("/") if gateway.startswith(("http://", "https://")) else ""
        self._where = "" if home is None or self._pages else f" --home {shlex.quote(str(home))}"

    def __call__(self, call: ToolCall, decision: Decision) -> None:
        tool, because = visible(call.tool), decision.reason.value
        if decision.approval is not None and decision.outcome is Outcome.REQUIRE_APPROVAL:
            until, command = decision.approval.expires_at, f"aegis approvals show {decision.approval.id}{self._where}"
            page = f" or {self._pages}/approvals/{decision.approval.id}" if self._pages else ""
            notice(f"`{tool}` waits for a person until {until} ({because}); answer: `{command}`{page}")
        elif decision.receipt is not None:
            page = f" or {self._pages}/calls/{decision.receipt.id}" if self._pages else ""
            notice(f"`{tool}` was not run ({because}); why: `aegis why {decision.receipt.index}{self._where}`{page}")
        elif decision.reason is Reason.UNAVAILABLE and self._gateway:
            remedy = "`aegis serve` starts it, `aegis doctor` looks for the cause"
            notice(f"`{tool}` was not run: the gateway at {self._gateway} did not answer; {remedy}")
        else:
            notice(f"`{tool}` was not run ({because}): {decision.message}")


def replace_runtime(runtime: Runtime | None) -> None:
    """Make a runtime the process's own; the one before is closed."""
    global _current
    with _lock:
        before, _current = _current, runtime
    if before is not None:
        before.close()


def current_runtime() -> Runtime:
    """The process's runtime; where `auto` has made none, one is opened from the environment."""
    global _current
    with _lock:
        if _current is None:
            _current = open_runtime(RuntimeSettings())
            notice(f"decisions by {_current.described}; of functions under `protect` alone", level=logging.INFO)
        return _current


class _Both(Decider, SessionHost, Protocol):
    """What `Gate` and `Client` both are."""


def _on_approval(word: str) -> OnApproval:
    if word not in get_args(OnApproval):
        raise InvalidCall(f"`on_approval` is one of {', '.join(f'`{one}`' for one in get_args(OnApproval))}")
    return cast("OnApproval", word)


def _decider(settings: RuntimeSettings, url: str | None, agent: str | None) -> tuple[_Both, str, bool | None]:
    if url:
        from aegis.sdk.client import Client

        client = Client(url, settings.api_key or None, agent=agent, home=settings.home)
        return client, url, client.authenticated

    return Gate.open(settings.config, home=settings.home, agent=agent), EMBEDDED, None
