"""How the effect of a held call is looked at before a person answers; read from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

PreviewKind = Literal["shell", "file", "sql", "http", "card", "endpoint"]
FileOperation = Literal["write", "append", "delete", "move", "copy", "mkdir"]

LABEL: Final = "one run, under other conditions"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolPreview:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class PreviewRules:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Looked:
    """One held call to be looked at: what would run, and where. `tool_preview` is the registry's word, if any."""

    tool: str
    server: str | None
    arguments: dict[str, Any]
    mounts: tuple[str, ...]
    dryrun: bool
    rules: PreviewRules
    tool_preview: ToolPreview | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
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
