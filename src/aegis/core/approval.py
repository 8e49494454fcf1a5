"""What a configuration says about held calls: who may release one, how long it waits, and its preview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct, field, structs

from aegis.core.principal import Principal

PreviewKind = Literal["shell", "file", "sql", "http", "card", "endpoint"]
FileOperation = Literal["write", "append", "delete", "move", "copy", "mkdir"]

LABEL: Final = "one run, under other conditions"


class ToolPreview(Struct, frozen=True, kw_only=True):
    """What the registry says about looking at one tool's effect.

    `arguments` maps what a kind needs (`command`, `cwd`, `path`, `to`, `content`, `statement`, `method`,
    `url`, `headers`, `body`) to JSON pointers of the call. `title` and `fields` make up a card;
    `url` is the tool's own endpoint for dry runs.
    """

    kind: PreviewKind
    operation: FileOperation | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    url: str = ""


class PreviewRules(Struct, frozen=True, kw_only=True):
    """What holds for every preview of a deployment.

    `workspace` is where agents work, for sessions that name no mounts; `programs` are further read-only
    folders with programs; `database` is where SQL is tried, a reference or a URL. `statements` are the
    kinds of SQL that are tried. `mounts` are folders below which sessions may name theirs.
    `resolve` allows looking up the host names that a call supplies, and
    `private` names hosts of dry-run endpoints on private addresses.
    """

    enabled: bool = True
    workspace: str = ""
    programs: tuple[str, ...] = ()
    database: str = ""
    statements: frozenset[str] = frozenset()
    seconds: float = 10.0
    memory_bytes: int = 512 * 1_048_576
    output_bytes: int = 64 * 1_024
    mounts: tuple[str, ...] = ()
    resolve: bool = False
    private: frozenset[str] = frozenset()


class Looked(Struct, frozen=True, kw_only=True):
    """One held call to be looked at: what would run, and where. `tool_preview` is the registry's word, if any."""

    tool: str
    server: str | None
    arguments: dict[str, Any]
    mounts: tuple[str, ...]
    dryrun: bool
    rules: PreviewRules
    tool_preview: ToolPreview | None = None


class Preview(Struct, frozen=True, kw_only=True):
    """What a look came to. Only `done` shows an effect; nothing of it is ever a yes.

    `none` means that there is no way to look here, `failed` that looking went wrong; `why` says it in
    one sentence.
    """

    state: Literal["done", "none", "failed"]
    kind: str = ""
    why: str = ""
    effect: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def to_wire(self) -> dict[str, Any]:
        """The member `preview` of an approval."""
        wire: dict[str, Any] = {
            "state": self.state,
            "kind": self.kind,
            "label": LABEL,
            "ms": round(self.seconds * 1_000),
        }
        if self.why:
            wire["why"] = self.why
        if self.state == "done":
            wire["effect"] = self.effect
        return wire


def no_preview(why: str, kind: str = "") -> Preview:
    """There is no way to look at this call here."""
    return Preview(state="none", kind=kind, why=f"no preview: {why}")


MAX_QUORUM = 20  # people that one call may wait for

Narrowing = Literal["fixed", "lower", "remove", "shorten"]
"""What an approver may make of one argument: nothing, a number nearer to zero, nothing at all, fewer words."""


class Notifier(Struct, frozen=True, kw_only=True):
    """Where word of a held call is sent. `url` and `secret` are references or plain text, never resolved here.

    `private` names hosts on private addresses that may be spoken to; `arguments` adds the masked
    arguments to the message. `people` are users of Slack with the accounts that they
    answer as, and `values` shows them the arguments as they are.
    """

    kind: str
    url: str
    secret: str = ""
    private: tuple[str, ...] = ()
    arguments: bool = False
    values: bool = False
    people: tuple[tuple[str, str], ...] = ()


class ApprovalPolicy(Struct, frozen=True, kw_only=True):
    """How one held call is released.

    `approvers` are `role:NAME`, `group:NAME` or `user:NAME`, in the order in which `on_timeout: next`
    passes the call on; an approver must also stand in each list of `also`. `quorum` is how many
    different ones must agree. No value of `on_timeout` allows anything. `always` holds every call of
    the tool, whatever its risk. `separate_owner` bars the session's owner beside the requester.
    `session_grant_seconds` is how long one yes may cover the same call again in its session; 0 is never.
    `narrow` says of single arguments, by name or pointer, what an approver may make of them.
    """

    timeout_seconds: int
    on_timeout: Literal["block", "next"]
    approvers: tuple[str, ...]
    quorum: int = 1
    notify: tuple[Notifier, ...] = ()
    always: bool = False
    also: tuple[tuple[str, ...], ...] = ()
    separate_owner: bool = False
    session_grant_seconds: int = 0
    narrow: tuple[tuple[str, Narrowing], ...] = ()

    @property
    def turns(self) -> int:
        """How many time-outs pass before the call is blocked."""
        return len(self.approvers) if self.on_timeout == "next" else 1

    def names(self, principal: Principal, groups: Mapping[str, frozenset[str]], turn: int) -> bool:
        """Whether this principal may answer in the given turn (from 0); those whose turn came before still may."""
        own = _names(principal, groups)
        asked = self.approvers if self.on_timeout == "block" else self.approvers[: turn + 1]
        return not own.isdisjoint(asked) and all(not own.isdisjoint(names) for names in self.also)

    def elsewhere(self) -> ApprovalPolicy:
        """The policy for the same tool of another server: what it loosens holds for the server that it names alone."""
        return structs.replace(self, narrow=tuple(one for one in self.narrow if one[1] == "fixed"))

    def stricter(self, other: ApprovalPolicy) -> ApprovalPolicy:
        """Both policies at once: whoever answers must stand in both lists, and nothing of either is loosened."""
        also = self.also
        if set(other.approvers) != set(self.approvers):
            also = (*also, other.approvers)
        return structs.replace(
            self,
            timeout_seconds=min(self.timeout_seconds, other.timeout_seconds),
            on_timeout="block" if "block" in (self.on_timeout, other.on_timeout) else "next",
            quorum=max(self.quorum, other.quorum),
            notify=(*self.notify, *(one for one in other.notify if one not in self.notify)),
            also=(*also, *(names for names in other.also if names not in also)),
            separate_owner=self.separate_owner or other.separate_owner,
            session_grant_seconds=min(self.session_grant_seconds, other.session_grant_seconds),
        )


class ApprovalRules(Struct, frozen=True, kw_only=True):
    """What holds for all held calls of a deployment.

    `groups` are people by the name of their group. `hourly_limit` is how many calls one person may
    approve in an hour (`None`: any number), `max_pending` how many calls of one principal may wait.
    `link` is where people read an approval; it carries no authority. `bind_files` binds a held call to
    the files that it names, which needs the agent's file system. `notifies` says that somebody is told of
    held calls, `flow_grants` that approvals offer grants of data flow. `defers` says that calls may be held for want of
    evidence: for `defer_seconds`, in chains of `deferred_chain` calls.
    `slack` are the notifiers whose messages can be answered where they are read.
    """

    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    hourly_limit: int | None = None
    max_pending: int = 1_000
    link: str = ""
    bind_files: bool = True
    notifies: bool = False
    flow_grants: bool = False
    defers: bool = False
    defer_seconds: int = 120
    deferred_chain: int = 16
    slack: tuple[Notifier, ...] = ()


def _names(principal: Principal, groups: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Every name under which a policy can mean this principal."""
    return frozenset(
        {
            f"user:{principal.id}",
            *(f"role:{role}" for role in principal.roles),
            *(f"group:{name}" for name, people in groups.items() if principal.id in people),
        }
    )
