"""The model of `aegis.yaml`: what may stand where. Unknown keys are refused everywhere.

Values that a person should see are not defaults here: they are lines of the profile that the file
names (`policies/profiles`), and a section without a default is always filled by the profile.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from aegis.config.behaviour import (
    MAX_BUDGETS,
    MAX_PRICES,
    MAX_RULES,
    BaselineSettings,
    BudgetSettings,
    CascadeSettings,
    ContainmentSettings,
    LoopSettings,
    PriceSettings,
    ReasoningSettings,
)  # fmt: skip
from aegis.config.fields import (
    MAX_LEVELS,
    ByteRateField,
    GrantTime,
    Mode,
    Name,
    RateField,
    Section,
    Size,
    Tier,
    Timeout,
    written,
)
from aegis.config.judges import JudgingSettings, ValidatorSettings
from aegis.config.models import BaseUrl, DraftingSettings, ProxySettings, RunSettings, SecretReference
from aegis.config.sections import ContentSettings, MissionSettings, PreviewSettings
from aegis.config.tools import ApprovalSettings, PolicySettings, ToolSettings
from aegis.core.outcome import EvidencePolicy
from aegis.policy import model
from aegis.policy.dataflow.declare import Sensitivity
from aegis.policy.dataflow.drift import EmbeddingEndpoint

MAX_RULE_FOLDERS = 16
PROFILES = ("strict", "standard", "observe")


class RegistrySettings(Section):
    """What tiers may do, and what happens to tools that nobody registered."""

    allow_unregistered: Literal["scan", "block", "require_approval"]
    """`scan` decides from facts and content; a tool of another server counts as unregistered."""
    max_allowed_tier: Tier
    """Calls above this tier are blocked."""
    allow_critical: bool
    """Critical calls are blocked unless this is true."""
    escalation_threshold: Tier
    """Irreversible calls at or above this tier are held for an approval."""


class LimitSettings(Section):
    """How often an agent may call, and how far one call is read."""

    rate: RateField
    """Calls of one agent in any such time, whichever process on the log decides them; `unlimited` lifts both rates."""
    byte_rate: ByteRateField
    """Bytes of arguments and results of one agent in any such time, as each process counts them."""
    max_depth: Annotated[int, Field(ge=1, le=MAX_LEVELS)]
    """Levels of nesting; beyond it the call is blocked."""
    max_strings: Annotated[int, Field(ge=1, le=1_000_000)]
    """Strings, keys included; beyond it the call is blocked."""
    max_bytes: Size
    """Bytes of all strings; beyond it the call is blocked."""
    deferred_chain: Annotated[int, Field(ge=1, le=1_000)]
    """Deferred calls that wait for one another in a chain; a longer one is blocked."""


class AlwaysSettings(Section):
    """A guard that is asked about every call and cannot be switched off."""

    mode: Literal["enforce", "observe"]
    """Whether its reports count, or are only recorded."""


class GuardSettings(Section):
    """A guard without options of its own."""

    mode: Mode
    """Whether its reports count, are only recorded, or are never asked for."""


class DataflowSettings(Section):
    """The guard that asks where the values of a call come from."""

    mode: Literal["enforce", "known", "observe", "off"]
    """`known` enforces where the user's words are known, and asks nothing where they are not."""
    delegation: Literal["never", "grant", "typed"]
    """Whether a document that the user named may supply a value: never, once a person grants it, or by its kind."""


class EmbeddingSettings(Section):
    """An embedding model behind an OpenAI-compatible endpoint; it is sent the user's words and the names of tools."""

    url: BaseUrl
    """Its base URL: `https://api.openai.com/v1`."""
    model: Name
    """The model that is asked for."""
    near: Annotated[float, Field(gt=-1, lt=1)]
    """From this cosine on a tool is taken to be asked for."""
    far: Annotated[float, Field(ge=-1, lt=1)]
    """At this cosine and below it is as far as can be; `aegis doctor` tells cosines of the model as an example."""
    key: SecretReference | None = None
    """The provider's key."""
    private: bool = False
    """Whether it may lie at a private address and be spoken to without TLS."""
    timeout: Timeout = 5
    """How long one answer may take; no call waits for it."""

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if self.far >= self.near:
            raise ValueError("`far` has to be less than `near`")
        return self

    def compiled(self) -> EmbeddingEndpoint:
        """The value that measuring takes."""
        return EmbeddingEndpoint(
            url=self.url,
            model=self.model,
            near=self.near,
            far=self.far,
            seconds=self.timeout,
            private=self.private,
            key=self.key or "",
        )


class DriftSettings(Section):
    """The guard that asks how far a call is from the user's words, given the run so far."""

    mode: Mode
    """Whether what it holds is held, only recorded, or never asked for."""
    alert: Annotated[int, Field(ge=1, le=100)]
    """From this drift on a call is noted, and the first of a session is an alarm on record."""
    hold: Annotated[int, Field(ge=1, le=100)]
    """From this drift on a call is held, or deferred where missing evidence is."""
    embeddings: EmbeddingSettings | None = None
    """A model that measures as well how near tools are to the user's words; it can only add to what is counted."""


class SessionSettings(Section):
    """What sessions remember."""

    unclassified: Sensitivity
    """How sensitive a result is that nothing classifies."""
    idle: GrantTime = 0
    """How long nobody may use a session until the gateway ends it for good; `off`: as long as nobody likes."""


class OutsideGuardSettings(Section):
    """A guard that an installed package brings."""

    mode: Mode = "enforce"
    """Whether its reports count, are only recorded, or are never asked for."""
    options: dict[Name, Any] = Field(default_factory=dict)
    """What the package takes; it says itself what is wrong with them."""


class GuardsSettings(Section):
    """One member for each guard that this version has."""

    protected: AlwaysSettings
    """Blocks calls that name Aegis's own files, keys, socket or commands."""
    evidence: AlwaysSettings
    """Names what nobody could look at; `insufficient_evidence` says what happens then."""
    rate: GuardSettings
    """Counts calls against `limits.rate`."""
    registry: GuardSettings
    """Applies `tools` and `registry`."""
    schema_: GuardSettings = Field(alias="schema")
    """Checks the schemas of tools, and policies that are schemas."""
    content: ContentSettings
    """Looks for attacks, secrets and personal data, in calls and results."""
    cedar: GuardSettings
    """Evaluates policies in Cedar, where there are any."""
    loops: LoopSettings
    """Holds what an agent does over and over."""
    behaviour: BaselineSettings
    """Notes or holds what is far from what an agent usually does."""
    reasoning: ReasoningSettings
    """Compares what a call does with why it is made, and with the plan of its session."""
    dataflow: DataflowSettings
    """Asks where values come from and whether the user's words ask for the deed; of calls in sessions alone."""
    drift: DriftSettings
    """Asks how far a call is from the user's words; of calls in sessions whose words are known."""
    outside: dict[Name, OutsideGuardSettings] = Field(default_factory=dict)
    """Guards of installed packages, by the names of their entry points; asked in this order, after the others."""

    def mode(self, guard: str) -> Mode:
        """Tell the mode of a guard by its name."""
        if guard in self.outside:
            return self.outside[guard].mode
        name = "schema_" if guard == "schema" else guard
        member: GuardSettings | AlwaysSettings | ContentSettings = getattr(self, name)
        return member.mode


class PipelineSettings(Section):
    """Which guards look at calls and at results, in which order; patches compose in this order."""

    call: Annotated[list[str], Field(min_length=1)]
    """Guards of calls. `protected` and `evidence` are asked before them in any case."""
    result: Annotated[list[str], Field(min_length=1)]
    """Guards of results."""


class Settings(Section):
    """The whole file, laid over its profile."""

    version: Literal[1]
    """The version of this format."""
    profile: Literal["strict", "standard", "observe"]
    """The starting point that the file is laid over."""
    store: Annotated[
        str,
        AfterValidator(model.check_store),
        written("`sqlite:///FILE`, `postgresql://...`, a reference to one, or `memory:`"),
    ]
    """Where the log is kept; a relative file lies in the home. Takes effect at the next start."""
    durability: Literal["fsync", "os"]
    """Whether a decision survives a power cut, or a crash of the process. Takes effect at the next start."""
    insufficient_evidence: EvidencePolicy
    """What happens to a call that could not be evaluated for want of evidence."""
    tools: dict[Name, ToolSettings]
    """The registry of tools."""
    registry: RegistrySettings
    limits: LimitSettings
    guards: GuardsSettings
    pipeline: PipelineSettings
    sessions: SessionSettings
    policies: list[PolicySettings]
    """Rules about arguments and calls."""
    rules: Annotated[list[Name], Field(max_length=MAX_RULE_FOLDERS)]
    """Folders of detector rules beside the built-in ones; a relative one lies beside this file."""
    judges: list[ValidatorSettings]
    """Who looks at calls before they run, in this order. A judge can only tighten."""
    judging: JudgingSettings
    containment: Annotated[list[ContainmentSettings], Field(max_length=MAX_RULES)]
    """When an agent, a session, a mission or a tool is held or stopped by itself. The first entry that holds wins."""
    cascade: CascadeSettings
    budgets: Annotated[list[BudgetSettings], Field(max_length=MAX_BUDGETS)]
    """What agents and sessions may use up without a mission, before a person gives more."""
    prices: Annotated[list[PriceSettings], Field(max_length=MAX_PRICES)]
    """What models cost that are asked through a proxy."""
    approvals: ApprovalSettings
    previews: PreviewSettings
    missions: MissionSettings
    proxies: ProxySettings
    runs: RunSettings
    drafting: DraftingSettings
