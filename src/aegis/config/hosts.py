"""The tools of the hosts that many people use, as data: `data/hosts/*.yaml`, one file a host, pinned to its version.

What an argument is for is taken from there only where a call has no server, carries a name that a host gives a tool,
and no argument that this tool does not have. The operator's word about a tool comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, Literal

import yaml
from pydantic import Field

from aegis.config.fields import Section
from aegis.core.text import TextRole
from aegis.policy.model import HostTool

_Use = Literal["inert", "plain", "content", "path", "command", "url"]
# What is `plain` says nothing: the name of the argument, and the value, say what it is for.
_ROLES: Final[Mapping[_Use, TextRole]] = {
    "inert": "document", "content": "content", "path": "path", "command": "command", "url": "url",
}  # fmt: skip


class _Tool(Section):
    name: str
    arguments: dict[str, _Use]
    """What the arguments are for, with the names of what stands inside of them."""
    reads: Literal["workspace", ""] = ""
    """Whether its results are what stands in the folder that the agent works in."""


class HostFile(Section):
    """One file: a host, the version that was looked at, where its tools are documented, and they."""

    host: str
    title: str
    version: str
    documents: str
    tools: list[_Tool] = Field(min_length=1)


@cache
def host_tools() -> Mapping[str, tuple[HostTool, ...]]:
    """The tools of all known hosts by their names, which some hosts share; `FileNotFoundError` where there are none."""
    found: dict[str, tuple[HostTool, ...]] = {}
    for file in host_files():
        for tool in file.tools:
            known = HostTool(
                host=file.host,
                arguments=frozenset(tool.arguments),
                roles={name: _ROLES[use] for name, use in tool.arguments.items() if use != "plain"},
                reads_workspace=tool.reads == "workspace",
            )
            found[tool.name] = (*found.get(tool.name, ()), known)
    return found


def host_files() -> list[HostFile]:
    """Every file of `data/hosts`, checked."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_data" / "hosts", package.parent.parent / "data" / "hosts"):
        if folder.is_dir():
            return [
                HostFile.model_validate(yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader))
                for path in sorted(folder.glob("*.yaml"))
            ]
    raise FileNotFoundError("the tools of hosts are missing from this installation")
