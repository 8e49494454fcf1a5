"""The one state that every node of a run shares. Plain JSON, so that a checkpoint is data and never code."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Protocol, TypedDict, runtime_checkable

from msgspec import Struct

from aegis.core.outcome import Outcome, Reason
from aegis.core.ports import Clock, Store
from aegis.core.principal import Principal
from aegis.policy.policy import Policy
from aegis.wire.client import Message as Message_
from aegis.wire.client import texts

# What a guard of a run is asked and what it answers: exactly one outcome.

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


class GuardContext(Struct, frozen=True, kw_only=True):
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


Status = Literal["running", "paused", "completed", "refused", "failed"]


class RunState(TypedDict, total=False):
    """A run on its way. Members are replaced by what a node returns; `events` are appended.

    `vault` maps placeholders to what they stand for; nothing that is sent to a model is made from it. `cost` is in
    millionths of the currency of the price list.
    """

    run_id: str
    principal: dict[str, Any]
    route: str
    status: Status
    reason: str
    message: str
    messages: list[dict[str, Any]]
    documents: list[dict[str, Any]]
    labels: dict[str, str]
    vault: dict[str, str]
    models: list[str]
    model: str
    turns: int
    calls: int
    usage: dict[str, int]
    cost: int
    output: str
    started: int
    events: Annotated[list[dict[str, Any]], operator.add]


# What a client asks of a run, and what it is told.


class RunRequest(Struct, frozen=True, kw_only=True):
    """What a client asks for: messages in the shape of chat completions, and texts that it retrieved."""

    messages: tuple[Message, ...]
    documents: tuple[str, ...] = ()
    route: str = "default"
    run_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunAnswer:
    """Where a run stands. `held` names the approvals that it waits for; `output` is there once it completed."""

    run_id: str
    status: Status
    route: str
    output: str = ""
    reason: str = "none"
    message: str = ""
    model: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    cost: int = 0
    held: tuple[Mapping[str, str], ...] = ()
    events: tuple[Mapping[str, Any], ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """The answer as JSON."""
        return {
            "id": self.run_id,
            "status": self.status,
            "route": self.route,
            "output": self.output if self.status == "completed" else None,
            "reason": self.reason,
            "message": self.message,
            "model": self.model or None,
            "labels": dict(self.labels),
            "usage": dict(self.usage),
            "cost": self.cost,
            "approvals": [dict(held) for held in self.held],
            "events": [dict(event) for event in self.events],
        }


# The texts of messages in the shape of chat completions: read, and replaced one by one.

Change = Callable[[str], str]


def with_texts(message: Message_, change: Change) -> Message_:
    """The message with every text changed; everything else is kept."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": change(content)}
    if isinstance(content, list):
        parts: list[Any] = [
            {**part, "text": change(part["text"])}
            if isinstance(part, dict) and isinstance(part.get("text"), str)
            else part
            for part in content
        ]
        return {**message, "content": parts}
    return message


def all_texts(messages: Iterable[Message_]) -> Iterator[str]:
    """The texts of several messages, in order."""
    for message in messages:
        yield from texts(message)
