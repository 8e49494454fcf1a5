"""The section `missions`: which missions count here, and what calls under them cost."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from aegis.config.fields import Description, Mode, Moment, Name, Section, Size, Timeout, unlike, written
from aegis.core.approval import FileOperation
from aegis.core.json import tokens
from aegis.core.names import Selector
from aegis.core.outcome import outcome_of
from aegis.errors import TokenInvalid
from aegis.keys.jws import decode
from aegis.policy.guards.options import ContentOptions, DlpPolicy, InjectedPolicy, RuleOverride

# The section `previews`, and what a tool says about looking at its effect.

MAX_SECONDS = 120  # a look holds a thread and a copy of the workspace: bounds how long


def _pointer(value: str) -> str:
    tokens(value)
    return value


def _absolute(value: str) -> str:
    path = PurePosixPath(value)
    if not path.is_absolute() or ".." in path.parts or path == PurePosixPath("/"):
        raise ValueError("a folder is given by its absolute path, and is not the root")
    return str(path)


def _below(value: str) -> str:
    return value if value == "/" else _absolute(value)


def _database(value: str) -> str:
    if value.startswith("sqlite:///"):
        _absolute(value.removeprefix("sqlite:///"))
    elif value and not value.startswith(("postgresql://", "${env:", "file:")):
        raise ValueError("a database is `sqlite:////FILE`, `postgresql://...`, `${env:NAME}` or `file:PATH`")
    return value


def _duration(value: int) -> int:
    if value > MAX_SECONDS:
        raise ValueError(f"a preview takes at most {MAX_SECONDS} seconds")
    return value


Pointer = Annotated[str, AfterValidator(_pointer), written("a JSON pointer: `/command`")]
Folder = Annotated[str, AfterValidator(_absolute), written("an absolute path")]


Mountable = Annotated[str, AfterValidator(_below), written("an absolute path")]


class ToolPreviewSettings(Section):
    """How the effect of a tool's held calls is looked at. Without it, the arguments' roles decide."""

    kind: Literal["shell", "file", "sql", "http", "card", "endpoint"]
    """`card` sums up; `endpoint` asks the tool's own dry run, where `dryrun_supported` is set."""
    operation: FileOperation | None = None
    """What a `file` tool does."""
    arguments: dict[
        Literal["command", "cwd", "path", "to", "content", "statement", "method", "url", "headers", "body"], Pointer
    ] = Field(default_factory=dict)
    """Where the call holds what is needed."""
    title: Annotated[str, Field(max_length=200)] = ""
    """The heading of a card."""
    fields: dict[Name, Pointer] = Field(default_factory=dict)
    """The lines of a card, in order."""
    url: str = ""
    """The endpoint that is posted the call with `dry_run: true`."""

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Self:
        if self.kind == "card" and not self.fields:
            raise ValueError("a card needs `fields`")
        if self.kind == "endpoint" and not self.url.startswith(("https://", "http://")):
            raise ValueError("an endpoint needs `url`, an address that begins with `https://`")
        return self


class PreviewSettings(Section):
    """Looking at the effect of held calls before a person answers."""

    enabled: bool
    """Whether it is done at all."""
    workspace: Literal[""] | Folder
    """Where agents work, for sessions that name no mounts; commands and file operations run on a copy of it."""
    programs: list[Folder]
    """Further folders that the sandbox sees read-only, for programs; `bin` in them is searched."""
    database: Annotated[str, AfterValidator(_database), written("a URL, `${env:NAME}` or `file:PATH`")]
    """The database for previews of SQL: a SQLite file, which is copied, or PostgreSQL under a restricted role."""
    statements: list[Literal["select", "insert", "update", "delete", "merge", "create", "alter", "drop", "truncate"]]
    """The kinds of SQL that are tried."""
    timeout: Annotated[Timeout, AfterValidator(_duration)]
    """How long one look takes at most."""
    memory: Annotated[int, Field(ge=16, le=16_384)]
    """Memory of one look, in MiB."""
    output: Size
    """Output that is kept of each stream."""
    mounts: list[Mountable]
    """Folders below which sessions may name mounts; the system's own, and Aegis's, are refused in any case."""
    resolve: bool
    """Whether host names that a call supplies are looked up."""
    private: list[Name]
    """Hosts of dry-run endpoints that lie at private addresses."""


# The section `guards.content`: how the content guards answer what they find.

RuleOutcome = Literal["allow", "sanitize", "require_approval", "block"]


class ExceptionSettings(Section):
    """A rule that does not count for one tool (at one place); says why, and may expire."""

    rule: Name
    """The id of a rule, or several with `*`; not most of them at once."""
    tool: Name
    """The tool, as a selector; `*` is every tool."""
    path: str = ""
    """The place in the arguments, as a JSON pointer; empty is everywhere."""
    reason: Description = Field(min_length=1)
    """Why, for the next reader."""
    expires: Moment | None = None
    """When it ends."""

    def compiled(self) -> RuleOverride:
        return RuleOverride(
            rule=self.rule,
            tool=Selector(self.tool),
            path=self.path,
            reason=self.reason,
            expires=self.expires,
        )


class OverrideSettings(ExceptionSettings):
    """A rule whose findings count for more or less on one tool (at one place)."""

    outcome: RuleOutcome
    """What its findings demand instead."""

    def compiled(self) -> RuleOverride:
        return RuleOverride(
            rule=self.rule,
            tool=Selector(self.tool),
            path=self.path,
            reason=self.reason,
            expires=self.expires,
            outcome=outcome_of(self.outcome),
        )


class ContentSettings(Section):
    """Options of the content guards, for calls and results."""

    mode: Mode
    """Whether its reports count, are only recorded, or are never asked for."""
    egress: DlpPolicy
    """Secrets and personal data that leave: masked, held for an approval, or noted."""
    inside: DlpPolicy
    """The same where they stay inside."""
    injected: InjectedPolicy
    """Instructions found in results: block the result (a likely one is fenced), remove them, or fence them in."""
    workspace: InjectedPolicy
    """The same for what coding agents of known hosts read of the folder that they work in."""
    inside_hosts: list[Name]
    """Hosts that count as inside, with `*`."""
    workspaces: list[Folder]
    """Folders of this machine that agents work in: a link that leads out of them is blocked; relative paths start at
    the first."""
    exceptions: list[ExceptionSettings]
    """Rules that do not count somewhere."""
    overrides: list[OverrideSettings]
    """Rules that count for more or less somewhere."""

    def compiled(self) -> ContentOptions:
        return ContentOptions(
            egress=self.egress,
            inside=self.inside,
            injected=self.injected,
            workspace=self.workspace,
            inside_hosts=tuple(self.inside_hosts),
            overrides=tuple(item.compiled() for item in (*self.exceptions, *self.overrides)),
        )


_KEY_BYTES = 32


def public_key(text: str) -> bytes:
    """The 32 bytes of an Ed25519 public key in base64url without padding; raises `ValueError` otherwise."""
    try:
        data = decode(text.rstrip("=").encode("ascii"))
    except (TokenInvalid, UnicodeEncodeError) as error:
        raise ValueError("a public key is 32 bytes in base64url") from error
    if len(data) != _KEY_BYTES:
        raise ValueError("a public key is 32 bytes in base64url")
    return data


def _public_key(text: str) -> str:
    public_key(text)
    return text


def _currency(text: str) -> str:
    if len(text) != 3 or not text.isascii() or not text.isupper():
        raise ValueError("a currency is three capital letters, such as `EUR`")
    return text


PublicKey = Annotated[str, AfterValidator(_public_key)]
Currency = Annotated[str, AfterValidator(_currency)]
Amount = Annotated[int, Field(ge=0, le=2**53 - 1)]


class QuoteSettings(Section):
    """What one call of a tool costs at worst, as the operator was told."""

    tool: Name
    """The tool, as a selector."""
    money: dict[Currency, Amount] = Field(default_factory=dict)
    """Money in minor units (cents), by currency."""
    tokens: Amount = 0
    """Tokens of a model."""


class MissionSettings(Section):
    """Missions of this deployment."""

    required: bool
    """Whether calls that belong to no mission are refused."""
    audience: Name
    """The name of this deployment, which every mission must carry as `aud`."""
    issuers: Annotated[dict[Name, PublicKey], AfterValidator(unlike)]
    """Public keys of issuers beside this deployment itself, by the name that their missions and lists carry as `iss`:
    Ed25519, base64url."""
    tool_keys: dict[Name, PublicKey]
    """Public keys of tools that sign their results, by selector; results of such a tool must be signed."""
    quotes: list[QuoteSettings]
    """What calls cost at worst; a tool without a quote costs nothing."""
    file_system: Literal["shared", "apart"]
    """`shared` follows links on this machine before a path counts as inside of a scope."""
