"""The model of `aegis.yaml`: what may stand where. Unknown keys are refused everywhere.

Values that a person should see are not defaults here: they are lines of the profile that the file
names (`policies/profiles`), and a section without a default is always filled by the profile.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from aegis.core.outcome import Effect, EvidencePolicy
from aegis.core.text import TextRole
from aegis.pipeline import available
from aegis.pipeline.fields import (
    MAX_LEVELS,
    Approver,
    DeclaredEffect,
    Description,
    JsonSchema,
    Mode,
    Name,
    Names,
    RateField,
    Section,
    Size,
    Tier,
    Timeout,
)
from aegis.pipeline.settings_content import ContentSettings

PROFILES = ("strict", "standard", "observe")


class NotifierSettings(Section):
    """One place that word of a held call is sent to; `secret` is `${env:NAME}` or `file:PATH`."""

    kind: Annotated[Literal["webhook", "slack"], AfterValidator(available.check_notifier)]
    url: str
    secret: str = ""

    @model_validator(mode="after")
    def _no_secret_in_the_file(self) -> NotifierSettings:
        if self.secret and not self.secret.startswith(("${env:", "file:")):
            raise ValueError("a secret is given as `${env:NAME}` or `file:PATH`, never in the file")
        return self


class ApprovalSettings(Section):
    """Who releases held calls, and how long they wait."""

    timeout: Timeout
    on_timeout: Literal["block", "next"]
    approvers: Annotated[list[Approver], Field(min_length=1)]
    quorum: Annotated[int, Field(ge=1, le=20)]
    notify: list[NotifierSettings]


class ToolApprovalSettings(Section):
    """What one tool sets differently; `always` holds every call of it, whatever its risk."""

    timeout: Timeout | None = None
    on_timeout: Literal["block", "next"] | None = None
    approvers: Annotated[list[Approver], Field(min_length=1)] | None = None
    quorum: Annotated[int, Field(ge=1, le=20)] | None = None
    notify: list[NotifierSettings] | None = None
    always: bool = False


class ToolSettings(Section):
    """One entry of the tool registry; its key is a selector (`tool`, `server/tool`, with `*`)."""

    risk: Tier = "medium"
    irreversible: bool = False
    effects: list[DeclaredEffect] | None = None
    category: Annotated[str, Field(max_length=64)] = ""
    description: Description = ""
    schema_: JsonSchema | None = Field(default=None, alias="schema")
    roles: dict[str, TextRole] = Field(default_factory=dict)
    approvals: ToolApprovalSettings | None = None
    skip_judge: bool = False
    dryrun_supported: bool = False


class RegistrySettings(Section):
    """What tiers may do, and what happens to tools that nobody registered."""

    allow_unregistered: Literal["scan", "block", "require_approval"]
    max_allowed_tier: Tier
    allow_critical: bool
    escalation_threshold: Tier


class LimitSettings(Section):
    """How often an agent may call, and how far one call is read."""

    rate: RateField
    max_depth: Annotated[int, Field(ge=1, le=MAX_LEVELS)]
    max_strings: Annotated[int, Field(ge=1, le=1_000_000)]
    max_bytes: Size


class GuardSettings(Section):
    """A guard without options of its own."""

    mode: Mode


class AlwaysSettings(Section):
    """A guard that is asked about every call and cannot be switched off."""

    mode: Literal["enforce", "observe"]


class GuardsSettings(Section):
    """One member for each guard that this version has."""

    protected: AlwaysSettings
    evidence: AlwaysSettings
    rate: GuardSettings
    registry: GuardSettings
    schema_: GuardSettings = Field(alias="schema")
    content: ContentSettings
    cedar: GuardSettings

    def mode(self, guard: str) -> Mode:
        """The mode of a guard by its name."""
        member: GuardSettings | AlwaysSettings | ContentSettings = getattr(
            self, "schema_" if guard == "schema" else guard
        )
        return member.mode


class PipelineSettings(Section):
    """Which guards look at calls and at results, in which order."""

    call: Annotated[list[str], Field(min_length=1)]
    result: Annotated[list[str], Field(min_length=1)]


class SelectSettings(Section):
    """Which calls a policy is about; every member that is given must hold."""

    tool: Names | None = None
    category: Name | None = None
    effect: Effect | None = None


class PolicySettings(Section):
    """One rule about arguments: exactly one of `schema`, `deny` and `cedar`."""

    name: Name
    description: Description = ""
    select: SelectSettings | None = None
    schema_: JsonSchema | None = Field(default=None, alias="schema")
    deny: JsonSchema | None = None
    cedar: Annotated[str, Field(min_length=1)] | None = None
    outcome: Literal["block", "require_approval"] = "block"


class Settings(Section):
    """The whole file, laid over its profile."""

    version: Literal[1]
    profile: Literal["strict", "standard", "observe"]
    store: Annotated[str, AfterValidator(available.check_store)]
    durability: Literal["fsync", "os"]
    insufficient_evidence: EvidencePolicy
    tools: dict[Name, ToolSettings]
    registry: RegistrySettings
    limits: LimitSettings
    guards: GuardsSettings
    pipeline: PipelineSettings
    policies: list[PolicySettings]
    judges: list[Any]
    approvals: ApprovalSettings
