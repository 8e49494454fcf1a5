"""What a configuration says about judges: which calls they look at, who they are, and what counts as a yes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from msgspec import Struct

from aegis.core.names import Selector
from aegis.core.outcome import Effect, Risk

CONTEXT: Final = "semantic_judge_pre_execution_inner_loop"

Api = Literal["openai", "anthropic"]
Consensus = Literal["weighted_average", "majority", "unanimous", "best_of_n"]


class ModelSpec(Struct, frozen=True, kw_only=True):
    """A model behind an endpoint. `key` is a reference, resolved when it is used; prices are per million tokens,
    in millionths of the currency that the operator counts in."""

    api: Api
    url: str
    name: str
    key: str = ""
    private: bool = False
    max_tokens: int = 2_048
    price_in: int = 0
    price_out: int = 0


class JudgeTools(Struct, frozen=True, kw_only=True):
    """What a judge may do: commands by their first words, searches and reads below the worker's mounts."""

    commands: tuple[str, ...] = ()
    ast_grep: bool = False
    read: bool = False
    listing: bool = False
    sql: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The tools that are on, by the names that a judge calls them by."""
        on = {
            "cmd.run": bool(self.commands),
            "ast_grep.search": self.ast_grep,
            "fs.read": self.read,
            "fs.list": self.listing,
            "sql.query": bool(self.sql),
        }
        return tuple(name for name, is_on in on.items() if is_on)


class JudgeLimits(Struct, frozen=True, kw_only=True):
    """Bounds of one run: turns of the conversation, tokens, seconds, and what its programs may use."""

    turns: int = 8
    tokens: int = 50_000
    seconds: float = 300.0
    tool_seconds: float = 60.0
    memory_bytes: int = 1_073_741_824
    processes: int = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeSpec:
    """One judge: a model with an instruction and tools, a command that gives the result by itself, or one of a package.

    `version` is the digest of everything that makes the judge what it is. `programs` are read-only folders
    with programs, `folder` is where relative files of a command lie. `hosts` is whom its programs can reach:
    nobody, `name` and `name:port`, or `*` for this machine's whole network.
    """

    name: str
    version: str
    model: ModelSpec | None = None
    command: tuple[str, ...] = ()
    extension: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    instruction: str = ""
    tools: JudgeTools = field(default_factory=JudgeTools)
    limits: JudgeLimits = field(default_factory=JudgeLimits)
    hosts: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    folder: str = ""


class JudgeSelect(Struct, frozen=True, kw_only=True):
    """Which calls are looked at; every member that is given must hold."""

    tools: tuple[Selector, ...] = ()
    servers: tuple[str, ...] = ()
    category: str | None = None
    effect: Effect | None = None
    tier: Risk | None = None
    unregistered: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Validator:
    """One entry of `judges`: whom it asks about which calls, and what is enough."""

    name: str
    judges: tuple[JudgeSpec, ...]
    select: JudgeSelect = field(default_factory=JudgeSelect)
    criteria: str = ""
    min_score: float = 0.7
    min_confidence: float = 0.0
    seconds: float = 300.0
    consensus: Consensus = "unanimous"
    min_judges: int = 1
    min_agreement: float = 0.0
    cache_seconds: int = 0


class Ceiling(Struct, frozen=True, kw_only=True):
    """What may be spent in one day (UTC) before calls go to a person; `None` is no ceiling."""

    tokens: int | None = None
    cost: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeRules:
    """Everything about judges in one deployment."""

    validators: tuple[Validator, ...] = ()
    mode: Literal["enforce", "observe"] = "enforce"
    feedback: Literal["reasoning", "code"] = "reasoning"
    truncated: Literal["reject", "judge"] = "reject"
    on_unavailable: Literal["block", "require_approval"] = "block"
    budget_bytes: int = 65_536
    recent: int = 20
    concurrency: int = 128
    probes: int = 10
    breaker_failures: int = 5
    breaker_seconds: float = 30.0
    ceilings: Mapping[Literal["judge", "agent", "session"], Ceiling] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.validators)
