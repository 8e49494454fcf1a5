"""What goes into a policy and what comes out: one call, or one result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from aegis.core.approval import ApprovalPolicy
from aegis.core.combine import Combined
from aegis.core.decision import GuardTime
from aegis.core.outcome import Effect, Risk
from aegis.core.principal import Principal
from aegis.guards.base import Provenance, ToolEntry
from aegis.guards.mission_view import Cost, MissionView

DEFAULT_TIMEOUT: Final = 300  # seconds: a held call never waits for ever


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """One call to be evaluated.

    `arguments` belong to the evaluation: a fresh decode of the digested bytes that nobody else
    holds. `now` is microseconds since the epoch; `session` is empty for a call without one.
    `charge` is false where a known call is looked at again: it consumes no rate and no budget.
    """

    tool: str
    server: str | None
    arguments: dict[str, Any]
    principal: Principal
    agent: str
    session: str
    call_id: str
    now: int
    task: str | None = None
    unresolved: tuple[str, ...] = ()
    charge: bool = True
    mission: MissionView | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """What a policy makes of a call.

    `arguments` are what would run: the submitted ones, or the patched ones, whose canonical bytes
    are then `canonical` (`None` where nothing was patched). `times` follows the order of the guards
    and adds up over rounds of re-analysis. `approval` says who releases the call where it is held;
    it is `None` where no policy was asked. `cost` is what the call takes from budgets, if it runs.
    """

    combined: Combined
    arguments: dict[str, Any]
    canonical: bytes | None
    tier: Risk
    irreversible: bool
    effects: frozenset[Effect]
    times: tuple[GuardTime, ...]
    entry: ToolEntry | None
    approval: ApprovalPolicy | None = None
    cost: Cost = field(default_factory=dict)

    @property
    def approval_timeout(self) -> int:
        """How many seconds an approval of this call stays open."""
        return DEFAULT_TIMEOUT if self.approval is None else self.approval.timeout_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class IncomingResult:
    """One tool result to be evaluated; `result` is any JSON value, held by nobody else."""

    tool: str
    server: str | None
    result: Any
    principal: Principal
    agent: str
    session: str
    now: int
    mission: MissionView | None = None
    provenance: Provenance = "unsigned"
    must_sign: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultEvaluation:
    """What a policy makes of a result; `result` is what the model may see, patched where `canonical` is set."""

    combined: Combined
    result: Any
    canonical: bytes | None
    times: tuple[GuardTime, ...]
