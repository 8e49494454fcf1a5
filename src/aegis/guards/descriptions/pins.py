"""Pins: what each tool said when a person accepted it. A tool that says something else later is another tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from aegis.core.tool_description import MEMBERS, ToolDescription
from aegis.errors import InvalidCall

VERSION: Final = 1
ChangeKind = Literal["added", "changed", "removed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pins:
    """Accepted tools: by `server/name` the digest of every member that was announced."""

    tools: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, tools: Iterable[ToolDescription]) -> Pins:
        """Pins of these tools. Raises `InvalidCall` where one is announced twice."""
        pinned: dict[str, Mapping[str, str]] = {}
        for tool in tools:
            if tool.identity in pinned:
                raise InvalidCall(f"the tool `{tool.identity}` is announced twice", hint="pin each server by itself")
            pinned[tool.identity] = tool.digests()
        return cls(tools=pinned)

    @classmethod
    def from_document(cls, document: Any) -> Pins:
        """Reads what `document` wrote. Raises `InvalidCall` for anything else: a damaged file pins nothing."""
        if not isinstance(document, dict) or document.keys() != {"version", "tools"} or document["version"] != VERSION:
            raise InvalidCall(f"not a file of pins of version {VERSION}", hint="make one with `aegis tools pin`")
        tools = document["tools"]
        if not isinstance(tools, dict) or not all(_is_pin(pin) for pin in tools.values()):
            raise InvalidCall("a pin is not an object of digests", hint="make the file anew with `aegis tools pin`")
        return cls(tools=tools)

    def document(self) -> dict[str, Any]:
        """The pins as JSON, in the order of their names."""
        return {"version": VERSION, "tools": {name: dict(self.tools[name]) for name in sorted(self.tools)}}

    def merged(self, tools: Iterable[ToolDescription]) -> Pins:
        """These pins, with those of `tools` in place of older ones of the same names."""
        return Pins(tools={**self.tools, **Pins.of(tools).tools})


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """How one tool differs from its pin; `members` names what changed (empty for added and removed)."""

    tool: str
    kind: ChangeKind
    members: tuple[str, ...] = ()


def compare(pins: Pins, tools: Iterable[ToolDescription], *, server: str | None = None) -> list[Change]:
    """Every difference, in the order of names. Pins of other servers than `server` are not called removed."""
    now = Pins.of(tools).tools
    changes: list[Change] = []
    for name in sorted(now.keys() | pins.tools.keys()):
        old, new = pins.tools.get(name), now.get(name)
        if new is None:
            if _server_of(name) == server:
                changes.append(Change(tool=name, kind="removed"))
        elif old is None:
            changes.append(Change(tool=name, kind="added"))
        elif old != new:
            members = tuple(member for member in MEMBERS if old.get(member) != new.get(member))
            changes.append(Change(tool=name, kind="changed", members=members))
    return changes


def _server_of(identity: str) -> str | None:
    server, slash, _ = identity.rpartition("/")
    return server if slash else None


def _is_pin(pin: Any) -> bool:
    return isinstance(pin, dict) and all(name in MEMBERS and isinstance(value, str) for name, value in pin.items())
