"""What a guard of a run is asked and what it answers: exactly one outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, runtime_checkable

from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Clock, Store
from aegis.core.principal import Principal
from aegis.pipeline.run import Policy

Stage = Literal["ingress", "result", "egress", "finalize"]
STAGES: Final[tuple[Stage, ...]] = ("ingress", "result", "egress", "finalize")

Message = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """What a guard may read of a run: private copies.

    `messages` are what the model has seen and will see (chat completions' shape); at `result`, the last one is the
    tool's result. `documents` are texts that the caller retrieved. `output` is the answer, from `egress` on. `labels`
    is how guards speak to each other. `vault` maps placeholders to what they stand for, and never reaches a model. At
    `finalize`, `status` and `reason` say how the run ends: every run that ends comes by there, refused ones too.
    """

    run_id: str
    stage: Stage
    route: str
    principal: Principal
    agent: str
    messages: tuple[Message, ...]
    documents: tuple[Message, ...] = ()
    output: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    vault: Mapping[str, str] = field(default_factory=dict, repr=False)
    cost: int = 0
    status: str = "running"
    reason: str = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardContext:
    """What a guard may use: the policy in force, the store and its clock (microseconds since the epoch)."""

    policy: Policy
    store: Store
    clock: Clock


@dataclass(frozen=True, kw_only=True, slots=True)
class RunReport:
    """One guard's answer.

    With `sanitize`, at least one of `messages`, `documents` and `output` replaces what the guard was shown, and the
    next guard sees that. `labels` are added to those of the run, `vault` to its placeholders. `rules` name what was
    found; `message` is one sentence for the client, without matched text.
    """

    outcome: Outcome = Outcome.ALLOW
    reason: Reason = Reason.NONE
    message: str = ""
    rules: tuple[str, ...] = ()
    messages: tuple[Message, ...] | None = None
    documents: tuple[Message, ...] | None = None
    output: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    vault: Mapping[str, str] = field(default_factory=dict, repr=False)


class RunGuard(Protocol):
    """Looks at a run at the stages that it serves. An exception, or anything but a `RunReport`, blocks."""

    @property
    def name(self) -> str: ...

    @property
    def stages(self) -> frozenset[Stage]: ...

    def check(self, view: RunView, context: GuardContext) -> RunReport | Awaitable[RunReport]: ...


class Pieces(Protocol):
    """What a guard makes of a text that comes in pieces."""

    def feed(self, piece: str) -> str:
        """What may go on of all that came so far."""
        ...

    def end(self) -> str:
        """What was still held back."""
        ...


@runtime_checkable
class PiecewiseGuard(RunGuard, Protocol):
    """A guard of answers that need not see the whole text: in pieces it comes to the same, and it never blocks."""

    def pieces(self, vault: Mapping[str, str]) -> Pieces: ...
