"""The sections about tools, policies and approvals."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from aegis.config.fields import (
    Approver,
    DeclaredEffect,
    Description,
    GrantTime,
    HourlyLimit,
    JsonSchema,
    Moment,
    Name,
    Names,
    People,
    Section,
    Tier,
    Timeout,
    unlike,
)
from aegis.config.sections import ToolPreviewSettings
from aegis.core.approval import MAX_QUORUM, Narrowing
from aegis.core.extensions import is_brought, load_extension
from aegis.core.outcome import Effect
from aegis.core.text import TextRole
from aegis.errors import ExtensionError
from aegis.policy import model
from aegis.policy.dataflow.declare import Does, FieldTrust, Sensitivity, Trust
from aegis.policy.dataflow.values import ValueKind


def _notifier(kind: object) -> object:
    """Give `kind` where this version or an installed package can send that way; `ValueError` names the package."""
    if kind in model.NOTIFIERS:
        return kind
    if not isinstance(kind, str) or kind == "email" or not is_brought("notifier", kind):
        expected = " or ".join(f"'{name}'" for name in model.NOTIFIERS)
        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})
    try:
        return load_extension("notifier", kind).name
    except ExtensionError as error:
        raise ValueError(str(error)) from error


def _switch(value: object) -> object:
    """`on` and `off` as words: YAML reads them as truth values."""
    return ("off", "on")[value] if isinstance(value, bool) else value


class NotifierSettings(Section):
    """One place that word of a held call is sent to."""

    kind: Annotated[str, BeforeValidator(_notifier)]
    """How it is sent: `webhook`, `slack`, or the name of a notifier that an installed package brings."""
    url: Annotated[str, Field(min_length=1)]
    """Where to: `https://...`, or a reference `${env:NAME}`, `file:PATH`, as the URL can be a secret itself."""
    secret: str = ""
    """What signs it: `${env:NAME}` or `file:PATH`, never the secret itself."""
    private: list[Name] = Field(default_factory=list)
    """Hosts, `name` or `name:port`, that may have private addresses and need no TLS."""
    arguments: bool = False
    """Whether the message carries the masked arguments."""
    values: bool = False
    """Whether a message of Slack shows the arguments as they are; without it, it offers a no alone. Needs `people`."""
    people: dict[Name, Name] = Field(default_factory=dict)
    """Who may answer in Slack: ids of Slack's users (`U...`), each with the account that answers. Needs `secret`."""

    @model_validator(mode="after")
    def _no_secret_in_the_file(self) -> NotifierSettings:
        if self.secret and not self.secret.startswith(("${env:", "file:")):
            raise ValueError("a secret is given as `${env:NAME}` or `file:PATH`, never in the file")
        if self.people and (self.kind != "slack" or not self.secret):
            raise ValueError("answers come from Slack alone, and need the app's signing secret as `secret`")
        if self.values and not self.people:
            raise ValueError("`values` are shown to `people` who may answer")
        if self.kind == "webhook" and not self.secret:
            raise ValueError("a webhook needs a `secret` that signs what is sent")
        return self


def _exact(text: str) -> str:
    if "*" in text:
        raise ValueError("a standing approval is about one tool, without `*`")
    return text


class StandingSettings(Section):
    """A yes for calls of one shape until a day. Blocks stay blocks, and every other guard is asked as before."""

    tool: Annotated[Name, AfterValidator(_exact)]
    """The tool, as `tool` or `server/tool`, without `*`; without a server it is about calls that name none."""
    agent: Name
    """The agent that calls."""
    principal: Name
    """Whose credential it calls with."""
    rules: Annotated[list[Name], Field(min_length=1)]
    """What may have held the call: detector rules, policies, `irreversible`, `approval-required`."""
    arguments: JsonSchema
    """What the arguments must satisfy."""
    reason: Description = Field(min_length=1)
    """Why, for the next reader."""
    expires: Moment
    """When it ends."""


class ApprovalSettings(Section):
    """Who releases held calls, and how long they wait."""

    timeout: Timeout
    """How long a held call waits, at most seven days."""
    on_timeout: Literal["block", "next"]
    """What happens then: it is blocked, or passed to the next approver. Nothing allows it."""
    defer_timeout: Timeout
    """How long a call waits for evidence; then it is blocked."""
    approvers: Annotated[list[Approver], Field(min_length=1), AfterValidator(unlike)]
    """Who may release it, in the order in which `next` passes it on."""
    quorum: Annotated[int, Field(ge=1, le=MAX_QUORUM)]
    """How many different approvers must agree."""
    notify: list[NotifierSettings]
    """Where word of it is sent."""
    separate_owner: bool
    """Whether the owner of a session is barred from answering its calls, as the requester always is."""
    session_grant: GrantTime
    """How long one yes may cover the same call again in its session; `off` is never."""
    flow_grants: Annotated[Literal["on", "off"], BeforeValidator(_switch)]
    """Whether an approver may let a document name values, or a kind of deed, for the rest of a session."""
    groups: Annotated[dict[Name, People], AfterValidator(unlike)]
    """People by the name of their group."""
    hourly_limit: HourlyLimit
    """How many calls one person may approve in an hour; beyond it a call waits for somebody else."""
    max_pending: Annotated[int, Field(ge=1, le=100_000)]
    """How many calls of one principal may wait at once; beyond it they are blocked."""
    link: str
    """Where people read an approval, `https://...`; messages link there. A link carries no authority."""
    standing: list[StandingSettings] = Field(default_factory=list)
    """Calls that people approved again and again, and need nobody until a day. `aegis approvals always` drafts one."""


class OwnApprovalSettings(Section):
    """What a tool or a policy sets differently from the section `approvals`."""

    timeout: Timeout | None = None
    """As in `approvals`."""
    on_timeout: Literal["block", "next"] | None = None
    """As in `approvals`."""
    approvers: Annotated[list[Approver], Field(min_length=1), AfterValidator(unlike)] | None = None
    """As in `approvals`."""
    quorum: Annotated[int, Field(ge=1, le=MAX_QUORUM)] | None = None
    """As in `approvals`."""
    notify: list[NotifierSettings] | None = None
    """As in `approvals`."""
    separate_owner: bool | None = None
    """As in `approvals`."""
    session_grant: GrantTime | None = None
    """As in `approvals`."""


class ToolApprovalSettings(OwnApprovalSettings):
    """What one tool sets differently from the section `approvals`."""

    always: bool = False
    """Hold every call of the tool, whatever its risk."""
    narrow: dict[str, Narrowing] = Field(default_factory=dict)
    """What an approver may make of single arguments, by name or JSON pointer: `fixed`, `lower`, `remove`, `shorten`."""


def _pattern(text: str) -> str:
    """Give `text` where it is a pattern of paths; `ValueError` for one that would match by chance or not at all."""
    if ".." in text.split("/") or "//" in text or not text.strip("/*"):
        raise ValueError("a pattern of paths names a folder, without `..`: `/srv/reports/**`")
    if "**" in text.replace("/**/", "/").removesuffix("/**"):
        raise ValueError("`**` stands between slashes, for any number of folders")
    return text


PathPattern = Annotated[str, Field(min_length=1, max_length=4_096), AfterValidator(_pattern)]


class ArgumentSettings(Section):
    """What one argument of a tool is, for the guard of data flow."""

    is_: ValueKind = Field(alias="is")
    """The kind of its value."""
    sink: bool = False
    """Whether the deed goes there: a recipient, a payee, an address."""


class ResultSettings(Section):
    """Whose word the results of a tool are, and how sensitive they are."""

    trust: Trust | None = None
    """`trusted`, `mixed` (short fields count, texts do not) or `untrusted`; undeclared text is untrusted."""
    sensitivity: Sensitivity | None = None
    """What a session that read it has read."""
    fields: dict[Name, FieldTrust] = Field(default_factory=dict)
    """Single fields by their dotted names, with `*`."""


class ToolSettings(Section):
    """One entry of the registry. Its key is a selector: `tool`, `server/tool`, either with `*`."""

    risk: Tier = "medium"
    """The tier of the tool. What a call would do can raise it, never lower it."""
    irreversible: bool = False
    """Whether its effect cannot be undone."""
    effects: list[DeclaredEffect] | None = None
    """What it does; `none` stands alone. What a call would do is added."""
    category: Annotated[str, Field(max_length=64)] = ""
    """A word of your own, for policies to select by."""
    description: Description = ""
    """For people; decides nothing."""
    schema_: JsonSchema | None = Field(default=None, alias="schema")
    """What its arguments must satisfy; also the types that Cedar policies see as `context.input`."""
    roles: dict[str, TextRole] = Field(default_factory=dict)
    """What arguments are for, by name or JSON pointer, where neither their names nor the schema's formats tell."""
    paths: dict[Name, Annotated[list[PathPattern], Field(min_length=1)]] = Field(default_factory=dict)
    """Where arguments may lead, by name or JSON pointer: `{file: ["/srv/reports/**"]}`. Paths are read in every
    spelling, and links are followed where the files are; what lies outside is blocked."""
    approvals: ToolApprovalSettings | None = None
    """Who releases its held calls, where that differs."""
    skip_judge: bool = False
    """Leave the judges out for calls of this tool that only read. Policy, schema, scan and receipt stay."""
    unsafe_skip_judge_with_effects: bool = False
    """Leave them out also where the tool writes, runs programs, sends or cannot be undone."""
    dryrun_supported: bool = False
    """Whether the tool can say what it would do without doing it."""
    preview: ToolPreviewSettings | None = None
    """How the effect of its held calls is looked at."""
    permit: bool = False
    """Whether the tool demands a permit: every call of it that may run gets one."""
    does: Does | None = None
    """What the tool does, where its name does not say."""
    arguments: dict[Name, ArgumentSettings] = Field(default_factory=dict)
    """What arguments are, by name, where their names do not say."""
    result: ResultSettings | None = None
    """Whose word its results are."""


class SessionSelectSettings(Section):
    """Which sessions a policy is about; every member that is given must hold. A call without a session lacks them."""

    id: Names | None = None
    """Its name."""
    labels: Annotated[list[Sensitivity], Field(min_length=1)] | None = None
    """It read something as sensitive as one of these."""
    sources: Names | None = None
    """It read results of one of these tools."""
    effects: Annotated[list[Effect], Field(min_length=1)] | None = None
    """An earlier call of it had one of these effects."""
    tools: Names | None = None
    """It called one of these tools."""
    untrusted: bool | None = None
    """Whether it read anything untrusted."""
    task: bool | None = None
    """Whether the user's words are known."""
    calls: Annotated[int, Field(ge=1)] | None = None
    """So many of its calls were allowed, at least."""
    denials: Annotated[int, Field(ge=1)] | None = None
    """So many of its calls were blocked, at least."""
    turns: Annotated[int, Field(ge=1)] | None = None
    """So many turns were said, at least."""
    drift: Annotated[int, Field(ge=1, le=100)] | None = None
    """It went so far from the user's words, at least."""


class SelectSettings(Section):
    """Which calls a policy is about; every member that is given must hold."""

    tool: Names | None = None
    """Tools by name."""
    category: Name | None = None
    """Tools of this category."""
    effect: Effect | None = None
    """Calls with this effect, declared or seen."""
    session: SessionSelectSettings | None = None
    """Calls of sessions that read, did or said this before."""
    trust_below: Annotated[int, Field(ge=1, le=100)] | None = None
    """Calls of agents in whom the trust, from 0 to 100, is below it: such a policy asks more of them, never less."""


class PolicySettings(Section):
    """One rule about calls: exactly one of `schema`, `deny` and `cedar`."""

    name: Name
    """What findings and receipts call it."""
    description: Description = ""
    """For people; decides nothing."""
    select: SelectSettings | None = None
    """The calls that `schema` or `deny` is about; every call where it is left out."""
    schema_: JsonSchema | None = Field(default=None, alias="schema")
    """What the arguments must satisfy."""
    deny: JsonSchema | None = None
    """What the arguments must not satisfy."""
    cedar: Annotated[str, Field(min_length=1)] | None = None
    """Policies in Cedar, which select by their own scope. What no policy permits is denied."""
    outcome: Literal["block", "require_approval", "defer"] = "block"
    """What a call gets that breaks `schema` or `deny`, or that `cedar` forbids. `defer` holds it until a new decision
    would not, or a person releases it; after `approvals.defer_timeout` it is blocked."""
    approvals: OwnApprovalSettings | None = None
    """Who releases what this policy holds; added to what the tool itself asks for."""
