"""What servers say about their tools, read from lists as servers and model providers spell them.

A description is the text that a model reads before it chooses a call. Read are an answer to MCP's `tools/list`
(whole, or its `result`), and the `tools` of a request to OpenAI (chat completions and responses), Anthropic, Gemini and
Bedrock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field

from aegis.core.canonical import canonical, sha256
from aegis.errors import InvalidCall

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


_SCHEMAS = ("inputSchema", "input_schema", "parameters", "parametersJsonSchema")
_INNER = ("function", "toolSpec")
_GROUPS = ("functionDeclarations", "function_declarations")


def read_tools(document: Any, *, server: str | None = None) -> tuple[ToolDescription, ...]:
    """Every tool of the document, in its order. Raises `InvalidCall` naming what is not a tool, and where."""
    return tuple(_tools(document, "", server))


def _tools(document: Any, pointer: str, server: str | None) -> Iterator[ToolDescription]:
    if isinstance(document, Mapping):
        for member in ("result", "tools", *_GROUPS):
            if member in document and "name" not in document:
                yield from _tools(document[member], f"{pointer}/{member}", server)
                return
        yield _tool(document, pointer, server)
    elif isinstance(document, list):
        for index, item in enumerate(document):
            yield from _tools(item, f"{pointer}/{index}", server)
    else:
        raise InvalidCall(f"there is no list of tools at `{pointer or '/'}`", hint="give an answer to `tools/list`")


def _tool(item: Mapping[str, Any], pointer: str, server: str | None) -> ToolDescription:
    for member in _INNER:
        if isinstance(item.get(member), Mapping):
            return _tool(item[member], f"{pointer}/{member}", server)
    name = item.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidCall(f"the tool at `{pointer or '/'}` has no `name`", hint="give an answer to `tools/list`")
    texts = {member: item.get(member) or "" for member in ("title", "description")}
    for member, value in texts.items():
        if not isinstance(value, str):
            raise InvalidCall(f"`{member}` of the tool at `{pointer or '/'}` is not a text")
    annotations = item.get("annotations") or {}
    if not isinstance(annotations, Mapping):
        raise InvalidCall(f"`annotations` of the tool at `{pointer or '/'}` is not an object")
    return ToolDescription(
        name=name,
        server=server,
        title=texts["title"],
        description=texts["description"],
        input_schema=_schema(item),
        output_schema=item.get("outputSchema"),
        annotations=annotations,
    )


def _schema(item: Mapping[str, Any]) -> Any:
    found = next((item[member] for member in _SCHEMAS if member in item), None)
    # Bedrock wraps the schema once more.
    return found["json"] if isinstance(found, Mapping) and found.keys() == {"json"} else found
