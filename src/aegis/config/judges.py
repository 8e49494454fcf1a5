"""The sections `judges` and `judging`, and a judge's own file."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from aegis.config.fields import Description, Name, Names, Section, Size, Tier, Timeout, written
from aegis.config.models import EndpointSettings
from aegis.config.sections import Folder
from aegis.core.outcome import Effect
from aegis.core.patterns import Lazy

MAX_PANEL = 15  # judges of one entry: each is a run of its own
MAX_COMMANDS = 100
MAX_HOSTS = 100
_HOST = Lazy(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,15}(:[1-9][0-9]{0,4})?")

Share = Annotated[float, Field(ge=0, le=1, strict=False), written("a number from 0 to 1")]


def _sqlite(text: str) -> str:
    if not text.startswith("sqlite:////"):
        raise ValueError("a judge's database is `sqlite:////FILE`, an absolute path")
    return text


def _host(text: str) -> str:
    host = text.lower()
    if host != "*" and not _HOST.fullmatch(host):
        raise ValueError("a host is `NAME` or `NAME:PORT`, without a scheme, a path or a pattern; or `*` alone")
    return host


Host = Annotated[str, AfterValidator(_host), written("`NAME`, `NAME:PORT` or `*`")]


class JudgeModelSettings(EndpointSettings):
    """A model that judges, behind any endpoint that speaks one of these APIs."""

    price_in: Annotated[float, Field(ge=0, strict=False)] = 0.0
    """What a million tokens that are sent cost, in a currency of your own."""
    price_out: Annotated[float, Field(ge=0, strict=False)] = 0.0
    """What a million tokens that are received cost."""


class JudgeToolsSettings(Section):
    """What a judge may do to find out; all of it in a sandbox, on the worker's mounts, read-only."""

    cmd_run: Annotated[list[Name], Field(max_length=MAX_COMMANDS)] = Field(default_factory=list, alias="cmd.run")
    """Commands by their first words: `pytest`, `npm test`, `terraform plan`."""
    ast_grep_search: bool = Field(default=False, alias="ast_grep.search")
    """Searches in code by its syntax."""
    fs_read: bool = Field(default=False, alias="fs.read")
    """Reads files."""
    fs_list: bool = Field(default=False, alias="fs.list")
    """Lists folders."""
    sql_query: Annotated[str, AfterValidator(_sqlite), written("`sqlite:////FILE`")] | None = Field(
        default=None, alias="sql.query"
    )
    """Runs single SELECTs on a copy of this database."""


class JudgeLimitsSettings(Section):
    """Bounds of one run."""

    turns: Annotated[int, Field(ge=1, le=50)] = 8
    """Turns of the conversation: how often a model may use tools before it answers."""
    tokens: Annotated[int, Field(ge=100, le=10_000_000)] = 50_000
    """Tokens, sent and received."""
    timeout: Timeout = 300
    """How long it takes at most; an entry's own `timeout_seconds` can shorten it."""
    tool_timeout: Timeout = 60
    """How long one of its programs takes at most."""
    memory: Annotated[int, Field(ge=16, le=65_536)] = 1_024
    """Memory of its programs, in MiB."""
    processes: Annotated[int, Field(ge=4, le=4_096)] = 64
    """Processes of its programs."""


class JudgeSettings(Section):
    """One judge, in a file of its own or inside of an entry."""

    name: Name
    """What receipts and costs call it."""
    description: Description = ""
    """For people; decides nothing."""
    model: JudgeModelSettings | None = None
    """The model that judges."""
    command: Annotated[list[str], Field(min_length=1)] | None = None
    """A program that judges without a model; files are found beside the judge's own file."""
    extension: Name | None = None
    """A judge of an installed package, by the name of its entry point; it runs in the gateway's own process."""
    options: dict[Name, Any] = Field(default_factory=dict)
    """What that package takes."""
    instruction: Annotated[str, Field(max_length=32_768)] = ""
    """What a model is told beside the criteria."""
    tools: JudgeToolsSettings = Field(default_factory=JudgeToolsSettings)
    limits: JudgeLimitsSettings = Field(default_factory=JudgeLimitsSettings)
    network: Annotated[list[Host], Field(max_length=MAX_HOSTS)] = Field(default_factory=list)
    """The only hosts that its programs reach, over TLS by `HTTPS_PROXY`; `["*"]`: this machine's whole network."""
    programs: list[Folder] = Field(default_factory=list)
    """Folders that its programs see read-only beside the mounts; `bin` in them is searched."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if sum(one is not None for one in (self.model, self.command, self.extension)) != 1:
            raise ValueError("a judge has exactly one of `model`, `command` and `extension`")
        if self.options and self.extension is None:
            raise ValueError("`options` are for the judge that `extension` names")
        if "*" in self.network and len(self.network) > 1:
            raise ValueError("`network` lists hosts, or `*` alone")
        return self


class JudgeSelectSettings(Section):
    """Which calls an entry is about; every member that is given must hold."""

    tool: Names | None = None
    """Tools by name, or with `*`."""
    server: Names | None = None
    """Servers by name, or with `*`."""
    category: Name | None = None
    """Tools of this category."""
    effect: Effect | None = None
    """Calls with this effect, declared or seen."""
    tier: Tier | None = None
    """Calls of this tier or a higher one."""
    unregistered: bool | None = None
    """Calls of tools that are not registered, or only those that are."""


class ValidatorSettings(Section):
    """One entry of `judges`: who looks at which calls, and what is enough. The first that says no ends the review."""

    name: Name
    """What findings and receipts call it."""
    type: Literal["judge", "panel"] | None = None
    """`panel` asks several judges at the same time. Follows from the other members where it is left out."""
    select: JudgeSelectSettings = Field(default_factory=JudgeSelectSettings)
    judge: Name | None = None
    """The file of a judge, relative to this one."""
    judges: Annotated[list[Name], Field(min_length=2, max_length=MAX_PANEL)] | None = None
    """The files of a panel's judges."""
    model: JudgeModelSettings | None = None
    """A judge without a file: this model, with the criteria alone."""
    command: Annotated[list[str], Field(min_length=1)] | None = None
    """A judge without a file: this program."""
    extension: Name | None = None
    """A judge without a file: the one that an installed package brings under this name."""
    options: dict[Name, Any] = Field(default_factory=dict)
    """What that package takes."""
    criteria: Annotated[str, Field(max_length=32_768)] = ""
    """What a call has to meet."""
    min_score: Share = 0.7
    """The least score that is enough."""
    min_confidence: Share = 0.0
    """The least confidence that is enough; both must hold."""
    timeout_seconds: Annotated[float, Field(gt=0, le=3_600, strict=False)] = 300.0
    """How long each of its judges takes at most."""
    consensus: Literal["weighted_average", "majority", "unanimous", "best_of_n"] = "unanimous"
    """What a panel comes to: scores weighted by confidence, more than half, all, or the most confident one."""
    min_judges: Annotated[int, Field(ge=1, le=MAX_PANEL)] | None = None
    """How many judges of a panel must answer well; all where it is left out."""
    min_agreement: Share = 0.0
    """The least share of a panel's judges on one side; below it a person decides."""
    cache: Annotated[int, Field(ge=0, le=86_400)] = 0
    """For so many seconds, a verdict counts again for the same call, criteria, judge and files."""


class CeilingSettings(Section):
    """What may be spent in one day (UTC)."""

    tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens, sent and received."""
    cost: Annotated[float, Field(ge=0, strict=False)] | None = None
    """Cost, in the currency of the prices."""


class JudgingSettings(Section):
    """What holds for all judges."""

    mode: Literal["enforce", "observe"]
    """Whether what they say counts, or is only recorded."""
    feedback: Literal["reasoning", "code"]
    """What the agent is told of a rejected call: the judge's reasoning, or the reason's own sentence."""
    truncated: Literal["reject", "judge"]
    """What happens to a call too large to be shown in full: it is rejected, or judged by what is shown, which is
    everything that it runs, opens or reaches; where that alone is too large, it is rejected as well."""
    on_unavailable: Literal["block", "require_approval"]
    """What happens while a judge cannot be asked: refusal, or a person. Never neither."""
    payload: Size
    """Bytes of arguments that are shown in full."""
    recent: Annotated[int, Field(ge=0, le=200)]
    """How many earlier calls of the session are shown."""
    concurrency: Annotated[int, Field(ge=1, le=256)]
    """Judges that run at a time."""
    probes: Annotated[int, Field(ge=1, le=1_000)]
    """Denied variants of one agent's calls to one tool in five minutes, beyond which no judge is started."""
    breaker_failures: Annotated[int, Field(ge=1, le=1_000)]
    """Failures in a row after which a provider is not asked for a while."""
    breaker_pause: Timeout
    """How long it is not asked then."""
    ceilings: dict[Literal["judge", "agent", "session"], CeilingSettings]
    """What each judge, agent or session may spend before its calls go to a person."""
