"""`aegis tools`: what tools say about themselves is scanned, pinned, compared with what it was, and declared."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
import typer

from aegis.cli import output
from aegis.cli.options import ConfigFile, Home, Json, home_of
from aegis.cli.output import Column, columns, note, print_json, print_line, show_list
from aegis.errors import InvalidCall

if TYPE_CHECKING:
    from aegis.policy.dataflow.drafting import SeenTool
    from aegis.policy.guards.descriptions import Pins
    from aegis.wire.tool_lists import ToolDescription

app = typer.Typer(help="What tools say about themselves: scanned and pinned.")

Source = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE | -- COMMAND",
        help="an answer to `tools/list` (`-`: standard input), or the command of an MCP server after `--`",
    ),
]
Server = Annotated[
    str | None, typer.Option("--server", metavar="NAME", help="the server's name, as calls of its tools will carry it")
]
PinFile = Annotated[
    Path | None, typer.Option("--pins", metavar="FILE", help="the file of pins; default: tool-pins.json in the home")
]
Folders = Annotated[
    list[Path] | None, typer.Option("--rules", metavar="DIR", help="a folder of rules beside the built-in ones")
]

_FINDINGS = columns("tool", ("path", "PLACE"), "rule", "outcome", "message")
_CHANGES = (
    Column(title="TOOL", member="tool"),
    Column(title="CHANGE", member="change"),
    Column(title="MEMBERS", member="members", write=", ".join),
)


@app.command()
def scan(
    source: Source = None,
    server: Server = None,
    folders: Folders = None,
    home: Home = None,
    pins: PinFile = None,
    as_json: Json = False,
) -> int:
    """Scan descriptions and schemas for instructions to the model: exit 1 where a finding is more than a note."""
    tools = _read(source, server)
    found = _scan(tools, _load(_pin_file(home, pins)), folders)
    show_list(found, _FINDINGS, as_json=as_json, empty=f"{len(tools)} tools, nothing found")
    note(f"{len(tools)} tools, {len(found)} findings")
    return output.REFUSED if any(one["outcome"] != "allow" for one in found) else output.DONE


@app.command()
def pin(
    source: Source = None,
    server: Server = None,
    folders: Folders = None,
    home: Home = None,
    pins: PinFile = None,
    replace: Annotated[bool, typer.Option("--replace", help="accept tools that differ from their pins")] = False,
    accept_findings: Annotated[
        bool, typer.Option("--unsafe-accept-findings", help="pin tools in which the scan finds something")
    ] = False,
    as_json: Json = False,
) -> int:
    """Accept what tools say now. Refuses, with exit 1, what the scan finds and what differs from an older pin."""
    from aegis.policy.guards.descriptions import compare

    tools, file = _read(source, server), _pin_file(home, pins)
    old = _load(file)
    found = [one for one in _scan(tools, old, folders) if one["outcome"] != "allow"]
    if found and not accept_findings:
        show_list(found, _FINDINGS, as_json=as_json, empty="")
        note("nothing was pinned: read the findings, then use --unsafe-accept-findings if they are harmless")
        return output.REFUSED
    changed = [change for change in compare(old, tools, server=server) if change.kind == "changed"]
    if changed and not replace:
        show_list([_change(change) for change in changed], _CHANGES, as_json=as_json, empty="")
        note("nothing was pinned: these tools changed since they were accepted; use --replace to accept the change")
        return output.REFUSED
    _write(file, old.merged(tools))
    note(f"{len(tools)} tools pinned in {file}")
    return output.DONE


@app.command()
def diff(
    source: Source = None, server: Server = None, home: Home = None, pins: PinFile = None, as_json: Json = False
) -> int:
    """Compare what tools say now with their pins: exit 1 where anything differs."""
    from aegis.policy.guards.descriptions import compare

    tools = _read(source, server)
    changes = [_change(change) for change in compare(_load(_pin_file(home, pins)), tools, server=server)]
    show_list(changes, _CHANGES, as_json=as_json, empty=f"{len(tools)} tools, all as pinned")
    return output.REFUSED if changes else output.DONE


@app.command()
def draft(
    source: Source = None,
    server: Server = None,
    log: Annotated[bool, typer.Option("--log", help="also tools of calls on record, by their names")] = False,
    home: Home = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> int:
    """Write declarations of tools for a person to confirm: what each does, what its arguments are, whose word it gives.

    They are derived from names, schemas and formats; tools that the configuration declares are left out.
    """
    from aegis.config.config import load_config
    from aegis.policy.dataflow.drafting import SeenTool, draft_of, names_of_schema

    seen: dict[str, SeenTool] = {}
    if source or not log:
        for tool in _read(source, server):
            schema = tool.input_schema if isinstance(tool.input_schema, dict) else {}
            properties = schema.get("properties")
            seen[tool.identity] = SeenTool(
                name=tool.name,
                arguments=properties if isinstance(properties, dict) else {},
                results=names_of_schema(tool.output_schema),
            )
    if log:
        seen = {**_logged(home_of(home), config), **seen}
    declared = load_config(config).settings.tools if config is not None else {}
    drafts, left = {}, []
    for identity, found in seen.items():
        if identity in declared:
            continue
        entry = draft_of(found)
        if _is_valid(identity, found.name, entry):
            drafts[identity] = entry
        else:
            left.append(identity)
    if as_json:
        print_json({"tools": drafts, "left_out": left})
    else:
        print_line(_written(drafts))
    note(f"{len(drafts)} tools drafted: read each line, correct it, and put it into `aegis.yaml`")
    if left:
        note(f"{len(left)} tools left out: an entry of the configuration cannot be named or written so")
    return output.DONE


def _is_valid(identity: str, name: str, entry: dict[str, Any]) -> bool:
    """Whether the configuration can say this of exactly this tool: a name with `*` would be that of others."""
    from pydantic import ValidationError

    from aegis.config.tools import ToolSettings
    from aegis.core.text import has_controls

    if "*" in identity or "/" in name or has_controls(identity):
        return False
    try:
        ToolSettings.model_validate(entry)
    except ValidationError:
        return False
    return True


def _written(drafts: dict[str, dict[str, Any]]) -> str:
    """The drafts as a configuration file; every name is quoted, as somebody else chose it."""
    if not drafts:
        return "version: 1\ntools: {}"
    lines = ["version: 1", "tools:"]
    for identity, entry in drafts.items():
        lines.append(f"  {_quoted(identity)}:")
        lines.append(f"    risk: {entry['risk']}")
        lines.append(f"    does: {entry['does']}" if "does" in entry else "    # does: nothing in its name says")
        for member in ("arguments", "result"):
            if member in entry:
                lines.append(f"    {member}:")
                lines.extend(f"      {_quoted(name)}: {_flow(value)}" for name, value in entry[member].items())
    return "\n".join(lines)


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(name)}: {_flow(inner)}" for name, inner in value.items()) + "}"
    return "true" if value is True else str(value)


def _quoted(name: str) -> str:
    import json

    return name if name.isidentifier() and name.isascii() else json.dumps(name)


def _logged(home: Path, config: Path | None) -> dict[str, SeenTool]:
    """The tools of calls on record, newest first: the names of their arguments and of what they gave."""
    from aegis.cli.opening import existing
    from aegis.core.ports import Search
    from aegis.policy.dataflow.drafting import SeenTool, names_in

    arguments: dict[str, dict[str, Any]] = {}
    results: dict[str, tuple[str, ...]] = {}
    with existing(home, config) as state, state.store.reader() as reader:
        for entry in reader.search(Search(limit=MAX_LOGGED)):
            if entry.kind not in {"decision", "result"}:
                continue
            server = orjson.loads(entry.body).get("server")
            identity = entry.tool if server is None else f"{server}/{entry.tool}"
            known = arguments.setdefault(identity, {}) if entry.kind == "decision" else None
            if (known is not None and len(known) >= MAX_NAMES) or (known is None and identity in results):
                continue
            stored = reader.payload(entry.index)
            payload = {} if stored is None else orjson.loads(state.keyring.open_payload(stored.key, stored.body))
            if known is None:
                results[identity] = names_in(_structured(payload.get("result")))
            else:
                known.update(dict.fromkeys(list(payload.get("arguments", {}))[:MAX_NAMES]))
    return {
        identity: SeenTool(name=identity.rpartition("/")[2], arguments=found, results=results.get(identity, ()))
        for identity, found in sorted(arguments.items())
    }


def _structured(result: Any) -> Any:
    """A result, read once more where it is JSON in a text."""
    if isinstance(result, str) and result[:1] in {"{", "["}:
        with suppress(ValueError):
            return orjson.loads(result)
    return result


def _read(source: list[str] | None, server: str | None) -> tuple[ToolDescription, ...]:

    words = source or []
    # One word that is a file, or `-`, is a list; everything else is the command of a server.
    if len(words) == 1 and (words[0] == "-" or Path(words[0]).suffix == ".json"):
        return read_list(words[0], (), server=server)
    return read_list(None, words, server=server)


def _scan(tools: tuple[ToolDescription, ...], pins: Pins, folders: list[Path] | None) -> list[dict[str, Any]]:
    from aegis.core.names import split_selector
    from aegis.core.text import mask
    from aegis.detect.rules import builtin_folder, load
    from aegis.detect.rules.cache import default_cache_folder
    from aegis.detect.rules.scanner import Scanner
    from aegis.policy.guards.descriptions import DescriptionScanner
    from aegis.wire.tool_lists import ToolDescription

    scanner = Scanner(load(builtin_folder(), *(folders or ())), cache=default_cache_folder())
    here = {tool.identity for tool in tools}
    halves = [split_selector(name) for name in pins.tools if name not in here]
    known = [ToolDescription(name=name, server=server) for server, name in halves]
    return [
        {
            "tool": found.tool.identity,
            "path": found.finding.path,
            "rule": found.finding.rule,
            "category": found.finding.category,
            "severity": found.finding.severity.word,
            "outcome": found.finding.outcome.word,
            "message": found.finding.message,
            "evidence": mask(found.finding.evidence),
        }
        for found in DescriptionScanner(scanner).scan(tools, known=known)
    ]


def _change(change: Any) -> dict[str, Any]:
    return {"tool": change.tool, "change": change.kind, "members": list(change.members)}


def _pin_file(home: Path | None, pins: Path | None) -> Path:
    return pins or home_of(home) / "tool-pins.json"


def _load(file: Path) -> Pins:
    from aegis.core.json import parse
    from aegis.policy.guards.descriptions import Pins

    try:
        return Pins.from_document(parse(file.read_bytes()))
    except FileNotFoundError:
        return Pins()
    except InvalidCall as error:
        raise InvalidCall(f"`{file}`: {error.message}", hint=error.hint) from error


def _write(file: Path, pins: Pins) -> None:
    from aegis.core.text import json_text

    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = file.with_name(file.name + ".new")
    beside.write_text(json_text(pins.document(), pretty=True) + "\n", encoding="utf-8")
    # Whoever reads the pins sees the old ones or the new ones, never half of them.
    beside.replace(file)


MAX_LOGGED: Final = 10_000  # receipts, newest first, whose tools are drafted
MAX_NAMES: Final = 32  # arguments of one tool
MAX_BYTES: Final = 16 * 1024 * 1024
ASK_SECONDS: Final = 60.0  # a server that is started by a package manager may have to be fetched first
MAX_PAGES: Final = 1_000


def read_list(source: str | None, command: Sequence[str], *, server: str | None) -> tuple[ToolDescription, ...]:
    """Give the tools that the file `source` (`-`: standard input) lists, or that the MCP server `command` announces."""
    from aegis.wire.tool_lists import read_tools

    if bool(source) == bool(command):
        raise InvalidCall(
            "give one list of tools", code="usage", hint="`aegis tools scan FILE`, or `aegis tools scan -- COMMAND`"
        )
    document = asyncio.run(_ask(command)) if command else _parse(source or "")
    return read_tools(document, server=server)


def _parse(source: str) -> Any:
    from aegis.core.json import parse

    data = sys.stdin.buffer.read(MAX_BYTES + 1) if source == "-" else _bytes(Path(source))
    if len(data) > MAX_BYTES:
        raise InvalidCall(f"the list of tools is longer than {MAX_BYTES} bytes")
    return parse(data)


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidCall(f"`{path}` cannot be read: {error.strerror}", code="not_found") from error


async def _ask(command: Sequence[str]) -> list[dict[str, Any]]:
    try:
        from mcp import Client, MCPError, StdioServerParameters
    except ImportError as error:
        raise InvalidCall("asking a server needs the package `mcp`", hint='pip install "aegis-guard[mcp]"') from error
    parameters = StdioServerParameters(command=command[0], args=list(command[1:]))
    tools: list[dict[str, Any]] = []
    cursor: str | None = None
    try:
        async with asyncio.timeout(ASK_SECONDS), Client(parameters, read_timeout_seconds=ASK_SECONDS) as client:
            for _ in range(MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in page.tools]
                cursor = page.next_cursor
                if cursor is None:
                    return tools
    except (OSError, TimeoutError, MCPError, ExceptionGroup) as error:
        raise InvalidCall(
            f"the server `{command[0]}` did not list its tools: {type(error).__name__}", code="unavailable"
        ) from error
    raise InvalidCall(f"the server `{command[0]}` lists its tools on more than {MAX_PAGES} pages")
