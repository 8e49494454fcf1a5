"""The section `previews`, and what a tool says about looking at its effect."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from aegis.core.pointer import tokens
from aegis.core.previewing import FileOperation
from aegis.pipeline.fields import Name, Section, Size, Timeout, written

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
