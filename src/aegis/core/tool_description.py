"""What a server says about one of its tools: the text that a model reads before it chooses a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field

from aegis.core.canonical import canonical, sha256

MEMBERS: Final = ("title", "description", "input_schema", "output_schema", "annotations")


class ToolDescription(Struct, frozen=True, kw_only=True):
    """One tool as it was announced. Nothing in it is trusted: whoever runs the server wrote it."""

    name: str
    server: str | None = None
    title: str = ""
    description: str = ""
    input_schema: Any = None
    output_schema: Any = None
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """`server/name`, or the name alone where the tool has no server."""
        return self.name if self.server is None else f"{self.server}/{self.name}"

    def members(self) -> dict[str, Any]:
        """What is announced beside the name, by member; what is empty is left out."""
        values = {member: getattr(self, member) for member in MEMBERS}
        return {member: dict(value) if member == "annotations" else value for member, value in values.items() if value}

    def digests(self) -> dict[str, str]:
        """The digest of every member that is there, over its canonical JSON.

        Raises `InvalidCall` where a member is not JSON.
        """
        return {member: sha256(canonical(value)) for member, value in self.members().items()}

    @property
    def digest(self) -> str:
        """One digest of name, server and all members; it changes with any change that a model could see."""
        return sha256(canonical({"name": self.name, "server": self.server, **self.members()}))
